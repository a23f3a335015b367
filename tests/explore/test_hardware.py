"""Hardware files: what is missing or contradictory is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deeploy.errors import UsageError
from deeploy.explore.hardware import load_hardware, parse_hardware
from tests.explore.accelerators import data

EXAMPLES = Path(__file__).parents[2] / "examples" / "hardware"
Change = Callable[[dict[str, Any]], Any]


def put(path: str, value: Any) -> Change:
    """Set a field; ``None`` deletes it."""

    def change(entry: Any) -> None:
        *tables, field = path.split(".")
        for table in tables:
            entry = entry[int(table) if table.isdigit() else table]
        if value is None:
            del entry[field]
        else:
            entry[field] = value

    return change


def behind(**fields: Any) -> Change:
    """A second level for all operands."""

    def change(entry: dict[str, Any]) -> None:
        memory = {**entry["memory"][0], "name": "top", "operands": ["weight", "input", "output"], "capacity": 1 << 22}
        entry["memory"].append({**memory, **fields})

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("pes", None), "test.toml: pes is missing"),
        (put("pes", 0), "test.toml: pes is 0, less than 1"),
        (put("pes", 2.5), "test.toml: pes is 2.5, not a whole number"),
        (put("pes", True), "test.toml: pes is true, not a whole"),
        (put("cores", 3), "test.toml: cores is not a field; fields here: name,"),
        (put("widths", None), "test.toml: widths is missing"),
        (put("widths.partial", None), "widths.partial is missing"),
        (put("widths.partial", 4), "widths.partial is narrower than widths.output"),
        (put("registers.weight", None), "registers.weight is missing"),
        (put("registers.shifts_inputs", 1), "registers.shifts_inputs is 1"),
        (put("registers.provenance", None), "registers.provenance is missing"),
        (put("energy.mac_pj", -1), "energy.mac_pj is -1"),
        (put("energy.mac_pj", float("nan")), "energy.mac_pj is nan"),
        (put("memory", None), "memory is missing"),
        (put("memory", [1]), "memory\\[0\\] is 1, not a table"),
        (put("memory.0.name", None), r"memory\[0\].name is missing"),
        (put("memory.1.name", "weight"), "memory.name weight is given twice"),
        (put("memory.0.bandwidth", None), r"memory\[0\].bandwidth is missing"),
        (put("memory.0.bandwidth", 0), r"memory\[0\].bandwidth is 0.*, not more than 0"),
        (put("memory.2.bandwidth", 8), "memory.output.bandwidth is less than one element of 16 bits"),
        (put("memory.0.energy", 3), r"memory\[0\].energy is not a field"),
        (put("memory.0.operands", ["weights"]), r"memory\[0\].operands\[0\] is weights, not one of weight, input, output"),
        (put("memory.0.operands", ["input"]), "put weight into 0 memories"),
        (put("memory.0.provenance", " "), r"memory\[0\].provenance is  , which is empty"),
        (behind(capacity=1000), "memory.weight.capacity is more than that of top behind it"),
        (behind(operands=["weight", "weight"]), r"memory\[3\].operands names something twice"),
    ],
)
def test_a_wrong_field_is_named(change: Change, message: str) -> None:
    entry = data()
    change(entry)
    with pytest.raises(UsageError, match=message):
        parse_hardware(entry, "test.toml")


def test_an_inner_memory_has_a_size() -> None:
    entry = data()
    behind()(entry)
    del entry["memory"][0]["capacity"]
    with pytest.raises(UsageError, match=r"memory.weight.capacity is missing"):
        parse_hardware(entry, "test.toml")


def test_a_level_is_one_level() -> None:
    entry = data()
    behind(operands=["weight", "input"])(entry)
    entry["memory"][1]["operands"] = ["output"]
    with pytest.raises(UsageError, match="are at the array for one and behind another memory for the next"):
        parse_hardware(entry, "test.toml")


def test_three_levels_are_refused() -> None:
    entry = data()
    behind()(entry)
    behind(name="far")(entry)
    with pytest.raises(UsageError, match="put weight into 3 memories"):
        parse_hardware(entry, "test.toml")


def test_levels() -> None:
    entry = data()
    behind()(entry)
    hardware = parse_hardware(entry, "test.toml")
    assert [store.name for store in hardware.inner()] == ["weight", "input", "output"]
    assert [store.name for store in hardware.outer()] == ["top"]
    assert [store.name for store in hardware.levels("input")] == ["input", "top"]
    assert parse_hardware(data(), "test.toml").outer() == ()


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda file: file.stem)
def test_the_examples_are_complete(file: Path) -> None:
    hardware = load_hardware(file)
    assert hardware.name == file.stem
    assert hardware.pes in (256, 8192)
    assert all(0.01 < store.read_pj_per_bit < 1 and 0.01 < store.write_pj_per_bit < 1 for store in hardware.memories)


def test_fields_are_replaced_by_path() -> None:
    changed = load_hardware(EXAMPLES / "table3.toml", {"pes": 4096, "memory.L1_input.bandwidth": 512, "registers.output": 2})
    assert (changed.pes, changed.registers) == (4096, (1, 1, 2))
    assert {store.name: store.bandwidth for store in changed.memories} == {
        "L1_weight": 1024,
        "L1_input": 512,
        "L1_output": 1024,
        "top": 2048,
    }
    wide = load_hardware(EXAMPLES / "table3.toml", {"memory.*.bandwidth": 256})
    assert {store.bandwidth for store in wide.memories} == {256}


@pytest.mark.parametrize("path", ["pe", "memory.L2.bandwidth", "name", "memory.top", "widths.a.b", "memory.top.operands"])
def test_no_such_field(path: str) -> None:
    with pytest.raises(UsageError, match="is no field of"):
        load_hardware(EXAMPLES / "table3.toml", {path: 1})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("pes = = 3")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    for name, what in (("none.toml", "there is no hardware file"), ("broken.toml", "is not valid TOML"), ("binary.toml", "is not UTF-8")):
        with pytest.raises(UsageError, match=what):
            load_hardware(tmp_path / name)
