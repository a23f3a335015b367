"""The accelerator under study, read from a TOML file (docs/exploration.md): an array, registers, one or two memory levels."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeploy.errors import UsageError, shorten

OPERANDS = ("weight", "input", "output")
_FIELDS = {
    "": {"name", "pes", "widths", "registers", "energy", "memory", "summary"},
    "widths": {"weight", "input", "output", "partial"},
    "registers": {"weight", "input", "output", "pj_per_bit", "shifts_inputs", "provenance"},
    "energy": {"mac_pj", "provenance"},
    "memory": {"name", "operands", "bandwidth", "capacity", "read_pj_per_bit", "write_pj_per_bit", "provenance"},
}


@dataclass(frozen=True)
class Store:
    """One memory: bits per cycle, bytes (None: as large as needed), picojoule per bit, and the operands that it serves."""

    name: str
    operands: tuple[str, ...]
    bandwidth: float
    capacity: int | None
    read_pj_per_bit: float
    write_pj_per_bit: float


@dataclass(frozen=True)
class Hardware:
    """An array of processing elements.

    Attributes:
        pes: multipliers; every spatial unrolling fills them all.
        weight_bits, input_bits, output_bits: of an element; ``partial_bits`` of a sum that is not complete.
        registers: words of weights, inputs and partial sums that every element of the array holds.
        register_pj_per_bit: of reading or writing a register; ``mac_pj`` of a multiply-accumulate.
        shifts_inputs: elements can pass their input on to a neighbour, so that windows share columns or rows over time.
        memories: in file order; an operand's first one is at the array, its second one, if any, behind that.
    """

    name: str
    pes: int
    weight_bits: int
    input_bits: int
    output_bits: int
    partial_bits: int
    registers: tuple[int, int, int]
    register_pj_per_bit: float
    mac_pj: float
    memories: tuple[Store, ...]
    shifts_inputs: bool = False

    def bits(self, operand: str) -> int:
        """Bits of an element between the array and its memory: of a sum that is not complete, for outputs."""
        return {"weight": self.weight_bits, "input": self.input_bits, "output": self.partial_bits}[operand]

    def levels(self, operand: str) -> tuple[Store, ...]:
        """The one or two memories of an operand, the one at the array first."""
        return tuple(store for store in self.memories if operand in store.operands)

    def inner(self) -> tuple[Store, ...]:
        """The memories at the array."""
        return tuple(store for store in self.memories if any(self.levels(operand)[0] is store for operand in store.operands))

    def outer(self) -> tuple[Store, ...]:
        """The memories behind those at the array."""
        return tuple(store for store in self.memories if any(self.levels(operand)[1:] == (store,) for operand in store.operands))


def load(file: Path, changes: Mapping[str, float] | None = None) -> Hardware:
    """Read a hardware file; ``changes`` replace fields, as ``pes`` or ``memory.NAME.bandwidth``.

    Raises:
        UsageError: a file that cannot be read, or a field that is missing, unknown, of a wrong kind, or contradicts another one.
    """
    try:
        data = tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"hardware file {shorten(str(file))} cannot be read: {shorten(reason, 120)}", _HELP) from error
    for path, value in (changes or {}).items():
        _change(file, data, path, value)
    return parse(data, file.stem)


_HELP = "docs/exploration.md lists the fields; examples/hardware holds complete files."


def parse(data: Mapping[str, Any], name: str) -> Hardware:
    """The hardware that a parsed file describes; see ``load``."""
    reader = _Reader(f"hardware {shorten(str(data.get('name', name)))}")
    reader.known(data, "", "")
    widths, registers, energy = (reader.table(data, key) for key in ("widths", "registers", "energy"))
    memories = data.get("memory")
    if not isinstance(memories, list) or not memories or not all(isinstance(entry, dict) for entry in memories):
        raise reader.error("memory", "is missing", "State one or two levels as [[memory]] tables.")
    bits = {key: reader.whole(widths, "widths", key) for key in ("weight", "input", "output", "partial")}
    words = [reader.whole(registers, "registers", key) for key in OPERANDS]
    hardware = Hardware(
        str(data.get("name", name)),
        reader.whole(data, "", "pes"),
        bits["weight"],
        bits["input"],
        bits["output"],
        bits["partial"],
        (words[0], words[1], words[2]),
        reader.amount(registers, "registers", "pj_per_bit"),
        reader.amount(energy, "energy", "mac_pj"),
        tuple(_store(reader, entry) for entry in memories),
        reader.flag(registers, "registers", "shifts_inputs"),
    )
    for table, key in ((registers, "registers"), (energy, "energy")):
        reader.provenance(table, key)
    _check(reader, hardware)
    return hardware


def _store(reader: _Reader, entry: Mapping[str, Any]) -> Store:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise reader.error("memory.name", "is missing", "Give every [[memory]] a name.")
    where = f"memory.{shorten(name)}"
    reader.known(entry, "memory", where)
    operands = entry.get("operands", list(OPERANDS))
    if not isinstance(operands, list) or not operands or not set(map(str, operands)) <= set(OPERANDS) or len(set(operands)) < len(operands):
        raise reader.error(f"{where}.operands", f"is {operands}", f"List some of {', '.join(OPERANDS)}, each once.")
    capacity = reader.whole(entry, where, "capacity") if "capacity" in entry else None
    reader.provenance(entry, where)
    return Store(
        name,
        tuple(operands),
        reader.amount(entry, where, "bandwidth", positive=True),
        capacity,
        reader.amount(entry, where, "read_pj_per_bit"),
        reader.amount(entry, where, "write_pj_per_bit"),
    )


def _check(reader: _Reader, hardware: Hardware) -> None:
    """What fields say together."""
    if hardware.partial_bits < hardware.output_bits:
        raise reader.error("widths.partial", "is narrower than widths.output", "A sum that is not complete needs at least as many bits.")
    names = [store.name for store in hardware.memories]
    if len(set(names)) < len(names):
        raise reader.error("memory.name", f"{max(names, key=names.count)} is given twice", "Give every memory a name of its own.")
    for operand in OPERANDS:
        levels = hardware.levels(operand)
        if not 1 <= len(levels) <= 2:
            raise reader.error("memory.operands", f"put {operand} into {len(levels)} memories", "Every operand has one or two levels.")
        if len(levels) == 2 and levels[0].capacity is None:
            raise reader.error(f"memory.{levels[0].name}.capacity", "is missing", "A memory with another one behind it has a size.")
        inside, outside = levels[0].capacity, levels[-1].capacity
        if inside is not None and outside is not None and inside > outside:
            raise reader.error(
                f"memory.{levels[0].name}.capacity",
                f"is more than that of {levels[-1].name} behind it",
                "List memories from the array outwards.",
            )
    for store in hardware.memories:
        places = {hardware.levels(operand).index(store) for operand in store.operands}
        if len(places) > 1:
            raise reader.error(
                f"memory.{store.name}.operands",
                "are at the array for one and behind another memory for the next",
                "Give each level memories of its own.",
            )
        needed = max(hardware.bits(operand) for operand in store.operands)
        if store.bandwidth < needed:
            raise reader.error(f"memory.{store.name}.bandwidth", f"is less than one element of {needed} bits", "Give bits per cycle.")


def _change(file: Path, data: dict[str, Any], path: str, value: float) -> None:
    """Replace the field that ``path`` names; memories are named, not numbered, and * stands for all of them."""
    *tables, field = path.split(".")
    entries: list[Any] = [data]
    if len(tables) == 2 and tables[0] == "memory":
        entries = [e for e in data.get("memory", []) if isinstance(e, dict) and tables[1] in ("*", e.get("name"))]
    elif tables:
        entries = [data.get(tables[0])] if len(tables) == 1 else []
    number = int(value) if float(value).is_integer() else value
    if not entries or not all(isinstance(e, dict) and isinstance(e.get(field), int | float) for e in entries):
        raise UsageError(
            f"{shorten(path)} is no field of {shorten(str(file))} that holds a number", "Name it as pes or memory.NAME.bandwidth."
        )
    for entry in entries:
        entry[field] = number


@dataclass(frozen=True)
class _Reader:
    """Reads fields, and names them where they are wrong."""

    subject: str

    def error(self, field: str, what: str, remedy: str) -> UsageError:
        return UsageError(f"{self.subject}: {field} {what}", remedy)

    def known(self, table: Mapping[str, Any], kind: str, where: str) -> None:
        for field in table.keys() - _FIELDS[kind]:
            path = f"{where}.{shorten(str(field))}".lstrip(".")
            raise self.error(path, "is not a field", f"Fields here: {', '.join(sorted(_FIELDS[kind]))}.")

    def table(self, data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        entry = data.get(key)
        if not isinstance(entry, dict):
            raise self.error(f"[{key}]", "is missing", _HELP)
        self.known(entry, key, key)
        return entry

    def value(self, table: Mapping[str, Any], where: str, field: str) -> Any:
        if field not in table:
            raise self.error(f"{where}.{field}".lstrip("."), "is missing", _HELP)
        return table[field]

    def whole(self, table: Mapping[str, Any], where: str, field: str) -> int:
        value = self.value(table, where, field)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.error(f"{where}.{field}".lstrip("."), f"is {shorten(str(value), 20)}", "Give a positive whole number.")
        return value

    def amount(self, table: Mapping[str, Any], where: str, field: str, positive: bool = False) -> float:
        value = self.value(table, where, field)
        fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
        if not fits or (positive and value == 0):
            raise self.error(f"{where}.{field}", f"is {shorten(str(value), 20)}", f"Give a {'positive ' * positive}number, not below zero.")
        return float(value)

    def flag(self, table: Mapping[str, Any], where: str, field: str) -> bool:
        value = table.get(field, False)
        if not isinstance(value, bool):
            raise self.error(f"{where}.{field}", f"is {shorten(str(value), 20)}", "Give true or false.")
        return value

    def provenance(self, table: Mapping[str, Any], where: str) -> None:
        if not isinstance(table.get("provenance"), str) or not table["provenance"].strip():
            raise self.error(f"{where}.provenance", "is missing", "Say where the energy figures are from.")
