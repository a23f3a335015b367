"""Laws of the tree itself: sizes of files and functions, the direction of imports, and what the command line loads."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from deeploy.operators.table import OPERATORS
from deeploy.operators.views import VIEWS
from deeploy.version import VERSION

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("deeploy", "targets", "kernels", "templates", "tests", "benchmarks", "examples")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".c", ".h", ".mako"})
PYTHON = [path for path in SOURCES if path.suffix == ".py"]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "benchmarks").rglob("*.md"))]

LONGEST_FILE = 500  # lines
LONGEST_FUNCTION = 60  # lines

BASE = {"errors", "jobs", "resources", "documents", "schemas", "version"}  # what all parts share
NARROWER = {  # parts that need less than all in front of them, and what that is
    "certify": {"ir", "operators"},
    "schedule": {"ir", "planning"},
    "report": {"ir", "planning", "schedule"},
    "fallback": {"ir", "options", "frontend"},
    "partition": {"ir", "options", "operators"},
    "planning": {"ir", "options", "operators", "frontend"},
}
BESIDE = {"advice", "bringup", "devices", "explore", "generation", "quantization", "training"}
INTERFACES = {"api", "chips", "cli", "sweeps"}
TARGETS_MAY_IMPORT = {"target", "ir", "operators", "errors", "frontend"}


# Names of ONNX and of ZigZag that are names of the integer form as well.
FOREIGN = {
    "deeploy/execution/verification/explain.py": {"Softmax"},  # whose integer form in onnxruntime cuts levels off
    "deeploy/execution/verification/onnxruntime_tensors.py": {"Clip"},
    "deeploy/explore/zigzag.py": {"Conv"},
    "deeploy/quantization/losses.py": {"Clip"},
    "deeploy/quantization/magnitudes.py": {"Add", "Mul"},
    "deeploy/quantization/masks.py": {
        "Add",
        "Cast",
        "Concat",
        "Div",
        "Expand",
        "Gather",
        "Mul",
        "Reshape",
        "Slice",
        "Softmax",
        "Sub",
        "Transpose",
        "Where",
    },
    "deeploy/quantization/parts.py": {"Concat", "Gather", "Reshape", "Slice", "Split", "Transpose"},
    "deeploy/quantization/recurrent.py": {"Concat"},
    "deeploy/quantization/rescue.py": {"Clip", "Where"},
    "deeploy/quantization/weights.py": {"Conv", "Gather", "MatMul"},
    "deeploy/training/losses.py": {"Softmax"},
    "deeploy/training/select.py": {"Add"},
    "deeploy/training/write.py": {"Cast", "Expand", "Reshape"},  # of ONNX, whose settings are inputs
    "deeploy/bringup/new.py": {"Add", "MatMul", "RequantShift"},
    "deeploy/ir/nodes.py": {
        "Add",
        "Binary",
        "Cast",
        "Clip",
        "Concat",
        "Dequantize",
        "Div",
        "Expand",
        "Gather",
        "MatMul",
        "Mul",
        "Pad",
        "RequantAdd",
        "Reshape",
        "ScaledAdd",
        "ScaledDiv",
        "Slice",
        "Sub",
        "Transpose",
        "Where",
    },  # tensors that compute like arrays
    "deeploy/ir/rewriting.py": {"Reshape", "Transpose"},  # tensors that compute like arrays
}


@cache
def parse_file(path: Path) -> ast.Module:
    """The tree of a file: most tests read all of them."""
    return ast.parse(path.read_text())


def test_no_operator_is_named_outside_of_where_operators_are_declared_and_lowered() -> None:
    """What other parts need to know of an operator is a property of its declaration."""
    names = {*OPERATORS, *VIEWS}
    assert {"Conv", "ResidualSum", "Transpose"} < names
    found = {}
    for path in PYTHON:
        place = path.relative_to(ROOT)
        if place.parts[0] == "deeploy" and place.parts[1] not in ("frontend", "operators"):
            texts = {node.value for node in ast.walk(parse_file(path)) if isinstance(node, ast.Constant)}
            found[str(place)] = texts & names
    for template in (ROOT / "templates").glob("*.mako"):
        found[str(template.relative_to(ROOT))] = set(re.findall(r"[\"'](\w+)[\"']", template.read_text())) & names
    assert {path: named for path, named in found.items() if named} == FOREIGN


@cache
def imports(path: Path) -> set[str]:
    """Absolute names of every module imported anywhere in ``path``, those inside functions included."""
    package = path.relative_to(ROOT).parent.parts
    found = set()
    for node in ast.walk(parse_file(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) + 1 - node.level]] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def parts(path: Path) -> set[str]:
    """The parts of the package ``deeploy`` that ``path`` imports from."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("deeploy.") and not name.startswith("deeploy.__")}


