"""Options reach what they are for: none is declared and then forgotten."""

from __future__ import annotations

import ast
import errno
import gc
import inspect
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import typer
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import deeploy
from deeploy import cli
from deeploy.bringup import commands
from deeploy.cli.options import check_tolerance
from deeploy.errors import FitError, UsageError
from deeploy.options import OptionField, Options, list_options, name_arguments
from deeploy.options.texts import MOST_SECONDS, check_seconds, parse_dims
from tests.models import save_graph

SOURCES = [*sorted(Path(str(cli.__file__)).parent.glob("*.py")), Path(str(commands.__file__))]


def is_command(function: ast.FunctionDef) -> bool:
    """Decorated by ``app.command(...)``."""
    return any(isinstance(d, ast.Call) and isinstance(d.func, ast.Attribute) and d.func.attr == "command" for d in function.decorator_list)


def unused(function: ast.FunctionDef) -> set[str]:
    """Parameters that the body never reads."""
    given = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
    body = ast.Module(function.body, [])
    return given - {node.id for node in ast.walk(body) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def test_every_option_of_every_command_is_read() -> None:
    trees = [ast.parse(path.read_text()) for path in SOURCES]
    found = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and is_command(node)]
    assert len(found) > 10
    assert {function.name: missing for function in found if (missing := unused(function))} == {}


def test_every_option_of_a_compilation_is_read() -> None:
    """Something reads each field of the one record."""
    text = "\n".join(path.read_text() for path in Path(str(deeploy.__file__)).parent.rglob("*.py"))
    assert len(list_options()) > 20
    assert [option.field for option in list_options() if not re.search(rf"\b(options|self|one)\.{option.field}\b", text)] == []


SPOKEN = {
    "target": "siracusa",
    "input_types": ["x=int8"],
    "dims": ["batch=2", "a=b=3"],
    "pins": ["sr=16000", "w=1,0.5"],
    "states": ["past=present"],
    "memory": ["wm=0", "L3=1M"],
    "fix": ["conv.engine=npu"],
    "engines": "cluster,npu",
    "chips": "4",
    "stream": "input.1=4",
    "inputs": Path("inputs.npz"),
    "self_test": Path("samples.npz"),
    "topology": Path("topology.toml"),
    "timing": Path("timing.toml"),
    "default_memory": "L3",
    "fallback_engine": "cluster",
    **dict.fromkeys(("l1", "l2", "flash", "ram", "stack"), "64k"),
    **dict.fromkeys(("unroll", "weight_bits", "context", "cores"), 3),
    **dict.fromkeys(("seconds", "mhz"), 2.5),
}


@pytest.mark.parametrize("option", list_options(), ids=lambda option: option.field)
def test_texts_say_every_option(option: OptionField) -> None:
    """What is parsed of a text is spelled as that text; a file of options holds it so."""
    text = (
        True
        if option.kind == "switch"
        else SPOKEN[option.field]
        if option.field in SPOKEN
        else next(word for word in option.choices if word != option.default)
    )
    options = Options(**{option.field: option.parse(text)})
    assert list(options.given()) == [option.field]
    spelled = option.spell(options.given()[option.field])
    assert spelled == text
    assert option.parse(spelled) == options.given()[option.field]


@pytest.mark.parametrize("option", [option for option in list_options() if option.choices], ids=lambda option: option.field)
def test_words_that_an_option_does_not_take(option: OptionField) -> None:
    with pytest.raises(UsageError, match=f"{option.flag} triple is unknown") as refused:
        Options(**{option.field: "triple"})
    assert all(word in refused.value.remedy for word in option.choices) and "Did you mean" not in refused.value.remedy
    with pytest.raises(UsageError) as refused:
        Options(**{option.field: option.choices[-1][:-1]})
    assert f"Did you mean {option.flag} {option.choices[-1]}?" in refused.value.remedy


def test_commands_that_compile_have_the_same_options() -> None:
    group: Any = typer.main.get_command(cli.app)
    shared = {option.field for option in list_options()}
    for command in ("compile", "verify"):
        assert shared <= {parameter.name for parameter in group.commands[command].params}


def test_memories_are_named_in_any_case() -> None:
    assert Options(memory={"L1": "64000", "wm": 0, "L3": 7}).capacities == {"l1": 64000, "wm": 0, "l3": 7}
    assert parse_dims(["batch=2", "a=b=3"]) == {"batch": 2, "a=b": 3}


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 0.0, -1.0, 2.0 * MOST_SECONDS])
def test_times_are_finite_and_above_0(value: float) -> None:
    with pytest.raises(UsageError, match=r"--seconds .* is not a number above 0"):
        check_seconds(value, "--seconds")


@pytest.mark.parametrize("value", [-math.inf, math.nan, -1e-9])
def test_tolerances_are_not_negative(value: float) -> None:
    with pytest.raises(UsageError, match=r"--tolerance .* is not a number from 0 on"):
        check_tolerance(value)


@pytest.mark.parametrize("value", [None, 1e-9, MOST_SECONDS])
def test_bounds_of_numbers_are_included(value: float | None) -> None:
    refused = []
    for check in (lambda: check_seconds(value, "--seconds"), lambda: check_tolerance(value)):
        try:
            check()
        except UsageError as error:
            refused.append(error)
    assert refused == []


def test_an_arena_beyond_all_addresses_is_refused(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], "first"),
        helper.make_node("Softmax", ["a"], ["b"]),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    sides = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [2**14, 2**15])] for name in "xy"]
    save_graph(helper.make_graph(nodes, "g", *sides), tmp_path / "m.onnx")
    with pytest.raises(FitError, match=r"the arena takes \d+ bytes, addresses in the generated code go up to"):
        deeploy.compile(tmp_path / "m.onnx")


