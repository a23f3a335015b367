"""The examples in the docstrings of the public interface run, and are type-checked as a user's own file would be."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from deeploy import target
from deeploy.target import _find, _validate, operators

ROOT = Path(__file__).resolve().parents[2]
MODULES = (target, operators, _find, _validate)


def examples(module: ModuleType) -> list[doctest.DocTest]:
    found = doctest.DocTestFinder().find(module, globs=vars(target) | vars(module))
    return [test for test in found if test.examples]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_run(module: ModuleType) -> None:
    tests = examples(module)
    assert tests
    for test in tests:
        runner = doctest.DocTestRunner()
        runner.run(test)
        assert runner.failures == 0 and runner.tries > 0


def test_examples_are_typed(tmp_path: Path) -> None:
    """Every docstring becomes a function of one file, for a strict type checker."""
    lines = ["import numpy as np", f"from deeploy.target import {', '.join(target.__all__)}", "from deeploy.target import problems"]
    for number, test in enumerate(test for module in MODULES for test in examples(module)):
        lines.append(f"def example_{number}() -> None:")
        lines += [f"    {line}" for example in test.examples for line in example.source.splitlines()]
    file = tmp_path / "examples.py"
    file.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout
    assert len(lines) > 40


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "targets").glob("*/*/target.py")), ids=lambda path: path.parent.name)
def test_targets_of_other_packages_are_typed(path: Path) -> None:
    """Against the public interface alone, as their authors would check them."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout


def test_everything_public_is_explained() -> None:
    """Names of the interface are listed once and say what they are."""
    assert len(target.__all__) == len(set(target.__all__))
    defined = [getattr(target, name) for name in target.__all__]
    silent = [item.__name__ for item in defined if (inspect.isclass(item) or inspect.isfunction(item)) and not inspect.getdoc(item)]
    assert silent == []
    public = {name for name in vars(target) if not name.startswith("_") and not isinstance(vars(target)[name], ModuleType)}
    assert public - {"annotations"} == set(target.__all__)
