"""Measures a machine and its kernels on GVSoC and writes its timing.toml anew; of Siracusa, npu_timing.toml and gathered_timing.toml, too.

    make bench NAME='gvsoc/calibrate [--target NAME|FOLDER] [--seconds SECONDS]'
        [--check | --machine | --npu | --sums | --missing | --kernel NAME ...] [--without WORD ...]

No network takes part: every figure comes from a program of this folder. ``--machine`` measures forks, paths and loops alone, ``--npu``
N-EUREKA's kernels, ``--sums`` of these only what cores make of sums (sums.py), ``--kernel`` the named kernels of the cluster,
``--missing`` those that the file prices by an estimate; all other entries of the file are kept. Named and missing kernels are measured a
few at a time, and the file is written after each of these batches, also by several of these programs at once: what one that was ended
had found stays, and ``--missing`` goes on from there. ``--without`` leaves out entries that have one of the words, as those of floats
that take long. ``--check`` writes nothing and says how far the file is from what is measured. ``--seconds`` is how long a simulation
may take. What is no cycle count (clock, power, energy) stays as the file has it. Exit status 2 when the simulator or the compiler is
missing, 1 when a program fails, or with ``--check`` a figure of the machine differs by more than a twentieth.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import versions
from benchmarks.gvsoc import gathered, layer, sums
from benchmarks.gvsoc.elements import ELEMENTS, FAST
from benchmarks.gvsoc.families import HALVES, PORTABLE, PULP, Family
from benchmarks.gvsoc.float_elements import FLOAT_ELEMENTS
from benchmarks.gvsoc.images import IMAGES
from benchmarks.gvsoc.layer import SimulationError
from benchmarks.gvsoc.measured import Machine, fit, loops, machine, points
from benchmarks.gvsoc.packed import PACKED
from benchmarks.gvsoc.recurrent import RECURRENT
from benchmarks.gvsoc.streamed import STREAMED
from deeploy.bringup.fit import fit_coefficients
from deeploy.errors import DeeployError, FitError, UsageError
from deeploy.execution.runners import gvsoc
from deeploy.ir.target import ESTIMATE, GENERATED, Loops, PathTiming, Rate
from deeploy.target import Target, load
from deeploy.target import origin as folder_of

HEAD = """# Cycles and energy of {name}, each with its origin. Written by benchmarks/gvsoc/calibrate.py (make calibrate), which keeps what
# it cannot measure. A kernel's cycles are those of one core; docs/timing.md says how they add up.
"""
JOBS = "npu_timing.toml"
JOBS_HEAD = """# N-EUREKA: cycles of jobs as `busy` in npu.py has them, which benchmarks/gvsoc/neureka.py measures; terms of subtiles
# of 6x6 outputs, 32 output and 32 or 28 input channels, for scales of 16 bits. `call` are the registers of a job and the
# wait for it, `cold` what their instructions take longer when they are not cached: written by benchmarks/gvsoc/calibrate.py
# (make calibrate) from layers of benchmarks/gvsoc/gathered.py; what cores make of sums from those of sums.py. Kernels in which
# cores work beside jobs: gathered_timing.toml.
"""
GATHERED = "gathered_timing.toml"
GATHERED_HEAD = """# Cycles of N-EUREKA's kernels in which the cores gather windows or thin outputs out while the engine works. Written by
# benchmarks/gvsoc/calibrate.py (make calibrate) from layers of benchmarks/gvsoc/gathered.py.
"""
FAMILIES = (*PULP, *FAST, *PORTABLE, *HALVES, *ELEMENTS, *FLOAT_ELEMENTS, *RECURRENT, *STREAMED, *PACKED, *IMAGES)
TOGETHER = 4  # kernels of a batch: they take turns, so that each finds the caches full of another
ESTIMATED = "estimate"  # how the provenance of a figure begins that was not measured
ENOUGH = 0.05  # by which a figure may differ in --check


def path(found: Machine, number: int, given: Mapping[str, Any]) -> PathTiming:
    """What a transfer costs: see ``PathTiming``. Both directions have the same issue and row."""
    moves = found.moves[found.moves[:, 0] == number]
    many = found.many[found.many[:, 0] == number]
    alone = moves[moves[:, 3] == 1]
    last, first = many[many[:, 3].argmax()], many[many[:, 3].argmin()]
    pace = (last[4] - first[4]) / (last[3] - first[3])
    byte = [_slope(alone[alone[:, 1] == out]) for out in (0, 1)]
    is_bound = pace > 1.5 * byte[int(last[1])] * last[2]  # the core takes longer to start one than the path to move it
    issue = pace if is_bound else float(np.median(alone[:, 4]))
    short = [alone[(alone[:, 1] == out) & (alone[:, 2] <= 256)] for out in (0, 1)]
    latency = [float(np.median(s[:, 5] - s[:, 2] * byte[out])) - issue for out, s in enumerate(short)]
    rows = moves[moves[:, 3] > 1]
    known = issue + np.take(latency, rows[:, 1]) + rows[:, 2] * rows[:, 3] * np.take(byte, rows[:, 1])
    row = float(np.median((rows[:, 5] - known) / rows[:, 3]))
    latencies = round(latency[0]), round(latency[1])
    return PathTiming(round(issue), latencies, round(max(row, 0.0), 2), (byte[0], byte[1]), given["pj_per_byte"])


def _slope(rows: np.ndarray) -> float:
    """Cycles per byte of long transfers."""
    long = rows[rows[:, 2] >= 4096]
    features = np.column_stack([np.ones(len(long)), long[:, 2]]).astype(float)
    return round(float(fit_coefficients(features, long[:, 5].astype(float))[1]), 4)


# ---- the file


def _number(value: float) -> str:
    return f"{value:g}" if value != round(value) else str(round(value))


def _table(name: str, figures: Mapping[str, Any], provenance: str) -> str:
    lines = [f"[{name}]"]
    for key, value in figures.items():
        if isinstance(value, Mapping):
            text = "{ " + ", ".join(f'"{term}" = {_number(each)}' for term, each in value.items()) + " }"
        else:
            text = f"[{', '.join(map(_number, value))}]" if isinstance(value, tuple | list) else _number(value)
        lines.append(f"{key} = {text}")
    return "\n".join([*lines, f'provenance = "{provenance}"', ""])


def _rate(found: Rate) -> dict[str, Any]:
    figures: dict[str, Any] = {"call": found.call, "mac": found.mac, "output": found.output, "cold": found.cold}
    if found.shared:
        figures["shared"] = found.shared
    if found.contention:
        figures["contention"] = found.contention
    if found.per:
        figures["per"] = found.per
    return figures


def _entry(family: Family, variant: str) -> str:
    name = " ".join(f"{family.kernel} {variant}".split())
    return name if " " not in name else f'"{name}"'


def calibrated(name: str) -> Target:
    """The target, with an estimate for kernels that were never measured."""
    target = load(name)
    assert target.timing is not None, "targets for GVSoC have timings"
    kernels = target.timing.kernels
    estimate = {ESTIMATE: kernels[GENERATED]} if GENERATED in kernels else {}
    return replace(target, timing=replace(target.timing, kernels={**estimate, **kernels}))


def _origin() -> str:
    head = versions()
    return f"GVSoC {head['gvsoc']}, {head['riscv64-unknown-elf-gcc']} -O3, {datetime.date.today().isoformat()}"


def measure_jobs(target: Target, given: Mapping[str, Any], only_sums: bool) -> str:
    """The text of the file of kernels in which N-EUREKA works alone; what a subtile takes stays.

    Args:
        only_sums: nothing is measured but what cores make of sums.
    """
    texts = [JOBS_HEAD]
    for words, part in sums.rates(target).items():
        fits = f"{part.tiles} tiles, median error {part.median:.1%}, largest {part.largest:.1%}"
        name = f"{sums.NAME} {words}".strip()
        print(f"{name:<48}{fits}", file=sys.stderr)
        texts.append(_table(_tables("kernel", {name: {}})[0][0], _rate(part.rate), f"benchmarks/gvsoc/sums.py, {fits}: {_origin()}"))
    if only_sums:
        others = {name: old for name, old in given.items() if name.split()[0] != sums.NAME}
        return "\n".join([*texts, *(_table(name, _without(old), old["provenance"]) for name, old in _tables("kernel", others))])
    for name, fitted in gathered.entries(target).items():
        fits = f"{fitted.layers} layers, median error {fitted.median:.1%}, largest {fitted.largest:.1%}"
        print(f"{name:<32}{fits}", file=sys.stderr)
        subtiles = f"{given[name]['provenance'].split('; call')[0]}; call and cold: "
        texts.append(_table(_tables("kernel", {name: {}})[0][0], _rate(fitted.rate), f"{subtiles}{fits}: {_origin()}"))
    return "\n".join(texts)


def measure_gathered(target: Target) -> str:
    """The text of the file of kernels in which the cores work as well."""
    texts = [GATHERED_HEAD]
    for name, fitted in sorted(gathered.rates(target).items()):
        fits = f"{fitted.layers} layers, median error {fitted.median:.1%}, largest {fitted.largest:.1%}"
        print(f"{name:<32}{fits}", file=sys.stderr)
        said = f"work as {fitted.work}; call and cold: {fits}" if fitted.work else fits
        texts.append(_table(_tables("kernel", {name: {}})[0][0], _rate(fitted.rate), f"{said}: {_origin()}"))
    return "\n".join(texts)


def measure(target: Target, given: Mapping[str, Any], is_machine: bool) -> tuple[str, dict[str, float]]:
    """The text of the file, and the figures of the machine by name; ``is_machine``: kernels are kept as the file has them."""
    found = machine(target)
    origin = _origin()
    paths = {name: path(found, number, given["path"][name]) for number, name in enumerate(path.name for path in target.paths)}
    assert target.timing is not None
    timing = replace(target.timing, paths={**target.timing.paths, **paths}, fork={**target.timing.fork, "cluster": found.forks[8]})
    timing = replace(timing, barrier={"cluster": found.barrier})
    texts = [_table(name, _without(old), old["provenance"]) for name, old in _tables("kernel", given.get("kernel", {}))]
    if not is_machine:
        rates, texts = _kernels(replace(target, timing=timing), found, origin)
        timing = replace(timing, kernels={**rates})
    around, tile, count = loops(replace(target, timing=timing), found)
    parts = [HEAD.format(name=target.name), _clock(given, around, tile, f"{origin}: {count} layers")]
    for name, old in given["engine"].items():
        fork = found.forks[8] if name == "cluster" else old["fork"]
        power = old["provenance"].split("power of ")[-1]
        said = f"team of 8: {origin}; power of {power}" if name == "cluster" else old["provenance"]
        parts.append(
            _table(
                f"engine.{name}",
                {
                    "fork": fork,
                    **({"barrier": found.barrier} if name == "cluster" else {}),
                    **{k: old[k] for k in old if k.endswith("_mw")},
                },
                said,
            )
        )
    others = {"machine.power": given["machine"].get("power"), **{f"memory.{name}": old for name, old in given.get("memory", {}).items()}}
    parts += [_table(name, _without(old), old["provenance"]) for name, old in others.items() if old]
    for name, one in paths.items():
        figures = {"issue": one.issue, "latency": one.latency, "row": one.row, "byte": one.byte, "pj_per_byte": one.pj_per_byte}
        energy = given["path"][name]["provenance"].split("energy: ")[-1]
        parts.append(_table(f"path.{name}", figures, f"transfers of 16 B to 32 KiB, 4 to 64 rows: {origin}; energy: {energy}"))
    parts += texts
    kept = {name: old for name, old in given["path"].items() if name not in paths}
    parts += [_table(f"path.{name}", {k: v for k, v in old.items() if k != "provenance"}, old["provenance"]) for name, old in kept.items()]
    figures = {
        "fork": found.forks[8],
        "barrier": found.barrier,
        "tile": tile,
        "layer": around.layer,
        "window": around.window,
        "first_window": around.first_window,
    }
    for name, one in paths.items():
        figures |= {f"{name} issue": one.issue, f"{name} latency": one.latency[0], f"{name} byte": one.byte[0]}
    return "\n".join(parts), figures


def _clock(given: Mapping[str, Any], around: Loops, tile: float, origin: str) -> str:
    old = given["machine"]["clock"]
    clock = old["provenance"].split(";")[0]
    figures = {"mhz": old["mhz"], "tile": tile, "layer": around.layer, "first_window": around.first_window, "window": around.window}
    figures |= {name: old[name] for name in ("move",) if name in old}
    return _table("machine.clock", figures, f"{clock}; cycles: {origin}")


def measure_some(target: Target, folder: Path, names: Sequence[str], without: Sequence[str] = ()) -> bool:
    """Measure some kernels, ``TOGETHER`` at a time, and write their entries after each batch; those of one that fails one by one.

    Entries that have a word of ``without`` are left as they are.

    Returns:
        Whether all of them were measured.

    Raises:
        UsageError: no family has such a name.
    """
    unknown = set(names) - {family.kernel.split()[0] for family in FAMILIES}
    if unknown:
        raise UsageError(
            f"no family measures {', '.join(sorted(unknown))}", "Give names of kernels as families.py and elements.py have them."
        )
    forks, is_complete = machine(target).forks, True
    batches = [list(names[first : first + TOGETHER]) for first in range(0, len(names), TOGETHER)]
    while batches:
        batch = batches.pop(0)
        families = [f for f in FAMILIES if f.kernel.split()[0] in batch and not set(f.kernel.split()).intersection(without)]
        try:
            _, texts = _rates(families, target, forks, _origin())
        except (SimulationError, FitError) as error:
            if len(batch) > 1:
                batches = [[name] for name in batch] + batches
            else:
                print(f"{batch[0]}: {error}", file=sys.stderr)
                is_complete = False
        else:
            _replace(target, folder / "timing.toml", batch, without, texts)
    return is_complete


def _replace(target: Target, file: Path, names: Sequence[str], without: Sequence[str], texts: Sequence[str]) -> None:
    """Write new entries of some kernels; another program may be doing the same."""
    with file.open("r+") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        given = tomllib.loads(opened.read())
        words = {name: name.split() for name in given["kernel"]}
        entries = {name: old for name, old in given["kernel"].items() if words[name][0] not in names or set(words[name]) & set(without)}
        heads = {**{head: given.get(head, {}) for head in ("machine", "engine", "memory", "path")}, "kernel": entries}
        tables = [table for head, values in heads.items() for table in _tables(head, values)]
        kept = [_table(name, _without(old), old["provenance"]) for name, old in tables]
        opened.seek(0)
        opened.write("\n".join([HEAD.format(name=target.name), *kept, *texts]))
        opened.truncate()


def missing(target: Target, given: Mapping[str, Any]) -> list[str]:
    """Kernels of the cluster that a family measures and the file has no measured entry of, in the order of the families."""
    own = {kernel.name for kernel in target.kernels if kernel.engine == "cluster"}
    entries = [name.split()[0] for name in given["kernel"]]
    estimates = {name.split()[0] for name, old in given["kernel"].items() if old["provenance"].startswith(ESTIMATED)}
    names = dict.fromkeys(family.kernel.split()[0] for family in FAMILIES)
    return [name for name in names if name in own and (name not in entries or name in estimates)]


def _tables(head: str, values: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(f'{head}."{name}"' if " " in name else f"{head}.{name}", old) for name, old in values.items()]


def _without(old: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in old.items() if key != "provenance"}


def _kernels(target: Target, found: Machine, origin: str) -> tuple[dict[str, Rate], list[str]]:
    """Rates of all families, and their entries."""
    own = {kernel.name for kernel in target.kernels}
    rates, texts = _rates([f for f in FAMILIES if f.kernel.split()[0] in own], target, found.forks, origin)
    rates[GENERATED] = rates["matmul_any"]
    others = sorted({k.name for k in target.kernels if k.engine == "cluster" and not any(k.name == e.split()[0] for e in rates)})
    print(f"not measured: {', '.join(others) or 'none'}", file=sys.stderr)
    return rates, [_table(f"kernel.{GENERATED}", _rate(rates[GENERATED]), f"as matmul_any, plain C: {origin}"), *texts]


def _rates(families: Sequence[Family], target: Target, forks: Mapping[int, int], origin: str) -> tuple[dict[str, Rate], list[str]]:
    """Rates of families by the names of their entries, and the entries."""
    measured = points(families, target)
    rates: dict[str, Rate] = {}
    texts = []
    for family in families:
        fitted = fit(family, measured[family.kernel], forks)
        fits = f"{fitted.points} points, median error {fitted.median:.1%}, largest {fitted.largest:.1%}"
        print(f"{family.kernel:<24}{fits}", file=sys.stderr)
        said = f"{fits}: {origin}"
        for variant, rate in fitted.rates.items():
            name = _entry(family, variant)
            rates[name.strip('"')] = rate
            texts.append(_table(f"kernel.{name}", _rate(rate), said))
    for kernel in sorted({name.split()[0] for name in rates} - set(rates)):
        slowest = max((name for name in rates if name.split()[0] == kernel), key=lambda name: _weight(rates[name]))
        rates[kernel] = rates[slowest]
        texts.append(_table(f"kernel.{kernel}", _rate(rates[kernel]), f"as {slowest}, the slowest variant: {origin}"))
    return rates, texts


def _weight(rate: Rate) -> float:
    """By which rates of one kernel compare, which differ in one figure."""
    return rate.mac + rate.output + sum(rate.per.values())


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--check", action="store_true", help="write nothing, say how far the file is from what is measured")
    which.add_argument("--machine", action="store_true", help="measure the machine alone, no kernels")
    which.add_argument("--npu", action="store_true", help="measure N-EUREKA's kernels alone")
    which.add_argument("--sums", action="store_true", help="measure what cores make of N-EUREKA's sums alone")
    which.add_argument("--kernel", nargs="+", metavar="NAME", default=[], help="measure these kernels of the cluster alone")
    which.add_argument("--missing", action="store_true", help="measure the kernels of the cluster that are priced by an estimate")
    parser.add_argument("--without", nargs="+", metavar="WORD", default=[], help="leave entries with these words as they are")
    parser.add_argument("--seconds", type=float, default=layer.SECONDS, help="of wall time for a simulation")
    parser.add_argument("--target", default="siracusa", metavar="NAME|FOLDER", help="what is measured; siracusa by default")
    options = parser.parse_args(arguments)
    is_check, names, written = options.check, options.kernel, []
    layer.SECONDS = options.seconds
    try:
        gvsoc.check_tools()
        target, folder = calibrated(options.target), folder_of(options.target)
        given, has_jobs = tomllib.loads((folder / "timing.toml").read_text()), (folder / JOBS).exists()
        text, figures = "", dict[str, float]()
        if names or options.missing:
            is_complete = measure_some(target, folder, names or missing(target, given), options.without)
            print("written: timing.toml")
            return int(not is_complete)
        if not (options.npu or options.sums):
            text, figures = measure(target, given, options.machine or is_check)
        if text and not is_check:
            (folder / "timing.toml").write_text(text)
            written = ["timing.toml"]
        if has_jobs and not (is_check or options.machine):
            jobs = tomllib.loads((folder / JOBS).read_text())["kernel"]
            (folder / JOBS).write_text(measure_jobs(target, jobs, options.sums))
            written.append(JOBS)
            if not options.sums:
                (folder / GATHERED).write_text(measure_gathered(target))
                written.append(GATHERED)
    except DeeployError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    except SimulationError as error:
        print(error, file=sys.stderr)
        return 1
    if not is_check:
        print(f"written: {', '.join(written)}")
        return 0
    old = target.timing
    assert old is not None
    known = {
        "fork": old.fork["cluster"],
        "barrier": old.barrier["cluster"],
        "tile": old.tile,
        "layer": old.loops.layer,
        "window": old.loops.window,
    }
    known |= {"first_window": old.loops.first_window}
    for name, one in old.paths.items():
        known |= {f"{name} issue": one.issue, f"{name} latency": one.latency[0], f"{name} byte": one.byte[0]}
    for name, now in figures.items():
        print(f"{name:<20}{known[name]:>10g}{now:>10g}")
    return int(any(abs(now - known[name]) > ENOUGH * max(known[name], 1e-9) for name, now in figures.items()))
