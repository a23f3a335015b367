"""Floats of 16 bits: constants stay so in memory where kernels read them so, and are float32 elsewhere; the same results everywhere."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.driver.verify import verify_compiled
from deeploy.ir.types import HALVES, DType, pack_elements, unpack_elements
from deeploy.options import Options
from tests.models import model_of, save_graph

CODES = {DType.FLOAT16: TensorProto.FLOAT16, DType.BFLOAT16: TensorProto.BFLOAT16}
UNITS = 6
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("dtype", HALVES)
def test_every_half_is_a_float(dtype: DType) -> None:
    words = np.arange(2**16, dtype=np.uint16)
    values = unpack_elements(words, dtype)
    finite = np.isfinite(values)
    assert values.dtype == np.float32
    assert finite.sum() == 2**16 - 2 * 2 ** (10 if dtype is DType.FLOAT16 else 7)
    assert np.array_equal(pack_elements(values[finite], dtype), words[finite])
    assert dtype.stores(values[finite])
    assert not dtype.stores(values)
    assert not dtype.stores(np.float32([1, 1 + 2**-12]))
    assert not dtype.stores(np.float32([1, 3e38])) or dtype is DType.BFLOAT16


def half_network(code: int, is_wide: bool = False) -> onnx.ModelProto:
    """Convolutions of all kinds, a recurrent layer, a product and a table; in floats of a type, or the same in float32."""
    numbers = np.random.default_rng(3)
    kind = TensorProto.FLOAT if is_wide else code
    tensors, nodes, last = [], [], "x"

    def weights(name: str, *shape: int) -> str:
        values = numbers.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
        values.flat[::7] *= 2.0**-15  # halves that are no normal ones
        half = numpy_helper.to_array(helper.make_tensor(name, code, shape, values.astype(np.float32).ravel())).astype(np.float32)
        tensors.append(helper.make_tensor(name, kind, shape, half.ravel()))
        return name

    def layer(op: str, *given: str, name: str = "", **attrs: object) -> None:
        nonlocal last
        nodes.append(helper.make_node(op, [last, *given], [f"{name or op}.y"], name or op, **attrs))
        last = f"{name or op}.y"

    layer("Conv", weights("dense", 8, 5, 3, 3), weights("bias", 8), name="dense", pads=[1, 1, 1, 1])
    layer("Conv", weights("grouped", 8, 4, 3, 3), name="grouped", group=2)
    layer("Conv", weights("depthwise", 8, 1, 3, 3), name="depthwise", group=8, pads=[1, 1, 1, 1])
    layer("Conv", weights("multiplied", 16, 1, 1, 1), name="multiplied", group=8)
    layer("ConvTranspose", weights("transposed", 16, 4, 2, 2), name="transposed", strides=[2, 2])
    tensors.append(numpy_helper.from_array(np.array([8, 1, 32]), "shape"))
    layer("Reshape", "shape")
    recurrent = weights("lstm.w", 1, 4 * UNITS, 32), weights("lstm.r", 1, 4 * UNITS, UNITS)
    nodes.append(helper.make_node("LSTM", [last, *recurrent], ["steps", "last"], "lstm", hidden_size=UNITS))
    tensors.append(numpy_helper.from_array(np.array([1, UNITS]), "flat"))
    last = "last"
    layer("Reshape", "flat", name="flatten")
    layer("MatMul", weights("product", UNITS, 24), name="product")
    nodes.append(helper.make_node("Gather", [weights("table", 20, 24), "i"], ["rows"], "table"))
    nodes.append(helper.make_node("Add", [last, "rows"], ["y"]))
    ports = [("x", kind, [1, 5, 6, 6]), ("i", TensorProto.INT64, [3]), ("y", kind, [3, 24])]
    values = [helper.make_tensor_value_info(*port) for port in ports]
    return model_of(helper.make_graph(nodes, "halves", values[:2], values[2:], tensors), 21)


def weights_of(compiled: deeploy.Compiled) -> dict[DType, int]:
    """Bytes of constants by type."""
    found: dict[DType, int] = {}
    for buffer in compiled.network.program.buffers.values():
        if buffer.data is not None:
            found[buffer.dtype] = found.get(buffer.dtype, 0) + buffer.bytes
    return found


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("compiler", ["gcc", "gcc -mf16c", "clang"])
def test_the_same_in_c(dtype: DType, compiler: str, tmp_path: Path) -> None:
    """Every finite half, by arithmetic and by the machine's own instruction."""
    if shutil.which(compiler.split()[0]) is None or ("f16c" in compiler and "f16c" not in Path("/proc/cpuinfo").read_text()):
        pytest.skip(f"no {compiler}")
    source = f"""
#include "halves.h"
#include <stdio.h>
int main(void) {{
    for (int i = 0; i < 65536; i++) {{
        const float value = from_{dtype.value}((uint16_t)i);
        fwrite(&value, sizeof value, 1, stdout);
    }}
}}
"""
    (tmp_path / "main.c").write_text(source)
    flags = ["-std=c11", "-O3", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{ROOT / 'kernels' / 'portable'}"]
    subprocess.run([*compiler.split(), *flags, "main.c", "-o", "main"], cwd=tmp_path, check=True)
    got = np.frombuffer(subprocess.run(["./main"], cwd=tmp_path, capture_output=True, check=True).stdout, np.float32)
    wanted = unpack_elements(np.arange(2**16, dtype=np.uint16), dtype)
    finite = np.isfinite(wanted)
    assert np.array_equal(got[finite].view(np.uint32), wanted[finite].view(np.uint32))


def given() -> list[np.ndarray]:
    return [np.random.default_rng(2).normal(size=(1, 5, 6, 6)).astype(np.float32), np.array([19, 0, 7])]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_halves_compute_what_floats_compute(dtype: DType, target: str, tmp_path: Path) -> None:
    """Weights are half as large, in plans, in weights.bin and in transfers; the outputs of the C are those of float32, bit for bit."""
    options = Options(memory={"l1": 6000}) if target == "siracusa" else Options()
    compiled = []
    for name, is_wide in (("half", False), ("whole", True)):
        onnx.save(half_network(CODES[dtype], is_wide), tmp_path / f"{name}.onnx")
        compiled.append(deeploy.compile(tmp_path / f"{name}.onnx", target, **options.given()))
    half, whole = compiled
    (wanted,) = whole.run(given())
    assert len(np.unique(wanted)) > 60
    assert np.array_equal(half.run(given())[0], wanted)
    assert np.array_equal(half.interpret(given())[0], whole.interpret(given())[0])
    read_so = 8 * 45 + 8 * 36 + 8 * 9 + 16 + 16 * 16 + 4 * UNITS * (32 + UNITS) + 24 * UNITS + 20 * 24
    narrow = weights_of(half)[dtype]
    assert narrow == 2 * read_so if target == "generic" else 0 < narrow <= 2 * read_so  # where that is faster
    assert not any(t.is_narrow for t in weights_of(whole))
    assert sum(weights_of(half).values()) == sum(weights_of(whole).values()) - narrow


def test_ports_are_float32_and_said_to_be(tmp_path: Path) -> None:
    onnx.save(half_network(TensorProto.FLOAT16), tmp_path / "half.onnx")
    compiled = deeploy.compile(tmp_path / "half.onnx")
    program = compiled.network.program
    assert [program.buffers[name].dtype for name in (*program.inputs, *program.outputs)] == [DType.FLOAT32, DType.INT64, DType.FLOAT32]
    assert "x, y: floats of 16 bits in the model, float32 in C" in compiled.network.notes


def test_verify_beside_onnxruntime_in_float32(tmp_path: Path) -> None:
    onnx.save(half_network(TensorProto.FLOAT16), tmp_path / "half.onnx")
    np.savez(tmp_path / "inputs.npz", **dict(zip("xi", given(), strict=True)))
    verdict = verify_compiled(deeploy.compile(tmp_path / "half.onnx"), tmp_path / "half.onnx", tmp_path / "inputs.npz")
    assert verdict.passed
    assert [against for against, _ in verdict.comparisons] == ["interpreter", "onnxruntime"]


def test_infinite_weights_stay_float32(tmp_path: Path) -> None:
    weights = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float16)
    weights[0, 0] = np.inf
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [2, n]) for name, n in (("x", 6), ("y", 4))]
    graph = helper.make_graph(nodes, "infinite", ports[:1], ports[1:], [numpy_helper.from_array(weights, "w")])
    save_graph(graph, tmp_path / "model.onnx", 21)
    compiled = deeploy.compile(tmp_path / "model.onnx")
    assert weights_of(compiled) == {DType.FLOAT32: 96}
    assert np.isinf(compiled.run([np.ones((2, 6), np.float32)])[0][:, 0]).all()
