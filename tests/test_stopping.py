"""SIGTERM and Ctrl-C end every command while the solver works, with one line and the exit status that shells know."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.schedule.test_reductions import Deep

# Commands whose models are chosen by a search that would take days: a market split problem, after it is known that the search has begun.
SCRIPT = """
import random, signal, sys
from deeploy.cli import main
from deeploy.planning.choice import choose
from deeploy.planning.packing import solver
cp_model, solve = solver.cp_model, solver.solve_model

def endless(given, model):
    drawn, model = random.Random(1), cp_model.CpModel()
    picks = [model.new_bool_var("") for _ in range(60)]
    for _ in range(8):
        weights = [drawn.randrange(1000) for _ in picks]
        model.add(cp_model.LinearExpr.weighted_sum(picks, weights) == sum(weights) // 2)
    given.parameters.max_deterministic_time = 1e9
    print("solving", flush=True)
    return solve(given, model)

solver.solve_model = choose.solve_model = endless
signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored in what a shell runs in the background
main()
"""
EXAMPLES = Path(__file__).parents[1] / "examples"
SECONDS = 120  # after which a command is taken not to have heard the signal


@pytest.fixture(scope="module")
def product_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, one = tmp_path_factory.mktemp("model"), Deep()
    np.savez(folder / "inputs.npz", x=np.zeros((64, 64), np.int8))
    return one.save(folder / "model.onnx", one.matmul("x", 64, 64), [64, 64], [64, 64])


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("compile {model} -t siracusa --l1 9000 --no-cache -o {out}", signal.SIGTERM),
        ("compile {model} -t siracusa --l1 9000 --no-cache -o {out}", signal.SIGINT),
        ("compile {model} -t siracusa --l1 9000 --no-cache --chips 2 -o {out}", signal.SIGTERM),
        ("explore {layers} --hardware {hardware} --configs 3 -o {out}", signal.SIGTERM),
        ("verify {model} -t siracusa --l1 9000 --inputs {inputs}", signal.SIGINT),
    ],
)
def test_a_signal_ends_a_search_at_once(command: str, number: signal.Signals, product_model: Path, tmp_path: Path) -> None:
    examples = {"layers": EXAMPLES / "layers" / "mobilevit_s.json", "hardware": EXAMPLES / "hardware" / "array256_bw128.toml"}
    words = command.format(model=product_model, out=tmp_path / "out", inputs=product_model.parent / "inputs.npz", **examples).split()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "TMPDIR": str(tmp_path)}
    command_line = [sys.executable, "-c", SCRIPT, *words]
    with subprocess.Popen(
        command_line, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            begun = process.stdout.readline()
            process.send_signal(number)
            printed, errors = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert begun == "solving\n", errors
    assert (process.returncode, printed, errors) == (128 + number, "", f"stopped by {number.name}\n")
    assert list(tmp_path.iterdir()) == []