@pytest.mark.parametrize(("option", "scales"), [([], 3), (["--per-tensor"], 1)])
def test_quantize_gives_a_scale_per_channel_or_per_tensor(option: list[str], scales: int, tmp_path: Path) -> None:
    w = np.array([[1, 0], [0, 8], [64, 64]], np.float32).reshape(3, 2, 1, 1)
    sides = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n, 2, 2])] for name, n in (("x", 2), ("y", 3))]
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"], "conv")], "g", *sides, [numpy_helper.from_array(w, "w")])
    save_graph(graph, tmp_path / "float.onnx")
    np.savez(tmp_path / "data.npz", x=np.ones((1, 2, 2, 2), np.float32))
    files = [str(tmp_path / name) for name in ("float.onnx", "data.npz", "int8.onnx")]
    done = CliRunner().invoke(cli.app, ["quantize", files[0], "--calibrate", files[1], "-o", files[2], *option])
    assert done.exit_code == 0, done.output
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(files[2]).graph.initializer}
    assert constants["w_scale"].size == scales


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.ENAMETOOLONG])
def test_what_the_system_refuses_is_two_lines_and_status_2(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(number, os.strerror(number), "folder")

    monkeypatch.setattr(cli, "build_command", lambda: refuse)
    monkeypatch.setattr(sys, "argv", ["deeploy", "compile"])
    handler, threshold = signal.getsignal(signal.SIGTERM), gc.get_threshold()
    try:
        with pytest.raises(SystemExit) as end:
            cli.main()
    finally:
        signal.signal(signal.SIGTERM, handler)
        gc.set_threshold(*threshold)
    assert end.value.code == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"error: folder: {os.strerror(number)}" and second.startswith("Check paths")


def test_numbers_that_overflow_print_no_warning_of_python(tmp_path: Path) -> None:
    """Weights that are infinite: what ``compile`` prints on stderr are notes of its own."""
    weights = numpy_helper.from_array(np.full((4, 4), np.inf, np.float32), "w")
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "infinite", ports[:1], ports[1:], [weights])
    save_graph(graph, tmp_path / "m.onnx")
    command = [sys.executable, "-m", "deeploy", "compile", tmp_path / "m.onnx", "-t", "siracusa", "-o", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Warning" not in done.stderr, done.stderr


NAMED = {
    "--l1 64000: too much": "l1=64000: too much",
    "--l1 64q: that is no size": 'l1="64q": that is no size',
    "--objective speed is unknown": 'objective="speed" is unknown',
    "Leave out --cores, --engines.": "Leave out cores, engines.",
    "more (--memory RAM=5760), beside": 'more (memory={"RAM": 5760}), beside',
    "--no-fusion: one flat memory": "fusion=False: one flat memory",
    "--dim batch=VALUE": 'dims={"batch": VALUE}',
    "Pin them: --dim batch=1 --dim 'my width=VALUE'": 'Pin them: dims={"batch": 1, "my width": VALUE}',
    "Did you mean --requantise engine?": 'Did you mean requantise="engine"?',
    "--metric mse: of numbers": "metric=mse: of numbers",
    "Leave --on out": "Leave --on out",
}


@pytest.mark.parametrize("text", NAMED)
def test_messages_name_arguments_in_python(text: str) -> None:
    assert name_arguments(text, ("metric",)) == NAMED[text]


@pytest.mark.parametrize("option", [option for option in list_options() if option.kind == "pairs"], ids=lambda option: option.field)
def test_no_pairs_are_none_as_well(option: OptionField) -> None:
    assert Options(**{option.field: None}) == Options()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"cores": "8"}, "cores: '8' is not a whole number\nPass a whole number."),
        ({"cores": True}, "cores: True is not a whole number\nPass a whole number."),
        ({"fusion": "no"}, "fusion=False: 'no' is not True or False\nPass True or False."),
        ({"mhz": "fast"}, "mhz: 'fast' is not a number\nPass a number."),
        ({"objectiv": "ram"}, "there is no option objectiv\nDid you mean objective? help(deeploy.compile) lists them."),
    ],
)
def test_arguments_of_another_type_are_refused(given: dict[str, Any], wanted: str) -> None:
    with pytest.raises(UsageError) as refused:
        deeploy.compile("m.onnx", "siracusa", **given)
    assert str(refused.value) == wanted


def test_engines_may_be_one_text() -> None:
    wrong: Any = "cluster,npu"
    assert Options(engines=wrong).engines == ("cluster", "npu") and Options(cores=np.int64(3)).cores == 3


def test_an_error_ends_in_one_frame() -> None:
    with pytest.raises(UsageError, match="there is no file") as refused:
        deeploy.compile("nowhere.onnx", "siracusa", inputs="nowhere.npz")
    assert len(refused.traceback) == 2 and refused.value.__cause__ is None and refused.value.__context__ is None


def test_the_interface_shows_itself_alone() -> None:
    """What a shell completes is the interface, and its functions have the options with their meanings."""
    assert set(dir(deeploy)) == set(deeploy.__all__) and set(dir(deeploy.chips)) == set(deeploy.chips.__all__)
    shown = inspect.signature(deeploy.compile)
    assert list(shown.parameters)[:2] == ["model", "target"] and shown.parameters["memory"].default == {}
    assert not any("Annotated" in str(parameter.annotation) for parameter in shown.parameters.values())
    assert all(f"    {option.field}: " in str(deeploy.compile.__doc__) for option in list_options())
