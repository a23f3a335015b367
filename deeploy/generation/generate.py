"""Text from networks that read tokens and score the next one: which networks these are, and the C function that writes with them.

They are known by their structure: states, one input of whole numbers that chooses rows of a table, one output with a score for
each of as many tokens. Beside the tokens there may be the positions of the new rows, whole numbers as well, and a mask with an entry for
every row that exists, or that many for each new row: whole numbers or truth values, which are not 0 for what is seen, or floats that are
added to scores. The one that appends a single row writes; another one with the same states, which appends several, reads the prompt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deeploy.documents import Document
from deeploy.ir.types import DType
from deeploy.planning.plan import Plan
from deeploy.planning.program import DynamicLength, Program, Role

if TYPE_CHECKING:
    from mako.lookup import TemplateLookup

_FRACTION = 16  # bits of scores behind the point
_WEIGHT = 24  # the best token weighs 2^_WEIGHT
_BUCKET = 13  # so many bits of a distance are one bucket: an eighth of an octave
_BUCKETS = _WEIGHT << (_FRACTION - _BUCKET)
TOKEN, PLACE, MASK = "ids", "places", "mask"  # what inputs are, and the C arrays that hold them


@dataclass(frozen=True)
class InputSource:
    """What an input is, with its name in the model, and the rows and columns of a mask."""

    kind: str
    name: str
    dtype: DType
    rows: int = 0
    columns: int = 0


@dataclass(frozen=True)
class TokenReader:
    """A network that takes ``rows`` tokens and scores what follows the last ``scored`` of them.

    Attributes:
        tokens: how many there are.
        sources: what its inputs are, in order.
        score: the element type of its output.
        step: value of one step of an integer score, in units of the last bit behind the point.
        cycles: of one inference, where they are known.
        begins: it reads no rows but its own, and is possible where there are no others.
    """

    prefix: str
    rows: int
    scored: int
    tokens: int
    sources: tuple[InputSource, ...]
    score: DType
    step: int
    cycles: int | None
    begins: bool

    @property
    def kinds(self) -> dict[str, DType]:
        """The element types of inputs by what they are."""
        return {source.kind: source.dtype for source in self.sources}

    @property
    def token(self) -> DType:
        """The element type of the input that takes token numbers."""
        return self.kinds[TOKEN]

    @property
    def mask(self) -> InputSource | None:
        return next((source for source in self.sources if source.kind == MASK), None)


@dataclass(frozen=True)
class WorkArray:
    """Memory that writing needs: an array in C."""

    type: str
    name: str
    elements: int
    comment: str


@dataclass(frozen=True)
class Generator:
    """``step`` writes; ``prompt`` reads, where it is worth it: from ``worth`` tokens on.

    Attributes:
        lead: the first network with the same states, whose instances both work on.
    """

    step: TokenReader
    prompt: TokenReader | None
    worth: int
    lead: str

    @property
    def arrays(self) -> list[WorkArray]:
        """The arrays that hold inputs and scores, and the sums of probabilities."""
        readers = [reader for reader in (self.step, self.prompt) if reader is not None]
        rows, scored = (max(getattr(reader, count) for reader in readers) for count in ("rows", "scored"))
        elements = {TOKEN: rows, PLACE: rows, MASK: max((r.mask.rows * r.mask.columns for r in readers if r.mask), default=0)}
        comments = {TOKEN: "that are read next", PLACE: "of the new rows", MASK: "of the rows that are seen"}
        work_arrays = [WorkArray(dtype.c, kind, elements[kind], comments[kind]) for kind, dtype in self.step.kinds.items()]
        work_arrays.append(WorkArray(self.step.score.c, "scores", scored * self.step.tokens, "of the tokens that may follow"))
        return [*work_arrays, WorkArray("uint64_t", "sums", _BUCKETS + 1, "of probabilities, by distance from the best token")]

    def files(self, lookup: TemplateLookup) -> dict[str, str | bytes]:
        """The C function; its declaration is part of the network's header."""
        step = self.step
        values = {"prefix": step.prefix, "lead": self.lead, "step": step, "prompt": self.prompt, "worth": self.worth}
        values |= {"fraction": _FRACTION, "weight": _WEIGHT, "bucket": _BUCKET}
        values |= {"kinds": step.kinds, "token_array": TOKEN, "place_array": PLACE, "mask_array": MASK}
        values |= {"exponents": [round(2 ** (_WEIGHT - i / 16)) for i in range(17)]}
        return {f"src/{step.prefix}_generate.c": lookup.get_template("generate.c.mako").render(**values)}


