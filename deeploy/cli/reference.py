"""Reference pages, derived from what they describe: kernels, options, the manifest's schema, the runtime's header, the interface.

``python -m deeploy.cli.reference FOLDER`` writes them; nothing in them is written by hand.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer.main

from deeploy import api
from deeploy import target as interface
from deeploy.cli import app
from deeploy.ir.target import Target
from deeploy.operators.table import OPERATORS
from deeploy.operators.views import VIEWS
from deeploy.resources import resource
from deeploy.schemas import MANIFEST, SCHEMAS

_NOTE = "This page is generated; `make docs` writes it anew.\n"


def reference_pages(targets: Sequence[Target]) -> Mapping[str, str]:
    """File names and contents."""
    return {
        "reference-operators.md": _operators_page(targets),
        "reference-options.md": _options_page(),
        "reference-manifest.md": _schemas_page(),
        "reference-runtime.md": _runtime_page(),
        "reference-target.md": _interface_page(),
        "reference-python.md": _python_page(),
    }


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines) + "\n"


def _operators_page(targets: Sequence[Target]) -> str:
    """Which kernel runs which operator of the integer form in which types, per target."""
    parts = ["# Operators", _NOTE, "What the operators of [the integer form](integer-form.md) compute, then the kernels of every target."]
    declared = [(o.name, ", ".join(o.inputs).replace("?", " (optional)"), inspect.getdoc(o.reference) or "") for o in OPERATORS.values()]
    declared += [(name, "a view, without a kernel", inspect.getdoc(view) or "") for name, view in VIEWS.items()]
    parts.append(
        _print_table(("operator", "operands", "what it computes"), [(f"`{n}`", o, t.replace("``", "`")) for n, o, t in sorted(declared)])
    )
    for target in (each for each in targets if each.device is None):
        parts.append(f"## {target.name}\n\n{target.summary}\n")
        rows = []
        for kernel in sorted(target.kernels, key=lambda k: (k.op, k.engine)):
            types = "; ".join(f"{name}: {' '.join(sorted(t.value for t in accepted))}" for name, accepted in kernel.types.items())
            stages = ", ".join(" + ".join(stage) or "none" for stage in kernel.epilogues)
            rows.append((kernel.op, f"`{kernel.name}`", kernel.engine, types, stages))
        parts.append(_print_table(("operator", "kernel", "engine", "types", "epilogues"), rows))
    return "\n".join(parts)


def _options_page() -> str:
    """Every command and option of the command line, from its own declarations."""
    parts = ["# Commands and options", _NOTE]
    group: Any = typer.main.get_command(app)
    waiting: list[tuple[tuple[str, ...], Any]] = [(("deeploy",), group)]
    while waiting:
        names, command = waiting.pop(0)
        waiting += [((*names, name), inner) for name, inner in sorted(getattr(command, "commands", {}).items())]
        parts.append(f"## {' '.join(names)}\n\n{inspect.cleandoc(command.help or '')}\n")
        rows = []
        for parameter in command.params:
            spelled = ", ".join(f"`{text}`" for text in (*parameter.opts, *parameter.secondary_opts) if text)
            is_option = parameter.param_type_name == "option"
            name = spelled if is_option else f"`{(parameter.metavar or parameter.name).upper()}`"
            rows.append((name, (parameter.metavar or "") if is_option else "", getattr(parameter, "help", "") or ""))
        if rows:
            parts.append(_print_table(("option", "value", "what it does"), rows))
    return "\n".join(parts)


def _schemas_page() -> str:
    """The files that are read and written, as JSON Schemas."""
    parts = ["# Files and their schemas", _NOTE, f"Installed with the package; `{MANIFEST}` is what a project says of itself.\n"]
    for name, schema in SCHEMAS.items():
        text = json.dumps(schema, indent=1)  # without colours, of which each weighs more than its word
        parts.append(f"## {name}\n\n{schema.get('description', '')}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def _runtime_page() -> str:
    """The functions that generated code calls, with what the header says of them."""
    text = (resource("kernels") / "hal" / "deeploy_rt.h").read_text(encoding="utf-8")
    head = " ".join(line.strip(" /*") for line in text.partition("*/")[0].splitlines())
    rows = []
    for comment, declaration in re.findall(r"/\*((?:(?!\*/).)*)\*/\n((?:[a-z]\w* )+\*?rt_\w+\([^;{]*\));", text, re.DOTALL):
        rows.append((f"`{' '.join(declaration.split())}`", " ".join(comment.replace("*", " ").split())))
    return "\n".join(["# The runtime", _NOTE, head.strip() + "\n", _print_table(("function", "what it does"), rows)])


def _interface_page() -> str:
    """Everything that ``deeploy.target`` offers, with the first lines of its docstring and its fields."""
    parts = [
        "# The interface for targets",
        _NOTE,
        f"Version {interface.API_VERSION}.\n",
        "```text",
        inspect.getdoc(interface) or "",
        "```\n",
    ]
    for name in interface.__all__:
        item = getattr(interface, name)
        if inspect.isclass(item) or inspect.isfunction(item):
            signature = str(inspect.signature(item)) if inspect.isfunction(item) else ""
            parts.append(f"## {name}\n\n```text\n{name}{signature}\n\n{inspect.getdoc(item)}\n```\n")
    return "\n".join(parts)


def _spell_signature(name: str, signature: inspect.Signature) -> str:
    """A function and its arguments, one on a line, without the quotes of types."""
    lines = list[str]()
    for parameter in signature.parameters.values():
        lines += ["*"] if parameter.kind is parameter.KEYWORD_ONLY and "*" not in lines else []
        lines.append(re.sub(r"(?<=: )'([^']*)'|(?<=: )\"([^\"]*)\"", r"\1\2", str(parameter)))
    arguments = "".join(f"\n    {line}," for line in lines)
    return f"{name}({arguments}\n) -> {str(signature.return_annotation).strip(chr(39))}"


def _python_page() -> str:
    """The functions and results of ``deeploy.api``."""
    parts = ["# The Python interface", _NOTE, f"{inspect.getdoc(api)}\n"]
    parts.append(
        "`import deeploy` offers `compile`, `verify`, `evaluate`, `quantize`, `train_graph`, `inspect`, `advise`, `sweep`, `Compiled`, "
        "`Form` and `Options`; `deeploy.api` offers all of these:\n"
    )
    for name in api.__all__:
        item = getattr(api, name)
        told = _spell_signature(name, inspect.signature(item)) if inspect.isfunction(item) else name
        parts.append(f"## {name}\n\n```text\n{told}\n\n{inspect.getdoc(item)}\n```\n")
        if item is api.Compiled:
            members = sorted((key, value) for key, value in inspect.getmembers(item) if not key.startswith("_") and inspect.getdoc(value))
            rows = [(f"`{key}`", (inspect.getdoc(value) or "").split("\n")[0].replace("``", "`")) for key, value in members]
            parts.append(_print_table(("attribute", "what it is"), [row for row in rows if not row[1].startswith("str(object")]))
    return "\n".join(parts)


def main() -> None:
    """Write the pages into the folder that the command line names."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in reference_pages([interface.load(name) for name in interface.names()]).items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
