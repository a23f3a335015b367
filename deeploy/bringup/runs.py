"""The forms in which a kernel runs a node: where operands lie, which tile, the parts of how many cores, what shares memory.

They are what the planner may do with the kernel: the dimensions that may be cut or divided over cores, and the operands that may be
used where they lie, are asked of it (``deeploy.planning.tiling``); strides, offsets and sharing are drawn over what the declaration says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from deeploy.backend import calls
from deeploy.bringup.cases import Case
from deeploy.ir import interface
from deeploy.ir.dimensions import Kind
from deeploy.ir.expr import Span, Variable
from deeploy.ir.kernel import SUMS, Kernel
from deeploy.ir.nest import Geometry, Window, dense_strides
from deeploy.ir.templates import TemplateLookup
from deeploy.ir.types import DType
from deeploy.operators.views import Access
from deeploy.planning.binding import kernels as bind
from deeploy.planning.program import Buffer, Call, Operand, Program, Role, overwritten_pairs
from deeploy.planning.tiling import loops as tiling

POISON = 0xA5
ROWS = "all_rows"  # the C variable that says how many there are
MOST_OFFSET = 5  # elements before an operand that is part of a larger tensor
MOST_GAP = 3  # elements between what is used
LOOSE = 2  # ways to lie of the operands of a case
TILES = 2  # of a case, that are run
MOST_TILES = 6  # of a case, that are run one after the other
PARTS = 3  # cores that share the work, at least

Box = Mapping[str, Span]


@dataclass(frozen=True, eq=False)
class KernelRun:
    """Pieces of memory by name, the C that works on them, and what they hold afterwards.

    ``wanted`` has for every output its piece, the places that are written and their values; all else stays as it was.
    """

    case: int
    way: str
    memory: Mapping[str, np.ndarray]
    types: Mapping[str, str]
    body: tuple[str, ...]
    wanted: Mapping[str, tuple[str, np.ndarray, np.ndarray]]
    scratch: frozenset[str]
    is_exact: bool  # floats as well


@dataclass(frozen=True)
class KernelForm:
    """How a node is run.

    ``accesses`` says where operands lie, ``copied`` which of them are packed copies of what a tile touches, in which order of axes;
    ``boxes`` is what each core does in the tile ``box``. Of the dimension ``dynamic`` the code is told when it runs how many rows
    there are. ``shared`` names for operands without memory of their own the one whose memory they use.
    """

    way: str
    accesses: Mapping[str, Access]
    copied: Mapping[str, tuple[int, ...]]
    box: Box
    boxes: tuple[Box, ...]
    shared: Mapping[str, str]
    dynamic: str = ""


@dataclass(frozen=True, eq=False)
class Subject:
    """A kernel with a case: the operands as they are stored, and how they are called."""

    number: int
    case: Case
    kernel: Kernel
    geometry: Geometry
    arrays: Mapping[str, np.ndarray]
    constants: frozenset[str]
    packed: Mapping[str, DType]
    cores: int  # that may share the work; 0 of an accelerator

    @property
    def types(self) -> dict[str, DType]:
        return {name: self.packed.get(name, DType.of(array.dtype)) for name, array in self.arrays.items()}

    def call(self, accesses: Mapping[str, Access]) -> Call:
        operands = {n: Operand(n, a) for n, a in accesses.items()}
        return Call(self.case.node, self.kernel, self.geometry, operands, "call", {n: n for n in self.kernel.scratch})

    def dense(self) -> dict[str, Access]:
        return {n: Access.dense(a.shape) for n, a in self.arrays.items()}


def make_subject(number: int, case: Case, kernel: Kernel, cores: int) -> Subject:
    """The operands of a case as the kernel wants them stored, and its nest bound to them."""
    names = bind.operand_names(kernel, case.node)
    assert names is not None
    stored = {n: case.inputs[n] for n in names}
    packed: dict[str, DType] = {}
    for name, tensor in zip(names, case.node.inputs, strict=True):
        if tensor is not None and tensor.data is not None:
            form = kernel.stored(name, tensor, case.node)
            if form is None:
                del stored[name]
            else:
                stored[name] = np.asarray(form[0], order="C")  # which leaves a scalar one
                packed |= {name: form[1]} if form[1].is_narrow else {}
    geometry = bind.bound_geometry(kernel, case.node, stored)
    constants = {n for n, tensor in zip(names, case.node.inputs, strict=True) if tensor is not None and tensor.data is not None}
    arrays = {**stored, **dict(zip(kernel.outputs, case.wanted, strict=True))}
    return Subject(number, case, kernel, geometry, arrays, frozenset(constants), packed, max(cores, PARTS) if cores else 0)


def draw_forms(given: Subject, rng: Random) -> Iterator[KernelForm]:
    """Whole and packed; whole as it may lie; in tiles; in the parts of cores; over an operand that it may overwrite."""
    dense = given.dense()
    yield KernelForm("whole", dense, {}, {}, ({},), _equal_inputs(given))
    for _ in range(LOOSE):
        loose = {n: a if n in given.constants else draw_access(a.shape, given.kernel.dense(n, len(a.shape)), rng) for n, a in dense.items()}
        yield KernelForm("strided", loose, {}, {}, ({},), {})
    yield from _draw_tiles(given, loose if rng.random() < 0.5 else dense, rng)
    places = loose if rng.random() < 0.5 else dense
    boxes = _divide_box(given, places, {}, rng)
    if boxes:
        yield KernelForm("parts", places, {}, {}, boxes, {})
    yield from _draw_dynamic(given, dense, rng)
    over = _draw_overwriting(given, rng)
    if over:
        yield KernelForm("in place", dense, {}, {}, _in_place(given, rng), over)


def draw_access(shape: tuple[int, ...], dense: int, rng: Random) -> Access:
    """Where a tensor may lie in a larger one: ``dense`` trailing axes packed, the others in any order and apart; an axis of extent 1 has
    any stride, since nothing steps along it.
    """
    rank = len(shape)
    outer = list(range(rank - dense))
    if rng.random() < 0.4:
        rng.shuffle(outer)
    steps, step = [0] * rank, 1
    for axis in (*reversed(range(rank - dense, rank)), *reversed(outer)):
        if axis < rank - dense and rng.random() < 0.6:
            step += rng.randint(1, MOST_GAP) if axis < rank - 1 or rank - dense == 1 else rng.randint(1, 2)
        steps[axis] = step if shape[axis] != 1 else rng.choice((1, step, step * 3 + 4))
        step *= shape[axis]
    return Access(shape, rng.randint(0, MOST_OFFSET), tuple(steps))


def _equal_inputs(given: Subject) -> dict[str, str]:
    """Inputs that are one buffer, since they are equal."""
    inputs = [n for n in given.arrays if n not in given.kernel.outputs and n not in given.constants]
    pairs = ((a, b) for i, a in enumerate(inputs) for b in inputs[i + 1 :])
    return next(({b: a} for a, b in pairs if given.case.inputs[a] is given.case.inputs[b]), {})


def _draw_overwriting(given: Subject, rng: Random) -> dict[str, str]:
    """An output and the input whose memory it may use as the planner says, with what else reads that input."""
    equal, dense = _equal_inputs(given), given.dense()
    operands = {n: Operand(equal.get(n, n), access) for n, access in dense.items()}
    call = replace(given.call(dense), operands=operands)
    roles = {n: Role.CONSTANT if n in given.constants else Role.LOCAL for n in dense}
    buffers = {n: Buffer(n, n, roles[n], given.types[n], dense[n].shape) for n in dense}
    pairs = overwritten_pairs(Program("alone", buffers, (call,), (), (), {}), call)
    return {**dict([rng.choice(pairs)]), **equal} if pairs else {}


def _draw_dynamic(given: Subject, places: Mapping[str, Access], rng: Random) -> Iterator[KernelForm]:
    """The first rows along a dimension of which the code is told when it runs how many there are."""
    dynamic = [name for name in sorted(given.geometry.extents) if _may_grow(given, name)]
    if dynamic and given.cores:
        name = rng.choice(dynamic)
        box = {name: (0, rng.randrange(given.geometry.extents[name]))}
        yield KernelForm("dynamic", places, {}, box, (box,), {}, name)


def _may_grow(given: Subject, name: str) -> bool:
    """Whether rows along a dimension are independent, no constant has them, and none of the axes that are to be packed lies around them."""
    nest = given.geometry.nest
    is_written = all(name in {dim.name for dim in access.dims()} for access in nest.writes.values())
    if not is_written or given.geometry.extents[name] == 1 or given.geometry.cuttable(name) is not Kind.PARALLEL or nest.phases:
        return False
    for operand, access in nest.maps().items():
        shape = given.geometry.shapes.get(operand, ())
        outermost = len(shape) - given.kernel.dense(operand, len(shape))
        for axis, size in enumerate(shape):
            if name not in {dim.name for dim in access.axes[axis].dims()}:
                continue
            bare = access.axes[axis].bare()
            if (
                bare is None
                or bare.whole
                or size not in (1, given.geometry.extents[name])
                or (size > 1 and (operand in given.constants or any(n > 1 for n in shape[outermost:axis])))
            ):
                return False
    return True


def _in_place(given: Subject, rng: Random) -> tuple[Box, ...]:
    """All tiles one after the other, or the parts of cores, where what is overwritten is used as it lies; else the whole."""
    dense = given.dense()
    call = given.call(dense)
    every = [tiling.Footprints(given.geometry, n, call.operands[n]) for n in dense]
    fixed = [tiling.in_place(call, windows) if windows.is_mapped else frozenset() for windows in every]
    multiples = tiling.cut_dims(call)
    free = [n for n in sorted(multiples) if all(fixed_sizes is not None and n not in fixed_sizes for fixed_sizes in fixed)]
    if not free or rng.random() < 0.5:
        return _divide_box(given, dense, {}, rng) or ({},)
    name = rng.choice(free)
    extent, multiple = given.geometry.extents[name], multiples[name]
    size = max(multiple * rng.randint(1, -(-extent // multiple)), -(-extent // (MOST_TILES * multiple)) * multiple)
    return tuple({name: (first, min(first + size, extent) - 1)} for first in range(0, extent, size))


def _draw_tiles(given: Subject, places: Mapping[str, Access], rng: Random) -> Iterator[KernelForm]:
    """Tiles of a random size along some of the dimensions that may be cut, the last ones with their remainder among them."""
    call = given.call(places)
    multiples = tiling.cut_dims(call)
    sizes = {}
    for name in rng.sample(sorted(multiples), min(len(multiples), rng.choice((1, 1, 2, 2, 3)))):
        extent, multiple = given.geometry.extents[name], multiples[name]
        most = (extent - 1) // multiple
        if most > 0:
            sizes[name] = multiple * rng.randint(1, most)
    if not sizes:
        return
    for turn in range(TILES):
        box = {}
        for name, size in ((name, size) for name, size in sizes.items() if name not in given.geometry.nest.accumulated):
            extent = given.geometry.extents[name]
            first = size * ((extent - 1) // size if turn == 0 else rng.randrange(-(-extent // size)))
            box[name] = (first, min(first + size, extent) - 1)
        copied = {}
        for name in places:
            windows = tiling.Footprints(given.geometry, name, call.operands[name])
            whole = tiling.in_place(call, windows) if windows.is_mapped else frozenset()
            if rng.random() < 0.7 or whole is None or whole & sizes.keys():
                copied[name] = windows.order
        boxes = (_divide_box(given, places, box, rng) if rng.random() < 0.4 else ()) or (box,)
        for name in given.geometry.nest.accumulated:
            steps = _reduction_steps(given.geometry.extents[name], sizes.get(name))
            boxes = tuple({**each, name: step} for step in steps for each in boxes)
        yield KernelForm("tiles", places, copied, box, boxes, {})


def _reduction_steps(extent: int, size: int | None) -> list[Span]:
    """All of a reduction, in tiles of a size, or whole; each is added to the sums of those before it."""
    size = size or extent
    return [(first, min(first + size, extent) - 1) for first in range(0, extent, size)]


def _divide_box(given: Subject, places: Mapping[str, Access], box: Box, rng: Random) -> tuple[Box, ...]:
    """The shares of several cores along dimensions that they may divide; cores of which nothing is left have none."""
    call = given.call(places)
    dims = [name for name in tiling.core_dims(call, tiling.cut_dims(call)) if given.geometry.extents[name] > 1]
    if not dims or not given.cores or given.kernel.team:
        return ()
    boxes = [box]
    for name, parts in rng.choice(tiling.core_divisions(call, dims, rng.randint(2, given.cores))):
        first, last = box.get(name, (0, given.geometry.extents[name] - 1))
        share = -(-(last - first + 1) // parts)
        boxes = [{**each, name: (begin, min(begin + share - 1, last))} for each in boxes for begin in range(first, last + 1, share)]
    return tuple(boxes)


def make_runs(given: Subject, form: KernelForm, lookup: TemplateLookup) -> tuple[KernelRun, dict[str, interface.Instance]]:
    """The C of a form, its memory, and what is in it afterwards; and the instances of kernels that it calls."""
    call = given.call(form.accesses)
    if form.dynamic:
        call = replace(call, geometry=replace(given.geometry, dynamic=frozenset({form.dynamic})))
    instances: dict[str, interface.Instance] = {}
    whole = {n: _tile_part(given.geometry, n, form.box, a.shape)[0] for n, a in given.arrays.items()}
    accesses = {n: _pack_part(whole[n], form.copied[n]) if n in form.copied else a for n, a in form.accesses.items()}
    arrays = {n: a[whole[n]] if n in form.copied else a for n, a in given.arrays.items()}
    memory: dict[str, np.ndarray] = {
        n: np.full(piece.bytes * piece.cores, POISON if n == SUMS else 0, np.uint8) for n, piece in _scratch_pieces(call, form).items()
    }
    scratch = frozenset(memory)
    steps = _reduction_boxes(given, form)
    for name, array in arrays.items():
        if name in form.copied and len(steps) > 1 and name not in given.kernel.outputs:
            parts = [_tile_part(given.geometry, name, {**form.box, **step}, given.arrays[name].shape)[0] for step in steps]
            memory[name] = np.concatenate([given.arrays[name][part].transpose(form.copied[name]).ravel() for part in parts])
        elif name not in form.shared:
            memory[name] = _spread_array(array, accesses[name], name not in given.kernel.outputs)
    body: list[str] = []
    for phase in range(len(call.phases)):
        for number, box in enumerate(form.boxes):
            body += _print_body(given, form, call, instances, lookup, number % max(1, given.cores), box, steps, phase)
    wanted = {}
    for name in given.kernel.outputs:
        inside = () if name in form.copied else whole[name]
        owner = form.shared.get(name, name)
        wanted[name] = (owner, element_indices(accesses[name])[inside], arrays[name][inside])
    kinds = {n: given.types[n].c for n in memory if n not in scratch} | dict.fromkeys(scratch, "uint8_t")
    return KernelRun(given.number, form.way, memory, kinds, tuple(body), wanted, scratch, given.kernel.is_exact(given.case.node)), instances


def _scratch_pieces(call: Call, form: KernelForm) -> dict[str, interface.Piece]:
    """The scratch memory of the form's tile."""
    sizes = {name: last - first + 1 for name, (first, last) in form.box.items()}
    return interface.scratch_pieces(call, sizes, {name: f"m_{name}" for name in call.kernel.scratch})