def token_reader(prefix: str, plan: Plan, description: Document, known: Mapping[str, str]) -> TokenReader | None:
    """What a network reads and scores, if it is of that structure; ``known`` are the kinds of inputs of others, by name."""
    program = plan.program
    is_plain = all(i.get("scale", 1.0) == 1.0 and i.get("zero_point", 0) == 0 for i in description["inputs"])
    if program.dynamic_length is None or len(program.outputs) != 1 or not is_plain:
        return None
    result, rows = program.buffers[program.outputs[0]], program.dynamic_length.rows
    tokens = result.shape[-1] if result.shape else 0
    scored = math.prod(result.shape) // max(tokens, 1)
    step_sources = [_input_source(program, program.dynamic_length, name, tokens, known) for name in program.inputs]
    sources = tuple(source for source in step_sources if source is not None)
    kinds = [source.kind for source in sources]
    if tokens < 2 or scored not in (1, rows) or len(sources) < len(step_sources) or kinds.count(TOKEN) != 1 or len(set(kinds)) < len(kinds):
        return None
    scale = description["outputs"][0].get("scale")
    step = 1 << _FRACTION if scale is None else max(1, round(scale * 2**_FRACTION))
    cycles = (description.get("timing") or {}).get("cycles")
    return TokenReader(prefix, rows, scored, tokens, sources, result.dtype, step, cycles, program.dynamic_length.begins)


def _input_source(program: Program, dynamic_length: DynamicLength, name: str, tokens: int, known: Mapping[str, str]) -> InputSource | None:
    """What an input is, if it is known.

    Where a network begins sequences, its rows are all that exist: what is no token is what the other network's input of that name is.
    """
    source, table = program.buffers[name], _table_rows(program, name)
    elements, is_dynamic = math.prod(source.shape), bool(program.dynamic_axes.get(source.tensor))
    columns = dynamic_length.rows if dynamic_length.begins else dynamic_length.context
    is_token = source.dtype.is_integer and elements == dynamic_length.rows and table is not None and table >= tokens
    if is_token and not is_dynamic:
        return InputSource(TOKEN, source.tensor, source.dtype)
    is_mask = known.get(source.tensor) == MASK if dynamic_length.begins else is_dynamic
    if is_mask and elements in (columns, dynamic_length.rows * columns) and source.shape[-1] == columns:
        is_plain = not source.dtype.is_float or _is_added(program, name)
        return InputSource(MASK, source.tensor, source.dtype, elements // columns, columns) if is_plain else None
    is_place = known.get(source.tensor) == PLACE if dynamic_length.begins else not is_dynamic
    if is_place and source.dtype.is_integer and elements == dynamic_length.rows:
        return InputSource(PLACE, source.tensor, source.dtype)
    return None


def _is_added(program: Program, name: str) -> bool:
    """Whether a buffer is added to something wherever it is read."""
    converted = {name}
    for call in program.calls:
        if any(operand.buffer in converted for key, operand in call.operands.items() if key not in call.kernel.outputs):
            if call.kernel.operator.converts:
                converted |= {call.operands[key].buffer for key in call.kernel.outputs}
            elif call.kernel.operator.addition is None:
                return False
    return True


def _table_rows(program: Program, source: str) -> int | None:
    """Rows of the smallest constant table that an input chooses from, if it chooses from one."""
    sizes = [
        program.buffers[call.operands[name].buffer].shape[0]
        for call in program.calls
        if any(operand.buffer == source for operand in call.operands.values())
        for name in call.geometry.nest.indirect
        if program.buffers[call.operands[name].buffer].role is Role.CONSTANT
    ]
    return min(sizes, default=None)


def find_generators(plans: Mapping[str, Plan], descriptions: Mapping[str, Document], leads: Mapping[str, str]) -> dict[str, Generator]:
    """What ``PREFIX_generate`` of each network that can write text needs, by the network's name."""
    readers: dict[str, TokenReader] = {}
    begins = {p: plan.program.dynamic_length is not None and plan.program.dynamic_length.begins for p, plan in plans.items()}
    for p in sorted(plans, key=lambda p: begins[p]):
        known = {source.name: source.kind for q, r in readers.items() if leads[p] == leads[q] for source in r.sources}
        read = token_reader(p, plans[p], descriptions[p], known)
        readers |= {p: read} if read is not None else {}
    result = {}
    for prefix, step in readers.items():
        if step.rows == 1:
            others = [r for p, r in readers.items() if leads[p] == leads[prefix] and r.rows > 1 and _reader_suits(r, step)]
            prompt = max(others, key=lambda r: r.rows, default=None)
            result[prefix] = Generator(step, prompt, 0 if prompt is None else _prompt_threshold(prompt, step), leads[prefix])
    return result


def _reader_suits(prompt: TokenReader, step: TokenReader) -> bool:
    """Whether one reads what the other goes on from: scores of one type, and no inputs that the other does not have."""
    is_alike = (prompt.tokens, prompt.score, prompt.step) == (step.tokens, step.score, step.step)
    return is_alike and prompt.kinds.items() <= step.kinds.items()


def _prompt_threshold(prompt: TokenReader, step: TokenReader) -> int:
    """From how many tokens on the network for prompts is faster; one that scores its last row only has to be filled."""
    if prompt.scored < prompt.rows:
        return prompt.rows
    if prompt.cycles is None or step.cycles is None:
        return min(prompt.rows, prompt.rows // 2 + 1)
    return max(2, min(prompt.rows, -(-prompt.cycles // step.cycles)))
