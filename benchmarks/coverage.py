"""Coverage of the node tests that the onnx package brings: how many the target ``generic`` compiles, and whether results are right.

A test applies when all its tensors have static shapes and element types that the compiler holds. Inputs behind the first one that say
how to compute (whole numbers, scales of Resize) are tried as constants where the model does not compile with them as inputs. Results
are those of the interpreter, by which C is verified everywhere else, or of the C itself with ``--c``, and always with ``--fallback``,
which wants the extra of that name. Prints a table by operator.

    make bench NAME='coverage [--c] [--fallback] [--only PREFIX] [--sample N] [--write FILE]'
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

import deeploy
from benchmarks.common import ROOT, record
from deeploy.errors import DeeployError
from deeploy.fallback import generator_version
from deeploy.frontend.schemas import constant_inputs
from deeploy.ir.types import DType

PAGE = ROOT / "benchmarks" / "coverage.md"
SECONDS = 60  # for one test

Outcome = tuple[str, str]  # ``right``, ``wrong``, ``refused`` or ``crashed``; and why


def applies(model: onnx.ModelProto) -> bool:
    """Whether all inputs and outputs are tensors of static shapes and held types."""
    for value in (*model.graph.input, *model.graph.output):
        if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
            return False
        if any(not dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim):
            return False
        try:
            DType.of(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        except (KeyError, TypeError):
            return False
    return True


def fixed(model: onnx.ModelProto, arrays: list[np.ndarray]) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """The model with settings behind the first input as constants, and the inputs that are left."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = []
    settings = {node.input[i] for node in copy.graph.node for i in constant_inputs(node.op_type) if i < len(node.input)}
    for number, (value, array) in enumerate(zip(list(copy.graph.input), arrays, strict=True)):
        if number and (array.dtype == np.int64 or array.size == 1 or value.name in settings):
            copy.graph.initializer.append(numpy_helper.from_array(array, value.name))
            copy.graph.input.remove(value)
        else:
            kept.append(array)
    return copy, kept


def attempts(model: onnx.ModelProto, arrays: list[np.ndarray]) -> Iterator[tuple[onnx.ModelProto, list[np.ndarray]]]:
    yield model, arrays
    again, kept = fixed(model, arrays)
    if len(kept) < len(arrays):
        yield again, kept


def result(model: onnx.ModelProto, arrays: list[np.ndarray], run_c: bool, fallback: bool) -> tuple[list[np.ndarray] | None, str]:
    """The outputs, or why there are none."""
    reason = ""
    for candidate, given in attempts(model, arrays):
        with tempfile.TemporaryDirectory() as scratch:
            onnx.save(candidate, Path(scratch) / "model.onnx")
            try:
                compiled = deeploy.compile(Path(scratch) / "model.onnx", dialect="standard", fallback=fallback)
                return (compiled.run if run_c else compiled.interpret)(given), ""
            except DeeployError as error:
                reason = reason or error.what
    return None, reason


def is_right(got: list[np.ndarray], wanted: list[np.ndarray], rtol: float, atol: float) -> bool:
    """Integers bit for bit, but for a step of quantised ones; floats within what the test allows and 1e-4."""
    for a, b in zip(got, wanted, strict=True):
        if a.shape != b.shape:
            return False
        if b.dtype.kind == "f":
            if not np.allclose(a, b, rtol=max(rtol, 1e-3), atol=max(atol, 1e-4), equal_nan=True):
                return False
        elif not np.array_equal(a, b):
            return False
    return True


