"""Cycles on GVSoC next to those of others: of the established compiler on this simulator, and the linear layers of Deeploy's Fig. 6.

    make bench NAME='gvsoc/compare [networks | linear]'

Networks: one inference, weights in L2, 8 cores, 64 000 bytes of L1; what the established compiler takes was measured on the same
simulator, the better of single and double buffering, with its own C and (tuned) with inner loops rewritten as the vendor's compiler
would. Of VisualWakeWords, AnomalyDetection and EEGFormer its files are not here: dialect.py makes networks of these shapes. Linear
layers: 8-bit, data in L1, from fork to join with warm caches on the cores, from the registers to the end of the wait on
N-EUREKA. Exit status 1 when outputs differ or nothing can be simulated.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.common import record
from benchmarks.gvsoc import cases, neureka
from benchmarks.gvsoc.layer import SimulationError
from benchmarks.gvsoc.networks import Result, results
from benchmarks.gvsoc.sweep import sweep
from deeploy.options import Options
from deeploy.target import load

L1_BYTES = 64_000
ESTABLISHED = {  # thousand cycles: its own C, tuned
    "KeywordSpotting": (903, 769),
    "ImageClassification": (1903, 1429),
    "VisualWakeWords": (3453, 3010),
    "AnomalyDetection": (93, 68),
    "CNN_Linear2": (671, 511),
    "EEGFormer": (682, 641),
    "microLlama1": (557, 502),
    "microLlama64": (958, 881),
}
NPU = {  # its own, with N-EUREKA
    "KeywordSpotting": 150,
    "ImageClassification": 561,
    "VisualWakeWords": 882,
    "AnomalyDetection": 69,
    "CNN_Linear2": 95,
    "EEGFormer": 606,
}
SHAPES = ((64, 256), (256, 64))
NETWORKS = "{:<22}{:>12}{:>14}{:>10}{:>12}{:>10}{:>10}{:>18}{:>12}"
LINEAR = "{:<12}{:>6}{:>11}{:>11}{:>9}{:>11}{:>9}{:>11}{:>9}"


def networks() -> tuple[list[dict[str, Any]], bool]:
    """The rows of the first table, and whether all went well."""
    rows, is_right = [], True
    with_npu = {r.name: r for r in results(list(NPU), Options(memory={"l1": L1_BYTES})) if isinstance(r, Result)}
    for one in results(list(ESTABLISHED), Options(memory={"l1": L1_BYTES}, engines=("cluster",))):
        if not isinstance(one, Result):
            print(f"{one[0]}: {one[1]}", file=sys.stderr)
            is_right = False
            continue
        plain, tuned = ESTABLISHED[one.name]
        is_right = is_right and one.is_right
        rates = {"ratio": plain * 1000 / one.measured, "ratio_tuned": tuned * 1000 / one.measured}
        row = {"network": one.name, "macs": one.macs, "cycles": one.measured, "established": plain, "tuned": tuned, **rates}
        npu = with_npu.get(one.name)
        is_right = is_right and (npu is None or npu.is_right)
        rows.append({**row, "npu": npu.measured if npu else None, "established_npu": NPU.get(one.name)})
    return rows, is_right


def linear() -> list[dict[str, Any]]:
    """The rows of the second table.

    Raises:
        SimulationError: nothing can be simulated, or N-EUREKA's outputs differ.
    """
    shapes = [(rows, k, n) for k, n in SHAPES for rows in neureka.SEQUENCES]
    target = load("siracusa")
    on = {cores: [team.warm for team in sweep([cases.matmul(*shape) for shape in shapes], target, cores).teams] for cores in (1, 8)}
    jobs = [neureka.linear(rows, k, n) for rows, k, n in shapes]
    near, apart = neureka.measure(jobs), neureka.measure([neureka.with_weights_apart(job) for job in jobs])
    return [
        {"shape": f"{k} to {n}", "rows": rows, "one": a, "eight": b, "npu": c, "npu_nms": d}
        for (rows, k, n), a, b, c, d in zip(shapes, on[1], on[8], near, apart, strict=True)
    ]


def main(arguments: Sequence[str]) -> int:
    words = [word for word in arguments if not word.startswith("--")]
    found: dict[str, Any] = {}
    is_right = True
    try:
        if not words or "networks" in words:
            found["networks"], is_right = networks()
        if not words or "linear" in words:
            found["linear"] = linear()
    except SimulationError as error:
        print(error, file=sys.stderr)
        return 1
    record(**found)
    if "networks" in found:
        print(NETWORKS.format("thousand cycles", "MAC", "established", "tuned", "ours", "ratio", "tuned", "established, NPU", "ours, NPU"))
    for row in found.get("networks", ()):
        ours = f"{row['cycles'] / 1000:.0f}"
        npu = (row["established_npu"] or "-", f"{row['npu'] / 1000:.0f}" if row["npu"] else "-")
        rates = (f"{row['ratio']:.2f}", f"{row['ratio_tuned']:.2f}")
        print(NETWORKS.format(row["network"], row["macs"], row["established"], row["tuned"], ours, *rates, *npu))
    if "linear" in found:
        print(LINEAR.format("linear", "rows", "1 core", "8 cores", "1 / 8", "NPU", "8 / NPU", "NPU, NMS", "gain"))
    for row in found.get("linear", ()):
        one, eight, npu, nms = row["one"], row["eight"], row["npu"], row["npu_nms"]
        gains = (f"{one / eight:.1f}", f"{eight / npu:.1f}", f"{npu / nms:.2f}")
        print(LINEAR.format(row["shape"], row["rows"], one, eight, gains[0], npu, gains[1], nms, gains[2]))
    return int(not is_right)