def _print_body(
    given: Subject,
    form: KernelForm,
    call: Call,
    instances: dict[str, interface.Instance],
    lookup: TemplateLookup,
    core: int,
    box: Box,
    steps: Sequence[Box],
    phase: int,
) -> list[str]:
    """The call of one core, or a phase of it: pointers to what its part touches, and the kernel's template."""
    views: dict[str, interface.PrintedOperand | None] = dict.fromkeys(name.rstrip("?") for name in given.kernel.inputs)
    lines = [f"core = {core};"]
    rows = Variable(ROWS, 0, given.geometry.extents.get(form.dynamic, 0))
    for name, array in given.arrays.items():
        part, before = _tile_part(given.geometry, name, box, array.shape)
        grown = _dynamic_axes(given, form, name)
        held, access = _held_part(given, form, name, box, steps)
        origin = [w.start for w in held] if name in form.copied else [0] * len(part)
        kind = given.types[name]
        first = access.offset + sum((s.start - o) * step for s, o, step in zip(part, origin, access.strides, strict=True))
        views[name] = interface.PrintedOperand(
            ptr=Variable(name, 0, 0),
            extent=tuple(rows if axis in grown else s.stop - s.start for axis, s in enumerate(part)),
            stride=interface.template_strides(call, name, access.strides, [s.stop - s.start for s in held]),
            before=before,
            first=tuple(s.start for s in part),
            shape=array.shape,
            dtype=kind,
            dense=given.kernel.dense(name, array.ndim),
        )
        const, owner = "" if name in given.kernel.outputs else "const ", form.shared.get(name, name)
        cast = "" if owner == name else f"({const}{kind.c} *)"
        lines.append(f"{const}{kind.c} *{name} = {cast}m_{owner} + {first};")
    if given.geometry.nest.accumulated and given.kernel.post_processing is None:
        views[SUMS] = _accumulated_sums(given, form, call, box, lines)
    pointers = _scratch_pieces(call, form)
    extents = {name: rows if name == form.dynamic else size for name, size in given.geometry.extents.items()}
    columns = next((span[0] for name, span in box.items() if given.geometry.dims()[name].whole), 0)
    phases = [interface.part_phases(part, columns) for part in interface.call_parts(call, views, given.types)]
    every = [of_phases[phase] for of_phases in phases]
    is_last = all(box.get(name, (0, extents[name] - 1))[1] == extents[name] - 1 for name in given.geometry.nest.accumulated)
    text = _print_calls(
        call, every, instances, is_last, lambda part, name: interface.render_call(part.call, name, part.views, pointers, extents, lookup)
    )
    if _mentions_name(ROWS, text):
        lines.append(f"const int32_t {ROWS} = {box[form.dynamic][1] + 1};")
    used = [line for line in lines if ("= m_" not in line and "*)m_" not in line) or _mentions_name(line.split("*")[1].split()[0], text)]
    return ["{", *used, *text.splitlines(), "}"]


