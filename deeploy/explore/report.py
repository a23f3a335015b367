"""``report.html`` of a study: the unrollings, utilisation per layer, latency and energy of every set, the front over overhead.

Everything is drawn in Python; the page has no script and reads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from deeploy.explore.pictures import bars, front, heat
from deeploy.graph.loops import LOOPS
from deeploy.report.markup import DASH, name, number, percent, row, tag, text
from deeploy.report.sections import section

Entry = Mapping[str, Any]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(study: Entry) -> str:
    """The page of a study as ``deeploy.explore.study.describe`` gives it, with ``models``."""
    style = "".join(
        (files("deeploy") / place).read_text(encoding="utf-8") for place in ("report/assets/report.css", "explore/assets/explore.css")
    )
    title = f"{name(study['hardware'])}: {name(', '.join(study['models']), 90)}"
    head = tag(
        "head",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{text(_POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        tag("title", f"{title} {DASH} deeploy explore"),
        tag("style", style),
    )
    main = tag("main", _heading(study), _unrollings(study), _sets(study), _utilisation(study), _tradeoff(study), _layers(study))
    return f'<!DOCTYPE html>\n<html lang="en">{head}{tag("body", tag("nav", tag("b", "deeploy explore")), main)}</html>\n'


def _heading(study: Entry) -> str:
    counts = study["factorisations"]
    facts = [
        f"{number(study['pes'])} elements",
        f"{number(sum(y['count'] for y in study['layers']))} layers, {len(study['layers'])} different",
        f"{number(sum(y['macs'] * y['count'] for y in study['layers']))} multiply-accumulates",
        f"{number(counts['all'])} factorisations, {number(counts['useful'])} that fit the layers",
        f"{number(counts['evaluated'])} after pruning" if counts["pruned"] else "not pruned",
        f"{number(study['pairs'])} pairs evaluated",
        f"objective {text(study['objective'])}",
    ]
    title = tag("h1", name(", ".join(study["models"]), 90), tag("span", f" on {name(study['hardware'])}", class_="on"))
    return tag("header", title, tag("p", " \u00b7 ".join(facts), class_="facts"), class_="head")


def _unrollings(study: Entry) -> str:
    """Every chosen unrolling, as in the paper's Table III."""
    head = row(("set", "", *LOOPS, "layers", "innermost", "depthwise"), "th")
    rows = []
    for entry in study["sets"]:
        for position, unrolling in enumerate(entry["unrollings"]):
            factors = [
                tag("td", str(unrolling["factors"][loop]), class_="n" + " one" * (unrolling["factors"][loop] == 1)) for loop in LOOPS
            ]
            inner = [f"for {loop}" if loop else DASH for loop in (unrolling["inner"]["other"], unrolling["inner"]["depthwise"])]
            label = f"{entry['configs']} unrolling{'s' * (entry['configs'] > 1)}" if position == 0 else ""
            rows.append(row((label, f"nr {position + 1}", *factors, tag("td", str(unrolling["layers"]), class_="n"), *inner)))
    note = "Factors of the loops of every unrolling, how many layers run on it, and the innermost loop that most of these choose."
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="plain", id="unrollings")
    return section("Chosen unrollings", tag("div", table, class_="scroll"), note=note)


def _sets(study: Entry) -> str:
    head = row(("unrollings", "cycles", "energy, \u00b5J", "EDP, pJ cycles", "gain", "gap to the bound", "multiplexer inputs"), "th")
    rows = []
    for entry in study["sets"]:
        value = {"edp": entry["edp"], "latency": entry["cycles"], "energy": entry["energy_pj"]}[study["objective"]]
        cells = (
            number(entry["cycles"]),
            number(entry["energy_pj"] / 1e6, 1),
            f"{entry['edp']:.4g}",
            f"{entry['gain']:.3f}",
            percent(max(0.0, value - entry["bound"]), value),
            number(entry["multiplexer_inputs"]),
        )
        rows.append(row((str(entry["configs"]), *(tag("td", cell, class_="n") for cell in cells))))
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="plain wide", id="sets")
    note = "Bars are shares of the single unrolling's latency, energy and energy-delay product; gain is its objective over the set's."
    return section("Latency, energy, EDP", bars(study["sets"]), tag("div", table, class_="scroll"), note=note)


def _utilisation(study: Entry) -> str:
    note = (
        "Share of elements at work times share of cycles without a stall, per layer, from the first layer to the last. Hover for figures."
    )
    return section("Utilisation per layer", tag("div", heat(study), class_="scroll"), note=note)


def _tradeoff(study: Entry) -> str:
    note = (
        "A multiplexer input is a lane of a memory's word that an element's operand can come from, where there are several: a proxy for"
        " the datapath's overhead, without adder trees, control and wires. Each point is a set that no other beats with fewer inputs."
    )
    head = row(("multiplexer inputs", "EDP, pJ cycles", "gain", "set"), "th")
    single = study["sets"][0]
    key = {"edp": "edp", "latency": "cycles", "energy": "energy_pj"}[study["objective"]]
    rows = [
        row((number(p["multiplexer_inputs"]), f"{p['edp']:.4g}", f"{single[key] / p[key]:.3f}", text(" + ".join(p["unrollings"]))))
        for p in study["tradeoff"]
    ]
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="wide", id="tradeoff")
    return section("Gain against overhead", front(study["tradeoff"], single, key), tag("div", table, class_="scroll"), note=note)


def _layers(study: Entry) -> str:
    """Every layer on the largest set."""
    best = study["sets"][-1]
    head = row(("layer", "", "loops", "MAC", "nr", "innermost", "elements", "no stall", "cycles", "energy, nJ"), "th")
    rows = []
    for layer, use in zip(study["layers"], best["layers"], strict=True):
        loops = " ".join(f"{loop}{size}" for loop, size in layer["loops"].items() if size > 1)
        figures = (percent(use["utilisation"], 1), percent(use["temporal"], 1), number(use["cycles"]), number(use["energy_pj"] / 1e3))
        shown = (text(loops), number(layer["macs"]), str(use["unrolling"] + 1), f"for {use['inner']}")
        repeat = f"{layer['count']} \u00d7" if layer["count"] > 1 else ""
        rows.append(
            row(
                (
                    tag("td", name(layer["name"], 44), title=name(layer["name"], 200)),
                    repeat,
                    *shown,
                    *(tag("td", f, class_="n") for f in figures),
                )
            )
        )
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="wide", id="layers")
    return section(f"Layers on {best['configs']} unrollings", tag("div", table, class_="scroll"), note="Figures of one layer of each kind.")
