"""Where constants lie in the files of a project, and how long what is planned stays in its memory."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mako.lookup import TemplateLookup

from deeploy.backend.constants import ALIGNMENT, collect_constants, constants_in, pack_constants, share_constants, stored_bytes
from deeploy.backend.network import LAST, _list_blocks, emit_machine, pack_loaded
from deeploy.backend.packages import Package
from deeploy.ir.types import DType
from deeploy.options import Options
from deeploy.planning.packing.lifetimes import FOR_EVER
from deeploy.planning.plan import Plan
from deeploy.planning.program import Buffer, Program, Role
from tests.execution.simulation import nets


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """All constants near, the shortest of them kept in L1."""
    return nets.perceptron(tmp_path_factory.mktemp("plan"), Options(memory={"l1": 40_000})).plan


def test_constants_of_all_networks_lie_where_their_offsets_say(plan: Plan, tmp_path: Path) -> None:
    """The second network has the constants of the first, and others; the third has those of the second alone."""
    one, two = plan.program, nets.filters(tmp_path, Options()).network.program
    both = Program("both", {**one.buffers, **{f"own_{name}": buffer for name, buffer in two.buffers.items()}}, (), (), (), {})
    found = collect_constants({"one": one, "both": both, "two": two})
    assert [len(data) > 0 for data in found.blobs.values()] == [True, True, False]
    assert found.owners("both") == ["one", "both"] and found.owners("two") == ["both"]
    for prefix, program in {"one": one, "both": both, "two": two}.items():
        buffers = [buffer for buffer in program.buffers.values() if buffer.role is Role.CONSTANT]
        assert len(found.constants[prefix]) == len(buffers) > 0
        for constant, buffer in zip(found.constants[prefix], buffers, strict=True):
            assert buffer.data is not None and constant.far % ALIGNMENT == constant.offset % ALIGNMENT == 0
            assert found.blob[constant.far :].startswith(buffer.data.tobytes())
            assert found.blobs[constant.owner][constant.offset :].startswith(buffer.data.tobytes())


def test_constants_in_a_memory_for_good_lie_one_behind_the_other() -> None:
    sizes = {"a": 5, "b": 16, "c": 17}
    buffers = [Buffer(n, n, Role.CONSTANT, DType.INT16, (size,), np.arange(size, dtype=np.int16), "WM") for n, size in sizes.items()]
    others = [replace(buffers[0], name="d", memory=""), replace(buffers[0], name="e", role=Role.LOCAL, data=None)]
    every = [others[0], *buffers, others[1]]
    found, data = constants_in("net", every, "WM"), pack_constants(every, "WM")
    assert [(constant.buffer.name, constant.offset) for constant in found] == [("a", 0), ("b", 16), ("c", 48)]
    assert len(data) == stored_bytes(every, "WM") == 96 and stored_bytes(every, "L3") == len(pack_constants(every, "L3")) == 0
    assert all(data[constant.offset :].startswith(constant.buffer.data.tobytes()) for constant in found)


@pytest.mark.parametrize("staying", [0, 2])
def test_a_far_memory_holds_what_is_loaded_into_it(staying: int, tmp_path: Path) -> None:
    """Constants that a kernel wants there, and those that lie there by default."""
    compiled = nets.perceptron(tmp_path, Options(memory={"l1": 2000, "l2": 6000}, default_memory="L3"))
    buffers = dict(compiled.plan.program.buffers)
    for name in [name for name, buffer in buffers.items() if buffer.role is Role.CONSTANT][:staying]:
        buffers[name] = replace(buffers[name], memory="L3")
    plan = replace(compiled.plan, program=replace(compiled.plan.program, buffers=buffers))
    common = share_constants({"net": plan}, {"net": compiled.units["network"].description()})
    lookup = TemplateLookup([str(folder) for folder in plan.target.template_folders], strict_undefined=True)
    text = str(emit_machine(plan, dict.fromkeys(plan.memory, 0), common, lookup)["src/machine.c"])
    (row,) = (line for line in text.splitlines() if '{"L3"' in line)
    assert int(row.split(",")[3]) == len(pack_loaded(plan, common.store.blobs["net"])) > 0


def test_what_outlives_an_inference_has_no_last_step(plan: Plan) -> None:
    lasts = {name: last for name, *_, last in _list_blocks(plan)}
    lasting = {"=".join(p.buffers) for p in plan.placements if p.first == FOR_EVER}
    assert lasting and len(lasting) < len(lasts) == len(plan.placements)
    for placement in plan.placements:
        name = "=".join(placement.buffers)
        assert lasts[f'"{name}"'] == (LAST if name in lasting else placement.last)


@pytest.mark.parametrize("package", [None, "arduino"])
def test_many_constants_are_included_as_they_are(package: Package | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No number of theirs is in the C, which changes with them, and the program computes with the same values."""
    monkeypatch.setattr("deeploy.backend.constants.MOST_TEXT", 64)
    nodes, ends = [nets.node("Gemm", "x w b", "a"), nets.node("Relu", "a", "y")], ({"x": [2, 9]}, {"y": [2, 7]})
    compiled = replace(nets.compile_nodes(tmp_path, nodes, *ends, {"w": [9, 7], "b": [7]}, Options(), "generic"), package=package)
    files = compiled.sources()
    text, data = str(files["src/network_weights.c"]), files["network_weights.bin"]
    assert isinstance(data, bytes) and ".incbin" in text and hashlib.sha256(data).hexdigest() in text and len(text) < 3000
    assert files.get("arduino/network_weights.bin") == (data if package else None)
    sample = [np.random.default_rng(3).normal(size=(2, 9)).astype(np.float32)]
    np.testing.assert_allclose(compiled.run(sample)[0], compiled.interpret(sample)[0], rtol=1e-5)
