"""The accelerator under study, read from a TOML file (docs/exploration.md): an array, registers, one or two memory levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeploy.documents import Contents, Document, check_document, read_document
from deeploy.errors import UsageError, shorten

OPERANDS = ("weight", "input", "output")
_KIND = "hardware.toml"


@dataclass(frozen=True)
class HardwareStore:
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
    memories: tuple[HardwareStore, ...]
    shifts_inputs: bool = False

    def bits(self, operand: str) -> int:
        """Bits of an element between the array and its memory: of a sum that is not complete, for outputs."""
        return {"weight": self.weight_bits, "input": self.input_bits, "output": self.partial_bits}[operand]

    def levels(self, operand: str) -> tuple[HardwareStore, ...]:
        """The one or two memories of an operand, the one at the array first."""
        return tuple(store for store in self.memories if operand in store.operands)

    def inner(self) -> tuple[HardwareStore, ...]:
        """The memories at the array."""
        return tuple(store for store in self.memories if any(self.levels(operand)[0] is store for operand in store.operands))

    def outer(self) -> tuple[HardwareStore, ...]:
        """The memories behind those at the array."""
        return tuple(store for store in self.memories if any(self.levels(operand)[1:] == (store,) for operand in store.operands))


def load_hardware(file: Path, changes: Mapping[str, float] | None = None) -> Hardware:
    """Read a hardware file; ``changes`` replace fields, as ``pes`` or ``memory.NAME.bandwidth``.

    Raises:
        UsageError: there is no such file, it is not what its schema says, with the changes too, or fields contradict each other.
    """
    data = read_document(file, _KIND)
    for path, value in (changes or {}).items():
        _change_field(file, data, path, value)
    return parse_hardware(data, str(file))


def parse_hardware(data: Document, file: str) -> Hardware:
    """The hardware that a parsed file describes; see ``load_hardware``."""
    check_document(data, _KIND, file)
    widths, registers = data["widths"], data["registers"]
    hardware = Hardware(
        data.get("name", Path(file).stem),
        data["pes"],
        widths["weight"],
        widths["input"],
        widths["output"],
        widths["partial"],
        (registers["weight"], registers["input"], registers["output"]),
        float(registers["pj_per_bit"]),
        float(data["energy"]["mac_pj"]),
        tuple(_parse_store(entry) for entry in data["memory"]),
        registers.get("shifts_inputs", False),
    )
    _check_hardware(file, hardware)
    return hardware


def _parse_store(entry: Document) -> HardwareStore:
    figures = (float(entry["bandwidth"]), entry.get("capacity"), float(entry["read_pj_per_bit"]), float(entry["write_pj_per_bit"]))
    return HardwareStore(entry["name"], tuple(entry.get("operands", OPERANDS)), *figures)


def _field_error(file: str, field: str, what: str, remedy: str) -> UsageError:
    return UsageError(f"{shorten(file, 160)}: {field} {what}", remedy)


def _check_hardware(file: str, hardware: Hardware) -> None:
    """What fields say together."""
    if hardware.partial_bits < hardware.output_bits:
        raise _field_error(
            file, "widths.partial", "is narrower than widths.output", "A sum that is not complete needs at least as many bits."
        )
    names = [store.name for store in hardware.memories]
    if len(set(names)) < len(names):
        raise _field_error(
            file, "memory.name", f"{shorten(max(names, key=names.count), 40)} is given twice", "Give every memory a name of its own."
        )
    for operand in OPERANDS:
        levels = hardware.levels(operand)
        if not 1 <= len(levels) <= 2:
            raise _field_error(
                file, "memory.operands", f"put {operand} into {len(levels)} memories", "Every operand has one or two levels."
            )
        if len(levels) == 2 and levels[0].capacity is None:
            raise _field_error(file, f"memory.{levels[0].name}.capacity", "is missing", "A memory with another one behind it has a size.")
        inside, outside = levels[0].capacity, levels[-1].capacity
        if inside is not None and outside is not None and inside > outside:
            raise _field_error(
                file,
                f"memory.{levels[0].name}.capacity",
                f"is more than that of {levels[-1].name} behind it",
                "List memories from the array outwards.",
            )
    for store in hardware.memories:
        places = {hardware.levels(operand).index(store) for operand in store.operands}
        if len(places) > 1:
            raise _field_error(
                file,
                f"memory.{store.name}.operands",
                "are at the array for one and behind another memory for the next",
                "Give each level memories of its own.",
            )
        needed = max(hardware.bits(operand) for operand in store.operands)
        if store.bandwidth < needed:
            raise _field_error(file, f"memory.{store.name}.bandwidth", f"is less than one element of {needed} bits", "Give bits per cycle.")


def _change_field(file: Path, data: Contents, path: str, value: float) -> None:
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
