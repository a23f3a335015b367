"""What a target is: memories, paths between them, engines, kernels, lowering passes and a runtime, all data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path

from deeploy.documents import Document, read_document
from deeploy.errors import TargetError, shorten
from deeploy.ir.device import Device
from deeploy.ir.kernel import CORE, Kernel
from deeploy.ir.loops import LayerLoops
from deeploy.ir.rewriting import Pass
from deeploy.ir.topology import Topology
from deeploy.ir.types import Numeric
from deeploy.schemas import KINDS

API_VERSION = 4


@dataclass(frozen=True)
class Memory:
    """One memory level.

    Attributes:
        capacity: bytes of the hardware (None: as large as needed).
        alignment: of every buffer, in bytes.
        reserved: bytes that stacks, code and system data take; the arena gets the rest unless an option says less.
        is_far: reached by transfers only; its addresses are handles.
        base: address of its first byte, where the runtime's linker script wants it.
    """

    name: str
    capacity: int | None = None
    alignment: int = 16
    reserved: int = 0
    is_far: bool = False
    base: int | None = None


@dataclass(frozen=True)
class DmaPath:
    """A transfer engine between two memories, and its limits; names are those of ``deploy.json`` (``L2_L1``).

    Attributes:
        near, far: the memories; the near side of a box is packed, unless ``near_pitch``.
        max_bytes, max_rows, max_total, max_pitch: of one transfer: bytes of a row, rows, bytes in all, distance of rows. What is more is
            moved in several.
        alignment: of addresses, lengths and pitches, in bytes. The model of the machine checks it; plans do not arrange for it.
        tickets: groups of transfers that software may hold open.
        max_outstanding: transfers that may be outstanding at a time.
    """

    name: str
    near: str
    far: str
    max_bytes: int
    max_rows: int
    max_total: int
    max_pitch: int
    alignment: int = 1
    near_pitch: bool = False
    tickets: int = 8
    max_outstanding: int = 16

    @property
    def limits(self) -> dict[str, int]:
        """Every limit by the name of its field, which is also its name in ``struct rt_engine``."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.type == "int"}


@dataclass(frozen=True)
class Requantiser:
    """What an engine takes its sums to outputs with: ``(sum * mul + add) >> shift``, rounded down.

    Attributes:
        word: bits, sign included, that sums, products, and these with ``add`` have room in.
        mul: bits of a channel's multiplier, which is not negative.
        add: bits of a channel's summand, sign included.
        shift: the largest.
        has_shifts: whether every channel has a shift of its own.
    """

    word: int
    mul: int
    add: int
    shift: int
    has_shifts: bool = False


@dataclass(frozen=True)
class Engine:
    """What runs kernels: ``cores`` equal cores whose kernels work in ``memory``.

    Where ``accelerator`` names one (as ``deeploy_rt.h`` does), the first core of the team gives it jobs, of which it holds ``jobs``;
    ``weights`` is a memory that it reads weights from besides. With a ``requantiser``, ``--requantise engine`` may choose constants for it.
    """

    name: str
    memory: str
    cores: int = 1
    accelerator: str = ""
    jobs: int = 0
    weights: str = ""
    requantiser: Requantiser | None = None


@dataclass(frozen=True)
class PathTiming:
    """Cycles of a transfer: ``issue`` on the core that starts it, ``rows * row + bytes * byte`` on the path, then ``latency``.

    The path is free for the next transfer during the latency. ``latency`` and ``byte`` are (fetching, storing). Energy in
    picojoule per byte.
    """

    issue: float
    latency: tuple[float, float]
    row: float
    byte: tuple[float, float]
    pj_per_byte: float

    def data(self, count: Numeric, rows: Numeric, is_store: bool) -> Numeric:
        """Cycles on the path for ``count`` bytes in ``rows`` rows; numbers, or arrays of them."""
        return rows * self.row + count * self.byte[is_store]


@dataclass(frozen=True)
class Rate:
    """Cycles of a kernel on one core: per call, per iteration of the nests that reduce, per element of its output.

    Attributes:
        cold: further cycles of the first tile of a call, whose instructions are not cached.
        shared: part by which cycles grow for every further core that works, as all meet in one memory.
        contention: part by which they grow while another engine works in that memory.
        per: further cycles by what they are counted per: a product of factors, as in ``rows k/4``. A factor is a dimension of
            the nest, ``rows`` (the output's, without its last axis), ``runs`` (the same, axes merged where all operands allow it) or
            ``macs`` (iterations of the nests that reduce). With ``/4``, four iterations are one step, the last of which may be
            incomplete; with ``<4``, only fewer than four count.
        slots: of an array of multipliers, how many products it could have done while it runs a layer: what elements without work
            could have done counts as well, then.
        is_estimate: its provenance begins with that word; reports of ``target check`` say so.
    """

    call: float
    mac: float
    output: float
    cold: float = 0.0
    shared: float = 0.0
    per: Mapping[str, float] = field(default_factory=dict)
    slots: Callable[[LayerLoops], float] | None = None
    is_estimate: bool = False
    contention: float = 0.0


