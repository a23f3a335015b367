"""Programs that differ in the values of constants and in whom they talk to, and in nothing that a plan depends on.

Such programs are planned once; the plan of the first one is carried over to the others. Names are those of the first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from deeploy.planning.packing.order import arrange_calls
from deeploy.planning.plan import Plan
from deeploy.planning.program import Call, Program, choose_variants, constant_content

_LINK = ("peer", "tag")

Key = tuple[object, ...]


def program_signature(program: Program) -> Key:
    """What two programs have in common whose plans are the same.

    Buffers count by position. Which constants are equal to which counts, since equal ones are stored once, and so do the instances
    of kernels and what they store.
    """
    numbers = {name: position for position, name in enumerate(program.buffers)}
    first: dict[object, int] = {}
    buffers = tuple(
        (b.role, b.dtype, b.shape, b.memory, None if b.data is None else first.setdefault(constant_content(b), number))
        for number, b in enumerate(program.buffers.values())
    )
    steps = tuple(tuple(_call_signature(call, numbers) for call in program.variants(step)) for step in range(len(program.calls)))
    length = program.dynamic_length
    grown = None
    if length is not None:
        states = tuple((s.shape, s.axis, numbers[s.buffer]) for s in length.states)
        grown = length.context, length.rows, states, None if length.position is None else numbers[length.position]
    return buffers, steps, tuple(numbers[n] for n in program.inputs), tuple(numbers[n] for n in program.outputs), grown


def plan_wording(plan: Plan) -> Key:
    """What plans of programs of the same signature have in common besides when their code is: what templates see of the values."""
    made = [(one.kernel.settings, one.node) for call in plan.program.calls for part in call.parts for one in part.phases]
    return tuple(_freeze_value(dict(settings(node))) if settings is not None else None for settings, node in made)


def _call_signature(call: Call, numbers: Mapping[str, int]) -> Key:
    node, kernel = call.node, call.kernel
    attrs = tuple(sorted((name, _freeze_value(value)) for name, value in node.attrs.items() if kernel.link is None or name not in _LINK))
    operands = tuple((name, numbers[o.buffer], o.access, o.step, o.turns) for name, o in call.operands.items())
    scratch = tuple((name, numbers[buffer]) for name, buffer in call.scratch.items())
    macros = _freeze_value(dict(kernel.macros(node))) if kernel.macros is not None else None
    tensors = tuple((t.shape, t.dtype, t.data is None) if t is not None else None for t in (*node.inputs, *node.outputs))
    geometry = tuple(sorted(call.geometry.extents.items())), call.geometry.dynamic
    return kernel.name, kernel.engine, attrs, operands, scratch, macros, tensors, geometry, call.turns


def _freeze_value(value: Any) -> object:
    """A value that can be compared, whatever attributes hold."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, Mapping):
        return tuple(sorted((str(k), _freeze_value(v)) for k, v in value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(_freeze_value, value))
    return value if isinstance(value, int | float | str | bool | None.__class__) else repr(value)


def rename_program(program: Program, like: Program) -> Program:
    """A program with the names of another one of the same signature; constants, nodes and tensors stay its own."""
    names = dict(zip(program.buffers, like.buffers, strict=True))
    buffers = {names[name]: replace(buffer, name=names[name]) for name, buffer in program.buffers.items()}
    length = program.dynamic_length
    if length is not None:
        states = tuple(replace(state, buffer=names[state.buffer]) for state in length.states)
        length = replace(length, states=states, position=None if length.position is None else names[length.position])
    every = tuple(
        tuple(replace(theirs, node=own.node) for own, theirs in zip(program.variants(step), like.variants(step), strict=True))
        for step in range(len(program.calls))
    )
    return replace(
        program,
        name=like.name,
        buffers=buffers,
        calls=tuple(variants[0] for variants in every),
        further=tuple(variants[1:] for variants in every),
        inputs=like.inputs,
        outputs=like.outputs,
        tensors={name: replace(place, buffer=names[place.buffer]) for name, place in program.tensors.items()},
        dynamic_length=length,
    )


def carry_plan(plan: Plan, planned: Program, program: Program) -> Plan:
    """The plan of ``planned``, for a program of the same signature; it may have the calls in another order."""
    steps = {call.name: step for step, call in enumerate(planned.calls)}
    order = [steps[call.name] for call in plan.program.calls]
    own, planned = arrange_calls(rename_program(program, planned), order), arrange_calls(planned, order)
    numbers = [
        next(number for number, variant in enumerate(planned.variants(step)) if variant.kernel is call.kernel)
        for step, call in enumerate(plan.program.calls)
    ]
    chosen = [
        tuple(variant for variant in own.variants(step) if any(variant.kernel is other.kernel for other in variants))
        for step, variants in enumerate(plan.variants)
    ]
    return replace(plan, program=choose_variants(own, numbers), variants=tuple(chosen))
