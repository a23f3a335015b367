"""A System: one lowered graph per chip, joined by Send and Recv, and what has to hold of it.

Messages between a sender and a receiver arrive in the order in which they were sent; so many as the topology's ``queue`` says
wait in between, then the sender waits. A receiver waits for its message. ``order_system`` puts the nodes of all chips in an order in
which that ends even without any queue; ``check_system`` proves that the order at hand does.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from deeploy.errors import ModelError, UsageError, shorten
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.target import Memory, Target
from deeploy.ir.topology import Topology
from deeploy.ir.values import Graph
from deeploy.operators.link import RECV, SEND
from deeploy.operators.views import KEEP, POSITION

Pair = tuple[int, int, int]  # sender, receiver, tag
PAGE = 4096  # bytes that the memory of queues is a multiple of
_REPORT = "Report this model and its options: partitioning keeps to this by construction."


@dataclass(frozen=True)
class Message:
    """What one Send and its Recv move, and the nodes by chip and position."""

    sender: tuple[int, int]
    receiver: tuple[int, int]
    tag: int
    tensor: Tensor

    @property
    def bytes(self) -> int:
        return self.tensor.elements * self.tensor.dtype.numpy.itemsize


@dataclass(frozen=True, eq=False)
class System:
    """Graphs of chips 0, 1, ...; graph inputs and outputs of the chips have the names of the model's.

    Attributes:
        inputs: names of the model's inputs in order; every chip that has an input of that name is given it.
        outputs: names of the model's outputs in order; one chip holds each.
        notes: what the user is told of how the graph was cut.
    """

    chips: tuple[Graph, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def given(self, name: str) -> tuple[int, ...]:
        """The chips that are given an input of the model."""
        return tuple(chip for chip, graph in enumerate(self.chips) if any(t.name == name for t in graph.inputs))

    def holder(self, name: str) -> int:
        """The chip that holds an output of the model."""
        return next(chip for chip, graph in enumerate(self.chips) if any(t.name == name for t in graph.outputs))

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """All messages of one inference, in the order of their senders.

        Raises:
            ModelError: a Send without its Recv, or the other way round, or two that differ in shape or type.
        """
        return _list_messages(self)


def system_of_one(graph: Graph) -> System:
    """The system of a single chip, which runs the whole graph."""
    return System((graph,), names_of(graph.inputs), names_of(graph.outputs))


def with_queues(target: Target, topology: Topology, messages: Collection[int], more: int = 0) -> Target:
    """The target with the memory reserved that a chip's queues take, and ``more`` bytes beside them.

    Args:
        messages: bytes of the largest message to each chip that this one sends to, and from each that it receives from. There is room
            for as many as may wait, rounded up, so that chips whose messages hardly differ have equally much memory left.
    """
    engines = {kernel.engine for kernel in target.kernels if kernel.link is not None}
    near = {engine.memory for engine in target.engines if engine.name in engines and not target.is_flat}

    def queued(memory: Memory) -> int:
        waiting = topology.queue * sum(-(-size // memory.alignment) * memory.alignment for size in messages)
        return -(-(-(-waiting // PAGE) * PAGE + more) // memory.alignment) * memory.alignment

    memories = (replace(m, reserved=m.reserved + (queued(m) if m.name in near else 0)) for m in target.memories)
    return replace(target, memories=tuple(memories))


def names_of(tensors: Sequence[Tensor]) -> tuple[str, ...]:
    """The names of inputs or outputs of the model."""
    return tuple(tensor.name for tensor in tensors if tensor.name != POSITION)


def _list_messages(system: System) -> tuple[Message, ...]:
    ends: dict[str, dict[Pair, tuple[int, int]]] = {SEND: {}, RECV: {}}  # chips and positions by what both ends have in common
    for chip, graph in enumerate(system.chips):
        for position, node in enumerate(graph.nodes):
            if node.op not in ends:
                continue
            peer, tag = int(node.attrs["peer"]), int(node.attrs["tag"])
            pair = (chip, peer, tag) if node.op == SEND else (peer, chip, tag)
            if not 0 <= peer < len(system.chips) or peer == chip:
                raise ModelError(f"chip {chip}, node {shorten(node.name)}: there is no other chip {peer}", _REPORT)
            if pair in ends[node.op]:
                raise ModelError(f"chip {chip}, node {shorten(node.name)}: tag {tag} occurs twice between it and chip {peer}", _REPORT)
            ends[node.op][pair] = chip, position
    sends, receives = ends.values()
    for pair in sorted(sends.keys() ^ receives.keys()):
        own, missing, other = (sends, RECV, pair[1]) if pair in sends else (receives, SEND, pair[0])
        chip, position = own[pair]
        node = system.chips[chip].nodes[position]
        raise ModelError(f"chip {chip}, node {shorten(node.name)}: chip {other} has no {missing} with tag {pair[2]}", _REPORT)
    messages = []
    for pair, (chip, position) in sends.items():
        other, place = receives[pair]
        node, result = system.chips[chip].nodes[position], system.chips[other].nodes[place]
        sent, received = (f"{tensor.dtype.numpy.name}{list(tensor.shape)}" for tensor in (node.operands[0], result.outputs[0]))
        if sent != received:
            raise ModelError(f"chip {chip}, node {shorten(node.name)} sends {sent}, chip {other} receives {received}", _REPORT)
        messages.append(Message((chip, position), (other, place), pair[2], node.operands[0]))
    return tuple(messages)


def check_system(system: System, topology: Topology) -> None:
    """Prove that the system computes what one chip would be asked for, and that it comes to an end.

    Raises:
        UsageError: a chip has nothing to do, or no links lead to a peer.
        ModelError: inputs, outputs or messages do not fit together, or chips would wait for each other for ever.
    """
    for chip, graph in enumerate(system.chips):
        if not any(node.op not in (SEND, RECV) for node in graph.nodes):
            raise UsageError(f"chip {chip} of {len(system.chips)} would have nothing to compute", "Ask for fewer chips (--chips).")
    _check_ends(system)
    messages = system.messages
    for message in messages:
        topology.links_between(message.sender[0], message.receiver[0], len(system.chips))
    _check_ways(system, topology)
    stuck = find_deadlock(system, topology.queue)
    if stuck is not None:
        raise ModelError(f"chips would wait for each other for ever: {stuck}", _REPORT)


def _check_ends(system: System) -> None:
    """Every input is given to a chip, every output held by one; tensors are computed before they are used."""
    for name in system.inputs:
        if not system.given(name):
            raise ModelError(f"no chip is given input {shorten(name)} of the model", _REPORT)
    for name in system.outputs:
        holders = [chip for chip, graph in enumerate(system.chips) for t in graph.outputs if t.name == name]
        if len(holders) != 1:
            raise ModelError(f"output {shorten(name)} of the model is held by {len(holders)} chips instead of one", _REPORT)
    for chip, graph in enumerate(system.chips):
        for kind, tensors, names in (("input", graph.inputs, system.inputs), ("output", graph.outputs, system.outputs)):
            for tensor in tensors:
                if tensor.name not in (*names, POSITION):
                    raise ModelError(f"chip {chip}: {kind} {shorten(tensor.name)} is none of the model's", _REPORT)
        known = {*graph.inputs, *(node.operands[1] for node in graph.nodes if node.op == KEEP)}
        for node in graph.nodes:
            for tensor in node.variables:
                if tensor not in known:
                    raise ModelError(f"chip {chip}, node {shorten(node.name)}: {shorten(tensor.name)} is not computed before it", _REPORT)
            known.update(node.outputs)
        for tensor in graph.outputs:
            if tensor not in known and tensor.data is None:
                raise ModelError(f"chip {chip}: output {shorten(tensor.name)} is computed by none of its nodes", _REPORT)


def _check_ways(system: System, topology: Topology) -> None:
    for chip in range(1, len(system.chips)):
        if topology.route(0, chip, len(system.chips)) is None:
            raise UsageError(
                f"the topology does not join {len(system.chips)} chips: no links lead from chip 0 to chip {chip}",
                "Join them in the topology file (docs/chips.md), or ask for fewer chips.",
            )


def find_deadlock(system: System, queue: int) -> str | None:
    """Run the Sends and Recvs of one inference with ``queue`` messages in between; what is waited for where that does not end.

    Whether it ends does not depend on who goes first, as nobody chooses between messages. When one inference ends, everything is as it
    was at its beginning: any number of inferences then ends too, however they overlap.
    """
    ends = {place: message for message in system.messages for place in (message.sender, message.receiver)}
    scripts = [deque(ends[chip, at] for at in range(len(graph.nodes)) if (chip, at) in ends) for chip, graph in enumerate(system.chips)]
    waiting = defaultdict[tuple[int, int], deque[Message]](deque)
    moved = True
    while moved:
        moved = False
        for chip, script in enumerate(scripts):
            while script:
                message = script[0]
                line = waiting[message.sender[0], message.receiver[0]]
                if chip == message.sender[0] and len(line) < queue:
                    line.append(message)
                elif chip == message.receiver[0] and line and line[0] is message:
                    line.popleft()
                else:
                    break
                script.popleft()
                moved = True
    return "; ".join([_describe_wait(chip, script[0]) for chip, script in enumerate(scripts) if script][:4]) or None


def _describe_wait(chip: int, message: Message) -> str:
    sender, receiver = message.sender[0], message.receiver[0]
    waits = f"send tag {message.tag} to chip {receiver}" if chip == sender else f"receive tag {message.tag} from chip {sender}"
    return f"chip {chip} waits to {waits}"


def order_system(system: System) -> System:
    """The system with the nodes of every chip in an order that never deadlocks, whatever the queues are.

    All nodes are put in one order in which operands come first, and every Recv behind its Send at once; every chip keeps to it. Of
    those that could be next, the one that came first in its chip's graph is taken.

    Raises:
        ModelError: messages do not fit together, or the graphs wait for each other in a circle.
    """
    nodes = {(at, chip): node for chip, graph in enumerate(system.chips) for at, node in enumerate(graph.nodes)}
    before = {tensor: place for place, node in nodes.items() for tensor in node.outputs}
    senders = {message.receiver[::-1]: message.sender[::-1] for message in system.messages}
    sorter = TopologicalSorter[tuple[int, int]]()
    for place, node in nodes.items():
        sorter.add(place, *(before[tensor] for tensor in node.operands if tensor in before))
        if place in senders:
            sorter.add(place, senders[place])
    with suppress(CycleError):
        sorter.prepare()
    orders: list[list[Node]] = [[] for _ in system.chips]
    ready: list[tuple[bool, tuple[int, int]]] = []  # what is received first of all
    while sorter.is_active():
        for place in sorter.get_ready():
            heapq.heappush(ready, (place not in senders, place))
        _, place = heapq.heappop(ready)
        orders[place[1]].append(nodes[place])
        sorter.done(place)
    left = len(nodes) - sum(map(len, orders))
    if left:
        raise ModelError(f"{left} nodes of the chips wait for each other in a circle", _REPORT)
    return replace(system, chips=tuple(replace(graph, order=tuple(order)) for graph, order in zip(system.chips, orders, strict=True)))


def constants_by_chip(system: System) -> Mapping[int, int]:
    """Bytes of constants that each chip holds, by its number."""
    own = ({t: t.data.nbytes for node in graph.nodes for t in node.operands if t.data is not None} for graph in system.chips)
    return {chip: sum(sizes.values()) for chip, sizes in enumerate(own)}
