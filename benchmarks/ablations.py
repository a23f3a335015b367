"""What each part of the planner gains: every network planned without it, by the same kernels and the same model of time.

    make bench NAME='ablations [--gvsoc] [--write] [--page] [NETWORK ...]'

A row is a plan of which one thing is taken away. What options do not take away is taken away here, in the planner's own problem: nothing
else of the plan changes. Cycles are those of the walk. ``--gvsoc`` simulates the variants of one network. ``--write`` records all in
benchmarks/ablations.json, where networks that were not planned stay as they were, and writes benchmarks/ablations.md from it.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import deeploy
from benchmarks import slm
from benchmarks.common import Page, filled, record, table
from benchmarks.gvsoc import networks
from benchmarks.slm_model import Shape
from deeploy import api
from deeploy.driver import layer_fusion as chains
from deeploy.driver import order
from deeploy.errors import DeeployError
from deeploy.execution.simulation.walk import walk_plan
from deeploy.jobs import in_order
from deeploy.options import Options
from deeploy.planning.candidates.candidate import with_prefetch
from deeploy.planning.choice import reduce
from deeploy.planning.choice.greedy import choose_greedily
from deeploy.planning.groups.layer_fusion import FusionSearch
from deeploy.planning.plan import Plan
from deeploy.planning.planner import network

NETWORKS = ("KeywordSpotting", "ImageClassification", "VisualWakeWords", "AnomalyDetection", "microLlama64", "ic_int8_qdq_pc", "bert_int8")
SIMULATED = "VisualWakeWords"
FAR, NEAR = "weights in L3, 32 000 bytes of L1", "weights in L2, 64 000 bytes of L1"
LITTLE, PLENTY = f"{FAR}, 30 000 of L2", "weights in L2, all of L1"
SETUPS = {
    NEAR: Options(memory={"l1": 64_000}),
    FAR: Options(memory={"l1": 32_000}, default_memory="L3"),
    LITTLE: Options(memory={"l1": 32_000, "l2": 30_000}, default_memory="L3"),
    PLENTY: Options(),
}
PLANNED = {  # activations of VisualWakeWords outgrow so little L2; engines side by side need room for the operands of two layers
    NEAR: (*NETWORKS, "mobilevit_int8"),
    FAR: NETWORKS,
    LITTLE: ("VisualWakeWords",),
    PLENTY: ("kws_int8_qdq_pc", "ic_int8_qdq_pc", "bert_int8"),
}

Patches = Sequence[Any]  # context managers


@dataclass(frozen=True)
class Variant:
    """A plan without something: by options, and by what is patched while it is made."""

    text: str
    changed: Mapping[str, Any] = field(default_factory=dict)
    without: Callable[[], Patches] = tuple


def _nothing(*_: object) -> Iterator[Any]:
    return iter(())


def by_hand() -> Patches:
    """Call by call the largest tiles that fit: nothing stays near between calls, nothing is fetched ahead."""

    def rule(problem: Any, _: Any, forbidden: Sequence[Any] = ()) -> Any:
        return None if forbidden else choose_greedily(problem)

    return [mock.patch.object(reduce, "cheapest_choice", rule)]


def no_prefetch() -> Patches:
    """No windows of the next call, and no constants, set out before a call begins."""
    numbered = network.Planner._numbered

    def late(self: network.Planner, candidate: Any, number: int, reach: Sequence[int]) -> Any:
        found = replace(with_prefetch(candidate, False), prefetchable_cycles=0, prefetchable_bytes=0, prefetchable_issue=0)
        return numbered(self, found, number, reach)

    at_once = mock.patch.object(network, "prefetch_earlier", lambda problem, choice: choice)
    return [mock.patch.object(network.Planner, "_numbered", late), at_once]


def nothing_stays() -> Patches:
    """Activations go back to the memory around the engines' own behind every call."""
    residences = network.Planner.residences

    def further(self: network.Planner, far: Any) -> Any:
        found = residences(self, far)
        return [
            replace(one, distances=one.distances[1:] or one.distances) if 0 in one.distances and one.origin is None else one
            for one in found
        ]

    every = mock.patch.object(network.Planner, "_work_in", lambda *_: set())  # no buffer is put near before there is a choice
    return [every, mock.patch.object(network.Planner, "residences", further)]


