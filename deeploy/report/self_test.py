"""What a self-test printed on a device, beside the project that it is of: the first layer that differs, and cycles."""

from __future__ import annotations

import re

from deeploy.documents import Contents, Document
from deeploy.errors import UsageError, shorten
from deeploy.report.text import align_table, format_number
from deeploy.schemas import SELF_TEST_END

_BEGIN = re.compile(r"deeploy-test (\w+) begin ([0-9a-f]{8})")
_LINE = re.compile(r"deeploy-test (\w+) (\d+) (\d+) (\w+) ([0-9a-f]{8}) ([0-9a-f]{8}) (\d+) (same|differs|unchecked)")
_OUTPUT = re.compile(r"deeploy-test (\w+) output (\d+) differs")


def read_log(log: str, entry: Document, unit: str = "cycles") -> Contents:
    """What the lines of a self-test say, which may stand among others; of several runs the last one.

    Args:
        entry: of the network in ``deploy.json``.
        unit: of the clock that the program counts.

    Raises:
        UsageError: there are no such lines, or they are of another project, cut off, or say that an inference failed.
    """
    if "self_test" not in entry:
        raise UsageError(f"{shorten(entry['name'])} has no self-test", "Compile it with --self-test IN.npz, and run that.")
    begins = [match for match in _BEGIN.finditer(log) if match[1] == entry["name"]]
    if not begins:
        raise UsageError(f"the log has no self-test of {entry['name']}", f"It begins with: deeploy-test {entry['name']} begin")
    if int(begins[-1][2], 16) != entry["self_test"]:
        raise UsageError("the log is of another project, or of other samples", "Build and load the program of this project again.")
    log = log[begins[-1].end() :]
    end = SELF_TEST_END.search(log)
    if end is None or "failed" in end[0]:
        what = "is cut off" if end is None else f"says that an inference failed: {end[0].split()[-1]}"
        raise UsageError(f"the log {what}", "Run it again, to its line: end." if end is None else "enum deeploy_status says why.")
    calls, layers = entry["calls"], dict[int, Contents]()
    for _, _, number, name, computed, wanted, count, verdict in _LINE.findall(log[: end.start()]):
        if int(number) >= len(calls) or calls[int(number)]["name"] != name:
            raise UsageError(f"the log names a layer {shorten(name)} that the project does not have", "Give the log as it was printed.")
        verdict = "differs" if verdict == "same" and computed != wanted else verdict
        call = calls[int(number)]
        head = {"name": name, "node": call["node"], "op": call["op"], "predicted": call["cycles"], unit: int(count)}
        layer = layers.setdefault(int(number), {**head, "verdict": verdict})
        layer["verdict"] = "differs" if "differs" in (verdict, layer["verdict"]) else verdict
    outputs = sorted({entry["outputs"][int(n)]["name"] for _, n in _OUTPUT.findall(log[: end.start()]) if int(n) < len(entry["outputs"])})
    shown = [layers[number] for number in sorted(layers)]
    first = next((layer["name"] for layer in shown if layer["verdict"] == "differs"), None)
    return {"passed": first is None and not outputs, "first": first, "outputs": outputs, "unit": unit, "layers": shown}


def describe_log(told: Document) -> str:
    """``read_log`` for a terminal."""
    counted = [unit for unit in (told["unit"],) if any(layer[unit] for layer in told["layers"])]
    counted += ["predicted"] if counted == ["cycles"] else []
    rows = [
        (one["name"], shorten(one["node"], 40), *(format_number(one[name]) for name in counted), one["verdict"]) for one in told["layers"]
    ]
    head = ("layer", "node", *counted, "")
    outputs = f"outputs that differ: {', '.join(map(shorten, told['outputs']))}" if told["outputs"] else "all layers and outputs are equal"
    return f"{align_table(head, rows)}\n" + (f"first layer that differs: {told['first']}" if told["first"] else outputs)
