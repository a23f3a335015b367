"""The comment in front of a layer: what is emitted for it, in words."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from deeploy.ir import names
from deeploy.ir.target import Target
from deeploy.ir.types import DType
from deeploy.planning.cost import FORMS, requantisation_form
from deeploy.planning.program import Call
from deeploy.planning.tiling.loops import CallTiling
from deeploy.schedule.ir import Layer

_WIDTH = 140  # columns


def comment_layer(
    layer: Layer, target: Target, places: Mapping[str, str], types: Mapping[str, DType], windows: Mapping[str, Sequence[str]]
) -> list[str]:
    """The lines of the comment: node and work, kernel, engine and tiles, operands and where they are, what is done to results.

    Args:
        places: where buffers lie, and ``types`` their elements, by name.
        windows: the memories in which an operand has windows, from the kernel's own outwards, by its name.
    """
    call = layer.call
    macs = call.geometry.macs()
    head = f"{names.c_comment(call.node.name)}: {names.c_comment(call.node.op)}" + f", {macs} multiply-accumulates" * bool(macs)
    parts = [
        f"{head}.",
        f"{_describe_kernel(layer, target)}.",
        f"{_describe_operands(call, places, types, windows)}.",
        *_describe_epilogue(call),
        *([f"Runs in one of {call.period} inferences."] if call.period > 1 else []),
        *([f"Runs in the first {call.first} inferences of a sequence, and has no effect later."] if call.first is not None else []),
    ]
    lines = [line for part in parts for line in textwrap.wrap(part, _WIDTH - 3, break_long_words=False, break_on_hyphens=False)]
    return [f"{' *' if number else '/*'} {line}" + " */" * (number == len(lines) - 1) for number, line in enumerate(lines)]


def _describe_kernel(layer: Layer, target: Target) -> str:
    kernel, cores, used = layer.call.kernel, layer.work.cores, requantisation_form(layer.call, target)
    if layer.accelerator is not None:
        where = f" for the accelerator {layer.accelerator}"
    elif cores > 1:
        where = f" on {cores} cores of {kernel.engine}, split along {layer.tiling.core_dims}"
    else:
        where = f" on {kernel.engine}"
    how = f" (requantises {FORMS[used]})" if used else ""
    return f"Kernel {kernel.name}{how}{where}{_describe_tiles(layer.tiling, layer.is_double)}"


def _describe_tiles(tiling: CallTiling, is_double: bool) -> str:
    if tiling.tiles == 1:
        return ""
    order = "double-buffered" if is_double else "single-buffered"
    if len(tiling.loops) == 1:
        return f", in {tiling.tiles} tiles of {tiling.loops[0].tile} along {tiling.loops[0].dim}, {order}"
    cuts = [f"{loop.trips} of {loop.tile} along {loop.dim}" for loop in tiling.loops]
    return f", in {tiling.tiles} tiles ({_list_words(cuts, 'by')}), {order}"


def _describe_operands(call: Call, places: Mapping[str, str], types: Mapping[str, DType], windows: Mapping[str, Sequence[str]]) -> str:
    """What is read and written, those that lie and move alike together."""
    told = {}
    for verb in ("reads", "writes"):
        groups: dict[str, list[str]] = {}
        for name, operand in call.operands.items():
            if (name in call.writes) == (verb == "writes"):
                place, steps = places[operand.buffer], windows.get(name, ())
                preposition = "to" if verb == "writes" else "from"
                where = f"{preposition} {place} through windows in {_list_words(steps)}" if steps else f"in {place}"
                shape = ",".join(map(str, operand.access.shape))
                groups.setdefault(where, []).append(f"{name} {types[operand.buffer].value}[{shape}]")
        told[verb] = "; ".join(f"{_list_words(group)} {where}" for where, group in groups.items())
    text = "; ".join(f"{verb} {what}" for verb, what in told.items() if what)
    return text[:1].upper() + text[1:]


def _describe_epilogue(call: Call) -> list[str]:
    """The stages behind the kernel's body, as a formula."""
    stages, attrs = call.node.epilogue, call.node.attrs
    value, ties = "acc + bias" if "bias" in stages else "acc", ""
    if "requantise" in stages:
        ties = "" if attrs.get("even") is None else ", ties to even"
        value = f"({'(acc + bias)' if 'bias' in stages else 'acc'} * mul + add) >> {attrs['shift']}"
    if any(stage in stages for stage in ("requantise", "clamp")):
        low, high = attrs["low"], attrs["high"]
        if low is not None and high is not None:
            value = f"clip({value}, {low}, {high})"
        elif low is not None or high is not None:
            value = f"min({value}, {high})" if low is None else f"max({value}, {low})"
    result = f"table[{value}]" if "lookup" in stages else value
    return [f"Results: {result}{ties}."] if stages else []


def _list_words(words: Iterable[str], last: str = "and") -> str:
    *front, end = words
    return f"{', '.join(front)} {last} {end}" if front else end
