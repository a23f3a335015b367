"""Where states lie, and what it takes to write them anew.

A state is read where it lies; the value that a sequence begins with is written there in its first inference. A state of a stream, which
is the last of some columns and the new ones behind them, may lie in a buffer with room for the new columns of several inferences: each
writes its own behind those of the inference before, and reads on from there, so that nothing is copied until the buffer is used up. Then
what the next inference reads is copied to the beginning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deeploy.ir.nodes import Node, Tensor
from deeploy.operators.views import CONCAT, MATERIALISE, RESHAPE, SETTLES, SLICE, TURNS, VIEWS, Access
from deeploy.planning.program import Operand


@dataclass(frozen=True)
class SlidingBuffer:
    """A state in a buffer with room for the columns of several inferences.

    Attributes:
        memory: all of it.
        columns: its columns and new ones behind them, which lie at ``every``; those that it has lie at ``old``.
        turns: inferences until what is left is copied to ``first``.
    """

    memory: Tensor
    columns: Tensor
    every: Operand
    old: Operand
    first: Operand
    turns: int


def state_number(keep: Node) -> int:
    """The place of a state among those of its network."""
    return int(keep.attrs["number"])


def state_memory(keep: Node) -> Tensor:
    """The memory that a Keep writes."""
    state = keep.inputs[1]
    assert state is not None
    return state


def source_of(keep: Node) -> Tensor:
    """What a Keep writes, without views that change no order."""
    source = keep.operands[0]
    while (view := source.made_by(RESHAPE)) is not None:
        source = view.operands[0]
    return source


def find_sliding_buffers(
    nodes: Sequence[Node], state_writes: Sequence[Node], outputs: Sequence[Tensor], periods: Mapping[str, int]
) -> dict[Tensor, SlidingBuffer]:
    """The states in such buffers, by the memory that Keeps write.

    Args:
        periods: in every how many inferences a state is written, by what a Keep writes.
    """
    readers = Counter([*(tensor for node in nodes for tensor in node.operands), *outputs])
    sliding = {state_memory(keep): _find_sliding_buffer(keep, readers, periods.get(keep.outputs[0].name, 1)) for keep in state_writes}
    return {state: buffer for state, buffer in sliding.items() if buffer is not None and buffer.columns not in outputs}


def _find_sliding_buffer(keep: Node, readers: Mapping[Tensor, int], period: int) -> SlidingBuffer | None:
    turns, state, cut = keep.attrs.get(TURNS, 0), state_memory(keep), keep.operands[0].made_by(SLICE)
    both = cut.operands[0].made_by(CONCAT) if cut is not None else None
    if cut is None or both is None or not turns or len(both.operands) != 2:
        return None
    (begun, new), axis = both.operands, both.attrs["axis"]
    is_state = begun.maker is not None and SETTLES in begun.maker.attrs and begun.maker.operands[1] is state and readers[begun] == 1
    is_last = keep.operands[0].shape == state.shape and cut.attrs["starts"][axis] == new.shape[axis]
    if not (is_state and is_last and state.shape[axis] <= turns * new.shape[axis] and all(n == 1 for n in state.shape[:axis])):
        return None
    columns, starts = state.shape[axis] + turns * new.shape[axis], (0,) * state.rank
    memory = replace(state, shape=tuple(columns if i == axis else n for i, n in enumerate(state.shape)))
    whole, ones = Access.dense(memory.shape), (1,) * state.rank
    every, first = (whole.box(starts, shape, ones) for shape in (both.outputs[0].shape, state.shape))
    step = new.shape[axis] * whole.strides[axis]
    moving, old = (Operand(state.name, access, step, (period, turns)) for access in (every, first))
    return SlidingBuffer(memory, both.outputs[0], moving, old, Operand(state.name, first), turns)


def begun_in_place(nodes: Sequence[Node], state_writes: Sequence[Node], outputs: Sequence[Tensor]) -> dict[Tensor, Tensor]:
    """What states are read as, which is written where they lie: their value where a sequence begins, else what is there.

    What leaves the network, or is what another state becomes, has a place of its own.
    """
    states = {state_memory(node) for node in state_writes}
    begun = {node.outputs[0]: state for node in nodes for state in states.intersection(node.operands)}
    for tensor in outputs:
        for source in list_sources(tensor):
            begun.pop(source, None)
    for node in state_writes:
        for source in list_sources(node.operands[0]):
            if begun.get(source) not in (None, state_memory(node)) or (source in begun and source is not source_of(node)):
                del begun[source]
    return begun


def with_copies(nodes: Sequence[Node], state_writes: Sequence[Node], begun: Mapping[Tensor, Tensor]) -> list[Node]:
    """The nodes with copies that write states: behind the last one that reads what is begun in place, and else at the end."""
    readers: dict[Tensor, int] = {}  # the last place at which a state is read where it lies
    states, makers = {first: {state} for first, state in begun.items()}, dict[Tensor, int]()
    for place, node in enumerate(nodes):
        read = {state for tensor in node.operands for state in states.get(tensor, ())}
        readers |= dict.fromkeys(read, place)
        makers |= dict.fromkeys(node.outputs, place)
        if node.op in VIEWS:
            states |= {tensor: read for tensor in node.outputs}
    result = [[node] for node in nodes]
    for keep in state_writes:
        copy, state = Node(keep.name, MATERIALISE, keep.inputs[:1], keep.outputs), state_memory(keep)
        result[max(readers[state], makers.get(keep.operands[0], 0)) if state in readers else -1].append(copy)
    return [node for group in result for node in group]


def list_sources(tensor: Tensor) -> list[Tensor]:
    """A tensor, and those whose memory it is a view of."""
    sources = [tensor]
    while (node := sources[-1].maker) is not None and node.op in VIEWS and (container := VIEWS[node.op](node).container)[0] == "in":
        sources.append(node.operands[container[1]])
    return sources


def settled_source(node: Node, readers: Mapping[Tensor, int]) -> Tensor | None:
    """What a node that settles may be written over: its second input, where nobody else reads that, and no part of something else."""
    if SETTLES not in node.attrs:
        return None
    *views, made = list_sources(node.operands[1])
    is_alone = all(readers[tensor] == 1 for tensor in (*views, made)) and made.data is None
    is_whole = all(tensor.maker is not None and VIEWS[tensor.maker.op](tensor.maker).inverse is not None for tensor in views)
    return node.operands[1] if is_alone and is_whole else None


def copy_node(source: Tensor, result: Tensor) -> Node:
    """The node that copies a tensor."""
    return Node(f"copy of {result.name}", MATERIALISE, (source,), (result,))


def place_over(node: Node, source: Tensor, placed: dict[str, Operand], roots: dict[str, Tensor]) -> list[Node]:
    """Place the source of a node that settles where its result lies; the nodes that this takes, the last one first.

    The result is copied into what it is a part of, unless that is there always: else it would be there while the source is computed.
    """
    result, copies = node.outputs[0], list[Node]()
    place = placed.get(result.name)
    if place is not None and place.turns is None and place.buffer != result.name:
        own = Tensor(f"{result.name} (settled)", result.shape, result.dtype)
        copies, node = [copy_node(own, result)], node.another(outputs=(own,))
        result = node.outputs[0]
    roots.setdefault(placed.setdefault(result.name, Operand(result.name, Access.dense(result.shape))).buffer, result)
    placed[source.name] = placed[result.name]
    return [*copies, node]
