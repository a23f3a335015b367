"""What a worker does with a seed: make the case, check it, and on demand make it smaller and save it."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

SHRINKING = 90  # seconds, after which a case is small enough


def check_random_graph(argument: Mapping[str, Any]) -> dict[str, Any]:
    """A random graph: see ``check``."""
    from tests.random import cases, check, forms, warm
    from tests.random.choices import Choices, shrink
    from tests.random.oracle import Invalid

    warm.up()
    make = forms.windows if argument.get("windows") else forms.make
    seed = argument["seed"]
    how = argument.get("quick", False), check.MACHINES[seed % len(check.MACHINES)] if argument.get("machines") else ""
    choices = Choices(seed)
    try:
        case = make(choices)
    except Invalid:
        return {"seed": seed, "kind": "empty", "reason": ""}
    if "save" not in argument:
        return {"seed": seed, "form": case.form, **asdict(check.check(case, *how))}
    stop = time.monotonic() + SHRINKING
    label = str(argument["reason"]).partition(" [")[0]

    def outcome(record: list[int]) -> check.Outcome | None:
        try:
            return check.check(make(Choices(record=record)), *how)
        except Invalid:
            return None

    def fails(record: list[int]) -> bool:
        found = outcome(record) if time.monotonic() < stop else None
        return found is not None and found.kind == "failed" and found.reason.partition(" [")[0] == label

    smallest = shrink(choices.record, fails, argument["attempts"])
    if argument["attempts"]:
        case = make(Choices(record=smallest))
    found = outcome(smallest) if argument["attempts"] else None
    cases.save(case, Path(argument["save"]) / "case")
    (Path(argument["save"]) / "detail.txt").write_text(f"seed {seed}: {argument['reason']}\n{found.detail if found else ''}\n")
    return {}


def file(argument: Mapping[str, Any]) -> dict[str, Any]:
    """A damaged file: see ``files``."""
    from tests.random import files, warm
    from tests.random.choices import Choices

    warm.up()
    seed = argument["seed"]
    keep = Path(argument["save"]) if "save" in argument else None
    kind, reason, detail = files.check(Choices(f"file {seed}"), keep)
    return {"seed": seed, "kind": kind, "reason": reason, "detail": detail}


def node(argument: Mapping[str, Any]) -> dict[str, Any]:
    """A node that contradicts itself: see ``contradictions``."""
    from tests.random import contradictions, warm
    from tests.random.choices import Choices

    warm.up()
    seed, how = argument["seed"], argument.get("how", "border")
    keep = Path(argument["save"]) if "save" in argument else None
    kind, reason, detail = contradictions.check(Choices(f"node {seed}"), how, keep)
    return {"seed": seed, "kind": kind, "reason": reason, "detail": detail}


def filled(argument: Mapping[str, Any]) -> dict[str, Any]:
    """A node that contradicts itself, compiled with generated C where no kernel takes it."""
    return node({**argument, "how": "fallback"})


def quick(argument: Mapping[str, Any]) -> dict[str, Any]:
    """A random graph, compiled for one target and interpreted: what importing and lowering do with it."""
    return check_random_graph({**argument, "quick": True})


def windows(argument: Mapping[str, Any]) -> dict[str, Any]:
    """A graph of windows alone."""
    return check_random_graph({**argument, "windows": True})


def machines(argument: Mapping[str, Any]) -> dict[str, Any]:
    """A graph on one microcontroller, also under its emulator, or on two chips."""
    return check_random_graph({**argument, "machines": True})


def memories(argument: Mapping[str, Any]) -> dict[str, Any]:
    """A network in random memories: see ``memories``."""
    from tests.random import memories, warm
    from tests.random.choices import Choices

    warm.up()
    seed = argument["seed"]
    choices = Choices(f"memories {seed}")
    with tempfile.TemporaryDirectory() as scratch:
        case = memories.draw(choices, Path(scratch), memories.given_networks() if argument.get("given", True) else [])
        if "save" in argument:
            shutil.copytree(case.model.parent, argument["save"], dirs_exist_ok=True)
        found = memories.check(case, choices)
    if "save" in argument:
        (Path(argument["save"]) / "detail.txt").write_text(f"seed {seed}: {found.detail}\n")
    return {"seed": seed, **asdict(found)}


TASKS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "graphs": check_random_graph,
    "quick": quick,
    "windows": windows,
    "machines": machines,
    "memories": memories,
    "files": file,
    "nodes": node,
    "fallback": filled,
}
