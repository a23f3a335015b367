"""Runs the printed C on the numbers of elements."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import numpy as np

from deeploy.certify.c_text import TextError, TranslationUnit
from deeploy.certify.elements import Elements, bytes_of
from deeploy.certify.layers import UNKNOWN, CertifiedLayer, Claim, Seen, Step
from deeploy.certify.machine import CheckedMachine
from deeploy.certify.memory import CertificateError, ConstantRegion, Region, Span
from deeploy.certify.messages import CheckedMessage
from deeploy.certify.proof import NetworkProof
from deeploy.ir.interface import Bound
from deeploy.ir.kernel import SUMS
from deeploy.ir.nodes import Tensor
from deeploy.ir.target import Target
from deeploy.ir.templates import template_lookup
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.operators.views import POSITION

_LEVEL = re.compile(r'^    \{"(\w+)", (\d+), \d+, (\d+), [01]\},', re.MULTILINE)
_CORES = re.compile(r"rt_machine = \{\"\w+\", (\d+),")
_CONSTANT = re.compile(r"^(?:DEEPLOY_CONSTANTS )?const (\w+) (\w+)\[\d+\] = \{\n(.*?)\n\};", re.DOTALL | re.MULTILINE)
_INCLUDED = re.compile(r"^CONSTANT\((\w+), (\d+), (\d+)\);", re.MULTILINE)
_TYPES = {f"{sign}int{bits}_t": np.dtype(f"{sign[:1]}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}


@dataclass(frozen=True)
class Printed:
    """What was printed of a network, and what is claimed of it; the same calls run behind every ``period`` inferences.

    Attributes:
        files: of the project, by path.
        prefix: of the network's names in C; ``project`` begins those of kernels.
        graph: what it has to compute, whose nodes are run by ``calls``, by their names in C.
        stored: the types of the operands of each call as they are stored; ``constants`` are their values, where they are constant.
        claims: how each call is divided.
        dynamic_axes: axes of tensors along which only the rows exist that states have.
        is_exhaustive: whether all positions of states are run, instead of the first and the last two.
    """

    files: Mapping[str, str | bytes]
    prefix: str
    project: str
    target: Target
    graph: Graph
    calls: Mapping[str, Bound]
    stored: Mapping[str, Mapping[str, DType]]
    constants: Mapping[str, Mapping[str, np.ndarray]]
    claims: Mapping[str, Claim]
    dynamic_axes: Mapping[str, frozenset[int]]
    period: int
    is_exhaustive: bool = False


def certify_network(printed: Printed) -> NetworkProof:
    """Check that the C of a network computes every element of every output as the graph says.

    Raises:
        CertificateError: it does not; the text names the layer, the tile, and what is there instead.
    """
    run = _CheckedRun(printed)
    try:
        run.run()
    except CertificateError as error:
        raise CertificateError(f"{run.where}: {error}") from error
    except (TextError, SyntaxError, ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError) as error:
        raise CertificateError(f"{run.where}: the C cannot be read: {type(error).__name__}: {error}") from error
    return NetworkProof(run.counts, run.messages)


class _CheckedRun(CheckedMachine):
    def __init__(self, printed: Printed) -> None:
        super().__init__(printed.target, len(printed.calls))
        self.printed = printed
        self.elements = Elements(printed.graph, printed.calls.values())
        self.captured: list[tuple[str, Sequence[Any]]] | None = None
        self.under_way: dict[tuple[str, int], tuple[int, int, list[Step]]] = {}
        self.sums: dict[object, _Sums] = {}
        self.messages: list[CheckedMessage] = []  # of the inference
        self.constants = [np.zeros(1, np.uint8)]  # the bytes of all constants
        self.stored = 1  # of them
        self.layers: dict[str, CertifiedLayer] = {}
        self.links = {name: number for number, name in enumerate(n for n, call in printed.calls.items() if call.kernel.link is not None)}
        self.inside: dict[str, list[str]] = {}
        for name, claim in printed.claims.items():
            if claim["inside"] != name:
                self.inside.setdefault(claim["inside"], []).append(name)
        self.instance = SimpleNamespace()

    # ---- what there is

    def _text(self, path: str) -> str:
        text = self.printed.files.get(path, "")
        return text if isinstance(text, str) else text.decode()

    def _blob(self, path: str) -> np.ndarray:
        content = self.printed.files.get(path, b"")
        return np.frombuffer(content if isinstance(content, bytes) else content.encode(), np.uint8)

    @cached_property
    def unit(self) -> TranslationUnit:
        """The C of the network, in a machine with its memories."""
        prefix, table = self.printed.prefix, self._text("src/machine.c")
        outside = self.functions | {name: self.memories.add(self.constant(name, data)) for name, data in self._compiled_in().items()}
        cores = _CORES.search(table)
        self.cores = int(cores.group(1)) if cores else 1
        outside["rt_machine"] = SimpleNamespace(cores=self.cores)
        outside |= {"deeploy_messages": _Messages(), "unknown": lambda value: value, "_address": self.field}
        blob, at = self._blob("weights.bin" if "weights.bin" in self.printed.files else f"{prefix}_weights.bin"), 0
        for name, size, stored in _LEVEL.findall(table):
            self.arenas[name] = self.memories.add(Region(name, np.zeros(int(size), np.int32)))
            if int(stored):
                self.stored_constants[name] = self.memories.add(self.constant(f"the constants in {name}", blob[at : at + int(stored)]))
                at += int(stored)
        headers = ["include/deeploy_machine.h", f"include/{prefix}.h", *self._sources("h")]
        return TranslationUnit([*map(self._text, headers), self._text(f"src/{prefix}.c")], outside, self.call)

    def _sources(self, kind: str) -> list[str]:
        """The files with the constants of all networks, of which each may read those of another."""
        return [path for path in self.printed.files if path.startswith("src/") and path.endswith(f"_weights.{kind}")]

    def _compiled_in(self) -> dict[str, np.ndarray]:
        """The bytes of the constants that are compiled in."""
        compiled: dict[str, np.ndarray] = {}
        for path in self._sources("c"):
            text, blob = self._text(path), self._blob(f"{PurePosixPath(path).stem}.bin")
            compiled |= {name: _read_numbers(kind, values).view(np.uint8).reshape(-1) for kind, name, values in _CONSTANT.findall(text)}
            compiled |= {name: blob[int(at) : int(at) + int(size)] for name, at, size in _INCLUDED.findall(text)}
        return compiled

    def constant(self, name: str, data: np.ndarray) -> Region:
        """A region that holds the bytes of a constant: numbers below 0."""
        begin, self.stored = self.stored, self.stored + len(data)
        self.constants.append(data)
        return ConstantRegion(name, data, begin)

    @cached_property
    def values(self) -> np.ndarray:
        """The bytes of all constants, by their numbers without the sign."""
        return np.concatenate(self.constants)

    def field(self, instance: SimpleNamespace, name: str) -> int:
        """The address of a field of the instance, which holds the position of an inference."""
        numbers = bytes_of(self.elements.named(POSITION, (1,), 8), 8).ravel()
        return self.memories.add(Region(name, numbers, False))

    def run(self) -> None:
        """The initialisation, and inferences at all positions that differ."""
        prefix = self.printed.prefix
        size = self.number("ARENA_BYTES")
        init, infer = (getattr(self.unit, f"{prefix}_instance_{name}") for name in ("init", "run"))
        self.where = "the initialisation"
        arena = self.arenas["the arena"] = self.memories.add(Region("the arena", np.zeros(size, np.int32)))
        init(self.instance, arena, size)
        self.finish()
        states = self.elements.states
        last = self.number("CONTEXT") - self.number("ROWS") if states and not self.elements.begins else 0
        rows = self.number("ROWS") if states else 1
        ends = (last - rows, last) if self.elements.grown and last > rows else ()
        twice = (self.elements.settled + 2 * self.printed.period) * rows  # all has run, and its rest was read
        for past in range(0, last + 1, rows) if self.printed.is_exhaustive else sorted({*range(0, min(twice, last + 1), rows), *ends}):
            if states and past > self.instance.past_rows:
                self.elements.skip(self.instance.past_rows, past)
                self.instance.past_rows = past
            self.elements.begin(past, rows)
            self.inference(infer, f" at position {past}" if states else "")

    def number(self, name: str) -> int:
        """A number that the header of the network defines."""
        return int(self.unit.macros[f"{self.printed.prefix.upper()}_{name}"][1][0])

    def inference(self, infer: Callable[..., object], when: str) -> None:
        graph = self.printed.graph
        inputs = [t for t in graph.inputs if t.name != POSITION]
        given = [self.memories.add(Region(f"input {i}", self.held(t), False)) for i, t in enumerate(inputs)]
        results = [Region(f"output {i}", np.zeros(t.elements * t.dtype.bytes, np.int32)) for i, t in enumerate(graph.outputs)]
        self.where, self.messages = f"the inference{when}", []
        status = infer(self.instance, given, list(map(self.memories.add, results)))
        if status != "DEEPLOY_OK":
            raise CertificateError(f"it ends with {status}")
        self.finish()
        self.where = f"the end{when}"
        self.counts.positions += 1
        rows = slice(getattr(self.instance, "past_rows", None))  # those of the inference as well
        for region, tensor in zip(results, graph.outputs, strict=True):
            dynamic_axes = self.printed.dynamic_axes.get(tensor.name, ())
            part = tuple(rows if axis in dynamic_axes else slice(None) for axis in range(tensor.rank))
            wanted = bytes_of(self.elements.of(tensor), tensor.dtype.bytes)
            if (self.elements.past + 1) % graph.periods.get(tensor.name, 1):
                wanted = np.zeros_like(wanted)  # it is left as it was
            self.compare(region.holds.reshape(wanted.shape)[part], wanted[part], region.name)
            self.counts.elements += wanted[part].size // tensor.dtype.bytes

    def held(self, tensor: Tensor) -> np.ndarray:
        return bytes_of(self.elements.of(tensor), tensor.dtype.bytes).ravel()

    def finish(self) -> None:
        """Checks at the end that no transfer or job is under way, and that every claimed kernel was called."""
        self.memories.barrier()
        waiting = [flight.label for flights in self.memories.flights.values() for flight in flights]
        if waiting:
            raise CertificateError(f"nobody waits for {waiting[0]}")
        if self.under_way:
            raise CertificateError(f"a kernel of {next(iter(self.under_way))[0]} is not called")

    # ---- kernels

    def capture(self, compute: Callable[[], object]) -> list[tuple[str, Sequence[Any]]]:
        """The calls of kernels that a text makes."""
        self.captured, before = [], self.captured
        try:
            compute()
            return self.captured
        finally:
            self.captured = before

    def call(self, function: str, name: str, arguments: Sequence[Any], tile: int) -> None:
        if self.captured is not None:
            self.captured.append((name, arguments))
            return
        kind, _, layer = function.partition("_")
        self.do(lambda: self.kernel(kind, layer, name, arguments, tile))

    def layer(self, name: str) -> CertifiedLayer:
        if name not in self.layers:
            printed = self.printed
            if name not in printed.calls:
                raise CertificateError(f"{name} is no layer")
            self.layers[name] = CertifiedLayer(
                printed.calls[name],
                printed.claims[name],
                printed.stored[name],
                self.unit,
                template_lookup(tuple(self.target.template_folders)),
                printed.project,
                self.links.get(name),
                self.capture,
            )
        return self.layers[name]

    def kernel(self, kind: str, name: str, function: str, arguments: Sequence[Any], tile: int) -> None:
        """A call of a kernel, in the function of a layer, which calls those of layers without functions as well."""
        inside = [] if kind in ("body", "outputs") else self.inside.get(name, [])
        pending = [each for each in inside if (each, self.core) in self.under_way]
        failures = []
        for each in pending or [name, *inside]:
            self.where = f"layer {each}, tile {tile}, core {self.core}"
            try:
                self.match(each, int(kind == "outputs"), function, arguments, tile)
                self.counts.calls += 1
                return
            except CertificateError as error:
                failures.append(error)
        raise failures[0]

    def match(self, name: str, number: int, function: str, arguments: Sequence[Any], tile: int) -> None:
        """The call of a kernel as one of a layer.

        Raises:
            CertificateError: it is none.
        """
        layer = self.layer(name)
        key = (name, self.core)
        begun, at, steps = self.under_way.get(key) or (tile, 0, None)
        if not 0 <= tile < layer.claim["tiles"]:
            raise CertificateError(f"there are {layer.claim['tiles']} tiles")
        if steps is None:
            steps = layer.steps(number, tile, [getattr(self.instance, row) for row in layer.claim["rows"]])
        calls = [(step, is_last, call) for step in steps for is_last, call in _mark_calls(step.calls)]
        step, is_last, (expected, fields) = calls[at]
        if begun != tile or function != expected:
            raise CertificateError(f"{function} is called instead of {expected}")
        bound: dict[int, int] = {}
        self.argument(fields, arguments, function, bound)
        self.under_way.pop(key, None)
        if at + 1 < len(calls):
            self.under_way[key] = tile, at + 1, steps
        if is_last:
            self.apply(name, layer, number, step, bound)
        if layer.message is not None:
            self.messages.append(CheckedMessage(layer.call.kernel.link == "send", arguments[0][1], arguments[3]))

    def argument(self, expected: Any, given: Any, where: str, bound: dict[int, int]) -> None:
        """Compare an argument with what it has to be; addresses that only the C knows are noted."""
        if isinstance(expected, dict):
            if not isinstance(given, dict) or expected.keys() != given.keys():
                raise CertificateError(f"{where} has other fields than expected")
            for field_name, value in expected.items():
                self.argument(value, given[field_name], f"{where}.{field_name}", bound)
        elif isinstance(expected, list):
            if not isinstance(given, list) or len(expected) != len(given):
                raise CertificateError(f"{where} has another length than expected")
            for index, value in enumerate(expected):
                self.argument(value, given[index], f"{where}[{index}]", bound)
        elif isinstance(expected, int) and abs(expected) >= UNKNOWN // 2 and isinstance(given, int):
            which = (expected + UNKNOWN // 2) // UNKNOWN
            address = given - (expected - which * UNKNOWN)
            if bound.setdefault(which, address) != address:
                raise CertificateError(f"{where} is another address than before")
        elif expected != given and not (expected != expected and given != given):
            raise CertificateError(f"{where} is {given} instead of {expected}")

    def apply(self, name: str, layer: CertifiedLayer, number: int, step: Step, bound: Mapping[int, int]) -> None:
        """Check what a kernel finds, and note what it leaves."""
        call, kernel = layer.call, layer.parts[number].call.kernel
        accelerator = self.target.engine(kernel.engine).accelerator and ("job", self.unit.globals[f"ACCELERATOR_{kernel.engine}"])
        reads: list[tuple[str, Span]] = []
        makes: list[tuple[str, Span, np.ndarray | int]] = []
        state = _track_progress(call, step.box)
        sums = self.sums.get((name, state.outputs))
        is_split = call.kernel.post_processing is not None
        for scratch, (address, size, is_own) in step.scratch.items():
            at, core = _resolve_address(address, bound), self.core * is_own
            if at is not None and scratch != SUMS and size:
                makes.append((scratch, self.memories.span(at + core * size, (size,), (1,), f"scratch memory {scratch}"), 1 + core))
        is_summing = SUMS in {seen.operand for seen in step.seen} or (is_split and not number)
        if is_summing and not (is_split and number):
            sums = self.add(name, state, sums)
        is_complete = not is_summing or (sums is not None and sums.iterations == state.iterations)
        for seen in step.seen:
            at, is_sums = (
                _resolve_address(seen.address, bound),
                seen.operand == SUMS or (is_split and not number and seen.operand in call.writes),
            )
            if at is None or not all(seen.count):
                continue
            size = 4 if is_sums else layer.stored[seen.operand].bytes
            steps = (*(stride * size for stride in seen.strides), 1)
            span = self.memories.span(at, (*seen.count, size), steps, seen.operand)
            if is_sums:
                self.add_sums(seen, span, sums, is_split and bool(number), reads, makes)
            elif seen.operand in call.writes:
                if is_complete:
                    numbers = self.elements.of(call.tensors[seen.operand])[_box_of(seen)]
                    makes.append((seen.operand, span, bytes_of(numbers, size)))
            else:
                self.find(name, layer, seen, span, size)
                reads.append((seen.operand, span))
        for operand, needed in step.needed.items():
            self.cover(operand, needed, operand in call.writes)
        for operand, span in reads:
            for result, other, _ in makes:
                if span.meets(other) and (result, operand) not in call.kernel.overwrites and operand != SUMS:
                    raise CertificateError(f"{result} overwrites {operand}, which the kernel still reads")
        for at, (result, span, _) in enumerate(makes):
            for other_result, other, _ in makes[:at]:
                if span.meets(other):
                    raise CertificateError(f"{result} and {other_result} are in the same place")
        if accelerator:
            self.alone("starts a job")
            self.memories.begin(accelerator, f"a job of {name}", [s for _, s in reads], [(s, holds) for _, s, holds in makes])
            return
        for operand, span in reads:
            self.memories.read(self.core, span, operand)
        for operand, span, holds in makes:
            self.memories.write(self.core, span, operand, holds)

    def find(self, name: str, layer: CertifiedLayer, seen: Seen, span: Span, size: int) -> None:
        """Check that a kernel finds what it reads of an operand."""
        tensor, result = layer.call.tensors[seen.operand], layer.call.node.outputs[0] if layer.call.node.outputs else None
        stored = span.of(span.region.values) if isinstance(span.region, ConstantRegion) else None
        marks = span.of(span.region.holds) if stored is None else stored
        is_constant = stored is not None or bool((marks < 0).all())
        data = self.printed.constants[name].get(seen.operand)
        if data is None and is_constant:
            data = self.elements.value(tensor, result)
        if data is not None and is_constant:
            wanted = np.ascontiguousarray(data).reshape(-1).view(np.uint8).reshape(*data.shape, size)[_box_of(seen)]
            if ((self.values[-marks] if stored is None else stored) != wanted).any():
                raise CertificateError(f"{seen.operand} is another constant than {tensor.name}")
            return
        marks = span.of(span.region.holds)
        numbers = self.elements.of(tensor, result)
        if numbers.shape != layer.call.geometry.shapes[seen.operand]:  # a constant is stored in another form
            raise CertificateError(
                f"{seen.operand} does not hold the constant {tensor.name}, but {self.elements.describe(int(marks.flat[0]))}"
            )
        self.compare(marks, bytes_of(numbers[_box_of(seen)], size), seen.operand)

    def compare(self, actual: np.ndarray, wanted: np.ndarray, what: str) -> None:
        """Check that bytes hold what they have to."""
        wrong = actual != wanted
        if self.elements.assumed and wrong.any():
            free = (actual == 0) & (wanted >= self.elements.assumed.start) & (wanted < self.elements.assumed.stop)
            actual[free] = wanted[free]
            wrong &= ~free
        if wrong.any():
            at = tuple(int(index[0]) for index in np.nonzero(wrong))
            raise CertificateError(
                f"{what} does not hold element {list(at[:-1] or at)} of its window, but {self.elements.describe(int(actual[at]))}"
            )

    def cover(self, operand: str, needed: Sequence[Sequence[int]], is_written: bool) -> None:
        """Check that what is claimed of an operand's window is what the iterations need."""
        first, count, before, own_first, own_count, own_before = needed
        if not all(count):
            return
        is_equal = list(own_count) == list(count) if is_written else all(a >= b for a, b in zip(own_count, count, strict=True))
        if list(first) != list(own_first) or list(before) != list(own_before) or not is_equal:
            raise CertificateError(f"{operand} has the window {own_first} + {own_count} instead of {first} + {count}")

    def add(self, name: str, state: _RunProgress, sums: _Sums | None) -> _Sums:
        """A tile along reductions is added to what the tiles before it left."""
        key = name, state.outputs
        if sums is None or sums.iterations == state.iterations:
            sums = self.sums[key] = _Sums()
        if any(all(a < b + m and b < a + n for (a, n), (b, m) in zip(state.part, other, strict=True)) for other in sums.parts):
            raise CertificateError("the same products are added twice")
        if (not sums.parts) != all(first == 0 for first, _ in state.part):
            raise CertificateError("sums begin with another tile than the first")
        sums.parts.append(state.part)
        sums.iterations += math.prod(count for _, count in state.part)
        sums.before, sums.base = sums.base, 0
        return sums

    def add_sums(self, seen: Seen, span: Span, sums: _Sums | None, is_post_processing: bool, reads: list[Any], makes: list[Any]) -> None:
        """Sums of a tile: those of the tile before are read, its own are left."""
        if sums is None:
            raise CertificateError("sums are read that nobody made")
        shape = (*seen.count, 4)

        def numbers(base: int) -> np.ndarray:
            return np.arange(base, base + math.prod(shape), dtype=np.int32).reshape(shape)

        if is_post_processing or sums.before:
            self.compare(span.of(span.region.holds), numbers(sums.base if is_post_processing else sums.before), "the sums")
            reads.append((SUMS, span))
        if not is_post_processing:
            sums.base = sums.base or self.elements.reserve(math.prod(shape))
            makes.append((SUMS, span, numbers(sums.base)))


