"""The loop from exploration back to the compiler: a target whose array has the unrollings that were chosen.

The folder has ``target.py``, the engine description (``deeploy.ir.array``), and the hardware file. Layers on the array take as long as
the study says, stalls at its memories included, since both ask ``deeploy.explore.cost``. Cores run everything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from deeploy.documents import Document
from deeploy.explore import cost
from deeploy.explore.engine import engine_description, name_of
from deeploy.explore.hardware import Hardware, load_hardware
from deeploy.ir.array import Array
from deeploy.ir.loops import LayerLoops
from deeploy.ir.target import Rate

UNLIMITED = 1 << 20  # bytes of a memory that the hardware file gives no size
NETWORK = 1 << 26  # bytes of the memory that holds the network, which a study does not limit

TARGET = '''\
"""{configs} unrollings of {pes} multipliers, as ``deeploy explore --emit-target`` chose them; cores run what the array does not.

The array's cycles are those of the study (hardware.toml). It says nothing of cores, of how long a job or a transfer takes to begin,
nor of their power: these figures are placeholders. The memory L1 is as large as those at the array together, L2 holds the network.
"""

from dataclasses import replace
from pathlib import Path

from deeploy.explore.emit import explored_rates
from deeploy.target import DmaPath, Engine, Memory, PathTiming, Rate, Timing, load, load_array

HERE = Path(__file__).parent
ARRAY = load_array(HERE / "array.toml")
ENGINES = ARRAY.engines("L1")
ON_ARRAY = ("conv2d_any", "matmul_any")
PATH = DmaPath("L2_L1", "L1", "L2", max_bytes=65535, max_rows=4096, max_total=131071, max_pitch=65535)
MACHINE, KERNELS = load("{machine}"), load("{kernels}").kernels  # the model of a machine with scratchpads, and portable kernels

TARGET = replace(
    MACHINE,
    name="{name}",
    summary="an array of {pes} multipliers with {configs} unrollings, beside cores",
    memories=(Memory("L1", {near}, alignment=8), Memory("L2", {far}, alignment=8)),
    paths=(PATH,),
    engines=(Engine("cores", "L1", cores=4), *ENGINES),
    topology=None,
    timing=Timing(
        mhz=100,
        fork={{"cores": 200}},
        tile=0,
        core_mw={{"cores": 10, **{{engine.name: 20 for engine in ENGINES}}}},
        paths={{"L2_L1": PathTiming(issue=10, latency=(10, 10), row=0, byte=({byte}, {byte}), pj_per_byte=1)}},
        kernels={{"default": Rate(100, 4, 8), **explored_rates(ARRAY, HERE / "hardware.toml")}},
    ),
    kernels=(*(replace(kernel, engine="cores") for kernel in KERNELS), *ARRAY.kernels(k for k in KERNELS if k.name in ON_ARRAY)),
)
'''


@dataclass(frozen=True)
class _Explored:
    """The products that an array could do in the cycles that a study gives a layer."""

    hardware: Hardware

    @cached_property
    def known(self) -> dict[tuple[object, ...], float]:
        return {}

    def __call__(self, layer: LayerLoops, factors: Sequence[int]) -> float:
        key = (layer.sizes, layer.strides, layer.dilations, tuple(factors))
        if key not in self.known:
            evaluated = cost.evaluate_unrollings(np.array([factors], np.int64), [replace(layer, count=1)], self.hardware)
            self.known[key] = float(evaluated.cycles[0, 0]) * self.hardware.pes
        return self.known[key]


def explored_rates(array: Array, hardware: Path, call: float = 0.0) -> Mapping[str, Rate]:
    """Rates of an array's engines, for ``Timing.kernels``: the cycles of a study; ``call`` more for every job.

    Raises:
        UsageError: the hardware file is not there, or not what it should be.
    """
    return array.rates(call, slots=_Explored(load_hardware(hardware)))


def target_files(study: Document, hardware: Hardware, text: str, machine: str, kernels: str) -> Mapping[str, str]:
    """The files of a target with the largest set of a study (``deeploy.explore.study.describe_study``, with ``models``), by name.

    Args:
        text: of the hardware file.
        machine: the target whose runtime and host model it takes.
        kernels: the target whose portable kernels the cores run.
    """
    near = sum(store.capacity or UNLIMITED for store in hardware.inner())
    byte = 8 / max(store.bandwidth for store in (hardware.outer() or hardware.inner()))
    configs = study["sets"][-1]["configs"]
    figures = {"configs": configs, "pes": hardware.pes, "name": name_of(study), "near": near, "far": NETWORK, "byte": byte}
    figures |= {"machine": machine, "kernels": kernels}
    return {"target.py": TARGET.format(**figures), "array.toml": engine_description(study), "hardware.toml": text}
