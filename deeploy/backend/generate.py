"""Text from networks that read tokens and score the next one: which networks these are, and the C function that writes with them.

They are known by their structure: states, one input of whole numbers that chooses rows of a table, one output with a score for
each of as many tokens. Beside the tokens there may be the positions of the new rows, whole numbers as well, and a mask of whole numbers
or truth values with an entry for every row that exists. The one that appends a single row writes; another one with the same states, which
appends several, reads the prompt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mako.lookup import TemplateLookup

from deeploy.graph.types import DType
from deeploy.midend.plan import Plan
from deeploy.midend.program import Program, Role

_FRACTION = 16  # bits of scores behind the point
TOKEN, PLACE, MASK = "ids", "places", "mask"  # what inputs are, and the C arrays that hold them


@dataclass(frozen=True)
class Reader:
    """A network that takes ``rows`` tokens and scores what follows the last ``scored`` of them.

    Attributes:
        tokens: how many there are.
        sources: what its inputs are, in order, and their element types.
        score: the element type of its output.
        step: value of one step of an integer score, in units of the last bit behind the point.
        cycles: of one inference, where they are known.
    """

    prefix: str
    rows: int
    scored: int
    tokens: int
    sources: tuple[tuple[str, DType], ...]
    score: DType
    step: int
    cycles: int | None

    @property
    def token(self) -> DType:
        """The element type of tokens."""
        return dict(self.sources)[TOKEN]


@dataclass(frozen=True)
class Generator:
    """``step`` writes; ``prompt`` reads, where it is worth it: from ``worth`` tokens on."""

    step: Reader
    prompt: Reader | None
    worth: int


def reader(prefix: str, plan: Plan, description: Mapping[str, Any]) -> Reader | None:
    """What a network reads and scores, if it is of that structure."""
    program = plan.program
    if program.growth is None or len(program.outputs) != 1:
        return None
    result, rows = program.buffers[program.outputs[0]], program.growth.rows
    tokens = result.shape[-1] if result.shape else 0
    scored = math.prod(result.shape) // max(tokens, 1)
    sources = _sources(program, tokens)
    if tokens < 2 or scored not in (1, rows) or sources is None:
        return None
    scale = description["outputs"][0].get("scale")
    step = 1 << _FRACTION if scale is None else max(1, round(scale * 2**_FRACTION))
    timing = description.get("timing") or {}
    return Reader(prefix, rows, scored, tokens, sources, result.dtype, step, timing.get("cycles"))


def _sources(program: Program, tokens: int) -> tuple[tuple[str, DType], ...] | None:
    """What every input is, where exactly one holds tokens and all others are known."""
    assert program.growth is not None
    found: list[tuple[str, DType]] = []
    for name in program.inputs:
        source = program.buffers[name]
        elements = math.prod(source.shape)
        is_whole = source.dtype.is_integer or source.dtype is DType.BOOL
        is_mask = is_whole and bool(program.live.get(source.tensor)) and elements == program.growth.context
        is_row = source.dtype.is_integer and elements == program.growth.rows and not program.live.get(source.tensor)
        if not (is_mask or is_row):
            return None
        table = _table(program, name)
        found.append((MASK if is_mask else TOKEN if table is not None and table >= tokens else PLACE, source.dtype))
    kinds = [kind for kind, _ in found]
    return tuple(found) if kinds.count(TOKEN) == 1 and len(set(kinds)) == len(kinds) else None


def _table(program: Program, source: str) -> int | None:
    """Rows of the smallest constant table that an input chooses from, if it chooses from one."""
    sizes = [
        program.buffers[call.operands[name].buffer].shape[0]
        for call in program.calls
        if any(operand.buffer == source for operand in call.operands.values())
        for name in call.geometry.nest.indirect
        if program.buffers[call.operands[name].buffer].role is Role.CONSTANT
    ]
    return min(sizes, default=None)


def generators(plans: Mapping[str, Plan], descriptions: Mapping[str, Mapping[str, Any]], leads: Mapping[str, str]) -> dict[str, Generator]:
    """The networks that can write, by name."""
    readers = {p: found for p, plan in plans.items() if (found := reader(p, plan, descriptions[p])) is not None}
    result = {}
    for prefix, step in readers.items():
        if step.rows == 1:
            others = [r for p, r in readers.items() if leads[p] == leads[prefix] and r.rows > 1 and _equal(r, step)]
            prompt = max(others, key=lambda r: r.rows, default=None)
            result[prefix] = Generator(step, prompt, 0 if prompt is None else _worth(prompt, step))
    return result


def _equal(a: Reader, b: Reader) -> bool:
    return (a.tokens, set(a.sources), a.score, a.step) == (b.tokens, set(b.sources), b.score, b.step)


def _worth(prompt: Reader, step: Reader) -> int:
    """From how many tokens on the network for prompts is faster; one that scores its last row only has to be filled."""
    if prompt.scored < prompt.rows:
        return prompt.rows
    if prompt.cycles is None or step.cycles is None:
        return min(prompt.rows, prompt.rows // 2 + 1)
    return max(2, min(prompt.rows, -(-prompt.cycles // step.cycles)))


def files(generator: Generator, lookup: TemplateLookup) -> dict[str, str | bytes]:
    """The C function of one generator; its declaration is part of the network's header."""
    step = generator.step
    values = {"prefix": step.prefix, "step": step, "prompt": generator.prompt, "worth": generator.worth, "fraction": _FRACTION}
    values |= {"kinds": dict(step.sources), "token_array": TOKEN, "place_array": PLACE, "mask_array": MASK}
    values |= {"exponents": [round(2 ** (24 - i / 16)) for i in range(17)]}
    return {f"src/{step.prefix}_generate.c": lookup.get_template("generate.c.mako").render(**values)}