def test_the_lists_are_not_empty() -> None:
    assert len(PYTHON) > 20
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} == set(FOLDERS)


def test_values_without_a_type_have_a_name() -> None:
    """Documents, attributes and numbers that may be arrays are the borders at which types end; each says so by a name of its own."""
    free = ("frontend", "operators", "bringup", "schemas")  # attributes as ONNX's files have them, and schemas themselves
    texts = {str(p.relative_to(ROOT / "deeploy")): p.read_text() for p in (ROOT / "deeploy").rglob("*.py") if p.parent.name not in free}
    found = {path: len(re.findall(r"\b(?:Mapping|dict)\[str, Any\]", text)) for path, text in texts.items()}
    assert {path: count for path, count in found.items() if count} == {"documents.py": 2, "ir/nodes.py": 1, "options/__init__.py": 1}


def test_no_file_is_too_long() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    assert {path: lines for path, lines in lengths.items() if lines > LONGEST_FILE} == {}


def test_no_function_is_too_long() -> None:
    lengths = {
        f"{path.relative_to(ROOT)}:{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in PYTHON
        for node in ast.walk(parse_file(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FUNCTION} == {}


def test_a_class_has_a_name_of_its_own() -> None:
    """So that a name means one thing wherever it is read."""
    places: dict[str, set[str]] = {}
    for path in (*(ROOT / "deeploy").rglob("*.py"), *(ROOT / "targets").rglob("*.py")):
        for node in ast.walk(parse_file(path)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), set()).add(str(path.relative_to(ROOT)))
    assert len(places) > 300
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


PRIVATE = (  # words for which the field has terms (docs/glossary.md): no module and no class is called by one
    "chain|fuser|strip|second|growth|clock|joined|ring|slots|behind|beside|tilewise|misfit|alike|kept|siblings|heads|wider|ends|classic|staging|rooms|thinned|told"
)


def test_modules_and_classes_are_called_by_the_terms_of_the_field() -> None:
    names = set()
    for path in (ROOT / "deeploy").rglob("*.py"):
        classes = [node.name for node in ast.walk(parse_file(path)) if isinstance(node, ast.ClassDef)]
        names |= {path.stem, *("_".join(re.findall("[A-Z][a-z]*", name)).lower() for name in classes)}
    assert len(names) > 500
    assert {name for name in names if re.search(rf"(^|_)({PRIVATE})s?(_|$)", name)} == set()


REPLACED = "fuser|thinned|growth|joined|misfit|rooms|alike|siblings|early|tail|warm|burst|detached|told"  # of functions and fields


def test_functions_and_fields_are_called_by_the_terms_of_the_field() -> None:
    """Prefetchable cycles, index classes, tiles per step; and a variable says what it holds, not that it was found."""
    names, reads = set(), 0
    for path in (ROOT / "deeploy").rglob("*.py"):
        for node in ast.walk(parse_file(path)):
            if isinstance(node, ast.FunctionDef):
                names.add((path.name, node.name))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add((path.name, node.target.id))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add((path.name, node.attr))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                reads += node.id == "found"
                names |= {(path.name, node.id)} if node.id.startswith("found_") else set()
    assert len(names) > 5000
    assert {name for name in names if re.search(rf"(^|_)({REPLACED})s?(_|$)|^found_", name[1])} == set()
    assert reads < 50


TERMS = {  # words of ours for which the field has terms, by the rooms whose variables, arguments and attributes say the terms
    "second_part|joined|growth|live|kept|strip|thinned|tilewise": (
        "planning",
        "schedule",
        "ir",
        "backend",
        "driver",
        "execution",
        "certify",
        "report",
    ),
    "behind|beside|clock|sweep": ("planning", "schedule", "backend"),
}


def test_variables_are_called_by_the_terms_of_the_field() -> None:
    """Accumulator post-processing, fused kernels, dynamic lengths, time steps, parallel branches and the build cache; targets as well."""
    found, count = set(), 0
    for words, rooms in TERMS.items():
        own = re.compile(rf"(^|_)({words})s?(_|$)", re.IGNORECASE)
        for folder in (*(ROOT / "deeploy" / room for room in rooms), ROOT / "targets"):
            for path in folder.rglob("*.py"):
                names = {
                    getattr(node, field)
                    for node in ast.walk(parse_file(path))
                    for field in ("id", "attr", "arg", "name")
                    if isinstance(getattr(node, field, None), str)
                }
                count += len(names)
                found |= {(path.name, name) for name in names if own.search(name)}
    assert count > 10_000
    assert {name for name in found if name[1] not in {"strip", "lstrip", "rstrip"}} == set()


def test_names_in_docstrings_and_pages_are_there() -> None:
    """``deeploy.package.module.name``, wherever it is mentioned, is a module or what a module defines; functions and classes move."""
    known = {}
    for path in (ROOT / "deeploy").rglob("*.py"):
        nodes = list(ast.walk(parse_file(path)))
        names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        names |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        names |= {alias.asname or alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
        known[".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")] = names
    texts = [path for path in PYTHON if path.relative_to(ROOT).parts[0] in ("deeploy", "targets")]
    mentions = [
        (path.name, name)
        for path in (*texts, *(ROOT / "docs").glob("*.md"))
        for name in re.findall(r"`(deeploy(?:\.\w+){2,})", path.read_text())
    ]
    assert len(mentions) > 50
    assert [(page, name) for page, name in mentions if not any(is_known(name, depth, known) for depth in range(3))] == []


def is_known(name: str, depth: int, known: dict[str, set[str]]) -> bool:
    """Whether a name without its last parts, ``depth`` of them, is a module that has the first of these."""
    parts = name.split(".")
    module, rest = ".".join(parts[: len(parts) - depth]), parts[len(parts) - depth :]
    return module in known and (not rest or rest[0] in known[module])


def test_functions_are_called_by_more_than_one_word() -> None:
    """Most of a module's functions are a verb with its object, or say what they return; methods follow what they belong to."""
    names = [node.name for path in (ROOT / "deeploy").rglob("*.py") for node in parse_file(path).body if isinstance(node, ast.FunctionDef)]
    assert len(names) > 2000
    assert sum("_" not in name.strip("_") for name in names) < len(names) / 8


def rooms(folder: Path) -> list[str]:
    """The rooms that the page at the front of a package lists, in their order."""
    return re.findall(r"^\* ``(\w+)``:", (folder / "__init__.py").read_text(), re.MULTILINE)


def contents(folder: Path) -> set[str]:
    """The modules and packages that lie in a package."""
    return {entry.name.removesuffix(".py") for entry in folder.iterdir() if not entry.name.startswith("_") and entry.name != "py.typed"}


@pytest.mark.parametrize("package", ["deeploy", "deeploy.planning"])
def test_rooms_are_read_in_their_order(package: str) -> None:
    """Each imports those alone that the page at the front of its package names in front of it."""
    folder = ROOT / package.replace(".", "/")
    order, depth = rooms(folder), package.count(".") + 1
    assert len(order) == len(set(order)) >= 10
    wrong = set()
    for path in sorted(folder.rglob("*.py")):
        room = path.relative_to(folder).parts[0].removesuffix(".py")
        if room in order:
            others = {name.split(".")[depth] for name in imports(path) if name.startswith(f"{package}.") and "__" not in name} - {room}
            before = {*order[: order.index(room)], *(BASE if depth == 1 else ())}
            wrong |= {(str(path.relative_to(folder)), other) for other in others - before}
    assert wrong == set()


def test_every_part_has_its_place() -> None:
    """In the order, shared by all, beside it, or on top of all."""
    places = [set(rooms(ROOT / "deeploy")), BASE, BESIDE, INTERFACES]
    assert contents(ROOT / "deeploy") == set().union(*places) and sum(map(len, places)) == len(contents(ROOT / "deeploy"))
    assert contents(ROOT / "deeploy" / "planning") == set(rooms(ROOT / "deeploy" / "planning"))
    text = (ROOT / "deeploy" / "__init__.py").read_text()
    assert [name for name in sorted(BASE | BESIDE | INTERFACES) if f"``{name}``" not in text] == []


def test_some_parts_need_less_than_all_in_front_of_them() -> None:
    wrong = {
        (str(path.relative_to(ROOT)), other)
        for part, allowed in NARROWER.items()
        for path in (ROOT / "deeploy" / part).rglob("*.py")
        for other in parts(path) - allowed - BASE - {part}
    }
    assert wrong == set()


def test_only_the_interfaces_import_what_stands_beside() -> None:
    wrong = {
        (str(path.relative_to(ROOT)), other)
        for path in (ROOT / "deeploy").rglob("*.py")
        if (part := path.relative_to(ROOT / "deeploy").parts[0].removesuffix(".py")) not in INTERFACES
        for other in parts(path) & (BESIDE | INTERFACES) - {part}
    }
    assert wrong - {("deeploy/__init__.py", "api"), ("deeploy/__init__.py", "chips"), ("deeploy/__main__.py", "cli")} == set()


def modules() -> dict[str, set[str]]:
    """Every module of the package, and the modules that it imports anywhere: inside functions and for types as well."""
    paths = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in PYTHON}
    known = {name: path for name, path in paths.items() if name.split(".")[0] == "deeploy"}
    return {
        name: {found if found in known else found.rpartition(".")[0] for found in imports(path)} & known.keys() - {name}
        for name, path in known.items()
    }


