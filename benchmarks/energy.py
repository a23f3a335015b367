"""Energy of networks on Siracusa by what takes it, beside published figures; and what the objectives energy and edp change.

    make bench NAME='energy [--gvsoc] [--write] [--page]'

Four networks of MLPerf Tiny, as the Deeploy paper has them in table III, by the cores alone and on all engines; the language model of the
same paper as ``slm --write`` found it. ``--gvsoc`` simulates every network too; without it, cycles that were
simulated before stay. ``--write`` records all in benchmarks/energy.json and writes benchmarks/energy.md from it and from the target's
timing.toml.
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, Page, filled, read_results, record, table
from benchmarks.gvsoc.networks import NETWORKS, Network, files, measure
from deeploy import api
from deeploy.options import Options

SLM = ROOT / "benchmarks" / "slm.json"
TIMING = ROOT / "targets" / "siracusa" / "timing.toml"
ENGINES: dict[str, tuple[str, ...] | None] = {"cores": ("cluster",), "all engines": None}
# Table III of the Deeploy paper, in ms: its cores alone, and with the NPU. GAP9 at 370 MHz, in microjoule: MLPerf Tiny 1.0.
PUBLISHED: dict[str, tuple[str, float, float, float]] = {
    "KeywordSpotting": ("DS-CNN", 1.4, 0.39, 26.7),
    "VisualWakeWords": ("MobileNetV1 0.25", 5.6, 0.69, 58.4),
    "ImageClassification": ("ResNet8", 3.7, 0.60, 40.4),
    "AnomalyDetection": ("autoencoder", 0.24, 0.11, 7.3),
}
POWER = 125 / 0.75  # milliwatt: the language model of the paper, table II
COMPARED = ("AnomalyDetection", "ad_int8_qdq_pc", "kws_int8_qdq_pc", "vww_int8_qdq", "ad_fp32", "microLlama64")
OBJECTIVES = ("cycles", "energy", "edp")


def spent(network: Network, options: Options, is_simulated: bool = False) -> dict[str, Any]:
    """Cycles and microjoules of a plan, by part; simulated cycles as well where they are asked for."""
    with tempfile.TemporaryDirectory(prefix="deeploy-energy-") as scratch:
        model, inputs, golden = files(network, Path(scratch))
        run = api.compile(model, "siracusa", inputs=inputs, **options.given()).network.predicted
        assert run is not None, "Siracusa has a timing"
        found: dict[str, Any] = {"cycles": round(run.cycles), "mhz": run.mhz, "uj": run.energy.total, "parts": run.energy.parts}
        found["missing"] = list(run.energy.missing)
        if is_simulated:
            found["measured"] = measure(network.name, model, inputs, golden, options)[0].measured
    return found


def measured(before: dict[str, Any], is_simulated: bool) -> dict[str, Any]:
    """All rows."""
    known = {network.name: network for network in NETWORKS}
    rows: dict[str, Any] = {}
    for name in PUBLISHED:
        for engines, given in ENGINES.items():
            found = spent(known[name], Options(engines=given), is_simulated)
            old = before.get("networks", {}).get(name, {}).get(engines, {})
            if not is_simulated and "measured" in old:
                found["measured"] = old["measured"]
            rows.setdefault(name, {})[engines] = found
            print(f"{name}, {engines}: {found}", flush=True)
    objectives: dict[str, Any] = {}
    for name in COMPARED:
        objectives[name] = {one: spent(known[name], Options(objective=one)) for one in OBJECTIVES}  # type: ignore[arg-type]
        print(f"{name}: {objectives[name]}", flush=True)
    return {"published": PUBLISHED, "networks": rows, "objectives": objectives}


# ---- the page


def figures() -> list[str]:
    """Every energy of the target, with where it is from."""
    timing = tomllib.loads(TIMING.read_text())
    rows = [("the chip, whatever it does", f"{timing['machine']['power']['static_mw']} mW", timing["machine"]["power"]["provenance"])]
    for name, entry in timing["engine"].items():
        active = f", {entry['active_mw']} mW while it works" if "active_mw" in entry else ""
        rows.append((f"engine {name}", f"{entry['core_mw']} mW a core{active}", entry["provenance"]))
    for kind in ("path", "memory"):
        rows += [(f"{kind} {name}", f"{e['pj_per_byte']} pJ/B", e["provenance"].split("energy: ")[-1]) for name, e in timing[kind].items()]
    return table(("what", "figure", "from"), rows)


def parts(found: dict[str, Any]) -> list[str]:
    given = found["parts"]
    moved = sum(given.get(path, 0.0) for path in ("L2_L1", "L3_L2"))
    return [f"{value:.1f}" for value in (given["cores"], given.get("npu", 0.0), given.get("WM", 0.0), moved, given["static"], found["uj"])]


def networks(found: dict[str, Any]) -> list[str]:
    rows = []
    for name, (title, cores, npu, gap9) in PUBLISHED.items():
        for engines, paper in zip(ENGINES, (cores, npu), strict=True):
            one = found["networks"][name][engines]
            cycles = f"{one['cycles']:,} / {one['measured']:,}".replace(",", " ") if "measured" in one else f"{one['cycles']:,} / -"
            ms = f"{one['cycles'] / one['mhz'] / 1e3:.3f}"
            compared = [f"{paper:g}", f"{paper * POWER:.0f}", f"{gap9:g}" if engines != "cores" else ""]
            rows.append([title, engines, cycles, ms, *parts(one), *compared])
    heads = (
        "network",
        "by",
        "cycles, predicted / simulated",
        "ms",
        "cores",
        "N-EUREKA",
        "its memory",
        "transfers",
        "static",
        "**all, µJ**",
    )
    return table((*heads, "paper, ms", f"paper's ms at {POWER:.0f} mW, µJ", "GAP9, µJ"), rows)


def objectives(found: dict[str, Any]) -> list[str]:
    rows = []
    for name, by in found["objectives"].items():
        base = by["cycles"]
        cells = [f"{base['cycles']:,}".replace(",", " "), f"{base['uj']:.1f}"]
        for one in OBJECTIVES[1:]:
            cells += [f"{by[one]['cycles'] / base['cycles'] - 1:+.1%}", f"{by[one]['uj'] / base['uj'] - 1:+.1%}"]
        rows.append([name, *cells])
    heads = ("network", "`cycles`: cycles", "µJ", "`energy`: cycles", "energy", "`edp`: cycles", "energy")
    return table(heads, rows)


def language_model() -> list[str]:
    """The paper's table II, and what takes the energy of a token."""
    slm = read_results(SLM)
    token = slm["millijoules_cached"] / 256 * 1e3
    rate = 256 / slm["seconds_cached"]
    rows = [
        ["256 steps with caches, s", "0.75", f"{slm['seconds_cached']:.3f}"],
        ["the same, mJ", "125", f"{slm['millijoules_cached']:.1f}"],
        ["a token, µJ", "490", f"{token:.0f}"],
        ["tokens a second", "340", f"{rate:.0f}"],
        ["256 steps without caches, s", "17.6", f"{slm['seconds_parallel']:.2f}"],
        ["the same, mJ", "3193", f"{slm['millijoules_parallel']:.0f}"],
        ["caches save time by", "23", f"{slm['seconds_parallel'] / slm['seconds_cached']:.1f}"],
        ["caches save energy by", "26", f"{slm['millijoules_parallel'] / slm['millijoules_cached']:.1f}"],
        ["mean power with caches, mW", "167", f"{slm['millijoules_cached'] / slm['seconds_cached']:.0f}"],
        ["mean power without, mW", "181", f"{slm['millijoules_parallel'] / slm['seconds_parallel']:.0f}"],
    ]
    every = sum(slm["parts_cached"].values())
    shares = ", ".join(f"{name} {part / every:.0%}" for name, part in sorted(slm["parts_cached"].items(), key=lambda one: -one[1]))
    return [*table(("language model", "paper", "ours"), rows), "", f"What takes it with caches: {shares}."]