@dataclass(frozen=True)
class Loops:
    """Cycles of an engine's first core around the kernels.

    Attributes:
        layer: once a layer.
        first_window, window: to work out a window that moves, at first and again.
        move: for each byte that it moves in a ring.
    """

    layer: float = 0.0
    first_window: float = 0.0
    window: float = 0.0
    move: float = 0.0


_ESTIMATED = "estimate"  # the first word of a provenance
ESTIMATE = "default"  # the entry of kernels that have none of their own
GENERATED = "generated"  # that of C which a generator wrote for an operator without a kernel


@dataclass(frozen=True)
class Timing:
    """Cycle and energy figures of a machine; every entry of its file states where it is from.

    Attributes:
        mhz: the clock that converts cycles.
        fork: cycles to start a team and join it, by engine; ``tile`` of a step of the loop over tiles.
        barrier: cycles that the cores of a team wait for each other before and behind the kernel of a tile, by engine (default 0).
        core_mw: power of one core of an engine, in milliwatt; ``active_mw`` of an accelerator while it works, ``static_mw`` of the chip
            besides, whatever it does.
        memory_pj: picojoule per byte of constants that kernels read where they lie, by memory.
        loops: what else the first core does for a layer.
        memories: cycles that a byte of constants takes more in a memory of a flat machine than in the first one; kernels' hold that.
        is_estimate: the provenance of its clock begins with that word: nothing was measured.
        provenance: of its clock; empty where a target without a file of figures has none.
    """

    mhz: float
    fork: Mapping[str, float]
    tile: float
    core_mw: Mapping[str, float]
    paths: Mapping[str, PathTiming]
    kernels: Mapping[str, Rate]
    loops: Loops = Loops()
    barrier: Mapping[str, float] = field(default_factory=dict)
    memories: Mapping[str, float] = field(default_factory=dict)
    static_mw: float = 0.0
    active_mw: Mapping[str, float] = field(default_factory=dict)
    memory_pj: Mapping[str, float] = field(default_factory=dict)
    is_estimate: bool = False
    provenance: str = ""

    @cached_property
    def _entries(self) -> Mapping[str, list[tuple[frozenset[str], Rate]]]:
        """The entries of every kernel or engine: the words that an instance must have, and its rate."""
        entries_by_key: dict[str, list[tuple[frozenset[str], Rate]]] = {}
        for entry, rate in self.kernels.items():
            subject, *needed = entry.split()
            entries_by_key.setdefault(subject, []).append((frozenset(needed), rate))
        return entries_by_key

    def own(self, name: str, engine: str) -> Rate | None:
        """The rate of the instances of a kernel that no entry with words names: its own, or its engine's; None where there is none."""
        return self.kernels.get(name) or self.kernels.get(engine)

    def kernel(self, name: str, words: Collection[str] = (), engine: str = "") -> Rate:
        """The rate of a kernel, else that of its engine, else the estimate ``default``.

        An entry is the name of a kernel, or of an engine all of whose kernels are alike, and words that the instance must have, as in
        ``matmul f32``. Of those that fit, the one with the most words counts.

        Raises:
            TargetError: there is none; another kernel's rate is never taken.
        """
        for subject in (name, engine, ESTIMATE):
            fitting = [(len(needed), rate) for needed, rate in self._entries.get(subject, ()) if needed.issubset(words)]
            if fitting:
                return max(fitting, key=lambda entry: entry[0])[1]
        raise TargetError(
            f"the target's timing has no cycles of kernel {name} ({' '.join(sorted(words))})",
            f"Measure the kernel and add [kernel.{name}] to timing.toml, or estimate all such kernels by [kernel.{ESTIMATE}].",
        )


def _parse_rate(entry: Document) -> Rate:
    further = entry.get("cold", 0.0), entry.get("shared", 0.0), entry.get("per", {})
    is_estimate = entry["provenance"].startswith(_ESTIMATED)
    return Rate(entry["call"], entry["mac"], entry["output"], *further, is_estimate=is_estimate, contention=entry.get("contention", 0.0))