@dataclass
class _Sums:
    """What tiles along reductions have added up: the number of the first byte, and that before the last tile."""

    parts: list[tuple[tuple[int, int], ...]] = field(default_factory=list)
    iterations: int = 0
    base: int = 0
    before: int = 0


@dataclass(frozen=True)
class _RunProgress:
    """The part of the reductions that a tile adds, of how many iterations, for which outputs."""

    outputs: tuple[object, ...]
    part: tuple[tuple[int, int], ...]
    iterations: int


def _track_progress(call: Bound, box: Mapping[str, tuple[int, int]]) -> _RunProgress:
    accumulated = call.geometry.nest.accumulated
    part = tuple(box.get(dim, (0, call.geometry.extents[dim])) for dim in accumulated)
    outputs = tuple((dim, *span) for dim, span in box.items() if dim not in accumulated)
    return _RunProgress(outputs, part, math.prod(call.geometry.extents[dim] for dim in accumulated))


def _resolve_address(address: int, bound: Mapping[int, int]) -> int | None:
    """An address, where the C said what it is relative to."""
    which = (address + UNKNOWN // 2) // UNKNOWN
    return bound[which] + address - which * UNKNOWN if which in bound else None


def _box_of(seen: Seen) -> tuple[slice, ...]:
    return tuple(slice(first, first + count) for first, count in zip(seen.first, seen.count, strict=True))


class _Messages:
    """The table of messages: each has a peer and a tag of its own."""

    def __getitem__(self, number: int) -> SimpleNamespace:
        return SimpleNamespace(peer=("peer", number), tag=("tag", number))


def _mark_calls(calls: Sequence[Any]) -> list[tuple[bool, Any]]:
    return [(index == len(calls) - 1, call) for index, call in enumerate(calls)]


def _read_numbers(kind: str, text: str) -> np.ndarray:
    """The values of a constant that is written as C."""
    if kind == "float":
        values = text.replace("f", "").replace("INFINITY", "inf").replace("NAN", "nan")
        return np.fromstring(values, np.float64, sep=",").astype(np.float32)
    for word, value in (("u", ""), ("INT64_C", ""), ("(", ""), (")", ""), ("INT32_MIN", str(-(2**31))), ("INT64_MIN", str(-(2**63)))):
        text = text.replace(word, value)
    return np.fromstring(text, np.int64, sep=",").astype(_TYPES[kind])
