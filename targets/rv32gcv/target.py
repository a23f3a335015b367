"""RISC-V processors with vectors of at least 128 bits (RV32GCV): their kernels, one RAM, code and constants in flash.

Capacities and addresses are those of ``rv32imc``.
"""

from dataclasses import replace

from deeploy.target import load

from .kernels import KERNELS

RV32IMC = load("rv32imc")

TARGET = replace(
    RV32IMC,
    name="rv32gcv",
    summary="an RV32GCV processor: kernels of its vectors, one RAM, constants read in place from flash",
    serves=("riscv_vector",),
    kernels=KERNELS,
    timing=None,  # of vectors, and of floats in hardware
    options={
        "compiler": "clang --target=riscv32-unknown-elf -march=rv32gcv -mabi=ilp32d -ffp-contract=off"
        " -isystem /usr/lib/picolibc/riscv64-unknown-elf/include",
        "library": "-march=rv32imafdc -mabi=ilp32d",
        "processor": "rv32,v=true,vext_spec=v1.0",
    },
)
