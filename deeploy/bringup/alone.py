"""A kernel alone: its C compiled with sanitizers and run on cases, whole, with strided operands, in tiles, and in the parts of cores.

It takes the way of a compiled network (layouts of constants, geometry, instance, template), one call at a time. Every buffer lies on
the heap with exactly its size, so that a read or write beyond an operand is an error.
"""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from mako.lookup import TemplateLookup

from deeploy.backend import calls
from deeploy.backend.emit import kernel_files
from deeploy.bringup.cases import Case
from deeploy.graph.expr import Span, Variable
from deeploy.graph.kernel import Kernel
from deeploy.graph.nest import Geometry, Kind, strides
from deeploy.graph.target import Target
from deeploy.graph.types import DType
from deeploy.midend import bind
from deeploy.midend.program import Call, Operand
from deeploy.operators.views import Access
from deeploy.report.compare import excess

WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
SANITIZE = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
POISON = 0xA5
GAP = 3  # elements between the rows of strided operands
PARTS = 3  # cores that share the work
WAYS = ("whole", "strided", "tiles", "parts")


@dataclass(frozen=True, eq=False)
class Run:
    """One piece of memory per operand, the C that works on it, and the outputs as they should be afterwards."""

    case: int
    way: str
    memory: Mapping[str, np.ndarray]
    types: Mapping[str, str]
    body: Sequence[str]
    wanted: Mapping[str, tuple[np.ndarray, Access]]


@dataclass(frozen=True)
class Failure:
    """What went wrong: on which case, in which way; the first line that says so."""

    case: int | None
    way: str
    text: str


