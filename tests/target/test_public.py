"""What is public is listed, complete, and enough: those who stand outside import nothing else."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECTION = (ROOT / "docs" / "targets.md").read_text().split("## What is public")[1].split("\n## ")[0]
PUBLIC = set(re.findall(r"^\| `(deeploy[\w.]*)` \|", SECTION, re.MULTILINE))
BLOCK = re.compile(r'^```python(?: title="[^"]+")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def sources() -> dict[str, str]:
    """Python that is written as others would write it: tutorials, the skeleton of a target, packages of targets."""
    found = {
        str(p): p.read_text()
        for folder in ("examples/targets", "deeploy/bringup/assets")
        for p in (ROOT / folder).rglob("*.py*")
        if p.suffix in (".py", ".txt")
    }
    for page in (ROOT / "docs").glob("tutorial-*.md"):
        found |= {f"{page} block {number}": block for number, block in enumerate(BLOCK.findall(page.read_text()))}
    return found


def imported(text: str) -> set[str]:
    """What ``text`` imports of the compiler, as ``module`` or ``module:name``."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {f"{node.module}:{alias.name}" for alias in node.names}
    return {name for name in found if name.split(":")[0].split(".")[0] == "deeploy"}


def test_every_public_name_exists() -> None:
    assert {"deeploy", "deeploy.errors", "deeploy.target", "deeploy.target.operators"} == PUBLIC
    for name in sorted(PUBLIC):
        module = importlib.import_module(name)
        assert module.__all__ and all(getattr(module, entry) is not None for entry in module.__all__), name


def test_modules_behind_the_interface_are_private_by_name() -> None:
    """``deeploy.target`` has no further modules that could be taken for parts of it."""
    modules = {path.stem for path in (ROOT / "deeploy" / "target").glob("*.py")} - {"__init__", "operators"}
    assert modules and all(name.startswith("_") for name in modules)


def test_those_outside_import_what_is_public() -> None:
    files = sources()
    assert len(files) > 8
    listed = {f"{name}:{entry}" for name in PUBLIC for entry in importlib.import_module(name).__all__} | PUBLIC
    listed |= {"deeploy.target:operators"}
    assert {name: wrong for name, text in files.items() if (wrong := imported(text) - listed)} == {}
