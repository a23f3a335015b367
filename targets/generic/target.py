"""Any machine with a C11 compiler and one flat memory: portable kernels, no transfers."""

from pathlib import Path

from deeploy.frontend.lower import passes
from deeploy.operators import link
from deeploy.target import Memory, Target, load_topology, resource

from .compute import KERNELS as COMPUTE
from .pointwise import KERNELS as POINTWISE
from .recurrent import KERNELS as RECURRENT
from .transformer import KERNELS as TRANSFORMER

TARGET = Target(
    name="generic",
    summary="plain C11 for any machine, one flat memory",
    serves=(
        *("esp32", "esp32s2", "esp32s3", "esp8266"),
        *("cortex_m0", "cortex_m1", "cortex_m3", "cortex_m23", "rp2040", "raspberrypi_pico", "pico"),
        *("stm32f0", "stm32f1", "stm32f2", "stm32g0", "stm32l0", "stm32l1", "samd21", "nrf51"),
        *("x86", "linux", "host", "cortex_a"),
    ),
    memories=(Memory("arena", alignment=16),),
    kernels=(*COMPUTE, *TRANSFORMER, *POINTWISE, *RECURRENT, *link.kernels()),
    passes=passes(),
    kernel_folders=(resource("kernels"),),
    template_folders=(resource("templates"),),
    runtime=(resource("kernels") / "hal" / "tokens.h", resource("targets") / "generic" / "runtime"),
    build="generic.Makefile.mako",
    topology=load_topology(Path(__file__).parent / "topology.toml"),
)
