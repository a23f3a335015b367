"""What a sweep consists of: the file that says so, read, and every combination of it as a cell."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeploy.cli.build_file import read_options
from deeploy.documents import Contents, Document, check_document, read_document
from deeploy.errors import UsageError, shorten
from deeploy.options import Options
from deeploy.quantization.form import Form
from deeploy.schemas import BUILD, SCHEMAS

MOST_CELLS = 1_000_000


@dataclass(frozen=True)
class Cell:
    """One combination: a network in one form, for one target with one set of options.

    Attributes:
        settings: what the combination is, by the columns of the table.
        file: the network; ``form``: what it is quantised to before, by the samples in ``calibrate``; None: nothing.
        inputs, labels, metric: samples, of which the accuracy is measured where there are labels.
        is_verified: whether the C is compared with the interpreter and onnxruntime.
        has_report: whether its report is kept.
    """

    settings: Mapping[str, object]
    file: Path
    options: Options
    form: Form | None = None
    calibrate: Path | None = None
    inputs: Path | None = None
    labels: Path | None = None
    metric: str = "top1"
    is_verified: bool = False
    has_report: bool = True

    def __str__(self) -> str:
        return " ".join(str(value) for value in self.settings.values() if value != "")


@dataclass(frozen=True)
class Sweep:
    """The cells of a sweep, in the order of the table, and the folder of the sweep that it is compared with."""

    cells: tuple[Cell, ...]
    base: Path | None


def read_matrix(given: str | Path | Document) -> Sweep:
    """The sweep of a file, or of what such a file holds; paths are relative to the file, or to the working directory.

    Raises:
        UsageError: it cannot be read, is not what its schema says, or has more than ``MOST_CELLS`` cells.
    """
    if isinstance(given, Mapping):
        data, around, name = check_document(dict(given), "sweep.toml", "the sweep"), Path(), "the sweep"
    else:
        data, around, name = read_document(Path(given), "sweep.toml"), Path(given).parent, str(given)
    matrices = [{axis: [_option_text(axis, value) for value in values] for axis, values in one.items()} for one in data.get("matrix", [{}])]
    for axis, values in ((axis, values) for matrix in matrices for axis, values in matrix.items()):
        for value in values:
            check_document({"models": {"network": "model.onnx"}, axis: value}, BUILD, name)
    forms = {
        label: Form(**{key: _as_tuple(value) for key, value in form.items()}) for label, form in data.get("forms", {"int8": {}}).items()
    }
    count = sum(len(forms) if "calibrate" in model else 1 for model in data["models"].values())
    count *= sum(math.prod(map(len, matrix.values())) for matrix in matrices)
    if count > MOST_CELLS:
        raise UsageError(f"{shorten(name)} has {count} cells, more than {MOST_CELLS}", "Leave values out, or make several sweeps.")
    for options in (data.get("options", {}), *(model.get("options", {}) for model in data["models"].values())):
        check_document({"models": {"network": "model.onnx"}, **options}, BUILD, name)
    columns = list(dict.fromkeys(axis for matrix in matrices for axis in matrix))
    every = [dict(zip(one, values, strict=True)) for one in matrices for values in itertools.product(*one.values())]
    cells = []
    for label, model in data["models"].items():
        samples = {key: around / model[key] for key in ("calibrate", "inputs", "labels") if key in model}
        rest: Contents = {**samples, "metric": model.get("metric", "top1")}
        rest |= {"is_verified": data.get("verify", False), "has_report": data.get("reports", True)}
        for form, own in itertools.product(list(forms) if "calibrate" in model else [""], every):
            shown = {axis: value if isinstance(value := own.get(axis, ""), str | int | float) else json.dumps(value) for axis in columns}
            options = {**data.get("options", {}), **model.get("options", {}), **own}
            settings = {"model": label, "form": form, **shown}
            cells.append(Cell(settings, around / model["file"], read_options(options, around), forms.get(form), **rest))
    return Sweep(tuple(cells), around / data["base"] if "base" in data else None)


def _option_text(axis: str, value: object) -> object:
    """The value of an option; sizes and numbers of chips, which are texts there, may be numbers."""
    is_text = SCHEMAS[BUILD]["properties"].get(axis, {}).get("type") == "string"
    return str(value) if is_text and type(value) is int else value


def _as_tuple(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value
