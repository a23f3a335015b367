"""Names in emitted C: the linker sees those of the project alone, projects link with each other, and no name of a model is in the way."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.chips import compile as compile_chips
from tests.e2e import decoders
from tests.models import save_graph

STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
# What is documented as the interface of the runtime, and what a list of one of several projects is called.
SHARED = {"deeploy_networks", "deeploy_network_count", "deeploy_messages", "rt_machine"}
# Names that generated C, its runtime and the C library have.
# fmt: off
OWN = [
    "run", "init", "network", "networks", "network_count", "inputs", "outputs", "weights", "position", "seek", "generate",
    "past_rows", "arena", "infer", "prepare", "team", "announce", "expf", "memcpy", "all_rows", "rt_fetch", "layer", "k", "IN",
    "OUT", "blocks", "BLOCKS", "smaller", "quotient", "sources", "results", "l1", "constants", "constant_run", "closure", "argument",
    "t", "LEVEL_L1", "machine", "int8_t", "INFINITY", "NAN", "kernel", "rt_machine", "DMA_L2_L1", "input_0_shape", "output_0_shape",
    "LAYER", "network_run", "NULL", "unix", "while_", "while", "EARLY", "levels", "engines", "main", "bytes", "memory", "own", "none",
    "layer_run", "add_f32_f32_f32", "kernel_add_f32_f32_f32", "AT_run", "fetch_run", "run_fetch", "self", "instance", "tile",
    "default_instance", "instance_run", "ONCE", "FOR_run", "first_row", "near", "writer",
]
# fmt: on


def _save(path: Path, nodes: Sequence[onnx.NodeProto], ends: tuple[str, str], shape: Sequence[int], **weights: np.ndarray) -> Path:
    values = [[helper.make_tensor_value_info(end, TensorProto.FLOAT, shape)] for end in ends]
    graph = helper.make_graph(nodes, "g", *values, [numpy_helper.from_array(array, name) for name, array in weights.items()])
    return save_graph(graph, path)


def product(path: Path, seed: int) -> Path:
    """A product, a softmax and a sum: projects of several seeds need the same kernels for other constants."""
    weight = np.random.default_rng(seed).normal(size=(8, 8)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "weights"], ["a"], "run"),
        helper.make_node("Softmax", ["a"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    return _save(path, nodes, ("x", "y"), [4, 8], weights=weight)


def named(path: Path, names: Sequence[str]) -> Path:
    """A chain whose nodes and constants have these names: sums and products, with a softmax after every third."""
    rng, nodes, weights, last = np.random.default_rng(0), list[onnx.NodeProto](), dict[str, np.ndarray](), "x"
    for number, name in enumerate(names):
        weights[name] = rng.normal(size=4).astype(np.float32)
        nodes.append(helper.make_node("Add" if number % 2 else "Mul", [last, name], [f"t{number}"], name))
        nodes += [helper.make_node("Softmax", [f"t{number}"], [f"s{number}"], f"{name}_fetch")] if number % 3 == 0 else []
        last = nodes[-1].output[0]
    nodes.append(helper.make_node("Neg", [last], ["y"], "infer "))
    return _save(path, nodes, ("x", "y"), [3, 4], **weights)


def _objects(project: Path, folder: Path, *flags: str) -> list[Path]:
    """Objects of a project's sources, compiled as a build of one's own would."""
    folder.mkdir(parents=True)
    headers = {path.parent for top in ("include", "runtime", "kernels", "src", "chips") for path in (project / top).rglob("*.h")}
    includes = [f"-I{path.resolve()}" for path in sorted(headers)]
    sources = [path for path in sorted(project.rglob("*.c")) if path.parent.name in ("src", "kernels") and "runtime" not in path.parts]
    sources = [path for path in sources if path.parent.name == "src" or path.parent.parent.name == "src"]
    objects = []
    for number, source in enumerate(sources):
        objects.append(folder / f"{number}_{source.stem}.o")
        command = ["gcc", *STRICT, *flags, *includes, "-c", str(source.resolve()), "-o", str(objects[-1])]
        subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return objects


def _seen(objects: Sequence[Path]) -> set[str]:
    """The names that linkers see."""
    listed = subprocess.run(["nm", "-g", "--defined-only", *map(str, objects)], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1] for line in listed.splitlines() if len(line.split()) == 3}


def _fallback(path: Path) -> Path:
    """Two nodes of one kind that no kernel computes, with small constants, which become part of their code."""
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.normal(size=(2, 2, 3, 3, 3)).astype(np.float32) for i in range(2)}
    biases = {f"b{i}": rng.normal(size=2).astype(np.float32) for i in range(2)}
    nodes = [helper.make_node("Conv", [("x", "t")[i], f"w{i}", f"b{i}"], [("t", "y")[i]], pads=[1] * 6) for i in range(2)]
    return _save(path, nodes, ("x", "y"), [1, 2, 3, 3, 3], **weights, **biases)


def _with_fallback(tmp_path: Path, target: str) -> deeploy.Compiled:
    pytest.importorskip("emx_onnx_cgen", reason="the extra fallback is not installed")
    return deeploy.compile({"filled": _fallback(tmp_path / "m.onnx")}, target, fallback=True)


def _writer(tmp_path: Path, target: str) -> deeploy.Compiled:
    path = decoders.writer(tmp_path)
    return deeploy.compile({"prompt": path, "step": path}, target, dims={"prompt:rows": 4, "step:rows": 1}, context=24)


PROJECTS: dict[str, tuple[tuple[str, ...], Callable[[Path, str], deeploy.Compiled]]] = {
    "product": (("one",), lambda folder, target: deeploy.compile({"one": product(folder / "m.onnx", 0)}, target)),
    "hostile": (("network",), lambda folder, target: deeploy.compile(named(folder / "m.onnx", OWN), target)),
    "writer": (("prompt", "step"), _writer),
    "fallback": (("filled",), _with_fallback),
}


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("-DDEEPLOY_STATIC_ARENA",), ("-DDEEPLOY_BINARY_WEIGHTS",), ("-DDEEPLOY_PROFILE",)])
def test_networks_with_states_link_with_each_other(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Two projects of two networks each, and one without states, as one object: no name is defined twice, and all have a prefix."""
    path = decoders.writer(tmp_path)
    dims = {f"{name}:rows": rows for name, rows in (("ask", 4), ("tell", 1), ("prompt", 4), ("step", 1))}
    objects = []
    for pair in (("ask", "tell"), ("prompt", "step")):
        own = {key: rows for key, rows in dims.items() if key.split(":")[0] in pair}
        deeploy.compile(dict.fromkeys(pair, path), dims=own, context=24).write(tmp_path / pair[0])
        objects += _objects(tmp_path / pair[0], tmp_path / f"objects_{pair[0]}", *flags)
    deeploy.compile({"one": product(tmp_path / "m.onnx", 0)}).write(tmp_path / "one")
    objects += _objects(tmp_path / "one", tmp_path / "objects_one", *flags)
    subprocess.run(["ld", "-r", *map(str, objects), "-o", str(tmp_path / "all.o")], check=True, capture_output=True)
    seen = _seen([tmp_path / "all.o"])
    assert {f"{name}_{entry}" for name in ("tell", "step") for entry in ("instance_generate", "instance_run", "seek")} <= seen
    assert {name for name in seen if not name.startswith(("ask_", "tell_", "prompt_", "step_", "one_"))} <= SHARED