def _reduction_boxes(given: Subject, form: KernelForm) -> list[Box]:
    """The parts of reductions that are computed one after the other."""
    accumulated = given.geometry.nest.accumulated
    return [dict(step) for step in dict.fromkeys(tuple((name, box[name]) for name in accumulated if name in box) for box in form.boxes)]


def _held_part(given: Subject, form: KernelForm, name: str, box: Box, steps: Sequence[Box]) -> tuple[tuple[slice, ...], Access]:
    """What memory holds of an operand for a part, and how it lies there: copies for parts of a reduction are one behind the other."""
    shape, access = given.arrays[name].shape, form.accesses[name]
    if name not in form.copied:
        return _tile_part(given.geometry, name, form.box, shape)[0], access
    own = {dim: span for dim, span in box.items() if dim in given.geometry.nest.accumulated}
    parts = [_tile_part(given.geometry, name, {**form.box, **step}, shape)[0] for step in steps[: steps.index(own) + 1]]
    before = sum(math.prod(s.stop - s.start for s in part) for part in parts[:-1]) if name not in given.kernel.outputs else 0
    return parts[-1], replace(_pack_part(parts[-1], form.copied[name]), offset=before)


def _accumulated_sums(given: Subject, form: KernelForm, call: Call, box: Box, lines: list[str]) -> interface.PrintedOperand:
    """What a core's part sees of the sums of a tile's outputs, which are packed; ``lines`` get the pointer to it."""
    (name,) = call.writes
    part, whole = (_tile_part(given.geometry, name, each, given.arrays[name].shape)[0] for each in (box, form.box))
    steps = _pack_part(whole, tuple(range(len(part)))).strides
    first = sum((s.start - w.start) * step for s, w, step in zip(part, whole, steps, strict=True))
    lines.append(f"int32_t *{SUMS} = (int32_t *)m_{SUMS} + {first};")
    return interface.accumulated_sums(call, [Window(s.start, s.stop - s.start, 0, 0) for s in part], steps)