def load_timing(file: Path, *further: Path) -> Timing:
    """Read a ``timing.toml``, and the kernels of further files, those of another machine with the same cores among them.

    An entry ``[kernel.NAME]`` is of a kernel, or of an engine whose kernels are alike. Words of the instance may follow the name: element
    types, stages of the epilogue, values of macros, ``wide`` for a requantisation in 64 bits, ``transposed`` for a product whose second
    operand is, ``grouped`` for a convolution of several groups, a named function. The kernel's own entry with the most words counts, then
    its engine's, else ``default``.

    Raises:
        UsageError: there is no such file.
        TargetError: a file is not what its schema says; file, line and entry are named.
    """
    data = read_document(file, "timing.toml", TargetError)
    data.setdefault("kernel", {})
    for more in further:
        data["kernel"] |= read_document(more, "timing.toml", TargetError)["kernel"]
    if "machine" not in data:
        raise TargetError(f"{shorten(str(file), 160)}: machine is missing", KINDS["timing.toml"].remedy)
    clock = data["machine"]["clock"]
    engines, paths, memories = (data.get(name, {}) for name in ("engine", "path", "memory"))
    return Timing(
        clock["mhz"],
        {name: e["fork"] for name, e in engines.items()},
        clock["tile"],
        {name: e["core_mw"] for name, e in engines.items()},
        {n: PathTiming(e["issue"], tuple(e["latency"]), e["row"], tuple(e["byte"]), e["pj_per_byte"]) for n, e in paths.items()},
        {n: _parse_rate(e) for n, e in data["kernel"].items()},
        Loops(**{name: clock[name] for name in ("layer", "first_window", "window", "move") if name in clock}),
        {name: e["barrier"] for name, e in engines.items() if "barrier" in e},
        {name: e["byte"] for name, e in memories.items() if "byte" in e},
        data["machine"].get("power", {}).get("static_mw", 0.0),
        {name: e["active_mw"] for name, e in engines.items() if "active_mw" in e},
        {name: e["pj_per_byte"] for name, e in memories.items() if "pj_per_byte" in e},
        clock["provenance"].startswith(_ESTIMATED),
        clock["provenance"],
    )


@dataclass(frozen=True)
class Target:
    """A machine.

    Attributes:
        name: how the command line calls it.
        api: version of this interface that the target was written for.
        memories: memory levels, the innermost first; with no paths, only the first one holds an arena.
        kernels: in order of preference: a node takes the first whose signature fits.
        passes: lowering passes, in order.
        kernel_folders, template_folders: folders that kernel sources and templates are looked up in, first match first.
        runtime: folders whose files are copied into every project, and single files.
        build: Mako template of the project's Makefile, looked up as call templates are.
        paths: transfer engines between the memories; none where there is one flat memory.
        engines: by the name that kernels carry; on a flat machine all that kernels name, each a core in its memory.
        timing: None where nothing is known.
        default_memory: where constants and the caller's arrays lie unless told otherwise.
        topology: how several chips are joined; None where there is only ever one.
        device: figures for planning only: no code is made for the target. Its kernels only say what layers compute.
        serves: names of well-known chips and boards, or what these begin with, that people may ask for and this target is for.
        legend: what words in the names of kernels mean, for people who read reports.
    """

    name: str
    memories: tuple[Memory, ...]
    kernels: tuple[Kernel, ...]
    passes: tuple[Pass, ...]
    kernel_folders: tuple[Path, ...]
    template_folders: tuple[Path, ...]
    runtime: tuple[Path, ...]
    build: str
    api: int = API_VERSION
    options: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""
    paths: tuple[DmaPath, ...] = ()
    engines: tuple[Engine, ...] = ()
    timing: Timing | None = None
    default_memory: str = ""
    topology: Topology | None = None
    device: Device | None = None
    serves: tuple[str, ...] = ()
    legend: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.engines and all(engine.name != CORE for engine in self.engines):
            object.__setattr__(self, "kernels", tuple(_name_kernel(kernel, self.engines[0].name) for kernel in self.kernels))
        if self.is_flat and self.memories:
            engines = {**{k.engine: Engine(k.engine, "") for k in self.kernels}, **{engine.name: engine for engine in self.engines}}
            object.__setattr__(self, "engines", tuple(replace(engine, memory=self.memories[0].name) for engine in engines.values()))

    @property
    def computing(self) -> tuple[Kernel, ...]:
        """The kernels but for those that send and receive."""
        return tuple(kernel for kernel in self.kernels if kernel.link is None)

    def kernel(self, name: str) -> Kernel:
        """The first kernel of that name."""
        return next(kernel for kernel in self.kernels if kernel.name == name)

    @property
    def is_flat(self) -> bool:
        """Whether there is one memory and nothing is transferred: constants are part of the program, an arena is the caller's."""
        return not self.paths

    def at(self, mhz: float | None) -> Target:
        """The machine at another clock; the same one for None, and where nothing is known of its time."""
        return self if mhz is None or self.timing is None else replace(self, timing=replace(self.timing, mhz=mhz))

    def memory(self, name: str) -> Memory:
        """The memory of that name."""
        return next(m for m in self.memories if m.name == name)

    def engine(self, name: str) -> Engine:
        """The engine of that name."""
        return next(e for e in self.engines if e.name == name)

    def outward(self, memory: str) -> tuple[DmaPath, ...]:
        """The paths that lead from a memory outwards, nearest first."""
        path = next((p for p in self.paths if p.near == memory), None)
        return () if path is None else (path, *self.outward(path.far))


def _name_kernel(kernel: Kernel, core: str) -> Kernel:
    """The kernel with the name of the first engine where it, its post-processing, or one that it consists of runs on that."""
    post_processing = kernel.post_processing and replace(kernel.post_processing, kernel=_name_kernel(kernel.post_processing.kernel, core))
    phases = tuple(replace(phase, kernel=_name_kernel(phase.kernel, core)) for phase in kernel.phases)
    return replace(kernel, engine=core if kernel.engine == CORE else kernel.engine, post_processing=post_processing, phases=phases)
