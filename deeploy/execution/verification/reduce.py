"""A small model that makes a command fail in the way that a large one does, to be reported without its weights and names.

Nodes, outputs, contents of constants, extents and names are taken away, many at once and then fewer (delta debugging: A. Zeller and
R. Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002), and whatever leaves the failure as it was stays away. What the rest
reads of a node that was taken away becomes an input.
"""

from __future__ import annotations

import math
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os import killpg
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from deeploy.errors import UsageError, shorten
from deeploy.frontend.structure import all_graphs, read_names

PLACE = "{}"  # stands for the model's path in the command
_LARGE = 16  # elements: smaller constants may say how to compute
_HIDDEN = re.compile(r"'[^']*'|\"[^\"]*\"|/\S+|\d[\d.e+-]*")  # of a message: what other models have other ones of
_FRAME = re.compile(r'^\s*File ".*?([^/"]+)", line \d+, in (\S+)', re.MULTILINE)


Parts = Callable[[onnx.ModelProto], list[str]]
Without = Callable[[onnx.ModelProto, set[str]], "onnx.ModelProto | None"]


@dataclass(frozen=True)
class Failure:
    """How a command ended: its status (None where it took too long), and what its last message says without names and numbers."""

    status: int | None
    signature: str
    text: str = field(compare=False, default="")


@dataclass(frozen=True)
class Command:
    """A command with a place for a model's path.

    Attributes:
        seconds: after which it counts as hanging.
    """

    words: Sequence[str]
    seconds: float

    def run(self, model: Path) -> Failure:
        words = [word.replace(PLACE, str(model)) for word in self.words]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        try:
            process = subprocess.Popen(words, **pipes, text=True, errors="replace", start_new_session=True)  # type: ignore[call-overload]
        except OSError as error:
            raise UsageError(f"{shorten(words[0])} cannot be run: {error.strerror}", "Check the command behind --.") from error
        try:
            _, text = process.communicate(timeout=self.seconds)
            return Failure(process.returncode, _failure_signature(text), text)
        except subprocess.TimeoutExpired:
            return Failure(None, "")
        finally:
            with suppress(ProcessLookupError):
                killpg(process.pid, signal.SIGKILL)
            process.wait()


def _failure_signature(text: str) -> str:
    """The last error, and where a traceback came from."""
    lines = [line for line in text.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if line.startswith("error")), lines[-1] if lines else "")
    return " ".join([_HIDDEN.sub("#", last), *(_FRAME.findall(text)[-1] if _FRAME.search(text) else ())])


def command_of(words: Sequence[str], model: Path, seconds: float) -> Command:
    """The command, in which the model's own path is a place for it as well.

    Raises:
        UsageError: there is none.
    """
    placed = [PLACE if Path(word) == model else word for word in words]
    if not any(PLACE in word for word in placed):
        raise UsageError(
            f"the command has no place for the model: {PLACE} or {shorten(str(model))}", f"For example: -- deeploy compile {PLACE}"
        )
    return Command(placed, seconds)


