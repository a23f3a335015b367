"""Print when blocks of the study of many chips end by the compiler's model of links, and by packets (``link_simulation``).

make bench NAME='links_compared [--only NAME ...] [--chips N ...]'
"""

from __future__ import annotations

import argparse
import json
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from benchmarks.inference_over_chips import CONTEXT, OPTIONS, WORKLOADS, Workload, machine
from benchmarks.link_simulation import PACKET, SIRACUSA, simulate
from deeploy import chips

PACKETS = (64, PACKET, 4096)  # bytes
SCHEMES = {"ours": OPTIONS, "paper's": replace(OPTIONS, collective="hierarchical", gathers=False)}


def print_block(workload: Workload, path: Path, count: int, scheme: str) -> None:
    """A line: cycles by the compiler, and how far the simulation of packets is from them."""
    context = CONTEXT if workload.shape.past else None
    found = chips.compile(path, machine(), count, dialect="integer", context=context, **SCHEMES[scheme].given())
    files = found.sources()
    manifest = json.loads(files["deploy.json"])
    tables = [str(files[f"chips/{chip}/src/messages.c"]) for chip in range(len(found.plans))]
    topology = tomllib.loads(SIRACUSA.read_text())
    cycles = manifest["cycles"]
    away = [simulate(manifest, tables, topology, packet) / cycles - 1 for packet in PACKETS]
    print(
        f"{workload.name:9} {count:5} {scheme:8} {cycles:10} {len(manifest['messages']):9}  "
        + "".join(f"{100 * each:+9.2f} %" for each in away),
        flush=True,
    )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", metavar="NAME", choices=[w.name for w in WORKLOADS], help="workloads; all by default")
    parser.add_argument("--chips", nargs="*", type=int, metavar="N", help="numbers of chips; those of the study by default")
    args = parser.parse_args(arguments)
    print("workload  chips scheme       cycles  messages  " + "".join(f"{packet:7} B  " for packet in PACKETS))
    for workload in WORKLOADS:
        if args.only and workload.name not in args.only:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "model.onnx"
            onnx.save(workload.model(1), path)
            for count in workload.chips:
                if count > 1 and (not args.chips or count in args.chips):
                    for scheme in SCHEMES:
                        print_block(workload, path, count, scheme)