def array_of(value: Any) -> np.ndarray:
    """An array of a test, which may be an array or as ONNX stores one."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def tried(case: Any, run_c: bool, fallback: bool = False) -> Outcome:
    """What became of a test: ``right``, ``wrong``, ``refused``, or ``crashed`` where the compiler failed in another way; and why."""
    inputs, wanted = case.data_sets[0]
    arrays = [array_of(array) for array in inputs if array is not None]
    if len(arrays) != len(case.model.graph.input):
        return "refused", "an input of the test is absent"
    signal.alarm(SECONDS)
    try:
        got, reason = result(case.model, arrays, run_c, fallback)
    except Exception as error:  # what is no error of the user is a finding of this benchmark
        return "crashed", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    if got is None:
        return "refused", reason
    return ("right" if is_right(got, [array_of(a) for a in wanted], case.rtol, case.atol) else "wrong"), ""


def counted(outcomes: Mapping[str, Outcome]) -> dict[str, Counter[str]]:
    """How many tests of each outcome, by the first word of their names, which is the operator's or its beginning."""
    result: dict[str, Counter[str]] = defaultdict(Counter)
    for name, (outcome, _) in sorted(outcomes.items()):
        result[name.removeprefix("test_").split("_expanded")[0].split("_")[0]][outcome] += 1
    return dict(result)


def sentence(outcomes: Mapping[str, Outcome]) -> str:
    """The totals of one way to compile."""
    total = Counter(outcome for outcome, _ in outcomes.values())
    share = 100 * total["right"] / max(1, len(outcomes))
    refused = f"{total['refused']} refused with an error that says why"
    return f"{total['right']} right ({share:.1f} %), {total['wrong']} wrong, {refused}, {total['crashed']} crashed"


def page(plain: Mapping[str, Outcome], filled: Mapping[str, Outcome], all_tests: int, generator: str) -> str:
    """The page that is published: totals, a row per operator, and why tests are refused with everything on."""
    rows, more = counted(plain), counted(filled)
    lines = [
        "# Coverage of ONNX's node tests",
        "",
        "Written by `make bench NAME='coverage --fallback --write'`; not edited by hand.",
        "",
        f"Of the {all_tests} node tests of onnx {onnx.__version__}, {len(plain)} apply: static shapes, tensors of types that are",
        "held. On target `generic`:",
        "",
        f"* without fallback: {sentence(plain)};",
    ]
    if filled:
        lines += [f"* with `--fallback` ({generator}; [how it works](../docs/fallback.md)): {sentence(filled)}."]
    lines += ["", "Real models by name, with their status, cycles and memory: [models.md](models.md)."]
    columns = ["tests named", "right", *(["right with fallback"] if filled else []), "of"]
    lines += ["", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for operator, row in rows.items():
        figures = [row["right"], *([more[operator]["right"]] if filled else []), row.total()]
        lines.append(f"| {operator} | {' | '.join(map(str, figures))} |")
    if filled:
        lines += ["", "## What is refused with fallback, too", "", "| test | why |", "|---|---|"]
        left = {name: reason for name, (outcome, reason) in sorted(filled.items()) if outcome != "right"}
        lines += [f"| {name.removeprefix('test_')} | {text(reason)} |" for name, reason in left.items()]
    return "\n".join(lines) + "\n"


def text(reason: str) -> str:
    """A reason on one line of a table."""
    line = " ".join(reason.replace("|", "/").split())
    return line if len(line) <= 160 else f"{line[:157]}..."


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--c", action="store_true", help="build and run the C of every test")
    parser.add_argument("--fallback", action="store_true", help="try what is not right again with generated C, which is built and run")
    parser.add_argument("--only", default="", help="tests whose names begin so, without test_")
    parser.add_argument("--sample", type=int, help="as many tests, drawn with a fixed seed")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError(f"more than {SECONDS} s")))
    cases = [case for case in collect_testcases("") if case.name.removeprefix("test_").startswith(options.only)]
    suited = [case for case in cases if case.model is not None and applies(case.model)]
    if options.sample is not None:
        suited = random.Random(0).sample(suited, min(options.sample, len(suited)))
    plain = {case.name: tried(case, options.c) for case in suited}
    filled: dict[str, Outcome] = {}
    if options.fallback:
        filled = {case.name: tried(case, True, True) if plain[case.name][0] != "right" else plain[case.name] for case in suited}
    for name, outcome in [*plain.items(), *filled.items()]:
        if outcome[0] in ("wrong", "crashed"):
            print(*outcome, name, file=sys.stderr)
    record(plain=plain, fallback=filled)
    published = page(plain, filled, len(cases), generator_version() if filled else "")
    if options.write:
        PAGE.write_text(published)
    print(published)
