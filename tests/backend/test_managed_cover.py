"""Emitted tiles and parts of cores: the C is compiled and counts how often it writes every element of every output."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import deeploy
from deeploy.backend.layers import declare_parts
from deeploy.ir.mentions import mentions
from deeploy.options import Options
from deeploy.planning.plan import Buffering
from deeploy.resources import resource
from deeploy.schedule import build_schedule
from deeploy.schedule.ir import Layer
from tests.execution.simulation import nets

INCLUDE = resource("kernels") / "hal"
NETWORKS: dict[str, tuple[Callable[[Path, Options], deeploy.Compiled], int, int]] = {
    "convolutions": (nets.convolutions, 2500, 14_000),
    "perceptron": (nets.perceptron, 2000, 6000),
    "transposed": (nets.transposed, 4000, 6000),
}


def counter(layer: Layer, output: str) -> list[str]:
    """C: a function that prints fewest and most writes of an element, and the tiles."""
    step, shape = layer.step, layer.call.operands[output].access.shape
    with mentions() as noted:
        begin = [f"if ({count} <= 0) return;" for count in layer.work.empty]
        place = "0"
        for axis, (size, window) in enumerate(zip(shape, layer.work.operands[output].axes, strict=True)):
            begin.append(f"for (int32_t i{axis} = {window.first}; i{axis} < {window.first} + {window.count}; i{axis}++)")
            place = f"({place}) * {size} + i{axis}"
    lines = [f"static int count_{step}[{math.prod(shape)}];", f"static void tile_{step}(int32_t t) {{", "(void)t;"]
    lines += [*declare_parts(noted.parts()), *begin]
    lines += [f"count_{step}[{place}]++;", "}", f"static void call_{step}(void) {{", f"for (int32_t t = 0; t < {layer.tiling.tiles}; t++)"]
    lines += [f"for (core = 0; core < {layer.work.cores}; core++) tile_{step}(t);", "int least = 1 << 30, most = 0;"]
    lines += [f"for (int i = 0; i < {math.prod(shape)}; i++) {{", f"if (count_{step}[i] < least) least = count_{step}[i];"]
    return [*lines, f"if (count_{step}[i] > most) most = count_{step}[i];", "}", 'printf("%d %d\\n", least, most);', "}"]


@pytest.mark.share(0.25)
@pytest.mark.parametrize("memory", ["L2", "L3"])
@pytest.mark.parametrize("buffering", ["single", "double"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_element_is_written_once(name: str, buffering: Buffering, memory: str, tmp_path: Path) -> None:
    network, l1, l2 = NETWORKS[name]
    little = {"l2": l2} if memory == "L3" else {}
    plan = network(tmp_path, Options(memory={"l1": l1, **little}, buffering=buffering, default_memory=memory)).plan
    assert max(candidate.tiling.tiles for candidate in plan.calls) > 2
    assert any(candidate.tiling.division for candidate in plan.calls)
    source = ["#include <stdint.h>", "#include <stdio.h>", '#include "deeploy_tile.h"', "static int core;", "#define rt_core() core"]
    for layer in build_schedule(plan).layers:
        (output,) = layer.call.writes
        source += counter(layer, output)
    source += ["int main(void) {", *(f"call_{step}();" for step in range(len(plan.program.calls))), "return 0;", "}"]
    (tmp_path / "cover.c").write_text("\n".join(source))
    command = ["gcc", "-std=c11", "-fsanitize=address,undefined", f"-I{INCLUDE}", str(tmp_path / "cover.c"), "-o", str(tmp_path / "cover")]
    subprocess.run(command, check=True)
    done = subprocess.run([str(tmp_path / "cover")], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["1 1"] * len(plan.program.calls)
