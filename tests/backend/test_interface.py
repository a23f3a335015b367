"""What firmware includes: a typed entry and macros, inferences in steps, and weights that are checked."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from tests.e2e import decoders
from tests.models import save_graph

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wshadow", "-Wno-unused-parameter"]
COMPILERS = [("gcc", "-std=c11"), ("clang", "-std=c11"), ("g++", "-std=c++17")]
# Names that keywords, types, macros of compilers and what the header itself mentions have.
HOSTILE = ["class", "for", "int8_t", "linux", "INT32_MAX", "I", "network_run", "inputs", "ab/c", "AB:c", "new", '"*/ ${x}', "1"]
HOSTILE += ["this", "a_type", "a"]


def _convolutions(path: Path, seed: int = 0, extent: int = 8) -> Path:
    """Two convolutions, a product and a softmax, with weights of a seed."""
    rng = np.random.default_rng(seed)
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, s)] for n, s in (("image", [1, 1, extent, extent]), ("scores", [1, 10]))]
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], "second"),
        helper.make_node("Flatten", ["c"], ["f"]),
        helper.make_node("MatMul", ["f", "w3"], ["s"]),
        helper.make_node("Softmax", ["s"], ["scores"]),
    ]
    shapes = {"w1": (4, 1, 3, 3), "w2": (4, 4, 3, 3), "w3": (4 * (extent - 2) ** 2, 10)}
    weights = [numpy_helper.from_array(rng.normal(size=s).astype(np.float32) / 4, n) for n, s in shapes.items()]
    graph = helper.make_graph(nodes, "g", *ends, weights)
    save_graph(graph, path, 13)
    return path


def _build(folder: Path, main: str, *flags: str, run: Sequence[str] = ()) -> str:
    """Builds all sources of a project with a main file; what the program prints."""
    (folder / "main.c").write_text(main)
    sources = [*folder.glob("src/*.c"), *folder.glob("src/kernels/*.c"), folder / "main.c"]
    includes = [f"-I{folder / 'include'}", f"-I{folder / 'src'}", *(f"-I{path}" for path in folder.glob("kernels/*/"))]
    command = [
        "gcc",
        "-std=c11",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        *flags,
        *includes,
        *map(str, sources),
        "-lm",
        "-o",
        str(folder / "program"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return subprocess.run([str(folder / "program"), *run], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(("compiler", "standard"), COMPILERS)
def test_inputs_and_outputs_have_types_and_macros_whatever_they_are_called(compiler: str, standard: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    shapes = [[2, 3], [], [0, 2]]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[n % 3]) for n, name in enumerate(HOSTILE)]
    results = [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, shapes[n % 3]) for n, name in enumerate(HOSTILE)]
    nodes = [helper.make_node("Neg", [name], [f"{name}_y"]) for name in HOSTILE]
    save_graph(helper.make_graph(nodes, "g", ends, results), tmp_path / "m.onnx", 13)
    deeploy.compile(tmp_path / "m.onnx").write(tmp_path / "out")
    header = (tmp_path / "out/include/network.h").read_text()
    parameters = re.search(r"run_typed\((.*?)\) \{", header)
    assert parameters is not None
    names = [re.sub(r"\[.*", "", each).split()[-1].lstrip("*") for each in parameters[1].split(", ")]
    assert len({name.lower() for name in names}) == len(names) == 2 * len(HOSTILE)
    checks = [f'_Static_assert(NETWORK_INPUT_{name.upper()} == {n}, "");' for n, name in enumerate(names[: len(HOSTILE)])]
    checks += [f'_Static_assert(NETWORK_INPUT_{n}_ELEMENTS == {int(np.prod(shapes[n % 3]))}, "");' for n in range(len(HOSTILE))]
    text = '#include "network.h"\n#include <errno.h>\n#include <complex.h>\n' if compiler != "g++" else '#include "network.h"\n'
    text += "\n".join(checks).replace("_Static_assert", "static_assert" if compiler == "g++" else "_Static_assert")
    text += "\nstatic const int32_t shape[] = NETWORK_INPUT_0_SHAPE;\n"
    text += "int main(void) { NETWORK_INPUT_0_TYPE x = 0; return x != 0 || shape[1] != 3; }\n"
    source = tmp_path / ("main.cpp" if compiler == "g++" else "main.c")
    source.write_text(text)
    subprocess.run([compiler, standard, *STRICT, f"-I{tmp_path / 'out/include'}", "-fsyntax-only", str(source)], check=True)


STEPS = """#include <stdio.h>
#include <string.h>
#include "network.h"
static _Alignas(NETWORK_ARENA_ALIGNMENT) unsigned char arena[NETWORK_ARENA_BYTES + 1];
int main(void) {
    float image[1][1][8][8], whole[1][10], parts[1][10];
    for (int i = 0; i < 64; i++) image[0][0][i / 8][i % 8] = (float)(i * 7 % 11) / 11;
    const void *inputs[] = {image};
    void *outputs[] = {parts};
    if (network_step(1) != DEEPLOY_ERROR_NOT_STARTED || network_start(inputs, outputs) != DEEPLOY_ERROR_NOT_INITIALISED) return 1;
    if (network_init(arena, sizeof arena) || network_run_typed((const float(*)[1][8][8])image, whole)) return 2;
    for (int size = 1; size <= NETWORK_STEPS + 1; size++) {
        memset(parts, 0, sizeof parts);
        if (network_start(inputs, outputs)) return 3;
        int calls = 1;
        while (network_step(size) == DEEPLOY_UNFINISHED) calls++;
        if (memcmp(whole, parts, sizeof whole) || calls != (NETWORK_STEPS + size - 1) / size) return 4;
        if (network_step(size) != DEEPLOY_ERROR_NOT_STARTED) return 5;
    }
    if (network_start(inputs, outputs) || network_step(1) != DEEPLOY_UNFINISHED || network_run(inputs, outputs)) return 6;
    if (network_step(1) != DEEPLOY_ERROR_NOT_STARTED) return 7; /* an inference as a whole gave it up */
    printf("%d\\n", NETWORK_STEPS);
}
"""


@pytest.mark.parametrize("objective", ["cycles", "ram"])  # with one, layers are fused
def test_an_inference_in_steps_computes_what_one_at_once_does(objective: str, tmp_path: Path) -> None:
    deeploy.compile(_convolutions(tmp_path / "m.onnx"), objective=objective).write(tmp_path / "out")
    steps = int(_build(tmp_path / "out", STEPS, "-DDEEPLOY_STEPS"))
    assert steps == (4 if objective == "cycles" else 3)


def test_steps_of_a_network_with_states_append_rows_at_the_end(tmp_path: Path) -> None:
    main = """#include <string.h>
