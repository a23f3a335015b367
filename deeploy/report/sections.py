"""The parts of a network's report: headline figures, where cycles go, distances to the bounds, traffic and energy."""

from __future__ import annotations

from deeploy.documents import Document
from deeploy.errors import shorten
from deeploy.report.markup import (
    MINUS,
    THIN,
    cards,
    figures,
    header,
    name,
    number,
    percent,
    row,
    scrolled,
    section,
    shares,
    table,
    tag,
    text,
)
from deeploy.report.text import clock_mhz, differing_shares, sizes_of_layers, stream_lines, tell_second

SHARES = {"compute": "computing", "overhead": "forks and set-up", "issue": "starting transfers"}


def count_macs(entry: Document) -> int:
    """Multiply-accumulates of a network."""
    return sum(call["macs"] for call in entry["calls"])


def network_heading(entry: Document) -> str:
    """The network's name, and what it was compiled for."""
    machine = entry["machine"]
    facts = [f"{len(entry['calls'])} layers", f"{number(count_macs(entry))} multiply-accumulates"]
    if machine is not None:
        facts += [f"{machine['cores']} cores", f"constants in {text(machine['default_memory'])}", f"{text(machine['buffering'])} buffering"]
        facts += [f"{number(machine['mhz'])} MHz"] if machine["mhz"] else []
    return header(entry["model"], f" on {text(entry['target'])}", facts)


def headline_cards_of(entry: Document) -> str:
    """The first figures of a report as HTML: cycles, time, memory, energy."""
    headline_cards: list[tuple[str, str, str]] = []
    if entry["cycles"] is not None:
        cycles, spent = entry["cycles"], entry["shares"]
        headline_cards.append(
            (
                "Cycles, an estimate" if entry.get("is_estimate") else "Cycles",
                number(cycles),
                f"{number(entry['microseconds'] / 1000, 3)} ms at {number(clock_mhz(entry))} MHz",
            )
        )
        if (second := (entry.get("stream") or {}).get("second")) is not None:
            headline_cards.append(("Duty cycle", f"{second['duty_cycle']:.1%}", tell_second(second)))
        headline_cards.append(
            ("MAC/cycle", number(count_macs(entry) / cycles if cycles else 0, 2), f"{_computing_rate(entry)} while computing")
        )
        headline_cards.append(("Not computing", percent(cycles - spent["compute"], cycles), f"{number(cycles - spent['compute'])} cycles"))
        if entry["energy_uj"]:
            cores = f"{percent(entry['energy']['cores'], entry['energy_uj'])} in cores"
            lacking = entry.get("energy_missing")
            headline_cards.append(
                ("Energy", f"{number(entry['energy_uj'], 1)} \u00b5J", f"without {', '.join(lacking)}" if lacking else cores)
            )
    for level, use in entry["memory"].items():
        if not use["peak"]:
            continue
        of = f"{percent(use['peak'], use['capacity'])} of {number(use['capacity'])}" if use["capacity"] else "peak of the arena"
        headline_cards.append((f"{level}, bytes", number(use["peak"]), of))
    if entry["cycles"] is None:
        headline_cards.append(("MAC", number(count_macs(entry)), f"{len(entry['calls'])} layers"))
        headline_cards.append(("Constants, bytes", number(sum(c["bytes"] for c in entry["constants"])), "read-only data"))
    return cards(headline_cards)


def _computing_rate(entry: Document) -> str:
    compute = entry["shares"]["compute"]
    return number(count_macs(entry) / compute if compute else 0, 2)


def share_names(entry: Document) -> dict[str, str]:
    """What cycles are spent on, by the key in ``shares``."""
    return {key: SHARES.get(key, f"waiting for {key}") for key in entry["shares"]}


def share_class(key: str) -> str:
    """The CSS class of a share; all paths look alike."""
    return f"share-{key}" if key in SHARES else "share-wait"


