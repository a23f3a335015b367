"""Which calls one team of cores runs without being forked in between, and where its cores have to wait for each other.

A fork costs more than a barrier, and while the first core waits for transfers or starts them, the others prepare the next call. The
kernel of a tile begins behind a barrier, so it reads what the first core waited for and what all cores computed before. Behind a kernel
there is one as well, unless nothing that the first core does before the next kernel's barrier touches what the cores may still use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deeploy.planning.packing.addresses import Placement
from deeploy.planning.plan import Plan
from deeploy.schedule.ir import Address, Barrier, Compute, Do, Finish, Guard, Layer, Loop, Move, Node, PostProcess, Section, ShiftRows, Wait


def team_sections(layers: Sequence[Layer]) -> tuple[Section, ...]:
    """The longest runs of calls that need the same team, or none; calls before the first team, and whose kernels fork, are in no team."""
    sections: list[Section] = []
    for layer in layers:
        last = sections[-1] if sections else None
        is_alone = layer.call.kernel.forks
        if last is not None and (last.cores == 1 if is_alone else layer.cores in (1, last.cores)):
            sections[-1] = replace(last, last=layer.step)
        else:
            sections.append(Section(layer.step, layer.step, layer.cores))
    return tuple(sections)


def is_shared(node: Node, layers: Sequence[Layer]) -> bool:
    """Whether all cores of a team do a node, or something in it; else the first core alone."""
    if isinstance(node, Guard | Loop):
        return any(is_shared(inner, layers) for inner in node.body)
    if isinstance(node, Compute):
        return layers[node.step].accelerator is None and layers[node.step].work.cores > 1
    return isinstance(node, PostProcess | ShiftRows | Barrier)


def join_layers(plan: Plan, layers: Sequence[Layer], sections: Sequence[Section]) -> tuple[Layer, ...]:
    """The layers with the barriers that they need behind their kernels."""
    result = list(layers)
    for section in sections:
        for step in range(section.first, section.last + 1):
            layer = layers[step]
            if layer.cores > 1 and layer.body:
                following = layers[step + 1 : section.last + 1]
                last = layer.body[-1]
                is_open = isinstance(last, Compute | PostProcess) and is_shared(last, layers) and _is_free(plan, layer, layers, following)
                body = _with_barriers(layer.body[:-1] if is_open else layer.body, layers)
                result[step] = replace(result[step], body=(*body, last) if is_open else body)
                if is_open and following:
                    result[step + 1] = replace(result[step + 1], begins_at_barrier=True)
    return tuple(result)


def _with_barriers(nodes: Sequence[Node], layers: Sequence[Layer], has_waited: bool = False) -> tuple[Node, ...]:
    """Nodes with a barrier behind each that all cores do, and before rows are moved after the first core ``has_waited``: until then the
    job or the transfer that it waits for may use them."""
    merged: list[Node] = []
    for node in nodes:
        if isinstance(node, Guard):
            merged.append(replace(node, body=_with_barriers(node.body, layers, has_waited)))
        elif isinstance(node, Loop):
            body = _with_barriers(node.body, layers, has_waited)
            merged.append(replace(node, body=_with_barriers(node.body, layers, True) if _ends_waiting(body, has_waited) else body))
        else:
            merged += [Barrier()] * (has_waited and isinstance(node, ShiftRows)) + [node] + [Barrier()] * is_shared(node, layers)
        has_waited = _ends_waiting(merged[-1:], has_waited)
    return tuple(merged)


def _ends_waiting(nodes: Sequence[Node], has_waited: bool) -> bool:
    """Whether the first core may have waited behind the last barrier of nodes, ``has_waited`` before them."""
    for node in nodes:
        if isinstance(node, Guard | Loop):
            has_waited = has_waited or _ends_waiting(node.body, False)
        elif isinstance(node, Wait | Finish | Barrier):
            has_waited = not isinstance(node, Barrier)
    return has_waited


def _is_free(plan: Plan, layer: Layer, layers: Sequence[Layer], following: Sequence[Layer]) -> bool:
    """Whether the first core may go on to the next kernel's barrier while others still compute the last tile of a layer."""
    if not following:
        return True  # the team is joined
    for node in following[0].body:
        if is_shared(node, layers):
            return not isinstance(node, Guard | Loop)
        moves = _moved_by(node, following)
        if moves is None or not all(_is_apart(plan, layer, address) for move in moves for address in (move.near, move.far)):
            return False
    return False


def _moved_by(node: Node, layers: Sequence[Layer]) -> Sequence[Move] | None:
    """What a node of the first layer begins to move; None where it does something else."""
    if isinstance(node, Wait | Finish):
        return []
    if isinstance(node, Move):
        return [node]
    if not isinstance(node, Do) or node.step > layers[-1].step:
        return None
    own_moves: list[Move] = []
    for inner in layers[node.step - layers[0].step].procedures[node.procedure]:
        moves = _moved_by(inner, layers)
        if moves is None:
            return None
        own_moves += moves
    return own_moves


def _is_apart(plan: Plan, layer: Layer, address: Address) -> bool:
    """Whether an address lies where the cores of a layer use nothing: outside of the arenas, or in a block that is alive beside theirs."""
    used = _used_blocks(layer)
    if not address.level:
        return address.block not in used
    placements = _block_placements(plan, address.block, layer.step)
    return bool(placements) and not used.intersection(name for placement in placements for name in placement.buffers)


def _used_blocks(layer: Layer) -> set[str]:
    """The blocks that the cores of a call read or write."""
    blocks = {operand.address.block for operand in layer.work.operands.values()} | set(layer.call.scratch.values())
    return blocks | ({layer.sums.block} if layer.sums is not None else set())


def _block_placements(plan: Plan, name: str, step: int) -> list[Placement]:
    """Where a block lies in a step."""
    return [p for p in plan.placements if name in p.buffers and p.first <= step <= p.last]