def try_kernel(kernel: Kernel, target: Target, given: Sequence[Case], folder: Path, compiler: str = "gcc") -> tuple[int, Failure | None]:
    """How many runs were compared, and the first failure. ``folder`` takes the sources and the program."""
    lookup = TemplateLookup([str(path) for path in target.template_folders], strict_undefined=True)
    instances: dict[str, calls.Instance] = {}
    made: list[Run] = []
    for number, case in enumerate(given):
        made += _runs(number, case, kernel, lookup, instances)
    sources = kernel_files(target, kernel.source)
    for name, content in sources.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else content.decode(), encoding="utf-8")
    for instance in instances.values():
        defines = "".join(f"#define {name} {value}\n" for name, value in instance.macros)
        source = Path("kernels") / instance.source
        (folder / f"{instance.name}.c").write_text(f'#include <stdint.h>\n{defines}#include "{source}"\n', encoding="utf-8")
    (folder / "main.c").write_text(_main(made, instances), encoding="utf-8")
    (folder / "in.bin").write_bytes(b"".join(array.tobytes() for run in made for array in run.memory.values()))
    includes = {f"-I{(folder / name).parent}" for name in sources} | {f"-I{path}" for path in target.runtime if path.is_dir()}
    files = [str(folder / f"{name}.c") for name in ("main", *instances)]
    command = [compiler, *WARNINGS, *SANITIZE, *sorted(includes), *files, "-lm", "-o", str(folder / "main")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, encoding="utf-8", errors="replace")
    if done.returncode:
        return 0, Failure(None, "compile", _first(done.stderr, folder, target))
    done = subprocess.run(
        [str(folder / "main"), "in.bin", "out.bin"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=300,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode:
        last = max((int(number) for number in re.findall(r"^run (\d+)$", done.stderr, re.MULTILINE)), default=0)
        return last, Failure(made[last].case, made[last].way, _first(done.stderr, folder, target))
    return _compared(made, (folder / "out.bin").read_bytes())


def _first(text: str, folder: Path, target: Target) -> str:
    """The first line of a compiler's or sanitizer's text that says what is wrong; files by where they were written."""
    lines = [line for line in text.splitlines() if re.search(r"error|ERROR|undefined reference", line)]
    line = lines[0] if lines else (text.strip().splitlines() or ["it ended without a word"])[-1]
    frame = re.search(rf"{re.escape(str(folder))}/\S+:\d+", text) if "Sanitizer" in line else None
    line = f"{frame[0]}: {line.split('ERROR: ')[-1]}" if frame else line
    match = re.search(r"(\S*kernels/)(\S+?)(:\d+)", line)
    if match is not None:
        found = next((path / match[2] for path in target.kernel_folders if (path / match[2]).is_file()), None)
        line = line.replace(f"{match[1]}{match[2]}", str(found)) if found else line
    return line.strip()


def _compared(made: Sequence[Run], data: bytes) -> tuple[int, Failure | None]:
    position = 0
    for number, run in enumerate(made):
        for name, (wanted, access) in run.wanted.items():
            memory = run.memory[name]
            flat = np.frombuffer(data, memory.dtype, memory.size, position)
            position += memory.nbytes
            places = _indices(access)
            got = flat[places]
            gaps = np.ones(flat.shape, bool)
            gaps[places] = False
            if not (flat[gaps].view(np.uint8) == POISON).all():
                return number, Failure(run.case, run.way, f"it wrote between the rows of {name}")
            same = excess(got, wanted) <= 1 if wanted.dtype.kind == "f" else got == wanted
            if not same.all():
                at = tuple(int(i) for i in np.argwhere(~same)[0])
                text = f"{name}{list(at)} is {got[at]} instead of {wanted[at]}; {int((~same).sum())} of {same.size} elements differ"
                return number, Failure(run.case, run.way, text)
    return len(made), None


def _runs(number: int, case: Case, kernel: Kernel, lookup: TemplateLookup, instances: dict[str, calls.Instance]) -> Iterator[Run]:
    names = bind.operand_names(kernel, case.node)
    assert names is not None
    stored = {n: case.inputs[n] for n in names}
    for name, layout in kernel.layouts.items():
        if name in stored:
            encoded = layout.encode(stored[name], case.node)
            if encoded is None:
                del stored[name]
            else:
                stored[name] = encoded
    geometry = bind.bound_geometry(kernel, case.node, stored)
    results = dict(zip(kernel.outputs, case.wanted, strict=True))
    for way in WAYS:
        cuts = {"tiles": _tiles, "parts": _parts}.get(way)
        boxes = cuts(kernel, geometry) if cuts is not None else [{}]
        is_strided = way == "strided" and any(
            dense < geometry_rank(geometry, n) for n, dense in kernel.strided.items() if n in geometry.shapes
        )
        if not boxes or (way == "strided" and not is_strided):
            continue
        yield from _pieces(number, way, case, kernel, geometry, {**stored, **results}, set(results), boxes, lookup, instances)


def geometry_rank(geometry: Geometry, operand: str) -> int:
    """Axes of an operand as it is stored."""
    return len(geometry.shapes[operand])


def _cuttable(kernel: Kernel, geometry: Geometry) -> list[str]:
    dims = [n for n, extent in geometry.extents.items() if extent > 1 and geometry.cuttable(n) is Kind.PARALLEL]
    return [name for name in dims if name not in kernel.tiling.whole]


def _tiles(kernel: Kernel, geometry: Geometry) -> list[dict[str, Span]]:
    """Two tiles or three, with a remainder, along each of the two longest dimensions."""
    ranges = []
    for name in sorted(_cuttable(kernel, geometry), key=lambda n: -geometry.extents[n])[:2]:
        extent, multiple = geometry.extents[name], kernel.tiling.multiple.get(name, 1)
        size = max(multiple, -(-(extent * 2 // 5) // multiple) * multiple)
        if size < extent:
            ranges.append([(name, (first, min(first + size, extent) - 1)) for first in range(0, extent, size)])
    return [dict(choice) for choice in itertools.product(*ranges)] if ranges else []


def _parts(kernel: Kernel, geometry: Geometry) -> list[dict[str, Span]]:
    """The shares of several cores along the first dimension that they may divide."""
    name = next((n for n in kernel.cores if n in geometry.extents and geometry.extents[n] > 1), None)
    if name is None or geometry.cuttable(name) is not Kind.PARALLEL:
        return []
    extent = geometry.extents[name]
    share = -(-extent // PARTS)
    return [{name: (first, min(first + share, extent) - 1)} for first in range(0, extent, share)]


def _pieces(
    number: int,
    way: str,
    case: Case,
    kernel: Kernel,
    geometry: Geometry,
    arrays: Mapping[str, np.ndarray],
    outputs: set[str],
    boxes: Sequence[Mapping[str, Span]],
    lookup: TemplateLookup,
    instances: dict[str, calls.Instance],
) -> Iterator[Run]:
    """A run per tile, whose operands are copies of what it touches, or one run in which every core's part follows the other."""
    types = {name: DType.of(array.dtype) for name, array in arrays.items()}
    accesses = {n: _access(a.shape, kernel.dense(n, a.ndim) if way == "strided" else a.ndim) for n, a in arrays.items()}
    call = Call("call", case.node, kernel, geometry, {n: Operand(n, a) for n, a in accesses.items()}, {n: n for n in kernel.scratch})
    instance = calls.instance(call, types)
    instances.setdefault(instance.name, instance)
    kinds = {n: t.c for n, t in types.items()} | {n: "uint8_t" for n in kernel.scratch}
    whole: Run | None = None
    for core, box in enumerate(boxes):
        parts = {n: _part(geometry, n, box, a.shape) for n, a in arrays.items()}
        tile = replace(geometry, extents={**geometry.extents, **{n: last - first + 1 for n, (first, last) in box.items()}})
        scratch = {n: np.zeros(size(geometry if way == "parts" else tile), np.uint8) for n, size in kernel.scratch.items()}
        if way == "tiles":
            arrays_here = {n: a[parts[n][0]].copy(order="C") for n, a in arrays.items()}
            access = {n: Access.dense(a.shape) for n, a in arrays_here.items()}
        else:
            arrays_here, access = dict(arrays), accesses
        views, lines = (
            dict[str, calls.View | None](dict.fromkeys(name.rstrip("?") for name in kernel.inputs)),
            [f"core = {core if way == 'parts' else 0};"],
        )
        for n, array in arrays.items():
            slices, before = parts[n]
            steps = calls.broadcast(call, n, access[n].strides)
            first = sum(s.start * step for s, step in zip(slices, access[n].strides, strict=True)) if way == "parts" else 0
            extent = tuple(s.stop - s.start for s in slices)
            views[n] = calls.View(
                Variable(n, 0, 0), extent, steps, before, tuple(s.start for s in slices), array.shape, types[n], kernel.dense(n, array.ndim)
            )
            lines.append(f"{'' if n in outputs else 'const '}{types[n].c} *{n} = m_{n} + {first};")
        pointers = {n: f"(void *)m_{n}" for n in kernel.scratch}
        text = [*lines, *calls.render(call, instance.name, views, pointers, calls.extents(call, 0), lookup).splitlines()]
        used = [
            line for line in text if "= m_" not in line or re.search(rf"\b{line.split('*')[1].split()[0]}\b", "\n".join(text[len(lines) :]))
        ]
        memory = {n: _spread(a, access[n]) for n, a in arrays_here.items()} | scratch
        memory |= {n: np.full(memory[n].nbytes, POISON, np.uint8).view(memory[n].dtype) for n in outputs}
        run = Run(number, way, memory, kinds, ["{", *used, "}"], {n: (arrays_here[n], access[n]) for n in sorted(outputs)})
        if way != "parts":
            yield run
        else:
            whole = run if whole is None else replace(whole, body=[*whole.body, *run.body])
    if whole is not None:
        yield whole


def _part(geometry: Geometry, name: str, box: Mapping[str, Span], shape: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[int, ...]]:
    """What a tile touches of an operand, and how many indices it reads before it; all of it where there is no map."""
    try:
        found = geometry.footprint(name, box)
    except KeyError:
        return tuple(slice(0, n) for n in shape), (0,) * len(shape)
    return tuple(slice(a, a + n) for a, n in zip(found.first, found.extent, strict=True)), found.before


def _access(shape: tuple[int, ...], dense: int) -> Access:
    """Row-major order with GAP unused elements behind every row of all but the ``dense`` innermost axes."""
    steps, step = [1] * len(shape), 1
    for axis in range(len(shape) - 1, -1, -1):
        steps[axis] = step
        step *= shape[axis]
        if axis > 0 and len(shape) - axis >= dense and dense < len(shape):
            step += GAP
    return Access(shape, 0, tuple(steps))


def _indices(access: Access) -> np.ndarray:
    grid = np.zeros(access.shape, np.int64)
    for axis, stride in enumerate(access.strides):
        grid += np.arange(access.shape[axis]).reshape([-1 if i == axis else 1 for i in range(grid.ndim)]) * stride
    return grid


def _spread(array: np.ndarray, access: Access) -> np.ndarray:
    if access.strides == strides(array.shape):
        return array.reshape(-1)
    count = 1 + sum((n - 1) * s for n, s in zip(access.shape, access.strides, strict=True))
    flat = np.full(count * array.itemsize, POISON, np.uint8).view(array.dtype)
    flat[_indices(access)] = array
    return flat


_TAKE = """
int rt_core(void);
static int core;
int rt_core(void) { return core; }

static void *take(FILE *in, size_t bytes) {
    void *const result = malloc(bytes ? bytes : 1);
    if (!result || fread(result, 1, bytes, in) != bytes) exit(3);
    return result;
}
"""


def _main(made: Sequence[Run], instances: Mapping[str, calls.Instance]) -> str:
    """One function per run, in the order of their memory in the file."""
    lines = [f"#include <{name}.h>" for name in ("math", "stdint", "stdio", "stdlib")]
    lines += sorted({f'#include "{i.struct}.h"' for i in instances.values()})
    lines += [f"void {i.name}(const struct {i.struct} *k);" for i in instances.values()] + [_TAKE]
    for number, run in enumerate(made):
        lines += [f"static void run_{number}(FILE *in, FILE *out) {{"]
        for name, array in run.memory.items():
            lines.append(f"    {run.types[name]} *m_{name} = take(in, {array.nbytes});")
        lines += [f"    {line}" for line in run.body]
        lines += [f"    fwrite(m_{name}, 1, {run.memory[name].nbytes}, out);" for name in run.wanted]
        lines += [*(f"    free(m_{name});" for name in run.memory), "}", ""]
    lines += ["int main(int argc, char **argv) {", "    if (argc != 3) return 2;"]
    lines += ['    FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");', "    if (!in || !out) return 3;"]
    for number in range(len(made)):
        lines += [f'    fprintf(stderr, "run {number}\\n");', f"    run_{number}(in, out);"]
    return "\n".join([*lines, "    fclose(in);", "    return fclose(out) != 0;", "}", ""])
