"""What ``deeploy explain`` finds in a project and prints about one layer."""

from __future__ import annotations

import difflib
from pathlib import Path

from deeploy.documents import Contents, Document, read_document
from deeploy.errors import UsageError, shorten
from deeploy.report import advice
from deeploy.report import fusion as fused_groups
from deeploy.report.text import align_table, call_instance, format_number
from deeploy.schemas import KINDS, REASONS

_NEAR = 4  # names that are suggested


def find_explanations(project: Path, entry: Document, name: str) -> list[Contents]:
    """The explanations of the layers that come from a node, or of the one function of that name.

    Args:
        entry: the network's part of ``deploy.json``.

    Raises:
        UsageError: there is no such layer, or the project lost its explanations.
    """
    calls = entry["calls"]
    steps = [step for step, call in enumerate(calls) if name in (call["name"], call["node"])]
    if not steps:
        known = list(dict.fromkeys(n for call in calls for n in (call["node"], call["name"])))
        near = [n for n in known if name.lower() in n.lower()] or difflib.get_close_matches(name, known, _NEAR, 0.4)
        option = f" --network chip{entry['chip']}" if "chip" in entry else ""
        hint = (
            f"Did you mean {', '.join(shorten(n, 48) for n in near[:_NEAR])}?" if near else f"deeploy report OUT{option} lists the layers."
        )
        raise UsageError(f"{shorten(entry['model'])} has no layer {shorten(name)}", hint)
    if entry["machine"] is None and entry.get("prediction") is None:
        return [_explain_flat(entry, step) for step in steps]
    networks = read_document(project / REASONS, REASONS)["networks"]
    reasons = networks.get(entry["name"])
    if reasons is None or len(reasons["calls"]) != len(calls):
        raise UsageError(f"{shorten(str(project / REASONS), 160)} does not explain network {entry['name']}", KINDS[REASONS].remedy)
    head = {"steps": len(calls), "levels": reasons["levels"]}
    return [
        {**head, "step": step, **reasons["calls"][step], "advice": advice.of_layer(reasons.get("advice", []), calls[step]["name"])}
        for step in steps
    ]


def describe_explanation(explanation: Document) -> str:
    """One explanation for people."""
    lines = [
        f"{shorten(explanation['node'])} ({shorten(explanation['op'])}), "
        f"step {explanation['step']} of {explanation['steps']}, in C {explanation['name']}",
        "",
    ]
    lines += [f"  {shorten(reason, 400)}" for reason in explanation["reasons"]]
    rows = [(o["name"], shorten(o["tensor"], 40), o["where"]) for o in explanation["operands"]]
    lines += [*advice.layer_lines(explanation.get("advice", ())), "", _indent_text(align_table(("operand", "tensor", "where"), rows))]
    if not explanation["candidates"]:
        return "\n".join(lines)
    levels = [
        (place, level) for place, level in enumerate(explanation["levels"]) if any(c["bytes"][place] for c in explanation["candidates"])
    ]
    is_compared = len({candidate["kernel"] for candidate in explanation["candidates"]}) > 1
    heads = (
        "",
        *(("by",) if is_compared else ()),
        "tiles",
        "buffers",
        "operands in",
        *(f"bytes in {level}" for _, level in levels),
        "cycles",
        "",
    )
    shown = []
    for candidate in explanation["candidates"]:
        figures = (*(format_number(candidate["bytes"][place]) for place, _ in levels), format_number(candidate["cycles"]))
        who = (f"{candidate['kernel']} on {candidate['engine']}",) if is_compared else ()
        mark, slots = "*" if candidate["chosen"] else "", "two" if candidate["is_double"] else "one"
        shown.append((mark, *who, candidate["loops"], slots, candidate["sources"], *figures, candidate["verdict"]))
    lines += ["", f"  candidates, of {explanation['considered']} that were considered:", _indent_text(align_table(heads, shown))]
    return "\n".join([*lines, "", "  schedule:", _indent_text(explanation["schedule"])])


def _indent_text(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _explain_flat(entry: Document, step: int) -> Contents:
    """All there is to say on a machine with one flat memory: nothing moves, and only calls of fused groups are cut."""
    call = entry["calls"][step]
    placed = {name: buffer for buffer in entry["buffers"] for name in buffer["name"].split("=")}
    constants = {constant["name"]: constant for constant in entry["constants"]}
    fused_group = next(
        (fused_group for fused_group in entry.get("fused_groups", ()) if fused_group["first"] <= step <= fused_group["last"]), None
    )
    line_buffers = (
        {line_buffer["buffer"]: line_buffer["rows"] for line_buffer in fused_group["line_buffers"]} if fused_group is not None else {}
    )
    operands = []
    for name, buffer in call["operands"].items():
        where = "the caller's"
        if buffer in placed:
            block = placed[buffer]
            steps = f"steps {block['first']} to {block['last']}"
            where = f"{format_number(block['bytes'])} bytes at {format_number(block['offset'])} of {block['level']}, {steps}"
            where += f", rows kept: {line_buffers[buffer]}" if buffer in line_buffers else ""
        elif buffer in constants:
            stored = constants[buffer].get("stored")
            where = f"constant{f' in {stored}' if stored else ''}, {format_number(constants[buffer]['bytes'])} bytes of read-only data"
        operands.append({"name": name, "tensor": constants.get(buffer, {}).get("tensor", buffer), "where": where})
    why = f", the first kernel of {entry['target']} that fits the node"
    if call.get("generator"):
        why = f", in C from {call['generator']} (--fallback): no kernel of {entry['target']} has this operator"
    tile = f"Tile: the whole layer at once, since {entry['target']} has one flat memory."
    if fused_group is not None:
        dim, trips, rows = call["loops"][0]
        first, last = (entry["calls"][end]["name"] for end in (fused_group["first"], fused_group["last"]))
        tile = (
            f"Tile: {rows} of {dim}, {trips} tiles. It is in a fused group, from {first} to {last}: layers that are computed together,"
            " a few rows at a time, so that the tensors between them need not be kept as a whole."
        )
    reasons = [f"Engine: {call['engine']}, by {call_instance(call)}{why}.", tile]
    reasons += [f"Time: {format_number(call['cycles'])} cycles, an estimate."] if call.get("cycles") is not None else []
    reasons += [told] if (told := fused_groups.group_reason(entry, step)) is not None else []
    head = {"step": step, "steps": len(entry["calls"]), "levels": list(entry["memory"]), "name": call["name"], "node": call["node"]}
    return {
        **head,
        "op": call["op"],
        "considered": 1,
        "reasons": reasons,
        "operands": operands,
        "candidates": [],
        "schedule": "",
        "advice": [],
    }