def layer_by_layer() -> Patches:
    return [*nothing_stays(), *no_prefetch()]


def no_fusion() -> Patches:
    """No layers hand rows or heads on, tile by tile."""
    return [mock.patch.object(FusionSearch, "list_candidates", _nothing), mock.patch.object(chains, "product_groups", _nothing)]


def one_engine_at_a_time() -> Patches:
    """Engines take turns: no branches side by side, no layer behind the one before it, no order for their sake."""
    alone = mock.patch.object(order, "side_by_side", lambda *_: None)
    return [mock.patch.object(chains, "parallel_groups", _nothing), mock.patch.object(chains, "pipelined_groups", _nothing), alone]


FULL = "everything"
VARIANTS: dict[str, Variant] = {
    FULL: Variant("the plan as it is"),
    "layer by layer": Variant("each call tiled for itself: activations return to L2, nothing is fetched ahead", without=layer_by_layer),
    "largest tiles": Variant("call by call the largest tiles that fit, as one would write it", {"fusion": False}, by_hand),
    "nothing stays in L1": Variant("activations return to L2 behind every call", without=nothing_stays),
    "no prefetch": Variant("windows and constants of a call start to move when it begins", without=no_prefetch),
    "single buffering": Variant("`--buffering single`", {"buffering": "single"}),
    "double buffering": Variant("`--buffering double`: every call, where the plan chooses by call", {"buffering": "double"}),
    "no layer fusion": Variant("no layers hand rows or heads on", without=no_fusion),
    "engines take turns": Variant("cores and N-EUREKA never work side by side on different layers", without=one_engine_at_a_time),
    "neither": Variant("`--no-fusion`: neither of the two", {"fusion": False}),
    "no weight memory": Variant("`--memory WM=0`", {"memory": {"wm": 0}}),
    "no accelerator": Variant("`--engines cluster`", {"engines": ("cluster",)}),
    "by hand": Variant(
        "largest tiles, single buffering, no accelerator", {"fusion": False, "buffering": "single", "engines": ("cluster",)}, by_hand
    ),
}


@contextmanager
def without(variant: Variant) -> Iterator[Counter[str]]:
    """Plans are made without it; yields how often the cheapest candidates fitted anyway, and how often CP-SAT decided."""
    decided = Counter[str]()
    obvious = reduce.obvious_choice

    def noted(problem: Any) -> Any:
        found = obvious(problem)
        decided["cheapest fitted" if found is not None else "CP-SAT"] += 1
        return found

    with ExitStack() as stack:
        for patch in (*variant.without(), mock.patch.object(reduce, "obvious_choice", noted)):
            stack.enter_context(patch)
        yield decided


def options_of(base: Options, variant: Variant) -> Options:
    sizes = {**base.capacities, **variant.changed.get("memory", {})}
    return replace(base, **{**variant.changed, "memory": sizes})


def planned(task: tuple[str, str, str]) -> dict[str, Any] | str:
    """One plan, or why there is none."""
    name, setup, title = task
    known, variant = {one.name: one for one in networks.NETWORKS}, VARIANTS[title]
    with tempfile.TemporaryDirectory(prefix="deeploy-ablations-") as scratch, without(variant) as decided:
        model, inputs, _ = networks.files(known[name], Path(scratch))
        try:
            compiled = api.compile(model, "siracusa", inputs=inputs, **(options_of(SETUPS[setup], variant)).given())
        except DeeployError as error:
            return str(error).splitlines()[0]
    run = walk_plan(compiled.plan)
    found: dict[str, Any] = {"cycles": round(run.cycles), "uj": run.energy.total, "decided": dict(decided)}
    return found | ({"memory": allocation(compiled.plan)} if title == FULL else {})


