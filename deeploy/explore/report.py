"""``report.html`` of a study: the unrollings, utilisation per layer, latency and energy of every set, the front over overhead.

Everything is drawn in Python; the script of all reports shows the figures of a shape that the pointer or the keyboard is on.
"""

from __future__ import annotations

from importlib.resources import files

from deeploy.documents import Document
from deeploy.explore.pictures import COLOURS, draw_bars, draw_front, draw_heat
from deeploy.ir.loops import LOOPS
from deeploy.report.blocks import distinct_names
from deeploy.report.markup import DASH, figures, header, legend, name, number, percent, row, scrolled, section, table, tag, text
from deeploy.report.page import page_of_articles
from deeploy.version import VERSION


def study_page(study: Document) -> str:
    """The page of a study as ``deeploy.explore.study.describe_study`` gives it, with ``models``."""
    style = (files("deeploy") / "explore/assets/explore.css").read_text(encoding="utf-8")
    title = f"{study['hardware']}: {', '.join(study['models'])}"
    parts = (
        _study_heading(study),
        _unrolling_table(study),
        _set_section(study),
        _utilisation_section(study),
        _tradeoff_section(study),
        _layer_table(study),
    )
    return page_of_articles(title, (), (tag("article", *parts),), VERSION, style)


def _study_heading(study: Document) -> str:
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
    return header(", ".join(study["models"]), f" on {name(study['hardware'])}", facts)


def _unrolling_table(study: Document) -> str:
    """Every chosen unrolling, as in the paper's Table III."""
    heads = ("set", "", *LOOPS, "layers", "innermost", "depthwise")
    rows = []
    for entry in study["sets"]:
        for position, unrolling in enumerate(entry["unrollings"]):
            factors = [
                tag("td", str(unrolling["factors"][loop]), class_="n" + " one" * (unrolling["factors"][loop] == 1)) for loop in LOOPS
            ]
            inner = [f"for {loop}" if loop else DASH for loop in (unrolling["inner"]["other"], unrolling["inner"]["depthwise"])]
            label = f"{entry['configs']} unrolling{'s' * (entry['configs'] > 1)}" if position == 0 else ""
            rows.append(row((label, f"nr {position + 1}", *factors, *figures(str(unrolling["layers"])), *inner)))
    note = "Factors of the loops of every unrolling, how many layers run on it, and the innermost loop that most of these choose."
    return section("Chosen unrollings", scrolled(table(heads, rows, "unrollings", "plain")), note=note)


def _set_section(study: Document) -> str:
    heads = ("unrollings", "cycles", "energy, \u00b5J", "EDP, pJ cycles", "gain", "gap to the bound", "gates beside the elements")
    rows = []
    for entry in study["sets"]:
        value = {"edp": entry["edp"], "latency": entry["cycles"], "energy": entry["energy_pj"]}[study["objective"]]
        cells = (
            number(entry["cycles"]),
            number(entry["energy_pj"] / 1e6, 1),
            f"{entry['edp']:.4g}",
            f"{entry['gain']:.3f}",
            percent(max(0.0, value - entry["bound"]), value),
            f"{number(entry['overhead_gates'])} ({percent(entry['overhead_gates'], study['datapath_gates'])})",
        )
        rows.append(row((str(entry["configs"]), *figures(*cells))))
    note = "Bars are shares of the single unrolling's latency, energy and energy-delay product; gain is its objective over the set's."
    return section("Latency, energy, EDP", draw_bars(study["sets"]), scrolled(table(heads, rows, "sets")), note=note)


def _utilisation_section(study: Document) -> str:
    note = (
        "Share of elements at work times share of cycles without a stall, per layer, from the first layer to the last."
        " Hover for figures, or move by arrow keys."
    )
    colours = legend((f"use{at}", f"unrolling nr {at + 1}") for at in range(min(COLOURS, study["sets"][-1]["configs"])))
    return section("Utilisation per layer", scrolled(draw_heat(study)), colours, note=note)


def _tradeoff_section(study: Document) -> str:
    note = (
        "Gates of multiplexers in front of the elements' operands and of adder trees behind them, beside the elements; without control,"
        " wires, and a buffer that reorders results. Each point is a set that no other beats with fewer gates."
    )
    single = study["sets"][0]
    key = {"edp": "edp", "latency": "cycles", "energy": "energy_pj"}[study["objective"]]
    rows = [
        row((number(p["overhead_gates"]), f"{p['edp']:.4g}", f"{single[key] / p[key]:.3f}", text(" + ".join(p["unrollings"]))))
        for p in study["tradeoff"]
    ]
    shown = table(("gates beside the elements", "EDP, pJ cycles", "gain", "set"), rows, "tradeoff", "wide")
    return section("Gain against overhead", draw_front(study["tradeoff"], single, key), scrolled(shown), note=note)


def _layer_table(study: Document) -> str:
    """Every layer on the largest set."""
    best = study["sets"][-1]
    heads = ("layer", "", "loops", "MAC", "nr", "innermost", "elements", "no stall", "cycles", "energy, nJ")
    rows = []
    short = distinct_names([layer["name"] for layer in study["layers"]])
    for layer, use, label in zip(study["layers"], best["layers"], short, strict=True):
        loops = " ".join(f"{loop}{size}" for loop, size in layer["loops"].items() if size > 1)
        cells = (percent(use["utilisation"], 1), percent(use["temporal"], 1), number(use["cycles"]), number(use["energy_pj"] / 1e3))
        shown = (text(loops), number(layer["macs"]), str(use["unrolling"] + 1), f"for {use['inner']}")
        repeat = f"{layer['count']} \u00d7" if layer["count"] > 1 else ""
        cell = tag("td", name(label, 36), title=name(layer["name"], 200))
        rows.append(row((cell, repeat, *shown, *figures(*cells))))
    note = (
        "Figures of one layer of each kind; 2 \u00d7: there are two of it. nr: the unrolling that runs it; elements: share of the array"
        " at work; no stall: share of cycles that do not wait for memory."
    )
    return section(f"Layers on {best['configs']} unrollings", scrolled(table(heads, rows, "layers", "wide")), note=note)
