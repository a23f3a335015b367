"""Windows one after the other as a recording: what a project that streams gives at the end of each of them.

Beside that, its network gives each window by itself: layers that pad see zeros there, where a stream has what came before and comes
after. How much that changes is measured with the windows in the order of their file.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from deeploy.documents import Document
from deeploy.driver.verify import Verdict, run_project
from deeploy.errors import UsageError, shorten
from deeploy.frontend.arrays import Expected, load_arrays


def expected_inputs(entry: Document) -> list[Expected]:
    """The inputs of a network; of one that streams, those over its window."""
    stream, ports = entry.get("stream"), [Expected.of(port) for port in entry["inputs"]]
    if stream is None:
        return ports
    return [replace(port, shape=_over_window(port.shape, stream)) if port.name == stream["input"] else port for port in ports]


def _over_window(shape: tuple[int | None, ...], stream: Document) -> tuple[int | None, ...]:
    return tuple(stream["window"] if axis == stream["axis"] else size for axis, size in enumerate(shape))


def run_windows(folder: Path, entry: Document, inputs: Path) -> Verdict:
    """Run a project that streams on windows, whose outputs are those at the end of each.

    Raises:
        UsageError: the file does not fit, there are further inputs, or outputs that are columns.
    """
    stream, ports = entry["stream"], entry["inputs"]
    columns = [output["name"] for output in stream["outputs"] if output["axis"] is not None]
    if len(ports) != 1 or columns:
        told = f"output {shorten(columns[0])} has new columns in each inference" if columns else f"it has {len(ports)} inputs"
        raise UsageError(f"the project streams, and {told}: windows have no results there", "Compare recordings: deeploy verify --stream.")
    loaded = load_arrays(inputs, expected_inputs(entry), "input")
    hop, axis, window = stream["hop"], stream["axis"], stream["window"]
    late = max(output["reach"] + output["calls"] * hop for output in stream["outputs"])
    recording = np.concatenate([sample[0] for sample in loaded.samples], axis)
    calls = -(-(recording.shape[axis] + late) // hop)
    behind = [(0, calls * hop - recording.shape[axis]) if at == axis else (0, 0) for at in range(recording.ndim)]
    recording = np.pad(recording, behind, constant_values=ports[0]["zero_point"] or 0)
    with tempfile.TemporaryDirectory() as scratch:
        np.savez(Path(scratch) / "hops.npz", np.stack(np.split(recording, calls, axis)))
        verdict = run_project(folder, Path(scratch) / "hops.npz", sequence=True)
    outputs = []
    for output, array in zip(stream["outputs"], verdict.outputs, strict=True):
        every = output["calls"]
        ends = np.arange(len(loaded.samples)) * window + output["reach"]
        outputs.append(array[-(-ends // (hop * every)) * every - 1])
    return replace(verdict, outputs=outputs, samples=len(loaded.samples), stacked=loaded.stacked)
