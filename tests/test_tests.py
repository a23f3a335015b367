"""Laws of the tests: where their files lie, that each checks something, and what their helpers are called."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

WITHOUT_SOURCE = {"docs", "e2e", "hal", "random", "replay", "targets"}  # tests that concern no single package
WITHOUT_TESTS = {"cli", "generation", "options"}  # packages that tests/test_*.py and tests/e2e run


def test_folders_of_tests_are_those_of_the_compiler() -> None:
    """Tests of a package lie in a folder of its name, and each package has one."""
    folders = {path.parent.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").glob("*/**/test_*.py")}
    packages = {path.parent.relative_to(ROOT / "deeploy").as_posix() for path in (ROOT / "deeploy").glob("*/**/__init__.py")}
    assert len(packages) > 30
    assert {folder for folder in folders if folder.split("/")[0] not in WITHOUT_SOURCE} - packages == set()
    assert {folder for folder in folders if folder in WITHOUT_SOURCE} == WITHOUT_SOURCE
    assert packages - folders == WITHOUT_TESTS


def test_files_of_tests_lie_where_their_modules_lie() -> None:
    """``test_NAME.py`` in the folder of a package is not of a module NAME that lies in another folder of that package."""
    places: dict[tuple[str, str], set[str]] = {}
    for path in (ROOT / "deeploy").glob("*/**/*.py"):
        folder = path.parent.relative_to(ROOT / "deeploy")
        places.setdefault((folder.parts[0], path.stem), set()).add(folder.as_posix())
    wrong, right = set(), 0
    for path in (ROOT / "tests").glob("*/**/test_*.py"):
        folder = path.parent.relative_to(ROOT / "tests")
        expected = places.get((folder.parts[0], path.stem.removeprefix("test_")), set())
        right += folder.as_posix() in expected
        if expected and folder.as_posix() not in expected:
            wrong.add((path.relative_to(ROOT).as_posix(), *sorted(expected)))
    assert wrong == set() and right > 80


Place = tuple[str, str]  # a module of the tests, and a function or method of it by its name
CHECKS = re.compile(r"pytest\.(raises|warns|fail)|np\.testing\.\w+")


@cache
def parse_modules() -> dict[str, ast.Module]:
    """Every module of the tests by its name."""
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text()) for path in (ROOT / "tests").rglob("*.py")}


@cache
def imported_names(module: str) -> dict[str, Place]:
    """What a module of the tests imports: by its name there, the module that it is imported from and its name in that."""
    found: dict[str, Place] = {}
    for node in ast.walk(parse_modules()[module]):
        if isinstance(node, ast.ImportFrom):
            package = module.split(".")[: -node.level] if node.level else []
            source = ".".join([*package, *([node.module] if node.module else [])])
            found |= {alias.asname or alias.name: (source, alias.name) for alias in node.names}
    return found


def checks_itself(function: ast.FunctionDef) -> bool:
    """Whether a function has an assertion, or expects an error."""
    return any(
        isinstance(node, ast.Assert) or (isinstance(node, ast.Call) and CHECKS.match(ast.unparse(node.func)) is not None)
        for node in ast.walk(function)
    )


def places_called(module: str, function: ast.FunctionDef) -> set[Place]:
    """Functions of the tests that a function calls, and fixtures that it takes; methods go by their names alone."""
    names = imported_names(module)
    found = {(module, argument.arg) for argument in function.args.args}
    folders = module.split(".")[:-1]
    found |= {(".".join([*folders[:depth], "conftest"]), argument.arg) for depth in (1, 2, 3) for argument in function.args.args}
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name):
            found.add(names.get(node.func.id, (module, node.func.id)))
        elif isinstance(node.func, ast.Attribute):
            source, name = names.get(node.func.value.id, ("", "")) if isinstance(node.func.value, ast.Name) else ("", "")
            found |= {(f"{source}.{name}", node.func.attr), (module, node.func.attr)}
            found |= {(other, node.func.attr) for other, _ in names.values()}
    return found


def test_every_test_checks_something() -> None:
    """By itself, or by a helper or a fixture that it uses: one that asserts, or that uses such a one."""
    functions = {
        (module, node.name): node
        for module, tree in parse_modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }
    called = {place: places_called(place[0], function) for place, function in functions.items()}
    checking = {place for place, function in functions.items() if checks_itself(function)}
    while further := {place for place, others in called.items() if place not in checking and others & checking}:
        checking |= further
    tests = {place for place in functions if place[1].startswith("test_")}
    assert len(tests) > 1500
    assert tests - checking == set()


VAGUE = {"compiled", "graph", "lowered", "model", "models", "net", "network", "networks"}  # of what?


def test_builders_are_called_by_what_they_build() -> None:
    """Functions and fixtures of tests that make a model or compile one: names of one word say nothing of it."""
    named = {
        (module, node.name)
        for module, tree in parse_modules().items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        if node.name in VAGUE
    }
    assert named == set()
