"""Layers by name and by block: names without what all of them share, and the blocks that a network repeats."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from deeploy.documents import Document
from deeploy.planning.choice.repeat import find_repetition

_PART = re.compile(r"[^/.;_:]+[/.;_:]*")
_COMMON = 0.6  # of all names: a part that more have says nothing
_FEW = 4  # names that are left as they are


def layer_labels(calls: Sequence[Document]) -> list[str]:
    """A short name for every layer of a network, see ``distinct_names``."""
    return distinct_names([str(call["node"]) for call in calls])


def distinct_names(names: Sequence[str]) -> list[str]:
    """Names without the parts that most of them have, where they stay different."""
    parts = [_PART.findall(name) for name in names]
    counts = Counter(part for words in parts for part in set(words))
    common = {part for part, count in counts.items() if count > _COMMON * len(names)} if len(set(names)) > _FEW else set()
    short = ["".join(part for part in words if part not in common).strip("/.;_:") for words in parts]
    own = Counter(zip(short, names, strict=True))
    alike = Counter(label for label, _ in own)
    return [label if label and alike[label] == 1 else name for label, name in zip(short, names, strict=True)]


def repeated_blocks(calls: Sequence[Document]) -> list[int | None]:
    """The number of the repeated block that every layer is in, from 0; None outside of blocks.

    Blocks are equal where operators, kernels, engines and multiply-accumulates of their layers are.
    """
    repeated = find_repetition([(call["op"], call["kernel"], call["engine"], call["macs"]) for call in calls])
    if repeated is None:
        return [None] * len(calls)
    last = repeated.first + repeated.period * repeated.count
    return [(step - repeated.first) // repeated.period if repeated.first <= step < last else None for step in range(len(calls))]