def allocation(plan: Plan) -> dict[str, Any]:
    """L1 of a plan: its peak and bound, what blocks take at the first hole in the order in which they come up, and without reuse."""
    alignment = plan.target.memory("L1").alignment
    rounded = [replace(p, size=-(-p.size // alignment) * alignment) for p in plan.placements if p.level == "L1"]
    blocks = sorted(rounded, key=lambda p: (p.first, -p.size))
    put: list[tuple[int, Any]] = []
    for block in blocks:
        at = 0
        for start, other in sorted(((s, o) for s, o in put if o.first <= block.last and block.first <= o.last), key=lambda one: one[0]):
            if at + block.size <= start:
                break
            at = max(at, start + other.size)
        put.append((at, block))
    first_fit = max((at + block.size for at, block in put), default=0)
    use = plan.memory["L1"]
    sizes = {"peak": use.peak, "bound": use.lower_bound, "first_fit": first_fit, "no_reuse": sum(block.size for block in blocks)}
    return {**sizes, "blocks": len(blocks), "capacity": use.capacity}


def weight_memory() -> list[dict[str, Any]]:
    """Linear layers with weights in N-EUREKA's memory over those with weights in L2, when transfers are hidden and when they are not."""
    rows = []
    exposed = Variant("", without=lambda: [*no_prefetch(), *one_engine_at_a_time()])
    for text, shape in (
        ("a token (1 row)", Shape(layers=1, rows=1, past=None, is_encoder=True)),
        ("encoder layer, 32 rows", Shape(layers=1, rows=32, past=None, is_encoder=True)),
        ("encoder layer, 128 rows", Shape(layers=1, rows=128, past=None, is_encoder=True)),
    ):
        row: dict[str, Any] = {"what": text}
        for how, variant, buffering in (("hidden", VARIANTS[FULL], "auto"), ("exposed", exposed, "single")):
            for setup in (slm.NPU, slm.NMS):
                with without(variant):
                    found = _slm(shape, setup, buffering)
                row[f"{how}, {setup.name}"] = slm._linear(found, walk_plan(found.plan))
        rows.append(row)
    return rows


def _slm(shape: Shape, setup: slm.Setup, buffering: Any) -> deeploy.Compiled:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "slm.onnx"
        slm.write(shape, path)
        options = replace(setup.options, buffering=buffering)
        return deeploy.compile(path, "siracusa", input_types=slm.types(shape), states=slm.pairs(shape) or None, **options.given())


def simulated() -> dict[str, Any]:
    """Cycles of the variants of one network on GVSoC."""
    known, base = {one.name: one for one in networks.NETWORKS}, next(iter(SETUPS.values()))
    found: dict[str, Any] = {}
    for title, variant in VARIANTS.items():
        with without(variant):
            result = networks.result(known[SIMULATED], options_of(base, variant))
        found[title] = {"cycles": result.measured, "is_right": result.is_right}
        print(f"GVSoC, {SIMULATED}, {title}: {found[title]}", flush=True)
    return found


# ---- the page


def spaced(count: float) -> str:
    return f"{count:,.0f}".replace(",", " ")


def slower(found: dict[str, Any], setup: str) -> list[str]:
    """How many times as long a network takes without something."""
    names = [name for name in PLANNED[setup] if setup in found["networks"].get(name, {})]
    rows = [["**cycles of the plan**", *(spaced(found["networks"][name][setup][FULL]["cycles"]) for name in names)]]
    for title in [title for title in VARIANTS if title != FULL]:
        cells = []
        for name in names:
            one, base = found["networks"][name][setup].get(title), found["networks"][name][setup][FULL]["cycles"]
            cells.append("no plan" if isinstance(one, str) else "" if one is None else f"{one['cycles'] / base:.2f}")
        rows.append(
            [
                f"{title}: {VARIANTS[title].text}"
                if title != "neither"
                else f"neither fusion nor engines side by side: {VARIANTS[title].text}",
                *cells,
            ]
        )
    return table(("without", *names), rows)


def decisions(found: dict[str, Any]) -> list[str]:
    rows = []
    for name in dict.fromkeys(name for names in PLANNED.values() for name in names):
        for setup, variants in found["networks"].get(name, {}).items():
            decided, memory = variants[FULL]["decided"], variants[FULL]["memory"]
            fits = "yes" if memory["first_fit"] <= memory["capacity"] else "no"
            sizes = [spaced(memory[key]) for key in ("peak", "bound", "first_fit", "no_reuse")]
            cells = [str(decided.get(key, 0)) for key in ("cheapest fitted", "CP-SAT")]
            rows.append([name, setup.removeprefix("weights in "), *cells, str(memory["blocks"]), *sizes, fits])
    heads = ("network", "weights", "cheapest fitted", "CP-SAT decided", "blocks in L1", "peak", "bound", "first fit", "without reuse")
    return table((*heads, "first fit fits"), rows)


def own_memory(found: dict[str, Any]) -> list[str]:
    rows = []
    for row in found["weight_memory"]:
        cells = [spaced(row[f"{how}, {name}"]) for how in ("hidden", "exposed") for name in (slm.NPU.name, slm.NMS.name)]
        gains = [f"{row[f'{how}, {slm.NPU.name}'] / row[f'{how}, {slm.NMS.name}']:.2f}" for how in ("hidden", "exposed")]
        rows.append([row["what"], *cells[:2], gains[0], *cells[2:], gains[1]])
    return table(("linear layers of", "L2", "weight memory", "gain", "exposed: L2", "weight memory", "gain"), rows)


def page(run: Mapping[str, Any]) -> str:
    """The text of benchmarks/ablations.md, from a file of results."""
    found = run["results"]
    lines = [
        "# Ablations",
        "",
        "What each part of the planner gains: every network is planned again without it, by the same kernels and the same model of time.",
        "Written by `make bench NAME='ablations --write'`; not edited by hand.",
        "",
        "Siracusa, 8 cores and N-EUREKA. Numbers are times as many cycles as the full plan takes, both by the walk over the schedule",
        "([timing.md](../docs/timing.md)).",
        "",
    ]
    for setup in SETUPS:
        lines += [f"## With {setup}", "", *slower(found, setup), ""]
    lines += [
        "*Layer by layer* is what a tiler does that sees one layer at a time. *Largest tiles* and *by hand* also leave",
        "the choice of tiles to a rule. Fusion pays where activations fit no memory but L3, engines side by side where L1 has room",
        "for the operands of two layers; elsewhere both change nothing. That cores finish the sums of N-EUREKA while it goes on is a",
        "property of kernels and stays.",
        "",
        "## On the simulator",
        "",
        f"{SIMULATED}, {next(iter(SETUPS))}, cycles on GVSoC, and times as many as the full plan.",
        "",
    ]
    if "simulated" in found:
        base = found["simulated"][FULL]["cycles"]
        rows = [[title, spaced(one["cycles"]), f"{one['cycles'] / base:.2f}"] for title, one in found["simulated"].items()]
        lines += [*table(("without", "cycles", "times"), rows), ""]
    lines += [
        "## The weight memory",
        "",
        "The Deeploy paper finds linear layers 1.6 to 2.1 times as fast with weights in N-EUREKA's own memory. Without",
        "it, weights pass from L2",
        "through L1. Our plans fetch the weights of the next layer while this one is computed, and the next tile's while",
        "this tile's are used:",
        "what is hidden cannot be saved by another memory. *Exposed*: the same layers with single buffering and no",
        "prefetch, so that weights are waited for.",
        "",
        *own_memory(found),
        "",
        "## Addresses, and who decided",
        "",
        "*Cheapest fitted*: problems in which the fastest candidate of every call fits beside all others, so that",
        "nothing is left to decide; *CP-SAT*:",
        "those that the solver decided. A plan may take several. Bytes of L1: the peak of the plan, the most that is",
        "alive at once (no addresses can do with",
        "less), every block at the first hole in the order in which they come up, and without reuse of addresses.",
        "",
        *decisions(found),
        "",
    ]
    return filled(lines)


PAGE = Page("ablations", page)


def main(arguments: Sequence[str]) -> int:
    parser = PAGE.parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NETWORK", help="words of a network or of its memory; what other plans took stays")
    given = parser.parse_args(arguments)
    if given.page:
        return PAGE.write()
    found: dict[str, Any] = {"networks": {}, **PAGE.read()}
    tasks = [
        (name, setup, title)
        for setup, names in PLANNED.items()
        for name in names
        for title in VARIANTS
        if not given.names or any(word.lower() in f"{name}, {setup}".lower() for word in given.names)
    ]
    for (name, setup, title), one in zip(tasks, in_order(planned, tasks), strict=True):
        found["networks"].setdefault(name, {}).setdefault(setup, {})[title] = one
        print(f"{name}, {setup}, {title}: {one}", flush=True)
    if not given.names:
        found["weight_memory"] = weight_memory()
        print(*found["weight_memory"], sep="\n", flush=True)
    if given.gvsoc:
        found["simulated"] = simulated()
    record(**found)
    return PAGE.write(found) if given.write else 0