def spent_bar(entry: Document) -> str:
    """One bar: all cycles by what they are spent on."""
    if not entry["cycles"]:
        return ""
    parts = [(share_class(key), words, entry["shares"][key]) for key, words in share_names(entry).items() if entry["shares"][key] > 0]
    drawn = shares(parts, entry["cycles"], " cycles")
    return section("Where the cycles go", *drawn, note="Waiting counts only what computing does not hide.")


def stream_section(entry: Document) -> str:
    """How a network streams, as the terminal says it."""
    lines = stream_lines(entry)
    return section("Stream", *(tag("p", text(line.strip())) for line in lines)) if lines else ""


def bounds_section(entry: Document) -> str:
    """Totals against what no plan can be better than, and against the greedy plan."""
    rows = _cycle_rows(entry) if entry["prediction"] is not None and entry["cycles"] is not None else []
    for level, use in entry["memory"].items():
        if use["peak"]:
            gap = "equal" if use["peak"] == use["lower_bound"] else f"gap {percent(use['peak'] - use['lower_bound'], use['peak'])}"
            rows.append((f"peak of {text(level)}, bytes", number(use["peak"]), f"lower bound {number(use['lower_bound'])}", gap))
    shown = [row((a, *figures(b), c, *figures(d))) for a, b, c, d in rows]
    return section("Against the bounds", scrolled(table(("", "reached", "against", ""), shown, f"bounds-{entry['name']}", "plain bounds")))


def _cycle_rows(entry: Document) -> list[tuple[str, str, str, str]]:
    """What the planner counts, its bound, the greedy plan, and what the walk finds."""
    prediction, walked = entry["prediction"], entry["cycles"]
    cycles, bound, greedy = prediction["cycles"], prediction["bound"], prediction["greedy"]
    gap = f"gap {percent(cycles - bound, cycles)}" if cycles != bound else "optimal"
    gain = f"gain {percent(greedy - cycles, greedy)}" if greedy is not None else "does not fit"
    away = f"{'+' if walked >= cycles else MINUS}{percent(abs(walked - cycles), cycles)}"
    compute = entry["shares"]["compute"]
    least = [
        (f"products at the peak of {text(name)}", number(walked), f"at least {number(count)}", percent(count, walked))
        for name, count in entry.get("bounds", {}).get("compute", {}).items()
    ]
    least += [
        (f"constants, inputs and outputs once over {text(name)}", number(walked), f"at least {number(count)}", percent(count, walked))
        for name, count in entry.get("bounds", {}).get("traffic", {}).items()
        if count
    ]
    return [
        ("cycles of the plan, as the planner counts", number(cycles), f"solver's bound {number(bound)}", gap),
        ("cycles of the greedy plan", number(greedy), "largest tiles, call by call", gain),
        ("cycles of the plan, walked event by event", number(walked), "the planner's count", away),
        ("cycles in kernels alone", number(compute), "all cycles", percent(compute, walked)),
        *_overlap_rows(entry),
        *least,
    ]


def _overlap_rows(entry: Document) -> list[tuple[str, str, str, str]]:
    """How long accelerators and cores work at once; nothing where one of them has nothing to do."""
    engines = entry.get("engines")
    if engines is None or engines["hidden"] is None:
        return []
    least = f"of {number(min(engines['accelerators'], engines['cores']))} of the one with less to do"
    return [("cycles in which accelerators and cores work at once", number(engines["both"]), least, percent(engines["hidden"], 1))]


def requantised_section(entry: Document) -> str:
    """What ``--requantise engine`` costs in equality, and gains in cycles."""
    requantisation = entry.get("requantised")
    if requantisation is None:
        return ""
    rows = [
        row((tag("td", name(layer["node"], 48)), tag("td", text(layer["engine"])), *figures(*differing_shares(layer))))
        for layer in requantisation["layers"]
    ]
    heads = ("layer", "engine", "sums that differ", "of those not clipped", "outputs that differ")
    gain = ""
    if None not in (entry["cycles"], requantisation["cycles"]):
        gain = f" {number(entry['cycles'])} cycles are predicted; of the exact network {number(requantisation['cycles'])}."
    exact = (
        f" Exact, as no constants of an engine keep one step: {', '.join(shorten(node) for node in requantisation['exact'])}."
        if requantisation["exact"]
        else ""
    )
    note = f"These layers are at most one step from the exact result of any sum that can occur.{gain}{exact}"
    shown = scrolled(table(heads, rows, f"requantised-{entry['name']}"))
    return section("Requantised by engines", shown, note=note)


