"""Windows as C against windows as numbers: random nests, every tile, the C compiled and run."""

from __future__ import annotations

import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from deeploy.backend.layers import declare_parts
from deeploy.ir.expr import Affine, Dim, Expr, Variable, evaluate_value
from deeploy.ir.mentions import mentions
from deeploy.ir.nest import Geometry, Map, Nest, Part, parallel, reduction
from deeploy.operators.views import Access
from deeploy.planning.program import Operand
from deeploy.planning.tiling.loops import Footprints
from deeploy.resources import resource

INCLUDE = resource("kernels") / "hal"
NESTS = 60
TILES = 4  # tile sizes tried per nest


@dataclass(frozen=True)
class Problem:
    """The windows of one operand, and the tile size of every cut dimension."""

    windows: Footprints
    tiles: dict[str, int]

    @property
    def starts(self) -> list[dict[str, tuple[int, int]]]:
        """First and last iteration per cut dimension, of all tiles."""
        result: list[dict[str, tuple[int, int]]] = [{}]
        for dim, size in self.tiles.items():
            extent = self.windows.geometry.extents[dim]
            cuts = [(first, min(first + size, extent) - 1) for first in range(0, extent, size)]
            result = [{**head, dim: cut} for head in result for cut in cuts]
        return result


def expression(numbers: random.Random, dims: list[Dim], taps: list[Dim]) -> Expr | int:
    """A dimension, or what convolutions, pools, flips, reshapes and repetitions make of it."""
    kind = numbers.choice(["bare", "halo", "halo", "flip", "quotient", "remainder", "both", "shift", "fixed"])
    dim = numbers.choice(dims)
    stride = numbers.randint(1, 3)
    if kind == "bare":
        return dim
    if kind == "halo":
        return stride * dim + numbers.randint(1, 3) * numbers.choice(taps) - numbers.randint(-1, 4)
    if kind == "flip":
        return numbers.randint(3, 12) - stride * dim
    if kind == "quotient":
        return (stride * dim + numbers.choice(taps) - numbers.randint(0, 4)) // numbers.randint(2, 5)
    if kind == "remainder":
        return (stride * dim + numbers.randint(-3, 3)) % numbers.randint(2, 6)
    if kind == "both":
        divisor = numbers.randint(2, 4)
        return 2 * (dim // divisor) + dim % divisor
    if kind == "shift":
        return stride * dim + numbers.randint(-3, 3)
    return numbers.randint(0, 2)


def random_problem(seed: int) -> Problem:
    """An operand of one to three axes, mapped by one or two phases, in part outside of its borders."""
    numbers = random.Random(seed)
    dims, taps = list(parallel("a", "b", "c")), list(reduction("f", "g"))
    extents = {"a": numbers.randint(1, 11), "b": numbers.randint(1, 7), "c": numbers.randint(1, 5)} | {"f": numbers.randint(1, 3), "g": 2}
    count = numbers.randint(1, 3)
    phases = [Map(*(expression(numbers, dims, taps) for _ in range(count)), outside=0.0) for _ in range(numbers.choice([1, 1, 2]))]
    output = Map(*dims)
    nests = [Nest(reads={"x": access}, writes={"y": output}, extents=extents) for access in phases]
    nest = Nest(nests[0].reads, nests[0].writes, {}, extents, (), tuple(nests[1:]))
    shape = tuple(_size(numbers, [access.axes[axis] for access in phases], extents) for axis in range(count))
    shapes = {"x": shape, "y": tuple(extents[d.name] for d in dims)}
    geometry = Geometry(nest, shapes, extents)
    windows = Footprints(geometry, "x", Operand("x", Access(shape, 0, tuple(range(count, 0, -1)))))
    tiles = {name: numbers.randint(1, extents[name]) for name in numbers.sample(["a", "b", "c"], numbers.randint(1, 3))}
    return Problem(windows, tiles)


def _size(numbers: random.Random, axes: list[Affine], extents: dict[str, int]) -> int:
    """Of an axis: all that is touched, or less, so that windows are clipped; one index only where nothing else is touched."""
    box = {name: (0, extent - 1) for name, extent in extents.items()}
    touched = max(axis.span(box)[1] for axis in axes) + 1
    bare = [axis.bare() for axis in axes]
    if all(dim is not None for dim in bare):
        return max(extents[dim.name] for dim in bare if dim is not None)
    return max(min(touched, 2), touched - numbers.choice([0, 0, 1, 3]), 1)


def function(number: int, problem: Problem) -> list[str]:
    """C that prints first, count and clipped indices of every axis, for all tiles."""
    extents = problem.windows.geometry.extents
    at: dict[str, Part] = {d: (Variable(f"at_{d}", 0, extents[d] - 1), Variable(f"n_{d}", 1, size)) for d, size in problem.tiles.items()}
    with mentions() as noted:
        prints = []
        for axis in range(len(problem.windows.shape)):
            window = problem.windows.window(axis, at, f"x_{axis}")
            prints.append(f'printf("%d %d %d ", (int)({window.first}), (int)({window.count}), (int)({window.before}));')
    lines = [f"static void problem_{number}(void) {{"]
    for dim, size in problem.tiles.items():
        extent = problem.windows.geometry.extents[dim]
        lines.append(f"for (int32_t at_{dim} = 0; at_{dim} < {extent}; at_{dim} += {size}) {{")
        lines.append(f"const int32_t n_{dim} = smaller({size}, {extent} - at_{dim}); (void)n_{dim};")
    return [*lines, *declare_parts(noted.parts()), *prints, 'printf("\\n");', "}" * len(problem.tiles), "}"]


def expected(problem: Problem) -> list[list[int]]:
    """The same numbers from the intervals of the map: first, count and indices in front of the operand."""
    rows = []
    windows = problem.windows
    for spans in problem.starts:
        row = []
        box = windows.geometry.box(spans)
        for axis, size in enumerate(windows.shape):
            axes = [access.axes[axis] for access in windows.maps]
            hulls = [(evaluate_value(low, {}), evaluate_value(high, {})) for low, high in (expression.hull(box) for expression in axes)]
            for (low, high), (first, last) in zip(hulls, (expression.span(box) for expression in axes), strict=True):
                assert low <= first <= last <= high  # along a remainder, every residue; else just what is touched
            least, most = min(low for low, _ in hulls), max(high for _, high in hulls)
            first, last = max(0, least), min(most, size - 1)
            row += [min(first, size - 1), max(0, last - first + 1), max(0, -least)]  # also where it is empty, it begins inside
        rows.append(row)
    return rows


@pytest.mark.parametrize("flags", ["-O0", "-O2"])
def test_the_c_says_what_the_map_says(tmp_path: Path, flags: str) -> None:
    problems = [random_problem(seed) for seed in range(NESTS * TILES)]
    source = ["#include <stdint.h>", "#include <stdio.h>", '#include "deeploy_tile.h"']
    for number, problem in enumerate(problems):
        source += function(number, problem)
    source += ["int main(void) {", *(f'problem_{n}(); printf("end\\n");' for n in range(len(problems))), "return 0;", "}"]
    (tmp_path / "windows.c").write_text("\n".join(source))
    program = tmp_path / "windows"
    command = ["gcc", "-std=c11", "-Wno-unused", flags, "-fsanitize=undefined", "-fno-sanitize-recover", f"-I{INCLUDE}"]
    subprocess.run([*command, str(tmp_path / "windows.c"), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=True)
    blocks = done.stdout.split("end\n")
    clipped = empty = 0
    for number, problem in enumerate(problems):
        got = [[int(value) for value in line.split()] for line in blocks[number].splitlines()]
        want = expected(problem)
        assert len(got) == len(want)
        for line, numbers in zip(got, want, strict=True):
            clipped += any(numbers[2::3])
            for first, count, before, low, size, outside in zip(
                *(line[i::3] for i in range(3)), *(numbers[i::3] for i in range(3)), strict=True
            ):
                assert (first, count, before) == (low, size, outside), (number, problem.tiles)
                empty += not size
    assert clipped > 100
    assert empty > 10
