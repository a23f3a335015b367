"""The Python interface: ``deeploy.compile`` and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deeploy.driver.compile import compile_networks, loaded
from deeploy.driver.project import Compiled, Network
from deeploy.driver.request import Dialect, Requantise, Request, Stage
from deeploy.frontend.pins import Value
from deeploy.frontend.walk import MOST_UNROLLED
from deeploy.generation.generate import generators
from deeploy.graph.target import Target
from deeploy.graph.types import DType
from deeploy.midend.machine import Options

__all__ = ["Compiled", "Network", "Options", "Request", "compile"]


def compile(
    model: str | Path | Mapping[str, str | Path],
    target: str | Path | Target = "generic",
    *,
    inputs: str | Path | None = None,
    input_types: Mapping[str, DType | str] | None = None,
    dialect: Dialect | None = None,
    dims: Mapping[str, int] | None = None,
    pins: Mapping[str, Value] | None = None,
    unroll: int = MOST_UNROLLED,
    weight_bits: int | None = None,
    states: Mapping[str, str] | None = None,
    context: int | None = None,
    quantised_io: bool = False,
    requantise: Requantise = "exact",
    save_after: tuple[str, Path] | None = None,
    options: Options | None = None,
    fallback: bool | str = False,
    on_stage: Stage | None = None,
) -> Compiled:
    """Compile an ONNX model, or several into one project (a mapping from C prefix to model).

    Args:
        target: name or folder of a target, or the target itself.
        inputs: npz with a sample, which decides the input types of dialect graphs that ``input_types``, by name, do not.
        dims, pins: values of symbolic dimensions, and of inputs that become constants; of one of several networks as ``PREFIX:NAME``.
        unroll: nodes that loops may become, whose rounds stand one behind the other.
        weight_bits: weights that fit into so many bits are stored in them where kernels read them so, whatever the model says.
        states: outputs by input that are one state, as ``past_k=present_k`` (docs/state.md); without it, those that are plain.
        context: rows that states hold at most, where the model leaves it open.
        quantised_io: make the integer tensors at the edges the network's inputs and outputs.
        requantise: how sums become 8-bit outputs: as the model says, or as an engine can itself, within one step (docs/requantise.md).
        save_after: name of a pass, and where to save the graph as ONNX after it; with several networks, ``FILE.PREFIX.onnx``.
        options: how much of the target may be used (``deeploy.Options``).
        fallback: take generated C for operators without a kernel (docs/fallback.md), on the engine of that name, or on the first one.
        on_stage: called with the name of each stage as it begins.

    Raises:
        DeeployError: a subclass says what is wrong and what to do.
    """
    models = {"network": model} if isinstance(model, str | Path) else model
    request = Request(
        inputs=inputs,
        input_types=input_types or {},
        dialect=dialect,
        dims=dims or {},
        pins=pins or {},
        unroll=unroll,
        weight_bits=weight_bits,
        states=states or {},
        context=context,
        quantised_io=quantised_io,
        requantise=requantise,
        save_after=save_after,
        options=options or Options(),
        fallback=fallback,
        on_stage=on_stage,
        additions=generators,
    )
    return compile_networks(models, loaded(target), request)