@pytest.mark.share(0.4)
@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize("name", PROJECTS)
def test_the_linker_sees_names_of_the_project_alone(tmp_path: Path, name: str, target: str) -> None:
    prefixes, make = PROJECTS[name]
    make(tmp_path, target).write(tmp_path / "out")
    seen = _seen(_objects(tmp_path / "out", tmp_path / "objects"))
    assert {f"{prefix}_{entry}" for prefix in prefixes for entry in ("init", "run", "network")} <= seen
    assert {name for name in seen if not name.startswith(tuple(f"{prefix}_" for prefix in prefixes))} <= SHARED


def test_the_linker_sees_names_of_real_projects_alone(tmp_path: Path, shared_models: Path) -> None:
    for number, name in enumerate(("mlperf_tiny/ic_int8_qdq_pc", "mlperf_tiny/kws_fp32", "dialect/Models/MLPerf/KeywordSpotting")):
        folder = shared_models / name
        inputs = folder / "inputs.npz"
        compiled = deeploy.compile({"real": folder / "network.onnx"}, inputs=inputs if inputs.exists() else None)
        compiled.write(tmp_path / str(number))
        seen = _seen(_objects(tmp_path / str(number), tmp_path / f"objects{number}"))
        assert {name for name in seen if not name.startswith("real_")} <= SHARED and len(seen) > 5


def test_the_linker_sees_names_of_chips_alone(tmp_path: Path) -> None:
    """Of each chip's library: kernels are of the project, and constants and messages of the chip."""
    compile_chips(product(tmp_path / "m.onnx", 0), "siracusa", 2).write(tmp_path / "out")
    seen = _seen(_objects(tmp_path / "out", tmp_path / "objects"))
    assert "network_run" in seen and {name for name in seen if not name.startswith("network_")} <= SHARED