def _print_calls(
    call: Call,
    every: Sequence[interface.CalledPart],
    instances: dict[str, interface.Instance],
    is_last: bool,
    text: Callable[[interface.CalledPart, str], str],
) -> str:
    """The calls of a kernel's parts: the second one is done by all cores in turn, when the job of the first is, and sums are complete."""
    texts = [text(part, calls.add_instance(part.call, part.stored, instances, "")) for part in every]
    if len(texts) == 1:
        return texts[0]
    pointer = f"int32_t *const {SUMS} = (int32_t *)m_{SUMS};\n"
    first = f"{pointer}{{\n{texts[0]}\n}}\nrt_job_wait(ACCELERATOR_{call.kernel.engine});\n"
    return first + (f"for (core = 0; core < rt_machine.cores; core++) {{\n{texts[1]}\n}}\ncore = 0;" if is_last else "")


def _dynamic_axes(given: Subject, form: KernelForm, name: str) -> set[int]:
    """The axes of an operand that have as many indices as there are rows."""
    access = given.geometry.nest.maps().get(name)
    bare = [axis.bare() for axis in access.axes] if access is not None else []
    shape = given.geometry.shapes.get(name, ())
    return {axis for axis, dim in enumerate(bare) if dim is not None and dim.name == form.dynamic and shape[axis] > 1}


