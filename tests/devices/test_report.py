"""The table of stages on devices that are only planned for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deeploy.devices.report import report_stages

FIELDS = ("levels", "first", "layers", "held", "host", "memory", "given", "returned", "ms", "idle")
STAGES = [
    dict(zip(FIELDS, values, strict=True))
    for values in (([0, 3], "a", 4, 500, 20, 600, 7, 8, 2.5, 0.75), ([3, 9], "b", 6, 300, 0, 601, 8, 9, 10.0, 0.0))
]
PLAN: dict[str, Any] = {
    "model": "m.onnx",
    "target": "stick",
    "balance": "cycles",
    "layers": 10,
    "levels": 9,
    "macs": 123,
    "planning": "planned",
    "stages": STAGES,
    "host": 20,
    "one_device": {"held": 600, "host": 220, "ms": 40.0},
    "batch": {"inputs": 50, "ms_per_input": 10.05},
    "slowest_ms": 10.0,
    "latency_ms": 12.5,
    "speedup": 3.98,
}


def test_a_row_for_every_stage() -> None:
    lines = report_stages(PLAN).splitlines()
    (head,) = (number for number, line in enumerate(lines) if line.split()[:2] == ["stage", "levels"])
    rows = [line.split() for line in lines[head + 1 :] if line.endswith("%")]
    assert rows == [
        ["0", "0", "to", "2", "a", "4", "520", "500", "20", "600", "7", "8", "2.500", "75", "%"],
        ["1", "3", "to", "8", "b", "6", "300", "300", "0", "601", "8", "9", "10.000", "0", "%"],
    ]


def test_what_devices_hold_and_how_fast_they_are(tmp_path: Path) -> None:
    shown = report_stages(PLAN, tmp_path)
    assert shown.startswith("m.onnx for 2 x stick, cut by cycles: 10 layers on 9 levels, 123 MAC\nplanned\n")
    assert "constants with the host: 20 bytes; on one device 220 of 820\n" in shown
    assert "slowest stage 10.000 ms, 100.0 inputs a second; one input takes 12.500 ms\n" in shown
    assert "10.050 ms per input of a batch of 50, 3.98 times as fast as one device (40.000 ms)\n" in shown
    assert shown.endswith(f"written to {tmp_path}")
