"""The order of a fused group: its calls time step by time step, and the rows that move in its line buffers
(``deeploy.planning.tiling.fused_group``).

Where there are several memories, what comes in for the next tile of a call, and what goes out of the last one, moves while the fused group
computes. An accelerator starts on its tile of a time step before cores compute the call in front of it, so both work at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from deeploy.ir.epilogue import stage_operands
from deeploy.ir.expr import Value, Variable, maximum, plain_value, quotient, remainder
from deeploy.planning.plan import Plan
from deeploy.planning.tiling.fused_group import TIME_STEP, FusedGroup, GroupMember
from deeploy.schedule.ir import (
    TICKETS,
    Address,
    Compute,
    Condition,
    Do,
    Finish,
    Layer,
    Loop,
    Move,
    Node,
    PostProcess,
    Purpose,
    ShiftRows,
    Token,
    Wait,
    guard_nodes,
    merge_guards,
)


def schedule_group(plan: Plan, fused_group: FusedGroup, layers: Sequence[Layer]) -> Layer:
    """The last call of a fused group, which runs all of them."""
    last = layers[fused_group.last]
    time_step = Variable(TIME_STEP, 0, fused_group.time_steps - 1)
    if plan.target.is_flat:
        body = [
            node
            for member in fused_group.members
            for node in guard_nodes(_runs_at(member, time_step), [Do(member.step, "tile", _tile_at(member, time_step))])
        ]
        return replace(last, body=(Loop(time_step, fused_group.time_steps, tuple(body)),))
    members = [_ScheduledMember(plan, fused_group, member, layers[member.step]) for member in fused_group.members]
    group = _GroupSchedule(members, time_step, fused_group.time_steps, fused_group.is_ahead, plan.followers.get(fused_group.last))
    return replace(
        last, body=tuple(group.nested() if fused_group.is_nested else group.body()), others=max(member.layer.cores for member in members)
    )


def slide_rows(plan: Plan, fused_group: FusedGroup, step: int, tile: Value) -> list[Node]:
    """What makes room for a tile of a call in the line buffer that it writes: nothing where there is none, or it holds one tile, or all
    rows."""
    call = plan.program.calls[step]
    buffer = call.operands[call.writes[0]].buffer
    if buffer not in fused_group.line_buffers:
        return []
    one, rows = fused_group.line_buffers[buffer], fused_group.member(step).rows
    if one.rows == rows:
        return []
    full, moved, row = one.rows // rows, one.tiles * rows, one.pitch * plan.program.buffers[buffer].dtype.bytes
    conditions = [Condition(tile, ">=", full), Condition(remainder(tile, one.tiles), "==", full % one.tiles)]
    return guard_nodes(conditions, [ShiftRows(Address(buffer, 0, plan.residences[buffer]), moved * row, (one.rows - moved) * row)])


def _runs_at(member: GroupMember, time_step: Value) -> list[Condition]:
    """Whether a call computes a tile in a time step."""
    rounds = member.trips // member.tiles_per_step
    if rounds == 1:
        return [Condition(time_step, ">=", member.start), Condition(time_step, "<", member.start + member.tiles_per_step)]
    begun = [Condition(time_step, ">=", member.start), Condition(time_step, "<", member.start + member.interval * rounds)]
    if member.tiles_per_step == 1:
        return [*begun, Condition(remainder(time_step, member.interval), "==", member.start % member.interval)]
    return [*begun, Condition(remainder(_steps_since(member, time_step), member.interval), "<", member.tiles_per_step)]


def _steps_since(member: GroupMember, time_step: Value) -> Value:
    """Clocks since a call began; not below 0, where it has not."""
    return maximum(time_step - member.start, 0)


def _tile_at(member: GroupMember, time_step: Value) -> Value:
    """The tile that a call computes in a time step."""
    if member.tiles_per_step == 1:
        return plain_value(quotient(time_step, member.interval) - member.start // member.interval)
    since = _steps_since(member, time_step)
    if member.trips == member.tiles_per_step:
        return since
    return plain_value(quotient(since, member.interval) * member.tiles_per_step + remainder(since, member.interval))


class _ScheduledMember:
    """What a call of a fused group does for a tile, on a machine with several memories."""

    def __init__(self, plan: Plan, fused_group: FusedGroup, member: GroupMember, layer: Layer) -> None:
        self.plan = plan
        self.fused_group = fused_group
        self.member = member
        self.layer = layer
        self.step = member.step
        self.paths = plan.target.outward(plan.target.engine(layer.call.kernel.engine).memory)
        self.fetches = [name for name in ("fetch", "supply") if name in layer.procedures]
        again = {stream.operand: stream.period for stream in layer.tiling.streams if stream.moves > 1 and not stream.is_output}
        late = {*stage_operands(layer.call.node.epilogue)} if layer.team else set()
        staged = (stream for stream in layer.tiling.streams if stream.path != self.paths[0].name and not stream.is_output)
        self.is_staged_again = any(stream.moves > 1 for stream in staged)
        self.is_fetched_again, self.is_supplied_again = bool(again), bool(again.keys() & late)
        self.period = math.gcd(*(again[name] for name in again.keys() - late))  # of tiles that need something new; 0: there are none
        has_more = {"fetch": bool(self.period), "supply": self.is_supplied_again}
        self.fetches_again = [name for name in self.fetches if has_more[name]]
        self.covered = 0  # the time step up to which a call before it waits in every time step for what it needs as well

    def fetched(self, tile: Value) -> list[Node]:
        """Nodes that start the transfers of what a tile of the call reads."""
        return [Do(self.step, name, tile) for name in self.fetches]

    def loaded(self) -> list[Node]:
        """Begins to fetch the whole constants that are begun with this call."""
        return [node for node in self.layer.body if isinstance(node, Move)]

    def constants(self) -> list[Node]:
        """Goes on when the whole constants that the call needs are there."""
        return [replace(node, step=self.step) for node in self.layer.body if isinstance(node, Wait)]

    def staged(self, tile: int) -> list[Node]:
        """Begins to move what one of the first two tiles needs from memories further out."""
        has_some = "stage" in self.layer.procedures and (tile == 0 or self.is_staged_again)
        return [Do(self.step, "stage", tile)] if has_some else []

    def _staged_ahead(self, tile: Value) -> list[Node]:
        """The same of the tile behind the next one: what was there is of a tile of which everything has arrived."""
        further = [Condition(tile, "<", self.member.trips - 2)]
        return guard_nodes(further, [Do(self.step, "stage", tile + 2)]) if self.is_staged_again else []

    def slid(self, tile: Value) -> list[Node]:
        """Makes room in the line buffer that the call writes."""
        return slide_rows(self.plan, self.fused_group, self.step, tile)

    def begun(self, time_step: Value) -> list[Node]:
        """Starts the accelerator, or computes, on what has arrived, while what the next tile needs begins to move."""
        tile = _tile_at(self.member, time_step)
        arrived: list[Node] = [Wait(self._token("in"))] if self.fetches else []
        if not self.is_fetched_again:
            arrived = guard_nodes([Condition(tile, "==", 0)], arrived) if self.member.start >= self.covered else []
        elif self.covered:
            arrived = guard_nodes([Condition(time_step, ">=", self.covered)], arrived)
        again: list[Node] = [Do(self.step, name, tile + 1) for name in self.fetches_again]
        ahead = guard_nodes([Condition(tile, "<", self.member.trips - 1)], again) if again else []
        ahead += self._staged_ahead(tile)
        compute: list[Node] = [Compute(self.step, tile)]
        return [*arrived, *compute, *ahead] if self.layer.accelerator else [*arrived, *ahead, *compute]

    def finished(self, tile: Value) -> list[Node]:
        """Nodes that wait for the accelerator's job of a tile."""
        return [Finish(self.step, self.layer.accelerator, tile)] if self.layer.accelerator else []

    def ended(self, time_step: Value) -> list[Node]:
        """What cores do of a tile, and what then leaves."""
        tile = _tile_at(self.member, time_step)
        return [*([] if self.layer.accelerator else self.begun(time_step)), *self._complete(tile)]

    def _complete(self, tile: Value) -> list[Node]:
        """What cores make of sums, when all are added, and what then leaves."""
        complete: list[Node] = [PostProcess(self.step, tile)] * bool(self.layer.team)
        partial = self.layer.partial
        if "store" in self.layer.procedures:
            complete += [Wait(self._token("out")), *self._left(tile), Do(self.step, "store", tile)]
        return guard_nodes([Condition(remainder(tile, partial), "==", partial - 1)], complete)

    def _left(self, tile: Value) -> list[Node]:
        """What the tile before left in a memory in between moves on, when that of the tile before it has."""
        if "unstage" not in self.layer.procedures:
            return []
        partial = self.layer.partial
        return [Wait(self._token("out", 1)), *guard_nodes([Condition(tile, ">=", partial)], [Do(self.step, "unstage", tile - partial)])]

    def first(self) -> list[Node]:
        """Begins to move what the first tile needs, of a kernel in two parts what the first part of it reads."""
        return [Do(self.step, name, 0) for name in self.fetches if name == "fetch"]

    def arrived(self) -> list[Node]:
        """Goes on when all that was begun to be fetched is there."""
        return [Wait(self._token("in"))] if self.fetches else []

    def started(self, time_step: Value) -> list[Node]:
        """Starts the accelerator on what has arrived; what the next tile needs begins to move, and what this one's post-processing does."""
        tile = _tile_at(self.member, time_step)
        late: list[Node] = [Do(self.step, name, tile) for name in self.fetches if name == "supply"]
        if not self.is_supplied_again and time_step != 0:
            late = guard_nodes([Condition(tile, "==", 0)], late) if self.member.start else []
        return [Compute(self.step, tile), *self._ahead(tile), *late]

    def _ahead(self, tile: Value) -> list[Node]:
        """Begins to move what the next tile needs."""
        if not self.period:
            return self._staged_ahead(tile)
        more = [Condition(tile, "<", self.member.trips - 1), Condition(remainder(tile + 1, self.period), "==", 0)]
        fetched: list[Node] = [Do(self.step, name, tile + 1) for name in self.fetches if name == "fetch"]
        return [*guard_nodes(more, fetched), *self._staged_ahead(tile)]

    def completed(self, time_step: Value) -> list[Node]:
        """What cores do of a tile, and what then leaves."""
        tile = _tile_at(self.member, time_step)
        begun = [] if self.layer.accelerator else [*self._ahead(tile), Compute(self.step, tile)]
        return [*begun, *self._complete(tile)]

    def waited(self) -> list[Node]:
        """Goes on when all that left is where it belongs."""
        return [Wait(self._token("out"))] if "store" in self.layer.procedures else []

    def unstaged(self) -> list[Node]:
        """What the last tile left in a memory in between moves on."""
        return [Do(self.step, "unstage", self.member.trips - 1)] if "unstage" in self.layer.procedures else []

    def far(self, purpose: Purpose) -> list[Node]:
        """Goes on when what moves between memories further out is where it belongs."""
        name = "stage" if purpose == "in" else "unstage"
        return [Wait(self._token(purpose, 1))] if name in self.layer.procedures else []

    def _token(self, purpose: Purpose, distance: int = 0) -> Token:
        return Token(self.paths[distance].name, purpose, TICKETS[purpose])


