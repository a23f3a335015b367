"""Inputs of a model that are pinned: each becomes a constant, and is no input of the compiled network.

Data for a network may still hold a pinned input, with the value that it is pinned to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from deeploy.documents import Contents, Document
from deeploy.errors import ModelError, UnsupportedError, UsageError, shorten, suggest
from deeploy.frontend.graph_io import input_shape
from deeploy.frontend.shapes import numpy_dtype
from deeploy.frontend.structure import open_inputs
from deeploy.options.texts import PinnedValue

_MOST_ELEMENTS = 1 << 16


@dataclass(frozen=True, eq=False)
class Pinned:
    """An input that is pinned.

    Attributes:
        position: among the inputs of the model that are no initialisers.
        value: in the element type and the shape of the input.
    """

    name: str
    position: int
    value: np.ndarray

    @classmethod
    def of(cls, entry: Document) -> Pinned:
        """From an entry of ``deploy.json``.

        Raises:
            UsageError: its values are not of its type, or not as many as its shape says.
        """
        try:
            value = np.array(entry["values"], entry["type"]).reshape(entry["shape"])
        except (OverflowError, TypeError, ValueError) as error:
            name = shorten(entry["name"], 60)
            raise UsageError(f"deploy.json has no {entry['type']}{entry['shape']} for '{name}'", "Compile the project again.") from error
        return cls(entry["name"], entry["position"], value)

    def contents(self) -> Contents:
        """The pinned input as the entry that ``deploy.json`` holds of it."""
        value = self.value
        return {
            "name": self.name,
            "position": self.position,
            "type": value.dtype.name,
            "shape": list(value.shape),
            "values": value.ravel().tolist(),
        }

    def check(self, array: np.ndarray, where: str) -> None:
        """Raise UsageError unless ``found``, perhaps of several samples, is the value that the input is pinned to."""
        shape = self.value.shape
        fits = array.shape[array.ndim - len(shape) :] == shape and array.ndim - len(shape) in (0, 1)
        if not fits or not np.array_equal(array, np.broadcast_to(self.value, array.shape)):
            told = f"{array.dtype}{list(array.shape)}" if not fits else str(array[array != np.broadcast_to(self.value, array.shape)][0])
            wanted = self.value.item(0) if self.value.size else "no elements"
            raise UsageError(
                f"{where}: input '{shorten(self.name)}' is {told}, the network was compiled with --pin '{shorten(self.name)}={wanted}'",
                "Store the value that it was compiled with, or leave the array out; for another value, compile again.",
            )


def pin_inputs(model: onnx.ModelProto, pins: Mapping[str, PinnedValue], dims: Mapping[str, int]) -> tuple[Pinned, ...]:
    """Make initialisers of the inputs that ``pins`` names, in place.

    Args:
        pins: values by name; one number is that of all elements.
        dims: extents of symbolic dimensions.

    Raises:
        UsageError: there is no such input, or it cannot have the value.
        UnsupportedError, ModelError: the shape or the element type of the input is not known.
    """
    inputs = open_inputs(model.graph)
    for name in pins:
        if name not in [value.name for value in inputs]:
            listed = ", ".join(shorten(value.name) for value in inputs[:10]) or "none"
            near = suggest(name, (value.name for value in inputs))
            raise UsageError(f"--pin names '{shorten(name)}', which is no input of the model", f"{near}Its inputs: {listed}.")
    if pins and len(pins) == len(inputs):
        raise UsageError("--pin names every input: nothing is left to compute", "Leave one of them out.")
    pinned = []
    for position, value in enumerate(inputs):
        if value.name in pins:
            array = _pinned_array(value, pins[value.name], dims)
            pinned.append(Pinned(value.name, position, array))
            model.graph.value_info.append(value)
            model.graph.input.remove(value)
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
    return tuple(pinned)


def _pinned_array(value: onnx.ValueInfoProto, given: PinnedValue, dims: Mapping[str, int]) -> np.ndarray:
    """What is given, in the type and shape of an input."""
    name = shorten(value.name)
    if not value.type.tensor_type.elem_type:
        raise ModelError(f"input '{name}' has no element type", "export the model again")
    dtype, shape = numpy_dtype(value.type.tensor_type.elem_type), input_shape(value, dims)
    try:
        array = np.asarray(given)
    except ValueError:
        array = np.array(None)
    if dtype.kind not in "biuf" or math.prod(shape) > _MOST_ELEMENTS:
        raise UnsupportedError(f"--pin '{name}': the input is {dtype}{shape}", f"inputs of up to {_MOST_ELEMENTS} numbers can be pinned")
    fits = array.dtype.kind in "biuf" and bool(np.isfinite(array).all())
    with np.errstate(all="ignore"):
        converted = array.astype(dtype) if fits else array
    told, example = f"the input is {dtype}{shape}", 0.5 if dtype.kind == "f" else 1
    if not fits or (dtype.kind != "f" and not np.array_equal(converted, array)) or not np.isfinite(converted).all():
        raise UsageError(f"--pin '{name}={shorten(str(given), 60)}': {told}", f"For example: --pin '{name}={example}'")
    if array.size not in (1, math.prod(shape)) or (array.ndim > 1 and list(array.shape) != shape):
        raise UsageError(f"--pin '{name}' gives {array.size} elements: {told}", "Give one number, or as many as it has.")
    return np.full(shape, converted.reshape(-1)[0]) if array.size == 1 else converted.reshape(shape)
