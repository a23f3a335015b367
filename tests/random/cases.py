"""Cases as files: a model that carries in its metadata how it is to be compiled, and an npz with its sample."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx

from tests.random.forms import Case

_KEY = "case"  # of the model's metadata: form, types of inputs, plan


def save(case: Case, stem: Path) -> None:
    """Write ``stem.onnx`` and ``stem.npz``."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.metadata_props.add(key=_KEY, value=json.dumps({"form": case.form, "types": case.types, "plan": case.plan}))
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".onnx").write_bytes(model.SerializeToString())
    arrays = {f"input:{name}": array for name, array in case.inputs.items()}
    arrays |= {f"golden:{name}": array for name, array in case.golden.items()}
    numbered = {f"{position}": array for position, array in enumerate(arrays.values())}
    np.savez_compressed(stem.with_suffix(".npz"), names=np.array(list(arrays)), allow_pickle=False, **numbered)


def load(stem: Path) -> Case:
    """Read what ``save`` wrote."""
    model = onnx.load(stem.with_suffix(".onnx"))
    entries = {entry.key: entry.value for entry in model.metadata_props}
    known = json.loads(entries[_KEY])
    with np.load(stem.with_suffix(".npz")) as stored:
        arrays = {str(name): stored[str(position)] for position, name in enumerate(stored["names"])}
    inputs, golden = ({n.partition(":")[2]: a for n, a in arrays.items() if n.startswith(kind)} for kind in ("input:", "golden:"))
    return Case(known["form"], model, inputs, known["types"], golden, known["plan"])
