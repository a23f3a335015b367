"""A second chip of Siracusa's family, from outside the tree: its kernels and runtime, with other memories."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.driver.verify import run_project
from deeploy.errors import FitError, UsageError
from deeploy.execution.runners import gvsoc
from deeploy.quantization.static import quantize_model
from deeploy.target import load
from tests.models import model_of

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "targets" / "pulp_open" / "deeploy_pulp_open"
KIB = 1024


def save_noisy_network(folder: Path, channels: int = 16) -> Path:
    """Two convolutions, one of them depthwise, a pool and a product, quantised with noise."""
    numbers = np.random.default_rng(0)
    shapes = {"w0": (channels, 3, 3, 3), "w1": (channels, 1, 3, 3), "w2": (channels * 16, 10)}
    constants = [numpy_helper.from_array(numbers.normal(0, 0.2, shape).astype(np.float32), name) for name, shape in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"], group=channels, pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("AveragePool", ["d"], ["e"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("MatMul", ["f", "w2"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(*each) for each in (("x", TensorProto.FLOAT, [1, 3, 16, 16]), ("y", TensorProto.FLOAT, [1, 10]))]
    model = model_of(helper.make_graph(nodes, "g", ports[:1], ports[1:], constants))
    model.ir_version = 8
    onnx.save(model, folder / "float.onnx")
    np.savez(folder / "inputs.npz", x=numbers.normal(0, 1, (2, 1, 3, 16, 16)).astype(np.float32))
    np.savez(folder / "samples.npz", x=numbers.normal(0, 1, (4, 3, 16, 16)).astype(np.float32))
    quantize_model(folder / "float.onnx", folder / "samples.npz", folder / "int8.onnx")
    return folder / "int8.onnx"


def outputs(compiled: deeploy.Compiled, inputs: Path) -> list[np.ndarray]:
    """Of every sample, by the kernels' references."""
    with np.load(inputs) as arrays:
        return [compiled.interpret([sample])[0] for sample in arrays["x"]]


def same(found: np.ndarray, wanted: Sequence[np.ndarray]) -> bool:
    return len(found) == len(wanted) and all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_what_it_has_of_its_own() -> None:
    chip, siracusa = load(FOLDER), load("siracusa")
    assert [engine.name for engine in chip.engines] == ["cluster", "link"]
    assert {kernel.name for kernel in chip.kernels} == {k.name for k in siracusa.kernels if k.engine in ("cluster", "link")}
    assert (chip.memory("L1").capacity, chip.memory("L2").capacity) == (64 * KIB, 1600 * KIB)
    assert chip.timing is not None and siracusa.timing is not None
    assert chip.timing.kernels["pulp_sum"] == siracusa.timing.kernels["pulp_sum"], "the cores are the same"
    assert chip.timing.paths["L3_L2"] != siracusa.timing.paths["L3_L2"], "the machine was measured"
    said = (FOLDER / "runtime" / "bare" / "soc.mk").read_text()
    assert f"SOC_L1_BYTES := {chip.memory('L1').capacity}\n" in said and f"SOC_L2_BYTES := {chip.memory('L2').capacity}\n" in said


@pytest.mark.parametrize("memory", ["L2", "L3"])
def test_the_host_model_agrees(tmp_path: Path, memory: str) -> None:
    compiled = deeploy.compile(save_noisy_network(tmp_path), FOLDER, default_memory=memory)
    assert "pulp_depthwise" in {call.kernel.name for call in compiled.plan.program.calls}
    compiled.write(tmp_path / "out")
    assert same(run_project(tmp_path / "out", tmp_path / "inputs.npz").outputs[0], outputs(compiled, tmp_path / "inputs.npz"))


def test_its_memory_is_a_limit(tmp_path: Path) -> None:
    model = save_noisy_network(tmp_path)
    assert deeploy.compile(model, FOLDER).plan.memory["L1"].peak <= 64 * KIB - 9 * KIB
    with pytest.raises(UsageError, match="l1"):
        deeploy.compile(model, FOLDER, memory={"l1": 65536})
    with pytest.raises(FitError):
        deeploy.compile(model, FOLDER, memory={"l1": 64})
    with pytest.raises(UsageError, match="npu"):
        deeploy.compile(model, FOLDER, engines=("npu",))


def test_the_program_for_the_chip_links(tmp_path: Path) -> None:
    if shutil.which("riscv64-unknown-elf-gcc") is None:
        pytest.skip("no riscv64-unknown-elf-gcc: install Debian's gcc-riscv64-unknown-elf and picolibc-riscv64-unknown-elf")
    deeploy.compile(save_noisy_network(tmp_path), FOLDER).write(tmp_path / "out")
    program = gvsoc.build_network(tmp_path / "out", "network") / "application.elf"
    text = subprocess.run(["riscv64-unknown-elf-nm", program], capture_output=True, text=True, check=True).stdout
    addresses = {words[-1]: int(words[0], 16) for words in map(str.split, text.splitlines()) if len(words) == 3}
    assert addresses["__l1_end"] == 0x10000000 + 64 * KIB and addresses["__l2_end"] == 0x1C000000 + 1600 * KIB
    assert not any("neureka" in name for name in addresses)
    assert gvsoc.chip_name(tmp_path / "out" / "runtime" / "bare") == "pulp-open"


@pytest.mark.gvsoc
@pytest.mark.parametrize("memory", ["L2", "L3"])
def test_the_simulator_agrees(tmp_path: Path, memory: str) -> None:
    launcher = os.environ.get("GVSOC") or shutil.which("gvsoc")
    if launcher is None or not list(Path(launcher).resolve().parents[1].glob("models/**/apb_soc_impl*")):
        pytest.skip("no GVSoC that was built for pulp-open: set GVSOC to the launcher of one")
    compiled = deeploy.compile(save_noisy_network(tmp_path), FOLDER, default_memory=memory)
    compiled.write(tmp_path / "out")
    found = run_project(tmp_path / "out", tmp_path / "inputs.npz", on="gvsoc")
    assert same(found.outputs[0], outputs(compiled, tmp_path / "inputs.npz"))
    predicted = compiled.network.predicted
    assert predicted is not None and abs(predicted.cycles / found.cycles[0] - 1) < 0.25, "layers this small are predicted worse than others"