HEAD = [
    "# Energy",
    "",
    "What an inference takes, by engine, memory and path, and how to plan for little of it. Written by `python",
    "benchmarks/energy.py --write`;",
    "not edited by hand.",
    "",
    "```",
    "deeploy compile network.onnx -t siracusa -o OUT --objective energy",
    "```",
    "",
    "`energy` takes the least energy, `edp` the least product of energy and time. `deploy.json` has `energy_uj`, its",
    "parts under `energy`, and",
    "under `energy_missing` every engine, memory or path that takes part and has no figure: a sum without it is too",
    "low. `deeploy report` says so",
    "too. A target without figures has no energy, and these objectives refuse it.",
    "",
    "## What is added up",
    "",
    "* Cores: the power of all cores of the team for the whole inference; of one core where only an accelerator works.",
    "* Accelerators: `active_mw` in the cycles in which they work, whatever the precision and however few of their",
    "  multipliers are busy.",
    "* Paths: bytes moved, by path. A path's figure holds both its ends; an engine's power holds the memory in which it works.",
    "* Memories that kernels read in place: constants, once for every tile.",
    "* The chip as such: `static_mw` for the whole inference.",
    "",
    "Power is not scaled with `--mhz`. Of several chips, cores count while they compute, as in the paper's formula;",
    "the static power of all of them",
    "is added to it ([chips.md](../docs/chips.md)).",
    "",
]
TAIL = [
    "The planner prices candidates: picojoules over what a cycle of the powered chip takes count as cycles, so",
    "engines, tiles and residences",
    "are chosen by both. For `edp`, a picojoule counts for less, by its share in the fastest plan. The walk then",
    "compares that plan with the fastest,",
    "so neither objective ever takes more than that. Constants that are fetched whole while others compute are not priced.",
    "",
    "Weights that pass once are where objectives differ: N-EUREKA is faster there, but works for nearly as long as the cores would.",
    "That depends on one assumption: a cycle of N-EUREKA takes its full power however few multipliers are busy.",
    "",
]


def page(run: Mapping[str, Any]) -> str:
    """The text of benchmarks/energy.md, from a file of results."""
    found = run["results"]
    return filled(
        [
            *HEAD,
            "## Figures of Siracusa",
            "",
            *figures(),
            "",
            "## Networks of the Deeploy paper",
            "",
            "Table III prints times at 0.8 V and 360 MHz, no energies. Beside it: those times at the mean power of its",
            "language model, and what GAP9",
            "(22 nm, 370 MHz, MLPerf Tiny 1.0) was measured to take. Cycles are predicted, and simulated on GVSoC; energies",
            "are of predicted ones, in microjoule.",
            "",
            *networks(found),
            "",
            "## Its language model",
            "",
            "`make bench NAME='slm --write'`. The static power comes from the measured power of this",
            "run with caches, so that its",
            "mean power is no test of the model: times are, and so is the power without caches.",
            "",
            *language_model(),
            "",
            "## What the objectives change",
            "",
            "On all engines, beside the plan with the fewest cycles.",
            "",
            *objectives(found),
            "",
            *TAIL,
        ]
    )


PAGE = Page("energy", page)


def main(arguments: Sequence[str]) -> int:
    given = PAGE.parser(__doc__).parse_args(arguments)
    if given.page:
        return PAGE.write()
    found = measured(PAGE.read(), given.gvsoc)
    record(**found)
    return PAGE.write(found) if given.write else 0