def _main(folder: Path, names: Sequence[str], language: str) -> Path:
    """A program that runs every network on the numbers 0 to 31 and prints what comes out, bit by bit."""
    calls = [
        f"    static unsigned char {name}_arena[{name.upper()}_ARENA_BYTES + {name.upper()}_ARENA_ALIGNMENT];\n"
        f"    void *{name}_at = (void *)(((uintptr_t){name}_arena + {name.upper()}_ARENA_ALIGNMENT - 1)"
        f" / {name.upper()}_ARENA_ALIGNMENT * {name.upper()}_ARENA_ALIGNMENT);\n"
        f"    if ({name}_init({name}_at, {name.upper()}_ARENA_BYTES) || {name}_run(inputs, outputs)) return 1;\n"
        '    for (int i = 0; i < 32; i++) printf("%a ", (double)y[i]);\n'
        '    printf("\\n");\n'
        for name in names
    ]
    lines = ["#include <stdint.h>", "#include <stdio.h>", *(f'#include "{name}.h"' for name in names), "int main(void) {"]
    lines += ["    float x[32], y[32];", "    for (int i = 0; i < 32; i++) x[i] = (float)i / 32;"]
    lines += ["    const void *const inputs[] = {x};", "    void *const outputs[] = {y};", *calls, "    return 0;", "}", ""]
    path = folder / f"main.{language}"
    path.write_text("\n".join(lines))
    return path


@pytest.mark.share(0.25)
@pytest.mark.parametrize(("count", "language"), [(2, "c"), (3, "cc")])
def test_projects_link_into_one_program(tmp_path: Path, count: int, language: str) -> None:
    """Object by object, and as the libraries that their Makefiles make; in C and in C++."""
    names = ["alpha", "beta", "gamma"][:count]
    x = np.arange(32, dtype=np.float32).reshape(4, 8) / 32
    wanted = []
    for seed, name in enumerate(names):
        compiled = deeploy.compile({name: product(tmp_path / f"{name}.onnx", seed)})
        compiled.write(tmp_path / name)
        wanted.append(compiled.run([x])[0].ravel())
        subprocess.run(["make", "-s", "-C", str(tmp_path / name), "lib"], check=True, capture_output=True)
    objects = [str(path) for name in names for path in _objects(tmp_path / name, tmp_path / f"objects_{name}", "-O3")]
    libraries = [str(tmp_path / name / "build" / "libnetwork.a") for name in names]
    main = _main(tmp_path, names, language)
    compiler = ["gcc", *STRICT] if language == "c" else ["g++", "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    includes = [f"-I{tmp_path / name / 'include'}" for name in names]
    subprocess.run([*compiler, *includes, "-c", str(main), "-o", str(tmp_path / "main.o")], check=True)
    for parts in (objects, libraries, ["-Wl,--whole-archive", *libraries, "-Wl,--no-whole-archive"]):
        subprocess.run([compiler[0], str(tmp_path / "main.o"), *parts, "-lm", "-o", str(tmp_path / "program")], check=True)
        printed = subprocess.run([str(tmp_path / "program")], check=True, capture_output=True, text=True).stdout.splitlines()
        got = [[float.fromhex(word) for word in line.split()] for line in printed]
        assert np.array_equal(np.array(got, np.float32), np.stack(wanted))
    assert not np.array_equal(wanted[0], wanted[1])


@pytest.mark.share(0.25)
@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize("names", [OWN, ["x" * 10_000 + end for end in "abcdefg"]], ids=["own", "long"])
def test_names_of_a_model_are_never_in_the_way(tmp_path: Path, names: Sequence[str], target: str) -> None:
    """Nodes and constants with the names of generated C, and names of 10 000 characters, also of inputs and outputs."""
    path = named(tmp_path / "m.onnx", names)
    model = onnx.load(path)
    first, last = f"{names[-1]}in", f"{names[-1]}out"
    for node in model.graph.node:
        node.input[:] = [first if name == "x" else name for name in node.input]
        node.output[:] = [last if name == "y" else name for name in node.output]
    model.graph.input[0].name, model.graph.output[0].name = first, last
    onnx.save(model, path)
    compiled = deeploy.compile(path, target)
    x = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    compiled.write(tmp_path / "out")
    assert _objects(tmp_path / "out", tmp_path / "objects", "-Woverlength-strings")
    assert np.allclose(compiled.run([x])[0], compiled.interpret([x])[0], atol=1e-5)