def sizes_section(entry: Document) -> str:
    """What the program takes of flash and RAM, where a cross compiler told."""
    section_sizes = entry.get("sizes")
    if section_sizes is None:
        return ""
    heads = ("flash, bytes", "code", "constants", "RAM, bytes", "arena", "of it states", "inputs and outputs", "variables", "stack")
    names = ("flash", "code", "constants", "ram", "arena", "states", "io", "static", "stack")
    shown = table(heads, [row(figures(*(number(section_sizes[name]) for name in names)))], f"sizes-{entry['name']}", "plain")
    compiler = section_sizes["compiler"]
    note = f"Built by {compiler}; the stack without that of the C library's functions. Layers that run one kernel share its code."
    layers = [row((tag("td", name(layer, 48)), *figures(*counts))) for layer, *counts in sizes_of_layers(entry)]
    if layers:
        shown += table(("layer", "code, bytes", "constants", "arena", "stack"), layers, f"layer-sizes-{entry['name']}")
    return section("Program", scrolled(shown), note=note)


def arrangements_section(entry: Document) -> str:
    """What a network with fused groups would cost within other limits of memory."""
    arrangements = entry.get("arrangements")
    if arrangements is None:
        return ""
    rows = [row(figures(number(one["bytes"]), number(one["calls"]), number(one["moved"]))) for one in arrangements]
    shown = table(("memory of layers, bytes", "calls added", "bytes moved"), rows, f"arrangements-{entry['name']}", "plain")
    note = (
        "Layers of a fused group are computed together, a few rows at a time. --memory sets a limit, --objective ram takes the first line."
    )
    return section("Memory against work", scrolled(shown), note=note)


def traffic_section(entry: Document) -> str:
    """Bytes, transfers, time and energy per path."""
    if entry["cycles"] is None or not entry["traffic"]:
        return ""
    heads = ("path", "bytes in", "bytes out", "transfers", "rows", "busy", "exposed", "energy")
    rows = []
    for path, moved in entry["traffic"].items():
        exposed = entry["shares"][path]
        ends = entry["machine"]["paths"][path]
        cells = (
            number(moved["in"]),
            number(moved["out"]),
            number(moved["transfers"]),
            number(moved["rows"]),
            f"{number(moved['busy'])} ({percent(moved['busy'], entry['cycles'])})",
            f"{number(exposed)} ({percent(exposed, entry['cycles'])})",
            f"{number(entry['energy'][path], 2)}{THIN}\u00b5J",
        )
        label = tag("td", tag("b", text(path)), tag("small", f" {text(ends['far'])} to {text(ends['near'])} and back"))
        rows.append(row((label, *figures(*cells))))
    cores = ("", "", "", "", f"{number(entry['cycles'])} (100.0{THIN}%)", "", f"{number(entry['energy']['cores'], 2)}{THIN}\u00b5J")
    rows.append(row((tag("td", tag("b", f"{entry['machine']['cores']} cores")), *figures(*cores))))
    for part, microjoule in entry["energy"].items():
        if part != "cores" and part not in entry["traffic"]:
            rows.append(row((tag("td", tag("b", text(part))), *figures(*[""] * 6, f"{number(microjoule, 2)}{THIN}\u00b5J"))))
    note = "In: towards the engine. Busy and exposed in cycles. Energy by the bytes moved and by the time that engines and the chip are on."
    if entry.get("energy_missing"):
        note += f" No energy is known of: {', '.join(entry['energy_missing'])}."
    return section("Traffic and energy", scrolled(table(heads, rows, f"traffic-{entry['name']}")), note=note)
