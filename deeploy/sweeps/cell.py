"""One cell of a sweep, where a worker runs it: compiled, measured, and compared where that is wanted."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from deeploy.backend.project import read_manifest, read_plan
from deeploy.cli.compiling import compile_or_plan
from deeploy.devices.compile import Planned
from deeploy.documents import Contents
from deeploy.driver.evaluate import evaluate_project
from deeploy.driver.verify import verify_compiled
from deeploy.errors import DeeployError, FitError
from deeploy.quantization.static import quantize_model
from deeploy.sweeps.matrix import Cell

FIGURES = ("cycles", "microseconds", "energy_uj", "ram", "flash", "code", "accuracy")
COLUMNS = ("status", "message", *FIGURES, "verified")


def quantise_cell(cell: Cell) -> bytes:
    """The network in the form of the cell, as ONNX.

    Raises:
        DeeployError: it cannot be quantised.
    """
    assert cell.form is not None and cell.calibrate is not None
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.onnx"
        quantize_model(cell.file, cell.calibrate, path, cell.form)
        return path.read_bytes()


def measure_cell(cell: Cell) -> tuple[Contents, str]:
    """The columns of a cell, and its report; an error is a column as well, also one of the compiler."""
    with TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve() / "OUT"
        try:
            return _compile_cell(cell, folder)
        except MemoryError:  # which says nothing about the network
            raise
        except DeeployError as error:
            status, message = "does not fit" if isinstance(error, FitError) else "refused", f"{error.what}; {error.remedy}"
        except Exception as error:
            status, message = "failed", f"internal error: {type(error).__name__}: {error}"
        message = re.sub(r"\b0x[0-9a-f]{6,}", "0x...", message.replace(f"{folder.parent}/", ""))
        return failed_columns(status, message), ""


def failed_columns(status: str, message: str) -> Contents:
    """The columns of a cell that has no figures."""
    return {**dict.fromkeys(COLUMNS), "status": status, "message": message}


def _compile_cell(cell: Cell, folder: Path) -> tuple[Contents, str]:
    compiled = compile_or_plan({"network": cell.file}, cell.options)
    compiled.write(folder)
    figures: Contents = {**failed_columns("ok", ""), **_read_figures(folder)}
    if cell.labels is not None and cell.inputs is not None:
        figures["accuracy"] = dict(evaluate_project(folder, cell.inputs, cell.labels, cell.metric).values)["C"]
    if cell.is_verified and not isinstance(compiled, Planned):
        verdict = verify_compiled(compiled, cell.file, cell.inputs).contents()
        figures |= {"verified": verdict["verdict"], "status": "ok" if verdict["passed"] else "differs"}
    report = folder / "report.html"
    return figures, report.read_text(encoding="utf-8") if cell.has_report and report.is_file() else ""


def _read_figures(folder: Path) -> Contents:
    """Cycles, energy and bytes as ``deploy.json`` says them; where nothing was linked, bytes are the plan's, without code and stack."""
    if read_plan(folder) is not None:
        return {}
    manifest = read_manifest(folder)
    levels, sizes = list(manifest["memory"].values()), manifest.get("sizes")
    constants = sum(level["constants"] for level in levels)
    is_flat = manifest["machine"] is None or len(levels) == 1  # constants are no part of its arena
    ram, flash, code = levels[0]["peak"] if is_flat else sum(level["peak"] for level in levels) - constants, constants, None
    if sizes is not None:
        ram, flash, code = sizes["arena"] + sizes["static"] + sizes["stack"], sizes["code"] + sizes["constants"], sizes["code"]
    return {**{name: manifest[name] for name in ("cycles", "microseconds", "energy_uj")}, "ram": ram, "flash": flash, "code": code}