def _mentions_name(name: str, text: str) -> bool:
    return re.search(rf"(?<![.\w]){name}\b", text) is not None  # and not the field of a structure


def _tile_part(geometry: Geometry, name: str, box: Box, shape: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[int, ...]]:
    """What a tile touches of an operand, and how many indices it reads before it; all of it where there is no map."""
    try:
        footprint = geometry.footprint(name, box)
    except KeyError:
        return tuple(slice(0, n) for n in shape), (0,) * len(shape)
    return tuple(slice(a, a + n) for a, n in zip(footprint.first, footprint.extent, strict=True)), footprint.before


def _pack_part(part: tuple[slice, ...], order: tuple[int, ...]) -> Access:
    """A copy of a part, its axes packed in the order in which they lie in memory, outermost first."""
    shape = tuple(s.stop - s.start for s in part)
    steps = [math.prod(shape[inner] for inner in order[order.index(axis) + 1 :]) for axis in range(len(shape))]
    return Access(shape, 0, tuple(steps))


def element_indices(access: Access) -> np.ndarray:
    """Where every element lies in the piece of memory."""
    grid = np.full(access.shape, access.offset, np.int64)
    for axis, stride in enumerate(access.strides):
        grid += np.arange(access.shape[axis]).reshape([-1 if i == axis else 1 for i in range(grid.ndim)]) * stride
    return grid


def _spread_array(array: np.ndarray, access: Access, is_filled: bool) -> np.ndarray:
    """A piece of memory that ends with the last element; all else in it is poison, as outputs are."""
    if is_filled and access.offset == 0 and access.strides == dense_strides(array.shape):
        return np.ascontiguousarray(array).reshape(-1)
    last = sum((n - 1) * s for n, s in zip(access.shape, access.strides, strict=True))
    count = access.offset + 1 + last if array.size else 0
    flat = np.full(count * array.itemsize, POISON, np.uint8).view(array.dtype)
    if is_filled:
        flat[element_indices(access)] = array
    return flat
