"""The same pairs in ZigZag (KU Leuven, extra ``zigzag``): an independent cost model to compare with.

A pair is given to ZigZag as a workload of one layer, an array whose dimensions hold the unrolling's factors, and the
hardware's memories; ZigZag then searches the temporal mapping with the least product of energy and latency.
"""

from __future__ import annotations

import json
import logging
import math
import tempfile
from pathlib import Path

import numpy as np

from deeploy.documents import Contents
from deeploy.errors import UsageError
from deeploy.explore.hardware import OPERANDS, Hardware
from deeploy.ir.loops import LOOPS, LayerLoops

_OPERANDS = {"weight": "I2", "input": "I1", "output": "O"}
_DIMENSIONS = {"D1": ("G", "K"), "D2": ("C",), "D3": ("OY", "OX"), "D4": ("FY", "FX")}  # of the array; ZigZag has at most four
_SUMMED = ["D2", "D4"]  # those whose elements add into one sum
_FACTORS = 5  # loops are split into at most so many factors, of which ZigZag tries all orders
_HUGE = 1 << 40  # bits of a memory without a size


def require_zigzag() -> None:
    """Raise UsageError where ZigZag is not installed."""
    try:
        import zigzag.api  # noqa: F401
    except ImportError as error:
        raise UsageError("the package zigzag-dse is not installed", "Install it: pip install zigzag-dse six") from error


def evaluate_layer(layer: LayerLoops, factors: np.ndarray, hardware: Hardware) -> tuple[float, float]:
    """Cycles and picojoule that ZigZag finds for one layer on one unrolling.

    Cycles are those of the computation with its stalls, without loading the first and storing the last operands.

    Raises:
        UsageError: ZigZag is not installed.
    """
    require_zigzag()
    from zigzag.api import get_hardware_performance_zigzag

    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = {
            "workload": [_zigzag_workload(layer, hardware)],
            "accelerator": _zigzag_accelerator(factors, hardware),
            "mapping": [_zigzag_mapping(factors)],
        }
        for name, contents in files.items():
            (folder / f"{name}.yaml").write_text(json.dumps(contents), encoding="utf-8")  # JSON is YAML
        energy, _, results = get_hardware_performance_zigzag(
            *(str(folder / f"{name}.yaml") for name in files),
            opt="EDP",
            dump_folder=str(folder / "out"),
            lpf_limit=_FACTORS,
            loma_show_progress_bar=False,
        )
    (evaluation,) = (entry[0] for entry in results[0][1])
    return float(evaluation.latency_total0), float(energy)


def _zigzag_workload(layer: LayerLoops, hardware: Hardware) -> Contents:
    (sy, sx), (dy, dx) = layer.strides, layer.dilations
    return {
        "id": 0,
        "name": "layer",
        "operator_type": "Conv",
        "equation": "O[g][k][oy][ox]+=W[g][k][c][fy][fx]*I[g][c][iy][ix]",
        "dimension_relations": [f"ix={sx}*ox+{dx}*fx", f"iy={sy}*oy+{dy}*fy"],
        "loop_dims": list(LOOPS),
        "loop_sizes": list(layer.sizes),
        "operand_precision": {
            "W": hardware.weight_bits,
            "I": hardware.input_bits,
            "O": hardware.partial_bits,
            "O_final": hardware.output_bits,
        },
        "operand_source": {"I": 0, "W": 0},
    }


def _zigzag_mapping(factors: np.ndarray) -> Contents:
    unroll = {loop: int(u) for loop, u in zip(LOOPS, factors, strict=True)}
    spatial = {d: [f"{loop}, {unroll[loop]}" for loop in loops if unroll[loop] > 1] for d, loops in _DIMENSIONS.items()}
    spatial = {d: loops for d, loops in spatial.items() if loops}
    return {"name": "default", "spatial_mapping": spatial, "memory_operand_links": {"O": "O", "W": "I2", "I": "I1"}}


def _zigzag_accelerator(factors: np.ndarray, hardware: Hardware) -> Contents:
    unroll = {loop: int(u) for loop, u in zip(LOOPS, factors, strict=True)}
    dimensions = list(_DIMENSIONS)
    sizes = [math.prod(unroll[loop] for loop in loops) for loops in _DIMENSIONS.values()]
    memories: Contents = {}
    for operand, words in zip(OPERANDS, hardware.registers, strict=True):
        bits = hardware.bits(operand)
        served = _SUMMED if operand == "output" else []
        energy = bits * hardware.register_pj_per_bit
        memories[f"register_{operand}"] = _zigzag_memory(words * bits, bits, (energy, energy), [operand], served, False)
    for store in hardware.memories:
        bits = int(store.bandwidth)
        is_last = all(hardware.levels(operand)[-1] is store for operand in store.operands)
        size = _HUGE if is_last or store.capacity is None else 8 * store.capacity
        energies = bits * store.read_pj_per_bit, bits * store.write_pj_per_bit
        memories[store.name] = _zigzag_memory(size, bits, energies, list(store.operands), dimensions, True)
    array = {"unit_energy": hardware.mac_pj, "unit_area": 0, "dimensions": dimensions, "sizes": sizes}
    return {"name": "accelerator", "memories": memories, "operational_array": array}


def _zigzag_memory(
    size: int, bits: int, energies: tuple[float, float], operands: list[str], served: list[str], is_shared: bool
) -> Contents:
    """A memory whose accesses are ``bits`` wide, with a port for reading and one for writing, or one for each flow of a register.

    Flows are named as ZigZag does: from and to the level above (high) or below (low).
    """
    flows = {"tl": "r_port_1", "fh": "w_port_1"}
    outputs = {**flows, "th": "r_port_1" if is_shared else "r_port_2", "fl": "w_port_1" if is_shared else "w_port_2"}
    users: dict[str, list[str]] = {}
    for operand in operands:
        for flow, name in (outputs if operand == "output" else flows).items():
            users.setdefault(name, []).append(f"{_OPERANDS[operand]}, {flow}")
    ports = [
        {
            "name": name,
            "type": "read" if name[0] == "r" else "write",
            "bandwidth_min": min(8, bits),
            "bandwidth_max": bits,
            "allocation": use,
        }
        for name, use in users.items()
    ]
    return {
        "size": size,
        "r_cost": energies[0],
        "w_cost": energies[1],
        "area": 0,
        "latency": 1,
        "operands": [_OPERANDS[operand] for operand in operands],
        "ports": ports,
        "served_dimensions": served,
    }