def test_no_imports_go_in_a_circle() -> None:
    needed = modules()
    assert len(needed) > 100
    assert len(list(TopologicalSorter(needed).static_order())) == len(needed)  # raises CycleError with the modules of a circle


def test_no_includes_of_c_go_in_a_circle() -> None:
    """A header of a name that several folders have is the one beside, else any of them."""
    files = [path for path in (ROOT / "kernels").rglob("*") if path.suffix in {".c", ".h"}]
    needed: dict[Path, set[Path]] = {}
    for path in files:
        names = re.findall(r'#\s*include\s+"([^"]+)"', path.read_text())
        for name in names:
            places = [other for other in files if other.as_posix().endswith(f"/{Path(name).name}")]
            beside = [other for other in places if other.parent == path.parent]
            needed.setdefault(path, set()).update(beside or places)
    assert len(needed) > 100
    assert len(list(TopologicalSorter(needed).static_order())) >= len(needed)  # raises CycleError with the files of a circle


def test_targets_import_public_declarations_only() -> None:
    wrong = {str(path.relative_to(ROOT)): parts(path) - TARGETS_MAY_IMPORT for path in (ROOT / "targets").rglob("*.py")}
    assert wrong
    assert {path: names for path, names in wrong.items() if names} == {}


def test_targets_outside_the_tree_need_the_public_interface_only() -> None:
    """What a package of another author would import: ``deeploy.target`` and its ``operators``, nothing else."""
    files = [path for folder in ("tests/targets", "examples/targets") for path in (ROOT / folder).glob("*/**/target.py")]
    assert len(files) > 2
    assert {str(path.relative_to(ROOT)): found for path in files if (found := parts(path) - {"target"})} == {}


