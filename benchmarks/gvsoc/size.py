"""Bytes of instructions per network on Siracusa, next to those of the figures file of the release before.

    python benchmarks/gvsoc/size.py [--write] [PART OF A NAME ...]

Built for bare metal with a stock gcc at -O3, as a project's own Makefile does; the runtime's start-up and drivers are in it. ``--write``
makes what is measured the new figures file, benchmarks/gvsoc/size.json. Exit status 1 when something is not built.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[2]))

from networks import NETWORKS, build

from deeploy.errors import DeeployError
from kernels import versions

FILE = Path(__file__).with_name("size.json")
COLUMNS = "{:<26}{:>12}{:>12}{:>10}"


def main(arguments: Sequence[str]) -> int:
    words = [word for word in arguments if not word.startswith("--")]
    before = json.loads(FILE.read_text())["text_bytes"] if FILE.exists() else {}
    head = {key: value for key, value in versions().items() if key == "gcc"}
    found: dict[str, int] = {}
    print(COLUMNS.format("network", ".text", "before", "change"))
    failed = False
    for network in NETWORKS:
        if words and not any(word.lower() in network.name.lower() for word in words):
            continue
        try:
            with tempfile.TemporaryDirectory(prefix="deeploy-size-") as scratch:
                found[network.name] = build(network, Path(scratch))
        except DeeployError as error:
            print(f"{network.name}: {error}", file=sys.stderr)
            failed = True
            continue
        now, old = found[network.name], before.get(network.name)
        print(COLUMNS.format(network.name, now, old or "-", f"{now / old - 1:+.1%}" if old else "-"))
    if "--write" in arguments:
        FILE.write_text(json.dumps({**head, "text_bytes": {**before, **found}}, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
