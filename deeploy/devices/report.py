"""What is printed of a plan for a target without code (``plan.json``)."""

from __future__ import annotations

from pathlib import Path

from deeploy.documents import Document
from deeploy.errors import shorten
from deeploy.report.text import align_table, format_number

_HEAD = ("stage", "levels", "from", "layers", "constants", "held", "with the host", "of", "given", "returned", "ms", "idle")


def report_stages(plan: Document, folder: Path | None = None) -> str:
    """The stages of a plan, what they hold, and how long they take; ``folder`` is where it was written to."""
    rows = []
    for count, stage in enumerate(plan["stages"]):
        first, end = stage["levels"]
        sizes = (
            format_number(stage["held"] + stage["host"]),
            format_number(stage["held"]),
            format_number(stage["host"]),
            format_number(stage["memory"]),
        )
        ends = (format_number(stage["given"]), format_number(stage["returned"]))
        place = (str(count), f"{first} to {end - 1}", shorten(stage["first"], 32), str(stage["layers"]))
        rows.append((*place, *sizes, *ends, f"{stage['ms']:.3f}", f"{100 * stage['idle']:.0f} %"))
    one, batch, slowest = plan["one_device"], plan["batch"], plan["slowest_ms"]
    macs, whole = format_number(plan["macs"]), format_number(one["held"] + one["host"])
    lines = [
        f"{shorten(plan['model'])} for {len(rows)} x {plan['target']}, cut by {plan['balance']}: "
        f"{plan['layers']} layers on {plan['levels']} levels, {macs} MAC",
        plan["planning"],
        "",
        align_table(_HEAD, rows),
        "",
        f"constants with the host: {format_number(plan['host'])} bytes; on one device {format_number(one['host'])} of {whole}",
        f"slowest stage {slowest:.3f} ms, {1e3 / slowest:.1f} inputs a second; one input takes {plan['latency_ms']:.3f} ms",
        f"{batch['ms_per_input']:.3f} ms per input of a batch of {batch['inputs']}, {plan['speedup']:.2f} times as fast as one device "
        f"({one['ms']:.3f} ms)",
    ]
    return "\n".join([*lines, f"written to {folder}"] if folder is not None else lines)