def test_targets_outside_the_tree_are_small_and_named_nowhere_in_the_compiler() -> None:
    """Of any package there, also of the next one: its folder's name, however it is written."""
    folders = [path.parent for path in (ROOT / "examples" / "targets").glob("*/pyproject.toml")]
    assert {"snitch", "pulp_open"} <= {folder.name for folder in folders}
    lines = {folder.name: sum(len(path.read_text().splitlines()) for path in folder.rglob("*.py")) for folder in folders}
    assert {name: count for name, count in lines.items() if count >= 250} == {}
    files = [path for path in (ROOT / "deeploy").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    text = "\n".join(path.read_text(errors="replace").lower().replace("-", "_") for path in files)
    assert [name for name in lines if re.search(rf"(?<![a-z]){name}(?![a-z])", text)] == []


def test_the_compiler_names_no_target() -> None:
    """No module imports one; only the options and the two interfaces may name one, as a default."""
    names = {folder.name for folder in (ROOT / "targets").iterdir() if (folder / "target.py").is_file()}
    assert "generic" in names
    found = set()
    for path in (ROOT / "deeploy").rglob("*.py"):
        tree = parse_file(path)
        strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        modules = {name.split(".")[0] for name in imports(path)}
        quoted = {name for name in names for text in strings if f'"{name}"' in text and ">>>" not in text}  # in code that is written
        named = set() if path.relative_to(ROOT).parts[1] in {"api.py", "cli", "options"} else strings & names | quoted
        found |= {(str(path.relative_to(ROOT)), name) for name in named | modules & {"targets"}}
    assert found == set()


def test_help_loads_neither_numpy_nor_onnx() -> None:
    code = """
import sys
from deeploy.cli import main
try:
    main()
except SystemExit as end:
    heavy = {"numpy", "onnx", "onnx_graphsurgeon", "onnxruntime", "ortools"} & set(sys.modules)
    print("loaded:", sorted(heavy), "status:", end.code)
"""
    result = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.stdout.splitlines()[-1] == "loaded: [] status: 0", result.stderr
    for command in ("compile", "run", "verify", "report", "inspect", "targets", "quantize", "explore"):
        assert command in result.stdout


def links(page: Path) -> list[str]:
    """Targets of the links of a page that lead to files or to headings; code is left out."""
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", target)]


def headings(page: Path) -> set[str]:
    """How links name the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_of_the_documentation_lead_somewhere() -> None:
    found = [(page, *target.partition("#")[::2]) for page in PAGES for target in links(page)]
    assert len(found) > 10
    broken = []
    for page, file, heading in found:
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or not target.is_relative_to(ROOT) or (heading and heading not in headings(target)):
            broken.append((page.name, file, heading))
    assert broken == []


def test_every_page_is_in_the_index_and_every_page_that_is_named_exists() -> None:
    index = {(ROOT / "docs" / target.partition("#")[0]).resolve() for target in links(ROOT / "docs" / "README.md")}
    pages = set((ROOT / "docs").glob("*.md"))
    assert pages - index == {ROOT / "docs" / "README.md"}
    named = {name for path in (*SOURCES, *PAGES) for name in re.findall(r"docs/[\w-]+\.md", path.read_text())}
    assert len(named) > 5
    assert {name for name in named if not (ROOT / name).is_file()} == set()


def test_only_what_is_meant_to_lies_at_the_top() -> None:
    """Programs that write into the folder where they are started leave files there."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    files = {
        ".clang-format",
        ".gitignore",
        ".pre-commit-config.yaml",
        "CHANGELOG.md",
        "CITATION.cff",
        "CONTRIBUTING.md",
        "LICENSE",
        "Makefile",
        "README.md",
        "mkdocs.yml",
        "pyproject.toml",
    }
    assert {name.partition("/")[0] for name in listed} == {*files, ".ci", ".devcontainer", ".github", "docs", "requirements", *FOLDERS}


def test_what_is_cited_and_what_a_container_installs_is_this_version() -> None:
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()
    installed = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())["onCreateCommand"].split()
    needed = re.findall(r"^need \S+ (.+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert {"gcc", "make", "gcc-arm-none-eabi"} <= set(installed) & {package for row in needed for package in row.split()}


def test_every_command_of_the_makefile_is_told() -> None:
    """`make help` lists those with a comment behind them."""
    text = (ROOT / "Makefile").read_text()
    commands = set(re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE)[0].split())
    assert commands == set(re.findall(r"^([\w-]+):.*## \w", text, re.MULTILINE))


def test_no_advice_installs_a_package_that_no_index_has() -> None:
    """The project is installed from a checkout; what it may need besides is advised by the names of those packages."""
    folders = {"deeploy": "*.py", "docs": "*.md", "examples": "*.py", "tests": "*.py"}
    paths = [ROOT / "README.md", *(path for folder, names in folders.items() for path in (ROOT / folder).rglob(names))]
    assert len(paths) > 500
    own = re.compile(r"pip install [^\n]*deeploy" + "-compiler")
    assert [str(path.relative_to(ROOT)) for path in paths if own.search(path.read_text(errors="replace"))] == []
