"""Fused groups of products tile by tile in several dimensions, such as the MLP of a transformer (``groups.layer_fusion``).

A fused group of rows keeps the weights of all its calls. Weights that are larger than the memory of the engines move tile by tile
instead, once for every tile of rows, and columns are cut as well. There are two ways to do that:

* *Nested*: for a tile of rows, the first call computes all columns, tile by tile; then the next call reads all of them. What is
  between them has the rows of one tile.
* *Along the reduction*, where the last call's kernel keeps sums (``Nest.accumulated``): some columns of what is in between are
  computed, added to the sums, and forgotten. There need only be one tile, or two where an accelerator reads one while cores write the next.

All calls have the outer loops in common. What a call reads in a round of them is what the one before it wrote in that round.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from deeploy.planning.candidates.candidate import TiledOp
from deeploy.planning.groups.layer_fusion import FusionCandidate, FusionSearch
from deeploy.planning.program import Call, Role
from deeploy.planning.tiling.fused_group import GroupMember, TileBuffers
from deeploy.planning.tiling.loops import Footprints, TileLoop, cut_dims, tile_sizes

LONGEST = 4  # calls of such a fused group
SIZE_FACTOR = 0.5  # between numbers of tiles along a dimension
COLUMNS = 1.0  # the same along columns of nested calls
MOST_CUTS = 8  # ways to cut a fused group that are walked over


def product_groups(search: FusionSearch) -> Iterator[FusionCandidate]:
    """The fused groups for which there is room: of the ways to cut each, those that no other one beats in cycles and bytes that move."""
    for last in range(1, len(search.program.calls)):
        for call in search.others(last):
            if not search.may(last, call):
                continue
            for first in range(last - 1, max(last - LONGEST, -1), -1):
                calls = (*search.program.calls[first:last], call)
                if not search.may(first, calls[0]) or not _is_handed_on(search, first, calls):
                    break
                if call.geometry.nest.accumulated:
                    ways = [one for loops in _loop_ways(search, calls) if (one := _fuse_products(search, first, calls, loops)) is not None]
                else:
                    ways = list(_nested_groups(search, first, calls))
                yield from _undominated_groups(ways)


def _undominated_groups(ways: Sequence[FusionCandidate]) -> list[FusionCandidate]:
    fused_groups: list[FusionCandidate] = []
    for one in sorted(ways, key=lambda one: (one.cycles, one.moved)):
        if not fused_groups or one.moved < fused_groups[-1].moved:
            fused_groups.append(one)
    return fused_groups[:MOST_CUTS]


def _is_handed_on(search: FusionSearch, first: int, calls: Sequence[Call]) -> bool:
    """Whether the first call writes a buffer of which the second one alone reads all."""
    maker, reader = calls[0], calls[1]
    if len(maker.writes) != 1 or maker.geometry.nest.updates or maker.geometry.dynamic or maker.kernel.link or maker.kernel.forks:
        return False
    written = maker.operands[maker.writes[0]]
    buffer = search.program.buffers[written.buffer]
    reads = [operand for name, operand in reader.operands.items() if operand.buffer == written.buffer and name not in reader.writes]
    whole = math.prod(buffer.shape)
    every = (written, *reads)
    is_whole = all(one.access.is_dense and not one.access.offset and one.access_elements == whole for one in every)
    is_far = search.distance(written.buffer) != 0  # what is next to the cores anyway need not be kept from moving
    is_alone = search.spans.get(written.buffer) == (first, first + 1) and len(reads) == 1
    return is_far and buffer.role is Role.LOCAL and is_alone and is_whole


def _operand_axes(call: Call, name: str) -> list[tuple[int, str | None]]:
    """The extents of an operand along its axes, and the dimensions that run along them alone; without axes of one index."""
    windows, axes = Footprints(call.geometry, name, call.operands[name]), list[tuple[int, str | None]]()
    for axis, (size, dim) in enumerate(zip(windows.shape, windows.dims, strict=True)):
        if size > 1:
            bare = [access.axes[axis].bare() for access in windows.maps]
            is_bare = dim is not None and all(one is not None and one.name == dim for one in bare) and call.geometry.extents[dim] == size
            axes.append((size, dim if is_bare else None))
    return axes


def _loop_ways(search: FusionSearch, calls: Sequence[Call]) -> Iterator[tuple[tuple[TileLoop, ...], ...]]:
    """The loops of every call, for all sizes of tiles that are tried."""
    along = _shared_dims(calls)
    if along is None:
        return
    choices = []
    for dims in along:
        extent = calls[-1].geometry.extents[dims[-1]]
        multiple = math.lcm(*(cut_dims(call)[dim] for call, dim in zip(calls, dims, strict=True)))
        choices.append(tile_sizes(extent, multiple, SIZE_FACTOR))
    for cut in itertools.product(*choices):
        trips = [-(-calls[-1].geometry.extents[dims[-1]] // size) for dims, size in zip(along, cut, strict=True)]
        if trips[-1] > 1:
            yield tuple(
                tuple(TileLoop(dims[n], count, size) for dims, count, size in zip(along, trips, cut, strict=True) if count > 1)
                for n in range(len(calls))
            )


def _shared_dims(calls: Sequence[Call]) -> list[tuple[str, ...]] | None:
    """The dimension of every call along the rows, and along the columns that the last call adds up; None where there are no such two."""
    read = _read_operand(calls[-2], calls[-1])
    own = _operand_axes(calls[-1], read)
    accumulated = [axis for axis, (_, dim) in enumerate(own) if dim in calls[-1].geometry.nest.accumulated]
    if len(own) != 2 or len(accumulated) != 1:
        return None
    shared_names: list[tuple[str, ...]] = []
    for axis in (1 - accumulated[0], accumulated[0]):
        dims = [own[axis][1]]
        for number in range(len(calls) - 1, 0, -1):
            maker, reader = calls[number - 1 : number + 1]
            here, there = _operand_axes(reader, _read_operand(maker, reader)), _operand_axes(maker, maker.writes[0])
            if [size for size, _ in here] != [size for size, _ in there]:
                return None
            dims.append(next((there[n][1] for n, (_, dim) in enumerate(here) if dim is not None and dim == dims[-1]), None))
        names = tuple(dim for dim in reversed(dims) if dim is not None)
        if len(names) < len(calls) or any(dim not in cut_dims(call) for call, dim in zip(calls, names, strict=True)):
            return None
        shared_names.append(names)
    return shared_names


def _read_operand(maker: Call, reader: Call) -> str:
    """The operand of a call that another one writes."""
    written = maker.operands[maker.writes[0]].buffer
    return next(name for name, operand in reader.operands.items() if operand.buffer == written)


def _fuse_products(
    search: FusionSearch, first: int, calls: Sequence[Call], loops: Sequence[tuple[TileLoop, ...]]
) -> FusionCandidate | None:
    """The fused group along a reduction with some loops, where there is room for it."""
    tiled_ops = [search.tile_call(call, own, _buffers_between(calls)) for call, own in zip(calls, loops, strict=True)]
    if any(tiled_op is None for tiled_op in tiled_ops):
        return None
    start, starts = 0, [0]
    for before, call in itertools.pairwise(calls):
        start += search.begins_ahead(before, call)
        starts.append(start)
    slots = {}
    for number, name in enumerate(_buffers_between(calls)):
        slots[name] = TileBuffers(
            _round_elements(calls[number], loops[number]), 1 + starts[number + 1] - starts[number], len(loops[number])
        )
    members = tuple(GroupMember(first + n, own, 1, start) for n, (own, start) in enumerate(zip(loops, starts, strict=True)))
    return search.together(members, calls, [tiled_op for tiled_op in tiled_ops if tiled_op is not None], tile_buffers=slots)


def _buffers_between(calls: Sequence[Call]) -> list[str]:
    """The buffers that calls hand on to the next one."""
    return [call.operands[call.writes[0]].buffer for call in calls[:-1]]


def _round_elements(call: Call, loops: Sequence[TileLoop]) -> int:
    """Of what a call writes in a round of loops."""
    held = {loop.dim: loop.tile for loop in loops}
    return math.prod(held.get(dim or "", extent) for extent, dim in _operand_axes(call, call.writes[0]))


def _nested_groups(search: FusionSearch, first: int, calls: Sequence[Call]) -> Iterator[FusionCandidate]:
    """The nested fused groups of some calls for which there is room."""
    rows = _row_dimensions(calls)
    if rows is None:
        return
    extent = calls[0].geometry.extents[rows[0]]
    multiple = math.lcm(*(cut_dims(call)[dim] for call, dim in zip(calls, rows, strict=True)))
    for size in tile_sizes(extent, multiple, SIZE_FACTOR):
        trips = -(-extent // size)
        if trips < 2:
            continue
        choices = []
        for call, dim in zip(calls, rows, strict=True):
            outer = TileLoop(dim, trips, size)
            cuts = [(outer, *inner) for inner in _column_loops(call, dim)]
            tiled_ops = [(cut, search.tile_call(call, cut, _buffers_between(calls), True)) for cut in cuts]
            choices.append([(cut, tiled_op) for cut, tiled_op in tiled_ops if tiled_op is not None])
        for way in itertools.product(*choices):
            yield from filter(None, [_fuse_nested(search, first, calls, [cut for cut, _ in way], [tiled_op for _, tiled_op in way])])


def _row_dimensions(calls: Sequence[Call]) -> list[str] | None:
    """The dimension of every call along the rows of all that is between them; None where there is none that runs along them alone."""
    dims_of_rows: list[str] = []
    for maker, reader in itertools.pairwise(calls):
        written, read = _operand_axes(maker, maker.writes[0]), _operand_axes(reader, _read_operand(maker, reader))
        if not written or not read or written[0][0] != read[0][0] or (dims_of_rows and written[0][1] != dims_of_rows[-1]):
            return None
        dims = [dim for _, dim in (written[0], read[0]) if dim is not None]
        if len(dims) < 2 or any(dim not in cut_dims(call) for call, dim in zip((maker, reader), dims, strict=True)):
            return None
        if any(dim in call.geometry.nest.accumulated for call, dim in zip((maker, reader), dims, strict=True)):
            return None
        dims_of_rows += dims if not dims_of_rows else dims[1:]
    return dims_of_rows


def _column_loops(call: Call, rows: str) -> list[tuple[TileLoop, ...]]:
    """The ways to cut a call along the columns that it writes."""
    written = [dim for _, dim in _operand_axes(call, call.writes[0]) if dim is not None and dim != rows and dim in cut_dims(call)]
    loops: list[tuple[TileLoop, ...]] = [()]
    for dim in written[-1:]:
        extent = call.geometry.extents[dim]
        tiles = [(-(-extent // size), size) for size in tile_sizes(extent, cut_dims(call)[dim], COLUMNS)]
        loops += [(TileLoop(dim, trips, size),) for trips, size in tiles if trips > 1]
    return loops


def _fuse_nested(
    search: FusionSearch, first: int, calls: Sequence[Call], loops: Sequence[tuple[TileLoop, ...]], tiled_ops: Sequence[TiledOp]
) -> FusionCandidate | None:
    """A nested fused group with some loops, where there is room for it.

    In a time step an accelerator begins with its tile of the next one before cores compute theirs. So what it reads has to be there two
    time steps before, where cores make it, and what it writes may be read by cores that long.
    """
    tiles_per_steps = [math.prod(loop.trips for loop in own[1:]) for own in loops]
    start, starts = 0, [0]
    for tiles_per_step, (before, call) in zip(tiles_per_steps, itertools.pairwise(calls), strict=False):
        start += tiles_per_step + (search.begins_ahead(before, call) if search.accelerator(call) else -1)
        starts.append(start)
    is_read_late = search.accelerator(calls[0]) and calls[0].kernel.post_processing is None and not search.accelerator(calls[1])
    every = start + tiles_per_steps[-1] + bool(is_read_late)
    slots = {
        name: TileBuffers(_round_elements(call, own[:1]), 1, 1)
        for name, call, own in zip(_buffers_between(calls), calls, loops, strict=False)
    }
    members = tuple(
        GroupMember(first + n, own, every, start, tiles_per_step)
        for n, (own, start, tiles_per_step) in enumerate(zip(loops, starts, tiles_per_steps, strict=True))
    )
    return search.together(members, calls, tiled_ops, tile_buffers=slots, is_nested=True)
