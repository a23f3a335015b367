"""CMSIS-NN's instructions for the layers of a plan: its functions are called by hand with the same shapes, and built outside of the tree.

Conversions from and to floats, and what has no function there, are left out.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from deeploy.ir.nodes import Node
from deeploy.operators import conv
from deeploy.planning.plan import Plan

HERE = Path(__file__).resolve().parent
PARTS = (
    "ConvolutionFunctions",
    "FullyConnectedFunctions",
    "NNSupportFunctions",
    "PoolingFunctions",
    "SoftmaxFunctions",
    "BasicMathFunctions",
    "TransposeFunctions",
)
RAM_BYTES = 4 << 20  # of the boards of QEMU, beside what a target has
CONVERSIONS = ("Quantize", "Dequantize", "Copy", "Reshape")


def layers(plan: Plan) -> Iterator[str]:
    """A line of ``layers.h`` per layer.

    Raises:
        ValueError: an operator has no line.
    """
    for call in plan.program.calls:
        if call.node.op not in CONVERSIONS:
            yield f"{_layer(call.node)};"


def _layer(node: Node) -> str:
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    if node.op == "Conv":
        g = conv.window(node)
        shape = (*x.shape[1:], *y.shape[1:], g.height, g.width, *g.strides, *g.pads[:2])
        return f"{'DEPTHWISE' if conv.is_depthwise(node) else 'CONV'}({', '.join(map(str, shape))})"
    if node.op == "MatMul":
        return f"DENSE({x.shape[-1]}, {y.shape[-1]})"
    if node.op == "ScaledAdd":
        return f"ADD({y.elements})"
    if node.op == "AveragePool":
        return f"POOL({', '.join(map(str, (*x.shape[1:], *y.shape[1:3], *node.attrs['kernel'], *node.attrs['strides'])))})"
    if "Softmax" in node.op:
        return f"SOFTMAX({y.elements // y.shape[-1]}, {y.shape[-1]})"
    raise ValueError(f"no function of CMSIS-NN for {node.op}")


def variables(project: Path) -> Mapping[str, str]:
    """What the project's Makefile says of its compiler and board."""
    return dict(re.findall(r"^(QEMU_\w+) :?= (.*)$", (project / "Makefile").read_text().replace("\\\n", ""), re.MULTILINE))


def build(cmsis_nn: Path, project: Path, folder: Path) -> Path:
    """CMSIS-NN's objects for integers in ``folder``, by the compiler that a project names; the library."""
    folder.mkdir(parents=True)
    paths = (path for part in PARTS for path in sorted((cmsis_nn / "Source" / part).glob("*.c")))
    sources = [str(path) for path in paths if not re.search(r"_f(16|32)", path.name)]
    compiler = shlex.split(variables(project)["QEMU_CC"])
    flags = ["-O3", "-ffunction-sections", "-fdata-sections", f"-I{cmsis_nn / 'Include'}"]
    subprocess.run([*compiler, *flags, "-c", *sources], cwd=folder, check=True)
    subprocess.run(
        [compiler[0].replace("gcc", "ar"), "rcs", "libcmsis_nn.a", *(path.name for path in folder.glob("*.o"))], cwd=folder, check=True
    )
    return folder / "libcmsis_nn.a"


def count(cmsis_nn: Path, library: Path, plan: Plan, project: Path, plugin: Path) -> int:
    """Instructions of one inference under QEMU, for the board that the project's Makefile names."""
    found, runtime = variables(project), project / "runtime" / "qemu"
    folder = project / "build" / "cmsis_nn"
    folder.mkdir(parents=True)
    (folder / "layers.h").write_text("\n".join(layers(plan)) + "\n")
    compiler = shlex.split(found["QEMU_CC"])
    layout = [re.sub(r"^-DRAM_BYTES=.*", f"-DRAM_BYTES={RAM_BYTES}", word) for word in shlex.split(found["QEMU_LAYOUT"])]
    subprocess.run([*compiler, "-E", "-P", "-x", "c", *layout, str(runtime / "link.ld"), "-o", "link.ld"], cwd=folder, check=True)
    own = [str(HERE / "qemu" / "cmsis_nn.c"), str(runtime / "semihost.c"), str(runtime / "start.c")]
    includes = [f"-I{path}" for path in (cmsis_nn / "Include", runtime, project / "runtime", project / "include", folder)]
    link = [
        "--specs=nosys.specs",
        "-nostartfiles",
        "-Wl,--gc-sections",
        "-Wl,--no-warn-rwx-segments",
        "-Tlink.ld",
        "-lm",
        "-o",
        "application.elf",
    ]
    subprocess.run([*compiler, "-O3", *includes, *own, str(library), *link], cwd=folder, check=True)
    quiet = ["-display", "none", "-monitor", "none", "-serial", "none", "-semihosting-config", "enable=on,target=native"]
    counted = ["-plugin", f"{plugin},from=network_run,to=main", "-d", "plugin", "-D", "counts"]
    subprocess.run([*shlex.split(found["QEMU_RUN"]), *quiet, "-kernel", "application.elf", *counted], cwd=folder, check=True)
    return sum(int(line.split()[0]) for line in (folder / "counts").read_text().splitlines())