def _unique_nodes(nodes: Iterable[Node]) -> list[Node]:
    """Nodes, each of them once."""
    return list(dict.fromkeys(nodes))


class _GroupSchedule:
    """All calls of a fused group on a machine with several memories.

    Args:
        is_ahead: the accelerator begins with the first call's tile of the next time step before cores compute the last call's of this one.
        follower: the call whose first windows are fetched in the last time step.
    """

    def __init__(
        self, members: Sequence[_ScheduledMember], time_step: Variable, time_steps: int, is_ahead: bool, follower: int | None
    ) -> None:
        self.members = members
        self.time_step = time_step
        self.time_steps = time_steps
        self.is_ahead = is_ahead
        self.follower = follower
        for number, member in enumerate(members):
            member.covered = max((self._covered(before, member) for before in members[int(is_ahead) : number]), default=0)

    def _covered(self, before: _ScheduledMember, member: _ScheduledMember) -> int:
        """The time step up to which one call waits for what a later one needs as well: that is begun in the time step before."""
        one = before.member
        is_in_front = one.step + 1 == member.step and not before.layer.accelerator and bool(member.layer.accelerator)
        if is_in_front and one.start == member.member.start:
            return 0  # the accelerator begins before the call in front of it waits for the first time
        if before.is_fetched_again and one.interval == 1 and one.start <= member.member.start:
            return one.start + one.trips
        return one.start + 1 if before.fetches and one.start == member.member.start else 0

    def _opened(self, begun: Sequence[_ScheduledMember], first: Sequence[Node], started: Sequence[_ScheduledMember]) -> list[Node]:
        """What is moved before the first time step: from memories further out what the first two tiles of every call need.

        Args:
            begun: the calls that fetch their first tiles here.
            first: what does that.
            started: accelerators' calls whose first tiles begin here, and which fetch their second ones with them.
        """
        nodes = [node for member in self.members for node in (*member.loaded(), *member.staged(0))]
        nodes += _unique_nodes(node for member in self.members for node in member.far("in"))
        nodes += _unique_nodes(node for member in begun for node in member.constants())
        nodes += [*first, *(node for member in self.members for node in member.staged(1))]
        return nodes + _unique_nodes(node for member in started if member.is_staged_again for node in member.far("in"))

    def _closed(self) -> list[Node]:
        """What is waited for behind the last time step."""
        nodes = _unique_nodes(node for member in self.members for node in member.waited())
        nodes += [node for member in self.members for node in member.unstaged()]
        return nodes + _unique_nodes(node for member in self.members for node in member.far("out"))

    def _arrived(self) -> list[Node]:
        """Goes on, in a time step, when what was begun in the one before has come from memories further out."""
        return _unique_nodes(node for member in self.members if member.is_staged_again for node in member.far("in"))

    def body(self) -> list[Node]:
        """What comes before the first time step, the time steps, and what is waited for behind them."""
        first, time_step = self.members[0], self.time_step
        begun = [member for member in self.members if not member.member.start]
        nodes = self._opened(begun, [node for member in begun for node in member.fetched(0)], [first] if self.is_ahead else [])
        nodes += [*first.slid(0), *first.begun(0)] if self.is_ahead else []
        inner = self._arrived()
        for member in self.members:
            start = member.member.start
            inner += guard_nodes([Condition(time_step, "==", start - 1)], [*member.constants(), *member.fetched(0)]) if start else []
        if self.follower is not None:
            inner += guard_nodes([Condition(time_step, "==", self.time_steps - 1)], [Do(self.follower, "early", 0)])
        for number in range(len(self.members)):
            inner += self._turn(number)
        return [*nodes, Loop(time_step, self.time_steps, tuple(merge_guards(inner))), *self._closed()]

    def nested(self) -> list[Node]:
        """The schedule of a nested group, in which an accelerator begins a tile before cores are through with the one before it."""
        time_step = self.time_step
        jobs = [member for member in self.members if member.layer.accelerator]
        started = [job for job in jobs if not job.member.start]
        nodes = self._opened(self.members, [node for member in self.members for node in member.first()], started)
        arrived = _unique_nodes(node for member in self.members for node in member.arrived())
        for member in started:
            nodes += [*arrived, *member.started(0)]
        inner = [*self._arrived(), *arrived]
        for member in jobs:  # without post-processing, the next job but one writes the slot that the wait of this store makes free
            left = [] if member.layer.team else member.completed(time_step)
            inner += guard_nodes(_runs_at(member.member, time_step), [*member.finished(_tile_at(member.member, time_step)), *left])
        for member in jobs:
            inner += guard_nodes(_runs_at(member.member, time_step + 1), member.started(time_step + 1))
        if self.follower is not None:
            inner += guard_nodes([Condition(time_step, "==", self.time_steps - 1)], [Do(self.follower, "early", 0)])
        for member in (member for member in self.members if member.layer.team or not member.layer.accelerator):
            inner += guard_nodes(_runs_at(member.member, time_step), member.completed(time_step))
        return [*nodes, Loop(time_step, self.time_steps, tuple(merge_guards(inner))), *self._closed()]

    def _turn(self, number: int) -> list[Node]:
        """A call in a time step: cores compute, while the accelerator begins with the call behind it."""
        one, time_step = self.members[number], self.time_step
        runs, tile = _runs_at(one.member, time_step), _tile_at(one.member, time_step)
        nodes: list[Node] = []
        if not one.layer.accelerator:
            nodes += guard_nodes(runs, one.slid(tile))
        elif number == 0 and not self.is_ahead:
            nodes += guard_nodes(runs, [*one.slid(tile), *one.begun(time_step)])
        nodes += guard_nodes(runs, one.finished(tile))
        following, then = (self.members[number + 1], time_step) if number + 1 < len(self.members) else (self.members[0], time_step + 1)
        if following.layer.accelerator and (number + 1 < len(self.members) or self.is_ahead):
            nodes += guard_nodes(
                _runs_at(following.member, then), [*following.slid(_tile_at(following.member, then)), *following.begun(then)]
            )
        return nodes + guard_nodes(runs, one.ended(time_step))
