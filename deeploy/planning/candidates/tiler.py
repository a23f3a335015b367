"""Ways to tile one call: every combination of tile sizes and loop orders, measured at once, and the few worth choosing from.

What is decided elsewhere is given: from which memory each operand comes, as the number of paths between it and the engine's
own memory (``distances``; 0: the kernel works in place). Candidates are pruned only against those with equal distances: one stays when
no other needs at most its bytes and at most its cycles, with and without its first constants fetched early. Those that need the
fewest bytes always stay, in every memory: what fits little memory is among what is offered where there is more.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import le

import numpy as np

from deeploy.ir.epilogue import stage_operands
from deeploy.ir.memo import by_arguments
from deeploy.ir.target import DmaPath, Target
from deeploy.ir.types import Numeric
from deeploy.planning import cost
from deeploy.planning.candidates import core_split as shares
from deeploy.planning.candidates import pareto
from deeploy.planning.candidates.candidate import Candidate, Tile, TiledOp
from deeploy.planning.candidates.pareto import GridCell, LoopCut
from deeploy.planning.program import Buffer, Call, Role
from deeploy.planning.tiling.loops import (
    AxisCut,
    CallTiling,
    Division,
    Footprints,
    Stream,
    TileLoop,
    Volume,
    core_dims,
    core_divisions,
    cut_dims,
    in_place,
    tile_sizes,
    window_period,
)

PLENTY = 4  # parts of a memory, of which every call may have one
ORDERS = 6  # loop orders tried

Distances = Mapping[str, int]


class Tiler:
    """Generates candidates of one call; ``fixed`` are sizes of tiles by dimension that the user says."""

    def __init__(
        self,
        call: Call,
        buffers: Mapping[str, Buffer],
        target: Target,
        capacities: Mapping[str, int],
        cores: int,
        fixed: Mapping[str, int] | None = None,
    ) -> None:
        self.call, self.buffers = call, buffers
        self.target = target
        self.capacities = capacities
        self.engine = target.engine(call.kernel.engine)
        self.cores = min(cores, self.engine.cores)
        self.paths: tuple[DmaPath, ...] = target.outward(self.engine.memory)
        self.levels = (self.engine.memory, *(path.far for path in self.paths))
        self.distances = {path.name: distance for distance, path in enumerate(self.paths)}
        self.windows = {name: Footprints(call.geometry, name, operand) for name, operand in call.operands.items()}
        self.dims = {} if target.is_flat else cut_dims(call)
        self.fixed = fixed or {}
        self.core_dims = tuple(sorted(core_dims(call, self.dims), key=lambda d: d in call.geometry.dynamic)) if self.cores > 1 else ()
        self.divisions = core_divisions(call, self.core_dims, self.cores)
        self.work = cost.kernel_work(call, target)
        self.overhead, self.once = cost.tile_overhead(call, target), cost.call_once(call, False, target)
        self.cold = self.once - cost.call_once(call, True, target)
        self.barrier = cost.barrier_cycles(call, target)
        self.post_processing = cost.post_processing_cost(call, target, cores)
        self.plenty = capacities[self.levels[0]] // PLENTY  # bytes for which there is room in any plan
        self.slower = cost.slowdown_in_parallel(call.parts[0], target), cost.slowdown_in_parallel(call.parts[-1], target)
        self.moving = tuple(n for n, o in call.operands.items() if n not in call.geometry.nest.indirect and o.access_elements)
        self.relevant = {n: frozenset(d for d in self.windows[n].dims if d is not None and d in self.dims) for n in call.operands}
        self._grid()

    def _aligned(self, count: Numeric, level: int) -> Numeric:
        unit = self.target.memory(self.levels[level]).alignment
        return -(-count // unit) * unit

    @cached_property
    def scratch(self) -> Numeric:
        """Bytes of scratch memory for each combination of tile sizes."""
        return self.scratch_of(self.size) + np.zeros(len(self.tiles), np.int64)

    def scratch_of(self, size: Mapping[str, Numeric], is_double: Numeric = False) -> Numeric:
        """Bytes of scratch memory of tiles of these sizes."""
        extents, kernel = {**self.call.geometry.extents, **size}, self.call.kernel
        slots = {name: 1 + (kernel.slots(name, True) - 1) * is_double for name in kernel.scratch}
        return sum(self._aligned(piece.total(self.call.node, extents) * slots[n], 0) for n, piece in kernel.scratch.items())

    def _grid(self) -> None:
        """Every combination of tile sizes: per dimension one array of sizes and one of trips."""
        factor = {0: 0.25, 1: 0.2, 2: 0.25, 3: 0.5}.get(len(self.dims), 1.0)
        choices = []
        for name, multiple in self.dims.items():
            extent = self.call.geometry.extents[name]
            sizes = set(tile_sizes(extent, multiple, factor))
            if name in self.core_dims and extent > self.cores:
                sizes |= set(tile_sizes(extent, math.lcm(multiple, self.cores), factor))
            choices.append([min(self.fixed[name], extent)] if name in self.fixed else sorted(sizes, reverse=True))
        grid = np.meshgrid(*(np.arange(len(c)) for c in choices), indexing="ij") if choices else []
        self.choices = dict(zip(self.dims, choices, strict=True))
        self.index = {name: axis.ravel() for name, axis in zip(self.dims, grid, strict=True)}
        count = math.prod(map(len, choices))
        self.size = {n: np.array(self.choices[n])[i] for n, i in self.index.items()}
        self.trips = {n: -(-self.call.geometry.extents[n] // s) for n, s in self.size.items()}
        self.tiles = np.ones(count, np.int64)
        for trips in self.trips.values():
            self.tiles = self.tiles * trips

    @cached_property
    def volumes(self) -> Mapping[str, Volume]:
        """What the windows of each moving operand take, for each combination of tile sizes."""
        return {name: self._volume(name) for name in self.moving}

    @cached_property
    def packed(self) -> Mapping[str, frozenset[str]]:
        """Per operand the dimensions that are not cut where it is used as it lies."""
        return {name: in_place(self.call, windows) for name, windows in self.windows.items()}

    @cached_property
    def whole(self) -> Numeric:
        """Per combination of tile sizes: cycles of all tiles, and of their post-processing."""
        return self.computed[0] + self._post_processing_cycles(self.size, self.tiles)

    def computing(self, size: Mapping[str, Numeric], tiles: Numeric) -> Numeric:
        """Cycles that all tiles of these sizes take to compute, without transfers."""
        return self._compute(size, tiles)[0] + self._post_processing_cycles(size, tiles)

    def job(self, size: Mapping[str, Numeric], tiles: Numeric) -> float:
        """Cycles of an accelerator's jobs of tiles of one size."""
        return float(self._compute(size, tiles)[0][0])

    @cached_property
    def least(self) -> int:
        """The fewest bytes of the engine's memory for a tile whose operands all come from elsewhere."""
        used: Numeric = self._used(dict.fromkeys(self.call.operands, 1), 1)[0]
        return int(used.min())

    @cached_property
    def stored(self) -> Mapping[str, int]:
        """Bytes of the call's constants, by the memory in which they have to lie; empty: any."""
        stored_bytes = {"": 0}
        for name in dict.fromkeys(operand.buffer for operand in self.call.operands.values()):
            buffer = self.buffers[name]
            if buffer.role is Role.CONSTANT:
                stored_bytes[buffer.memory] = stored_bytes.get(buffer.memory, 0) + buffer.bytes
        return stored_bytes

    def _volume(self, name: str) -> Volume:
        """What an operand's windows take, per combination."""
        windows, cuts = self.windows[name], []
        for axis, dim in enumerate(windows.dims):
            if dim is None or dim not in self.dims:
                cuts.append(windows.cut(axis, self.call.geometry.extents.get(dim or "", 1)))
                continue
            table = [windows.cut(axis, size) for size in self.choices[dim]]
            at = self.index[dim]
            cuts.append(AxisCut(*(np.array([getattr(c, figure) for c in table])[at] for figure in ("widest", "total", "trips"))))
        return windows.volume(self._unit(name), cuts)

    def _unit(self, name: str) -> int:
        """Bytes of an element of an operand."""
        return self.buffers[self.call.operands[name].buffer].dtype.bytes

    @cached_property
    def orders(self) -> tuple[tuple[str, ...], ...]:
        """The loop orders tried, sorted; those of sums that are kept are innermost, so that there are those of one tile of outputs."""
        accumulated = self.call.geometry.nest.accumulated
        names, inner = (tuple(name for name in self.dims if (name in accumulated) is is_inner) for is_inner in (False, True))
        turns = (names[turn:] + names[:turn] for turn in range(min(len(names), ORDERS)))
        permutations = itertools.permutations(names) if math.factorial(len(names)) <= ORDERS else turns
        return tuple(sorted((*order, *inner) for order in permutations))

    @by_arguments
    def _moves(self, dims: frozenset[str]) -> tuple[Numeric, Numeric]:
        """Per order and combination: how often a window moves that depends on ``dims``, and how many rounds over the operand that makes."""
        moves: Numeric = np.ones((len(self.orders), len(self.tiles)), np.int64)
        rounds: Numeric = np.ones_like(moves)
        for row, order in enumerate(self.orders):
            seen: Numeric = np.zeros(len(self.tiles), bool)
            for dim in reversed(order):
                trips = self.trips[dim]
                seen = seen | ((trips > 1) & (dim in dims))
                moves[row] *= np.where(seen, trips, 1)
                if dim not in dims:
                    rounds[row] *= np.where(seen, trips, 1)
        return moves, rounds

    @by_arguments
    def _transfers(self, name: str) -> cost.TransferCost:
        """Per order and combination: an operand's windows on the nearest path."""
        timing, volume, is_output = self._timing(0), self.volumes[name], name in self.call.writes
        moves, rounds = self._moves(self.relevant[name])
        cycles = timing.data(volume.total * rounds, volume.rows * rounds, is_output)
        commands = volume.transfers * rounds
        issue = commands * timing.issue + cost.window_moves(moves, self.target)
        return cost.TransferCost(cycles, issue, commands, moves, is_output, self.is_constant(name))

    @cached_property
    def computed(self) -> tuple[Numeric, Numeric]:
        """Per combination of tile sizes what ``_compute`` says."""
        return self._compute(self.size, self.tiles)

    def _compute(self, size: Mapping[str, Numeric], tiles: Numeric) -> tuple[Numeric, Numeric]:
        """Per combination of tile sizes: cycles of all tiles, and the number of the division over the cores (-1: none)."""
        best, which = shares.best_division(self.work, self.call.geometry, size, self.divisions, tiles, self.barrier)
        return best + tiles * self.overhead + self.once, which

    def division(self, number: int) -> Division | None:
        """The division of a number that ``_compute`` gives."""
        return self.divisions[number] if number >= 0 else None

    def _cycles(self, size: Mapping[str, Numeric], division: Division, tile: Tile | None = None) -> Numeric:
        """Per combination: cycles in kernels of all tiles, divided so, or of one."""
        return shares.tile_cycles(self.work, self.call.geometry.extents, size, division, tile)

    def candidates(self, distances: Distances, depths: Sequence[int]) -> list[Candidate]:
        """The front over bytes and cycles for one choice of sources; ``depths`` are the numbers of slots allowed."""
        if self.post_processing is not None and max(distances.values(), default=0) > 1:
            depths = [min(depths)]  # parts of tiles whose windows are staged do not overlap
        windows = [self._transfers(name) for name in self.moving if distances[name]]
        loads = {path.name: cost.path_load(windows, self.target, path.name) for path in self.paths[:1]}
        issue: Numeric = sum(w.issue for w in windows)
        prefetchable: Numeric = sum(load.prefetchable for load in loads.values())
        shared, candidates = self._shared(self.size, self.tiles, windows), []
        for depth in sorted(depths):
            used, _, fits = self._used(distances, depth)
            cycles = cost.call_cycles(self.computed[0], self.tiles, issue, loads, depth > 1, shared)
            candidates.append(pareto.grid_cells(used, cycles, prefetchable, len(self.orders), fits, depth))
        front = pareto.best_cells(np.concatenate(candidates, axis=1))
        if max(distances.values(), default=0) > 1:
            return self._staged(distances, depths, front)
        return self._candidates(distances, front)

    def along(self, loops: tuple[TileLoop, ...], distances: Distances, is_double: bool = False) -> TiledOp:
        """The call in the tiles of some loops, as a call of a fused group has them: two slots for each window that moves, in every memory.

        Args:
            is_double: there are two for the sums of an accelerator as well. What only cores read then is fetched a tile later than
                what the accelerator reads, so there are three slots for it in memories further out.
        """
        tile_of_dim, tiles = {loop.dim: loop.tile for loop in loops}, math.prod(loop.trips for loop in loops)
        sizes = {name: np.array([tile_of_dim.get(name, self.call.geometry.extents[name])]) for name in self.dims}
        computed, which = self._compute(sizes, np.array([tiles]))
        post_processing = int(np.max(self._post_processing_cycles(sizes, np.array([tiles]))))
        late = stage_operands(self.call.node.epilogue) if is_double else ()
        moving = (
            self._stream(name, distance, loops, len(loops), 2 + (distance > 0 and name in late), distance + 1 < distances[name])
            for name in self.moving
            for distance in range(distances[name])
        )
        tiling = CallTiling(loops, tuple(replace(stream, is_prefetchable=False) for stream in moving), self.division(which[0]))
        used = [int(np.max(self.scratch_of(sizes, is_double))), *(0 for _ in self.levels[1:])]
        for stream in tiling.streams:
            used[self.distances[stream.path]] += stream.bytes * stream.depth
        cycles, around = int(computed[0]) + post_processing, tuple(distances[name] for name in self.call.operands)
        candidate = Candidate(tiling, around, tuple(used), cycles, 0, 0, cycles // tiles, 0, is_double)
        job = int(computed[0]) if self.engine.accelerator else 0
        moved = [(stream, *self._traffic(tiling, stream)) for stream in tiling.streams]
        busy = (
            cycles
            - job
            + sum(
                transfers * self._timing(self.distances[stream.path]).issue + cost.window_moves(stream.moves, self.target)
                for stream, _, _, transfers in moved
            )
        )
        # other kernels run between two tiles of a fused group
        again, set_up = self.cold * (tiles - 1) * (self.post_processing is None), (tiles * self.overhead + self.once) * bool(job)
        return TiledOp(candidate, job, self.traffic(tiling), int(busy + again), int(set_up))

    def traffic(self, tiling: CallTiling) -> Mapping[str, int]:
        """Bytes of all windows that move for a tiling of the call, by path."""
        bytes_by_path = Counter[str]()
        for stream in tiling.streams:
            bytes_by_path[stream.path] += self._traffic(tiling, stream)[0]
        return bytes_by_path

    def _used(self, distances: Distances, depth: int) -> tuple[Numeric, Numeric, Numeric]:
        """Per combination: bytes in the engine's memory, and the fewest with which windows come through the one around it; which fit."""
        used: Numeric = self.scratch if self.post_processing is None else self.scratch_of(self.size, (self.tiles > 1) * (depth > 1))
        around: Numeric = np.zeros(len(self.tiles), np.int64)
        fits: Numeric = np.ones(len(self.tiles), bool)
        for name in self.moving:
            if distances[name]:
                slots = np.where(self._is_cut(self.relevant[name]), depth, 1)
                used = used + self._aligned(self.volumes[name].widest, 0) * slots
                around = around + self._aligned(self.volumes[name].widest, 1) * slots if distances[name] > 1 else around
            else:
                fits = fits & ~self._is_cut(self.packed[name])
        for level, taken in zip(self.levels if self.paths else (), (used, around), strict=False):
            fits = fits & (taken <= self.capacities[level])
        return used, around, np.flatnonzero(fits)

    @by_arguments
    def _is_cut(self, dims: frozenset[str]) -> Numeric:
        """Per combination: whether any of some dimensions is cut."""
        return np.any([self.trips[dim] > 1 for dim in dims if dim in self.dims] or [self.tiles < 0], axis=0)

    def is_constant(self, name: str) -> bool:
        return self.buffers[self.call.operands[name].buffer].role is Role.CONSTANT

    def _timing(self, distance: int) -> Numeric:
        assert self.target.timing is not None
        return self.target.timing.paths[self.paths[distance].name]

    def _loops(self, cell: GridCell) -> tuple[TileLoop, ...]:
        loops = (TileLoop(dim, int(self.trips[dim][cell.number]), int(self.size[dim][cell.number])) for dim in self.orders[cell.order])
        return tuple(loop for loop in loops if loop.trips > 1)

    def _candidates(self, distances: Distances, cells: Sequence[GridCell]) -> list[Candidate]:
        """The candidates of some cells; all windows move with all loops."""
        return self._built(distances, [LoopCut(cell, loops := self._loops(cell), len(loops)) for cell in cells])

    def _built(self, distances: Distances, cuts: Sequence[LoopCut]) -> list[Candidate]:
        """The candidates whose loops are these."""
        if not cuts:
            return []
        tilings, which = [], self.computed[1]
        for cut in cuts:
            core = int(which[cut.cell.number])
            streams: list[Stream] = []
            for name in self.moving:
                for distance in range(distances[name]):
                    count = len(cut.loops) if distance == 0 else cut.outer
                    streams.append(self._stream(name, distance, cut.loops, count, cut.cell.depth, distance + 1 < distances[name]))
            tilings.append(CallTiling(cut.loops, tuple(streams), self.division(core)))
        return self._measured(tilings, [cut.cell for cut in cuts], tuple(distances[name] for name in self.call.operands))

    @by_arguments
    def _stream(self, name: str, distance: int, loops: tuple[TileLoop, ...], count: int, depth: int, inner: bool) -> Stream:
        moving = window_period(loops, self.relevant[name], count)
        tiles = math.prod(loop.trips for loop in loops)
        moves = -(-tiles // moving)
        size = self._window_bytes(name, loops[:count], distance)
        is_output = name in self.call.writes
        is_ahead = distance == 0 and not inner and self.is_constant(name)
        return Stream(name, self.paths[distance].name, count, moving, moves, depth if moves > 1 else 1, size, is_output, inner, is_ahead)

    def _window_bytes(self, name: str, loops: Sequence[TileLoop], distance: int) -> int:
        size: int = self._aligned(self._volume_of(name, loops).widest, distance)
        return size

    def _measured(self, tilings: Sequence[CallTiling], cells: Sequence[GridCell], distances: tuple[int, ...]) -> list[Candidate]:
        """Bytes and cycles of tilings of some cells, by the same formulas as the search uses."""
        numbers, is_double = np.array([cell.number for cell in cells]), np.array([cell.depth > 1 for cell in cells])
        tiles, size = self.tiles[numbers], {name: figures[numbers] for name, figures in self.size.items()}
        used = np.zeros((len(self.levels), len(tilings)), np.int64)
        used[0] = self.scratch_of(size, is_double & (tiles > 1))
        windows: dict[str, list[cost.TransferCost]] = {}
        issue: Numeric = np.zeros(len(tilings))
        issue_ahead, bytes_ahead = issue, np.zeros(len(tilings), np.int64)
        for streams in zip(*(tiling.streams for tiling in tilings), strict=True):
            stream = streams[0]
            distance = self.distances[stream.path]
            slots = np.array([each.bytes * each.depth for each in streams])
            used[distance] += slots
            timing, moves = self._timing(distance), np.array([each.moves for each in streams])
            count, rows, commands = np.array([self._traffic(tiling, each) for tiling, each in zip(tilings, streams, strict=True)]).T
            starts = commands * timing.issue + cost.window_moves(moves, self.target)
            issue = issue + starts
            moved = timing.data(count, rows, stream.is_output)
            transfer = cost.TransferCost(moved, starts, commands, moves, stream.is_output, stream.is_prefetchable)
            windows.setdefault(stream.path, []).append(transfer)
            if stream.is_prefetchable:
                bytes_ahead = bytes_ahead + slots
                issue_ahead = issue_ahead + commands / moves * timing.issue + cost.window_moves(1, self.target)
        loads = {path: cost.path_load(together, self.target, path) for path, together in windows.items()}
        prefetchable = _whole_cycles(sum((load.prefetchable for load in loads.values()), start=np.zeros(len(tilings))))
        compute = self.computed[0][numbers]
        shared = self._shared(size, tiles, [window for together in windows.values() for window in together])
        cycles = _whole_cycles(cost.call_cycles(compute, tiles, issue, loads, is_double, shared))
        warm = shared._replace(set_up=shared.set_up - np.minimum(shared.set_up, self.cold))
        cached = _whole_cycles(cost.call_cycles(compute - self.cold, tiles, issue, loads, is_double, warm))
        last_tile, last_tile_saving = compute / tiles, self.cold / tiles
        if self.engine.accelerator:  # its last tile is set up before early windows of the next call are started
            overlaps = is_double & (tiles > 1) & (shared.post_processing > 0)
            last_tile = np.where(overlaps, shared.last, (shared.post_processing + compute - shared.set_up) / tiles)
            last_tile_saving = np.zeros(len(tilings))
        far = sum((load.data for path, load in loads.items() if path != self.paths[0].name), start=np.zeros(len(tilings)))
        issue_ahead = np.where(prefetchable > 0, issue_ahead, 0.0)
        late = (_whole_cycles(last_tile_saving), _whole_cycles(issue_ahead))
        ahead = (prefetchable, bytes_ahead, _whole_cycles(last_tile))
        figures = (cycles, *ahead, _whole_cycles(far), is_double, cycles - cached, *late)
        rows = zip(*(figure.tolist() for figure in figures), strict=True)
        return [Candidate(t, distances, tuple(taken), *row) for t, taken, row in zip(tilings, used.T.tolist(), rows, strict=True)]

    def _shared(self, size: Mapping[str, Numeric], tiles: Numeric, windows: Sequence[cost.TransferCost]) -> cost.SharedCycles:
        """How an accelerator and cores share tiles of these sizes."""
        if not self.engine.accelerator:
            return cost.SharedCycles(slower=self.slower)
        alone, overlapped, last = tiles * self.overhead + self.once, cost.later_windows(windows), 0.0
        if self.post_processing is not None:
            last = self._processed(self.post_processing, size, Tile.LAST) + self.post_processing.overhead
        first, rest = self._cycles(size, (), Tile.FIRST), self._post_processing_cycles(size, tiles)
        return cost.SharedCycles(alone, overlapped, first, rest, last, self.slower)

    def _post_processing_cycles(self, size: Mapping[str, Numeric], tiles: Numeric) -> Numeric:
        """Cycles of the post-processing of all tiles; 0 where there are none."""
        part = self.post_processing
        return 0.0 if part is None else self._processed(part, size) + self._meetings(size, tiles) * part.overhead

    def _processed(self, part: cost.PostProcessingCost, size: Mapping[str, Numeric], tile: Tile | None = None) -> Numeric:
        """Cycles of the post-processing of all tiles, or of one, without overheads: what is added up counts once."""
        division, once = ((part.dim, part.cores),), self.call.geometry.nest.accumulated
        return shares.tile_cycles(part.work, self.call.geometry.extents, size, division, tile, once)

    def _meetings(self, size: Mapping[str, Numeric], tiles: Numeric) -> Numeric:
        """How many tiles are post-processed: of those that add up, the last one."""
        extents = self.call.geometry.extents
        for name in self.call.geometry.nest.accumulated:
            tiles = tiles // -(-extents[name] // size.get(name, extents[name]))
        return tiles

    def _traffic(self, tiling: CallTiling, stream: Stream) -> tuple[int, int, int]:
        """Bytes, rows and transfers of a stream over the whole call."""
        return self._window_traffic(stream.operand, stream.moves, tiling.loops[: stream.loops])

    @by_arguments
    def _window_traffic(self, operand: str, moves: int, loops: tuple[TileLoop, ...]) -> tuple[int, int, int]:
        volume = self._volume_of(operand, loops)
        rounds = moves // volume.windows if volume.windows <= moves else 1
        return volume.total * rounds, volume.rows * rounds, volume.transfers * rounds

    def _volume_of(self, name: str, loops: Sequence[TileLoop]) -> Volume:
        """What an operand's windows take in tiles of these loops."""
        windows, extents = self.windows[name], self.call.geometry.extents
        tile = {loop.dim: loop.tile for loop in loops}
        return windows.volume(
            self._unit(name), [windows.cut(a, 1 if d is None else tile.get(d, extents[d])) for a, d in enumerate(windows.dims)]
        )

    def _staged(self, distances: Distances, depths: Sequence[int], front: Sequence[GridCell]) -> list[Candidate]:
        """Candidates with operands that come from further out: loops of the near ones, split into outer and inner steps."""
        far = [name for name in self.moving if distances[name] > 1]
        sums, cuts = self.call.geometry.nest.accumulated, list[LoopCut]()
        for cell in front:
            loops = self._loops(cell)
            splits = [d.dim for d in loops if d.dim not in sums and any(d.dim in self.relevant[name] for name in far)]
            for steps in itertools.product(*(pareto.tile_divisors(loop.trips) if loop.dim in splits else [1] for loop in loops)):
                outer = tuple(TileLoop(p.dim, a, p.tile * (p.trips // a)) for p, a in zip(loops, steps, strict=True) if a > 1)
                inner = tuple(TileLoop(p.dim, p.trips // a, p.tile) for p, a in zip(loops, steps, strict=True) if p.trips // a > 1)
                cuts.append(LoopCut(cell, outer + inner, len(outer)))
        limits = tuple(self.capacities[level] for level in self.levels)
        undominated = pareto.undominated_candidates([c for c in self._built(distances, cuts) if all(map(le, c.bytes, limits))])
        undominated = pareto.subsample(undominated, len(undominated) - 1)
        return undominated + [c for c in self._smallest(distances, min(depths)) if not any(pareto.dominates(k, c) for k in undominated)]

    def _smallest(self, distances: Distances, depth: int) -> list[Candidate]:
        """The candidates that no other beats in bytes of the engine's memory and of the one around it: they decide what fits."""
        candidates: list[Candidate] = []
        for number, _ in self.fewest(distances, depth):
            every = [GridCell(number, order, depth) for order in range(len(self.orders))]
            candidates.append(min(self._candidates(distances, every), key=lambda c: c.cycles))
        return candidates

    def fewest(self, distances: Distances, depth: int) -> list[tuple[int, tuple[int, int]]]:
        """The combinations that no other beats in bytes of the engine's memory and of the one around it, and these bytes."""
        used, around, fits = self._used(distances, depth)
        trips_of_dims: list[tuple[int, tuple[int, int]]] = []
        for i in fits[np.lexsort((around[fits], used[fits]))].tolist():
            if not trips_of_dims or around[i] < trips_of_dims[-1][1][1]:
                trips_of_dims.append((i, (int(used[i]), int(around[i]))))
        return trips_of_dims


def _whole_cycles(figures: Numeric) -> Numeric:
    """Cycles, cut to whole numbers."""
    return figures.astype(np.int64)
