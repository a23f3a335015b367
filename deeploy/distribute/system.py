"""A System: one lowered graph per chip, joined by Send and Recv, and what has to hold of it.

Messages between a sender and a receiver arrive in the order in which they were sent; so many as the topology's ``queue`` says
wait in between, then the sender waits. A receiver waits for its message. ``ordered`` puts the nodes of all chips in an order in
which that ends even without any queue; ``check`` proves that the order at hand does.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.errors import ModelError, UsageError, shorten
from deeploy.frontend.positions import POSITION
from deeploy.graph.target import Memory, Target
from deeploy.graph.topology import Topology
from deeploy.operators.link import RECV, SEND

Pair = tuple[int, int, int]  # sender, receiver, tag
PAGE = 4096  # bytes that the memory of queues is a multiple of
_REPORT = "Report this model and its options: partitioning keeps to this by construction."


@dataclass(frozen=True)
class Message:
    """What one Send and its Recv move: element type, shape, and the nodes by chip and position."""

    sender: tuple[int, int]
    receiver: tuple[int, int]
    tag: int
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, eq=False)
class System:
    """Graphs of chips 0, 1, ...; graph inputs and outputs of the chips have the names of the model's.

    Attributes:
        inputs: names of the model's inputs in order; every chip that has an input of that name is given it.
        outputs: names of the model's outputs in order; one chip holds each.
        notes: what the user is told of how the graph was cut.
    """

    chips: tuple[gs.Graph, ...]
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
        return _messages(self)


def alone(graph: gs.Graph) -> System:
    """The system of one chip."""
    return System((graph,), _names(graph.inputs), _names(graph.outputs))


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


def _names(tensors: Sequence[gs.Tensor]) -> tuple[str, ...]:
    return tuple(tensor.name for tensor in tensors if tensor.name != POSITION)


def _ends(system: System) -> tuple[dict[Pair, tuple[int, int]], dict[Pair, tuple[int, int]]]:
    """Chip and position of every Send, and of every Recv, by what they have in common."""
    sends: dict[Pair, tuple[int, int]] = {}
    receives: dict[Pair, tuple[int, int]] = {}
    for chip, graph in enumerate(system.chips):
        for position, node in enumerate(graph.nodes):
            if node.op not in (SEND, RECV):
                continue
            peer, tag = int(node.attrs["peer"]), int(node.attrs["tag"])
            found, pair = (sends, (chip, peer, tag)) if node.op == SEND else (receives, (peer, chip, tag))
            if not 0 <= peer < len(system.chips) or peer == chip:
                raise ModelError(f"chip {chip}, node {shorten(node.name)}: there is no other chip {peer}", _REPORT)
            if pair in found:
                raise ModelError(f"chip {chip}, node {shorten(node.name)}: tag {tag} occurs twice between it and chip {peer}", _REPORT)
            found[pair] = chip, position
    return sends, receives


def _messages(system: System) -> tuple[Message, ...]:
    sends, receives = _ends(system)
    for pair in sorted(sends.keys() ^ receives.keys()):
        chip, position = (sends.get(pair) or receives.get(pair)) or (0, 0)
        other = pair[1] if pair in sends else pair[0]
        node = system.chips[chip].nodes[position]
        missing = RECV if pair in sends else SEND
        raise ModelError(f"chip {chip}, node {shorten(node.name)}: chip {other} has no {missing} with tag {pair[2]}", _REPORT)
    found = []
    for pair, (chip, position) in sends.items():
        other, place = receives[pair]
        node, result = system.chips[chip].nodes[position], system.chips[other].nodes[place]
        sent, received = _kind(node.inputs[0]), _kind(result.outputs[0])
        if sent != received:
            raise ModelError(
                f"chip {chip}, node {shorten(node.name)} sends {sent[0].name}{list(sent[1])}, "
                f"chip {other} receives {received[0].name}{list(received[1])}",
                _REPORT,
            )
        found.append(Message((chip, position), (other, place), pair[2], *sent))
    return tuple(found)


def _kind(tensor: gs.Tensor) -> tuple[np.dtype[np.generic], tuple[int, ...]]:
    values = tensor.values if isinstance(tensor, gs.Constant) else None
    shape = tensor.shape if values is None else values.shape
    return np.dtype(tensor.dtype if values is None else values.dtype), tuple(int(n) for n in shape)


def check(system: System, topology: Topology) -> None:
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
    stuck = deadlock(system, topology.queue)
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
        known = {id(t) for t in graph.inputs}
        for node in graph.nodes:
            for tensor in node.inputs:
                if id(tensor) not in known and not isinstance(tensor, gs.Constant) and not tensor.is_empty():
                    raise ModelError(f"chip {chip}, node {shorten(node.name)}: {shorten(tensor.name)} is not computed before it", _REPORT)
            known |= {id(t) for t in node.outputs}
        for tensor in graph.outputs:
            if id(tensor) not in known and not isinstance(tensor, gs.Constant):
                raise ModelError(f"chip {chip}: output {shorten(tensor.name)} is computed by none of its nodes", _REPORT)


def _check_ways(system: System, topology: Topology) -> None:
    for chip in range(1, len(system.chips)):
        if topology.route(0, chip, len(system.chips)) is None:
            raise UsageError(
                f"the topology does not join {len(system.chips)} chips: no links lead from chip 0 to chip {chip}",
                "Join them in the topology file (docs/chips.md), or ask for fewer chips.",
            )


def deadlock(system: System, queue: int) -> str | None:
    """Run the Sends and Recvs of one inference with ``queue`` messages in between; what is waited for where that does not end.

    Whether it ends does not depend on who goes first, as nobody chooses between messages. When one inference ends, everything is as it
    was at its beginning: any number of inferences then ends too, however they overlap.
    """
    ends = {m.sender: (m, True) for m in system.messages} | {m.receiver: (m, False) for m in system.messages}
    scripts = [deque(ends[chip, at] for at in range(len(graph.nodes)) if (chip, at) in ends) for chip, graph in enumerate(system.chips)]
    waiting: dict[tuple[int, int], deque[Message]] = {(m.sender[0], m.receiver[0]): deque() for m in system.messages}
    moved = True
    while moved:
        moved = False
        for script in scripts:
            while script:
                message, is_send = script[0]
                line = waiting[message.sender[0], message.receiver[0]]
                if is_send and len(line) < queue:
                    line.append(message)
                elif not is_send and line and line[0] is message:
                    line.popleft()
                else:
                    break
                script.popleft()
                moved = True
    stuck = [(chip, script[0]) for chip, script in enumerate(scripts) if script]
    return "; ".join(_waits(chip, message, is_send) for chip, (message, is_send) in stuck[:4]) or None


def _waits(chip: int, message: Message, is_send: bool) -> str:
    peer = message.receiver[0] if is_send else message.sender[0]
    return f"chip {chip} waits to {'send' if is_send else 'receive'} tag {message.tag} {'to' if is_send else 'from'} chip {peer}"


def ordered(system: System) -> System:
    """The system with the nodes of every chip in an order that never deadlocks, whatever the queues are.

    All nodes are put in one order in which operands come first, and every Recv behind its Send at once; every chip keeps to it. Of
    those that could be next, the one that came first in its chip's graph is taken.

    Raises:
        ModelError: messages do not fit together, or the graphs wait for each other in a circle.
    """
    nodes = [(chip, position) for chip, graph in enumerate(system.chips) for position in range(len(graph.nodes))]
    made = {id(t): (chip, at) for chip, at in nodes for t in system.chips[chip].nodes[at].outputs}
    partner = {m.sender: m.receiver for m in system.messages}
    received = set(partner.values())
    needs: dict[tuple[int, int], int] = dict.fromkeys(nodes, 0)
    followers: dict[tuple[int, int], list[tuple[int, int]]] = {place: [] for place in nodes}
    for chip, at in nodes:
        for tensor in system.chips[chip].nodes[at].inputs:
            if id(tensor) in made:
                followers[made[id(tensor)]].append((chip, at))
                needs[chip, at] += 1
    ready = [(at, chip) for chip, at in nodes if not needs[chip, at] and (chip, at) not in received]
    heapq.heapify(ready)
    orders: list[list[gs.Node]] = [[] for _ in system.chips]
    while ready:
        at, chip = heapq.heappop(ready)
        for place in [(chip, at), *([partner[chip, at]] if (chip, at) in partner else [])]:
            orders[place[0]].append(system.chips[place[0]].nodes[place[1]])
            for follower in followers[place]:
                needs[follower] -= 1
                if not needs[follower]:
                    heapq.heappush(ready, (follower[1], follower[0]))
    left = sum(len(graph.nodes) for graph in system.chips) - sum(map(len, orders))
    if left:
        raise ModelError(f"{left} nodes of the chips wait for each other in a circle", _REPORT)
    return replace(system, chips=tuple(_reordered(graph, order) for graph, order in zip(system.chips, orders, strict=True)))


def _reordered(graph: gs.Graph, nodes: Sequence[gs.Node]) -> gs.Graph:
    return gs.Graph(list(nodes), graph.inputs, graph.outputs, name=graph.name, opset=graph.opset, import_domains=graph.import_domains)


def constants(system: System) -> Mapping[int, int]:
    """Bytes of constants on every chip."""
    found = {}
    for chip, graph in enumerate(system.chips):
        own = {id(t): t.values.nbytes for node in graph.nodes for t in node.inputs if isinstance(t, gs.Constant)}
        found[chip] = sum(own.values())
    return found