#include "network.h"
static _Alignas(NETWORK_ARENA_ALIGNMENT) unsigned char arena[NETWORK_ARENA_BYTES + 1];
static unsigned char in[NETWORK_INPUTS][1 << 16], out[2][NETWORK_OUTPUTS][1 << 16];
int main(void) {
    const void *inputs[NETWORK_INPUTS];
    for (int round = 0; round < 2; round++) {
        void *outputs[NETWORK_OUTPUTS];
        for (int i = 0; i < NETWORK_INPUTS; i++) inputs[i] = in[i];
        for (int i = 0; i < NETWORK_OUTPUTS; i++) outputs[i] = out[round][i];
        if (network_init(arena, sizeof arena)) return 1;
        for (int row = 0; row < 3; row++) {
            if (!round && network_run(inputs, outputs)) return 2;
            if (!round) continue;
            if (network_start(inputs, outputs)) return 3;
            while (network_position() == (uint32_t)row * NETWORK_ROWS && network_step(1) == DEEPLOY_UNFINISHED) continue;
        }
        if (network_position() != 3 * NETWORK_ROWS) return 4;
    }
    return memcmp(out[0], out[1], sizeof out[0]) != 0;
}
"""
    deeploy.compile(decoders.decoder(tmp_path, 1), context=8).write(tmp_path / "out")
    assert _build(tmp_path / "out", main, "-DDEEPLOY_STEPS") == ""  # and exit status 0


def test_where_transfers_run_ahead_steps_are_refused(tmp_path: Path) -> None:
    header = deeploy.compile(_convolutions(tmp_path / "m.onnx"), target="siracusa").files()["include/network.h"]
    (tmp_path / "network.h").write_text(str(header))
    (tmp_path / "deeploy_network.h").write_text(str(deeploy.compile(tmp_path / "m.onnx").files()["include/deeploy_network.h"]))
    done = subprocess.run(
        ["gcc", "-fsyntax-only", "-DDEEPLOY_STEPS", "-x", "c", str(tmp_path / "network.h")], capture_output=True, text=True, check=False
    )
    assert done.returncode and "cannot stop between layers, since transfers for a layer begin before" in done.stderr


WEIGHTS = """#include <stdio.h>
#include <stdlib.h>
#include "network.h"
#include "network_weights.h"
static _Alignas(NETWORK_ARENA_ALIGNMENT) unsigned char arena[NETWORK_ARENA_BYTES + 1];
int main(int count, char **files) {
    const float image[1][1][8][8] = {{{{1, 2, 3}}}};
    float scores[1][10];
    if (network_init(arena, sizeof arena) != DEEPLOY_ERROR_NULL) return 1;
    for (int i = 1; i < count; i++) {
        unsigned char *slot = aligned_alloc(16, NETWORK_WEIGHTS_BYTES + 16);
        FILE *file = fopen(files[i], "rb");
        if (!file || fread(slot, 1, NETWORK_WEIGHTS_BYTES, file) < 16) return 2;
        network_weights = slot;
        const enum deeploy_status status = network_init(arena, sizeof arena);
        if (!status && network_run_typed(image, scores)) return 3;
        printf("%d %.9g\\n", status, status ? 0 : (double)scores[0][0]);
        slot[33] ^= 1;
        if (network_init(arena, sizeof arena) != DEEPLOY_ERROR_WEIGHTS) return 4;
        network_weights = slot + 1;
        if (network_init(arena, sizeof arena) != DEEPLOY_ERROR_WEIGHTS) return 5;
    }
}
"""


def test_weights_are_replaced_by_those_of_equal_code_and_no_others(tmp_path: Path) -> None:
    """Three models: of the same code with other weights, and of other code with as many bytes of weights."""
    files, expected = [], []
    x = np.zeros((1, 1, 8, 8), np.float32)
    x[0, 0, 0, :3] = 1, 2, 3
    for seed in (0, 1):
        compiled = deeploy.compile(_convolutions(tmp_path / f"m{seed}.onnx", seed))
        compiled.write(tmp_path / f"out{seed}")
        files.append(str(tmp_path / f"out{seed}/network_weights.bin"))
        expected.append(float(compiled.interpret({"image": x})[0].ravel()[0]))
    other = onnx.load(tmp_path / "m0.onnx")
    other.graph.node[1].op_type = "Abs"
    onnx.save(other, tmp_path / "other.onnx")
    deeploy.compile(tmp_path / "other.onnx").write(tmp_path / "other")
    files.append(str(tmp_path / "other/network_weights.bin"))
    lines = _build(tmp_path / "out0", WEIGHTS, "-DDEEPLOY_BINARY_WEIGHTS", run=files).split()
    assert lines[::2] == ["0", "0", "7"]
    assert np.allclose([float(lines[1]), float(lines[3])], expected, atol=1e-6) and expected[0] != expected[1]
