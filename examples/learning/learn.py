"""Learning on a microcontroller: the digits network in int8, whose last layer learns to read digits that lie on their side.

The network's convolutions stay quantised; its last layer has float weights, which a training step changes. Step and network are one
firmware for a Cortex-M4 with 32 KB of RAM, which runs under QEMU. The same two networks are then planned for Siracusa.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import deeploy

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "digits"))

from data import load  # noqa: E402

RAM, STACK = 32_768, 4_096  # bytes
OWN_FILES = ("main.c", "semihost.c", "start.c", "constants.S")


def write_digits(path: Path) -> int:
    """Write the digits, turned by a quarter, as arrays of C; returns the number of those that are held out."""
    digits, lines = load(), ["/* Digits of scikit-learn, turned by a quarter: 64 shades of 0 to 16 each. */", "#include <stdint.h>"]
    sets = (("train", digits.train_images, digits.train_labels), ("test", digits.test_images, digits.test_labels))
    for name, images, labels in sets:
        shades = np.rint(np.rot90(images, 1, (2, 3)) * 16).astype(int).reshape(len(images), -1)
        rows = ",\n".join("{" + ",".join(map(str, row)) + "}" for row in shades)
        lines += [f"enum {{ {name.upper()}_DIGITS = {len(images)} }};", f"static const unsigned char {name}_images[][64] = {{\n{rows}}};"]
        lines.append(f"static const uint8_t {name}_labels[] = {{{','.join(map(str, labels))}}};")
    path.write_text("\n".join(lines) + "\n")
    return len(digits.test_labels)


def make_networks(folder: Path) -> dict[str, str | Path]:
    """The quantised network's training step, and the network that reads the weights of that."""
    calibration = {"image": load().train_images[:200]}
    int8 = deeploy.quantize(HERE.parent / "digits" / "digits.onnx", calibration)
    paths: dict[str, str | Path] = {name: folder / f"{name}.onnx" for name in ("train", "infer")}
    deeploy.train_graph(int8, "cross_entropy", "last:1", output=paths["train"], inference=paths["infer"])
    return paths


def run_firmware(project: Path) -> dict[str, int]:
    """Build the firmware for 32 KB of RAM, run it under QEMU, and read what it prints."""
    runtime = project / "runtime" / "qemu"
    (runtime / "main.c").write_text((HERE / "main.c").read_text())
    layout = f"-DFLASH_BASE=0x0 -DFLASH_BYTES=2097152 -DRAM_BASE=0x20000000 -DRAM_BYTES={RAM} -DSTACK_TOP={0x20000000 + RAM:#x}"
    files = ["$(wildcard src/*.c)", "$(wildcard src/kernels/*.c)", *(f"runtime/qemu/{name}" for name in OWN_FILES)]
    given = {
        "QEMU_LAYOUT": f'{layout} "-DHEAP_END_LESS=- {STACK}" -DENTRY_POINT=reset',
        "QEMU_FILES": " ".join(files),
        "DEFINES": "-DDEEPLOY_STATIC_ARENA",
        "WARNINGS": "-Wall -Wextra -Werror",
    }
    command = ["make", "-s", "qemu", "run-qemu", *(f"{name}={value}" for name, value in given.items())]
    done = subprocess.run(command, cwd=project, check=True, capture_output=True, text=True)
    pairs = (line.rsplit(" ", 1) for line in done.stderr.splitlines() if line.rsplit(" ", 1)[-1].isdecimal())
    return {name: int(number) for name, number in pairs}


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    networks = make_networks(folder)
    firmware = deeploy.compile(networks, "cortex_m4", ram=RAM)
    firmware.write(folder / "out")
    count = write_digits(folder / "out" / "runtime" / "qemu" / "digits.h")
    found = run_firmware(folder / "out")
    for when in ("before", "after"):
        print(f"right {when} learning: {found[f'right {when}']} of {count} digits, {100 * found[f'right {when}'] / count:.1f} %")
    report = json.loads((folder / "out" / "deploy.json").read_text())
    for entry in report["networks"]:
        print(f"{entry['name']} on a Cortex-M4: {entry['memory']['RAM']['peak']} bytes of working memory")
    fast = deeploy.compile(networks, "siracusa")
    for name, network in fast.networks.items():
        cycles = network.predicted.cycles if network.predicted is not None else 0
        print(f"{name} on Siracusa: {cycles:.0f} cycles predicted")
    return 0 if found["right after"] > found["right before"] else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parents[1] / "build" / "learning"))
