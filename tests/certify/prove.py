"""Frama-C's Eva on what was compiled for ``generic``: that the C of a network, with its kernels, has no undefined behaviour.

    python -m tests.certify.prove MODEL... [--range LOW HIGH] [--seconds CPU]

Eva runs the network once on all inputs at once: integers of their types, floats within the range. Large arrays of 8-bit weights have any
values; of other constants, Eva reads what was printed. Kernels are compiled as for 32-bit processors without vectors, whose blocks are
the smallest: a block is unrolled where that is needed to bound its sums (``loop unroll`` in the kernels).

Options of Eva that are not its own: floats may be infinite or no numbers, which is defined in C.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import deeploy
from deeploy.errors import DeeployError
from deeploy.planning.program import Buffer

FRAMA_C = shutil.which("frama-c")
LARGE = 512  # elements of an array of weights whose values are not read
SECONDS = 60  # of the processor
RANGE = (-1000.0, 1000.0)
_FLAGS = "-D__riscv -U__SSE2__ -U__x86_64__ -CC -Iinclude -Ikernels/portable -Isrc"
_ARRAY = re.compile(r"^DEEPLOY_CONSTANTS const (u?int8_t|float) (\w+)\[(\d+)\] = \{\n(.*?)\n\};\n", re.DOTALL | re.MULTILINE)
_FOUND = re.compile(r"\[eva:alarm\] (\S+): Warning: *\n?((?:.|\n)*?)(?=\n\[|\n\Z)")
_STATUS = re.compile(r"^    (Assertions|Preconditions) +(\d+) valid +(\d+) unknown +(\d+) invalid", re.MULTILINE)
_EXTENT = re.compile(r"\.(?:(?:out_height|out_width) = (?=\d)|extent = \{(?=[\d, ]+\}))((?:\d+, )+|\d+)")


@dataclass(frozen=True)
class Proof:
    """What Eva found.

    Attributes:
        alarms: places where it cannot exclude undefined behaviour, with what would have to hold there.
        unproved: contracts and assertions that it could not show.
        is_complete: it reached the end of the network within its time.
    """

    alarms: tuple[str, ...]
    unproved: int
    is_complete: bool
    seconds: float

    @property
    def holds(self) -> bool:
        return self.is_complete and not self.alarms and not self.unproved

    def __str__(self) -> str:
        if not self.is_complete:
            return f"not finished after {self.seconds:.1f} s"
        return f"{len(self.alarms)} alarms, {self.unproved} contracts not proved, {self.seconds:.1f} s"


def prove_files(files: Mapping[str, str | bytes], compiled: deeploy.Compiled, span: tuple[float, float], seconds: float) -> Proof:
    """Run Eva on the files of a project with one network."""
    (prefix,) = compiled.networks
    with tempfile.TemporaryDirectory(prefix="deeploy-prove-") as scratch:
        folder = Path(scratch)
        named = {path: text for path, text in files.items() if isinstance(text, str) and path.endswith((".c", ".h"))}
        filled = _abstract_weights(named, prefix)
        for path, text in (named | {"main.c": print_main(compiled, named[f"src/{prefix}.c"], filled, span)}).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        sources = [path for path in named if path.startswith("src/") and path.endswith(".c")]
        options = ["-machdep", "gcc_x86_32", f"-cpp-extra-args={_FLAGS}", "-warn-special-float", "none"]
        options += ["-eva", "-eva-no-print", "-eva-widening-delay", "1"]
        starts = [f"{prefix}_init", f"{prefix}_instance_init"]  # whose failure is told from success
        options += ["-eva-slevel-function", ",".join(f"{name}:9" for name in (*starts, "main"))]
        options += ["-eva-split-return-function", ",".join(f"{name}:full" for name in starts)]
        return _run_eva([*options, *sorted(sources), "main.c"], folder, seconds)


def _run_eva(words: Sequence[str], folder: Path, seconds: float) -> Proof:
    assert FRAMA_C is not None
    limit = int(seconds) + 1
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(
        [FRAMA_C, *words],
        cwd=folder,
        env={**os.environ, "PWD": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
    )
    took = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    if done.returncode > 0:
        raise RuntimeError(done.stdout[-3000:])
    states = {kind: tuple(map(int, numbers)) for kind, *numbers in _STATUS.findall(done.stdout)}
    is_complete = done.returncode == 0 and states.get("Assertions", (0,))[0] + states.get("Assertions", (0, 0))[1] > 0
    alarms = tuple(f"{place}: {' '.join(text.split())}" for place, text in _FOUND.findall(done.stdout))
    return Proof(alarms, sum(unknown + invalid for _, unknown, invalid in states.values()), is_complete, took)


def _abstract_weights(files: dict[str, str], prefix: str) -> dict[str, tuple[int, float, float]]:
    """Take the values of large arrays out of the files; of floats, the numbers of elements and their range."""
    source, header = f"src/{prefix}_weights.c", f"src/{prefix}_weights.h"
    filled: dict[str, tuple[int, float, float]] = {}

    def replace(match: re.Match[str]) -> str:
        kind, name, size, body = match.groups()
        if int(size) <= LARGE:
            return match[0]
        if kind == "float":
            values = [float(text.rstrip("f")) for text in body.replace(",", " ").split()]
            filled[name] = int(size), min(values), max(values)
            files[header] = files[header].replace(f"extern const float {name}[", f"extern float {name}[")
        return ""

    files[source] = _ARRAY.sub(replace, files[source])
    return filled


def print_main(compiled: deeploy.Compiled, network: str, filled: Mapping[str, tuple[int, float, float]], span: tuple[float, float]) -> str:
    """A program that runs the network on all inputs."""
    (prefix,) = compiled.networks
    program = compiled.network.program
    lines, arrays = list[str](), dict[str, list[str]]()
    fills = [_print_fill(name, "float", *weights) for name, weights in filled.items()]
    for side, names in (("input", program.inputs), ("output", program.outputs)):
        for number, name in enumerate(names):
            buffer: Buffer = program.buffers[name]
            array, size = f"{side}{number}", max(buffer.bytes // buffer.dtype.bytes, 1)
            lines.append(f"static {buffer.dtype.c} {array}[{size}];")
            arrays.setdefault(side, []).append(array)
            if side == "input":
                fills.append(_print_fill(array, buffer.dtype.c, size, *(buffer.dtype.range if not buffer.dtype.is_float else span)))
    counts = {int(text) for texts in _EXTENT.findall(network) for text in texts.strip(", ").split(",")}
    extents = sorted(count - 1 for count in counts if count > 1)  # the last values of outer loops, at which Eva tries to stay
    hints = f'    /*@ widen_hints global:"all", {", ".join(map(str, extents))}; */\n' if extents else ""
    shaped = "\n".join([*(f"float {name}[{size}];" for name, (size, *_) in filled.items()), *lines])
    return f"""#include "{prefix}.h"