class Reducer:
    """The smallest model so far.

    Attributes:
        fails: whether a model makes the command fail in the same way.
        say: is told what goes on.
        tries: models that were tried.
    """

    def __init__(self, model: onnx.ModelProto, fails: Callable[[onnx.ModelProto], bool], say: Callable[[str], None], most: int) -> None:
        self.best, self.fails, self.say, self.left = _infer_model(model), fails, say, most
        self.tries = 0

    def run(self) -> None:
        """Take away what can be, until nothing more can or no tries are left."""
        self._try(_without_names(self.best))
        before = -1
        while before != (before := self.best.ByteSize()) and self.left > 0:
            for parts, without in ((_list_nodes, _without_nodes), (_list_outputs, _without_outputs), (_list_constants, _empty_constants)):
                self._minimise(parts, without)
            self._shrink()

    def _try(self, model: onnx.ModelProto | None) -> bool:
        if model is None or self.left <= 0:
            return False
        self.left, self.tries = self.left - 1, self.tries + 1
        nodes, size = len(self.best.graph.node), self.best.ByteSize()
        self.say(f"try {self.tries}: {nodes} node{'s' * (nodes != 1)}, {size} bytes")
        if self.fails(model):
            self.best = model
            return True
        return False

    def _minimise(
        self, parts: Callable[[onnx.ModelProto], list[str]], without: Callable[[onnx.ModelProto, set[str]], onnx.ModelProto | None]
    ) -> None:
        """Take parts away: half of them, then fewer."""
        count = len(parts(self.best))
        size = count
        while size and self.left > 0:
            place = 0
            while place < len(names := parts(self.best)) and self.left > 0:
                if not self._try(without(self.best, set(names[place : place + size]))) or len(parts(self.best)) == len(names):
                    place += size
            size //= 2

    def _shrink(self) -> None:
        """Every extent of the model as 1, or half of it, wherever it occurs."""
        for extent in sorted(_list_extents(self.best), reverse=True):
            for smaller in dict.fromkeys((1, 2, extent // 2)):
                if smaller < extent and self._try(_with_extent(self.best, extent, smaller)):
                    break


def _infer_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with what inference says of its tensors: what is cut becomes an input of that type."""
    with suppress(Exception):  # of models that are damaged, which is why they are here
        return onnx.shape_inference.infer_shapes(model)
    return model


def _copy_model(model: onnx.ModelProto) -> onnx.ModelProto:
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    return copied


def _list_nodes(model: onnx.ModelProto) -> list[str]:
    return [str(place) for place in range(len(model.graph.node))]


def _without_nodes(model: onnx.ModelProto, gone: set[str]) -> onnx.ModelProto | None:
    """Without nodes: what others read of them is an input, what nobody reads any more an output."""
    made = _copy_model(model)
    graph = made.graph
    remaining = [node for place, node in enumerate(model.graph.node) if str(place) not in gone]
    types = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
    produced = [name for node in remaining for name in node.output if name]
    read = list(dict.fromkeys(name for node in remaining for name in read_names(node)))
    stored = {tensor.name for tensor in graph.initializer}
    lost = [name for name in read if name not in {*produced, *stored, *(value.name for value in graph.input)}]
    ends = [name for name in produced if name not in read or any(name == value.name for value in graph.output)]
    if not ends or any(name not in types for name in lost):
        return None
    inputs = [value for value in model.graph.input if value.name in read] + [types[name] for name in lost]
    for values, wanted in ((graph.node, remaining), (graph.input, inputs)):
        del values[:]
        values.extend(wanted)
    del graph.output[:]
    graph.output.extend(types.get(name, onnx.ValueInfoProto(name=name)) for name in dict.fromkeys(ends))
    _keep_values(graph.initializer, [tensor for tensor in model.graph.initializer if tensor.name in read])
    _keep_values(graph.value_info, [value for value in model.graph.value_info if value.name in produced and value.name not in ends])
    return made


def _keep_values(field: object, values: Sequence[object]) -> None:
    del field[:]  # type: ignore[attr-defined]
    field.extend(values)  # type: ignore[attr-defined]


def _list_outputs(model: onnx.ModelProto) -> list[str]:
    return [value.name for value in model.graph.output]


def _without_outputs(model: onnx.ModelProto, gone: set[str]) -> onnx.ModelProto | None:
    """Without outputs, and the nodes that only these need."""
    made = _copy_model(model)
    _keep_values(made.graph.output, [value for value in model.graph.output if value.name not in gone])
    needed = set(_list_outputs(made))
    dead = set()
    for place, node in reversed(list(enumerate(model.graph.node))):
        if needed.intersection(node.output):
            needed.update(read_names(node))
        else:
            dead.add(str(place))
    return made if needed and not dead else _without_nodes(made, dead) if needed else None


def _list_constants(model: onnx.ModelProto) -> list[str]:
    """Constants whose contents are still those of the file."""
    large = [t for t in model.graph.initializer if math.prod(t.dims) > _LARGE and t.data_type != TensorProto.STRING]
    return [t.name for t in large if not _is_made(t)]


def _is_made(tensor: onnx.TensorProto) -> bool:
    with suppress(Exception):  # of constants that are damaged
        return bool(np.array_equal(numpy_helper.to_array(tensor), _make_numbers(numpy_helper.to_array(tensor))))
    return True


def _make_numbers(array: np.ndarray) -> np.ndarray:
    """Numbers that have nothing to do with an array but their type: as many of 0, 1 and 2."""
    return (np.arange(array.size) * 7919 % 3).reshape(array.shape).astype(array.dtype)


def _empty_constants(model: onnx.ModelProto, names: set[str]) -> onnx.ModelProto:
    """With other contents of constants."""
    made = _copy_model(model)
    for tensor in made.graph.initializer:
        if tensor.name in names:
            tensor.CopyFrom(numpy_helper.from_array(_make_numbers(numpy_helper.to_array(tensor)), tensor.name))
    return made


def _list_extents(model: onnx.ModelProto) -> set[int]:
    extents = {extent for tensor in model.graph.initializer for extent in tensor.dims}
    return {n for n in extents | {dim.dim_value for value in model.graph.input for dim in value.type.tensor_type.shape.dim} if n > 1}


def _with_extent(model: onnx.ModelProto, extent: int, smaller: int) -> onnx.ModelProto | None:
    """With another extent wherever one occurs: in inputs, constants, and numbers that say shapes; other shapes are to be inferred anew."""
    made = _copy_model(model)
    for value in (*made.graph.input, *made.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value == extent:
                dim.dim_value = smaller
    del made.graph.value_info[:]
    for value in made.graph.output:
        value.type.tensor_type.ClearField("shape")
    for tensor in made.graph.initializer:
        with suppress(Exception):  # of constants that are damaged
            array = numpy_helper.to_array(tensor)
            cut = array[tuple(slice(smaller if n == extent else n) for n in array.shape)]
            cut = np.where(cut == extent, smaller, cut) if cut.dtype == np.int64 and cut.size <= _LARGE else cut
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(cut).reshape(cut.shape), tensor.name))
    return _infer_model(made)


def _without_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without texts that say whose the model is: names are numbers."""
    made = _copy_model(model)
    for text in ("doc_string", "producer_name", "producer_version", "domain"):
        made.ClearField(text)
    del made.metadata_props[:]
    new: dict[str, str] = {"": ""}

    def renamed(name: str) -> str:
        return new.setdefault(name, f"t{len(new)}")

    for number, graph in enumerate(all_graphs(made.graph)):
        graph.name, graph.doc_string = f"g{number}", ""
        _keep_values(graph.metadata_props, [])
        _keep_values(graph.quantization_annotation, [])
        for value in _named_values(graph):
            value.name, value.doc_string = renamed(value.name), ""
        for place, node in enumerate(graph.node):
            node.name, node.doc_string = f"n{place}" if node.name else "", ""
            _keep_values(node.metadata_props, [])
            for names in (node.input, node.output):
                _keep_values(names, [renamed(name) for name in names])
    return made


def _named_values(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto | onnx.TensorProto]:
    yield from (*graph.input, *graph.output, *graph.value_info, *graph.initializer)


def read_model(path: Path) -> onnx.ModelProto:
    """The model of a file, with its external data.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return onnx.load(path)
    except Exception as error:  # of onnx and protobuf, which have many
        raise UsageError(
            f"{shorten(str(path))} cannot be read: {shorten(str(error), 120)}", "A model is reduced that parses; check the path."
        ) from error


@dataclass(frozen=True)
class Reduced:
    """What is left of a model: nodes and bytes before and now, and how its command fails."""

    nodes: tuple[int, int]
    bytes: tuple[int, int]
    tries: int
    failure: Failure


def reduce_model(
    path: Path,
    output: Path,
    command: Command,
    *,
    status: int | None = None,
    match: str | None = None,
    tries: int = 1000,
    minutes: float | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Reduced:
    """Write the smallest model found to ``output``, after every step, so that whatever ends this keeps the best so far.

    Args:
        status: any failure with this exit status is the one that is looked for.
        match: any failure whose stderr has this regular expression is.
        tries: models at most.
        minutes: at most.

    Raises:
        UsageError: the model cannot be read, or its command does not fail.
    """
    model, stop = read_model(path), math.inf if minutes is None else time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "model.onnx"

        def run(tried: onnx.ModelProto) -> Failure:
            place.write_bytes(tried.SerializeToString())
            return command.run(place)

        def matches(failure: Failure) -> bool:
            if status is None and match is None:
                return failure == wanted
            return status in (None, failure.status) and (match is None or re.search(match, failure.text) is not None)

        say("run the command on the whole model")
        wanted = run(model)
        if (status is None and match is None and wanted.status == 0) or not matches(wanted):
            told = "takes too long" if wanted.status is None else f"ends with status {wanted.status}"
            raise UsageError(
                f"the command {told}, which is not the failure to look for", "Give a command that fails, or check --status and --match."
            )

        def fails(tried: onnx.ModelProto) -> bool:
            if time.monotonic() > stop or not matches(run(tried)):
                return False
            output.write_bytes(tried.SerializeToString())
            return True

        output.write_bytes(model.SerializeToString())
        reducer = Reducer(model, fails, say, tries)
        with suppress(KeyboardInterrupt):
            reducer.run()
    best = onnx.load(output)
    return Reduced((len(model.graph.node), len(best.graph.node)), (model.ByteSize(), best.ByteSize()), reducer.tries, wanted)