#include "{prefix}_weights.h"
#include "__fc_builtin.h"
{shaped}
static uint64_t arena[({prefix.upper()}_ARENA_BYTES + 7) / 8];
int main(void) {{
{hints}    {" ".join(fills)}
    const void *const inputs[] = {{{", ".join(arrays["input"])}}};
    void *const outputs[] = {{{", ".join(arrays["output"])}}};
    if ({prefix}_init(arena, sizeof arena) != DEEPLOY_OK) return 1; /* as Eva does not know how arrays are aligned */
    const enum deeploy_status status = {prefix}_run(inputs, outputs);
    /*@ assert status == DEEPLOY_OK; */
    return 0;
}}
"""


def _print_fill(array: str, kind: str, size: int, low: float, high: float) -> str:
    value = f"Frama_C_float_interval({low!r}f, {high!r}f)" if kind == "float" else f"({kind})Frama_C_interval({low}, {high})"
    return f"for (int i = 0; i < {size}; i++) {array}[i] = {value};"


def prove_model(model: str | Path, span: tuple[float, float] = RANGE, seconds: float = SECONDS) -> Proof:
    """Compile a model for ``generic`` with contracts, and run Eva on it."""
    compiled = deeploy.compile(model, acsl=True)
    return prove_files(compiled.sources(), compiled, span, seconds)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="tests.certify.prove", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--range", nargs=2, type=float, default=RANGE, metavar=("LOW", "HIGH"), help="of inputs that are floats")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the processor, for each network")
    given = parser.parse_args()
    if FRAMA_C is None:
        print("frama-c is missing: sudo apt install frama-c-base", file=sys.stderr)
        return 1
    failed = 0
    for model in given.models:
        try:
            proof = prove_model(model, tuple(given.range), given.seconds)
        except DeeployError as error:
            print(f"{model}: {error}", file=sys.stderr)
            failed += 1
            continue
        print(f"{model.parent.name}/{model.name}: {proof}", *(f"  {alarm}" for alarm in proof.alarms), sep="\n", flush=True)
        failed += not proof.holds
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
