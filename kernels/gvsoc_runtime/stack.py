"""How deep each stack of a linked program can become, and whether it has as many bytes.

    stack.py PROGRAM --objdump OBJDUMP --core NAME=FUNCTION:BYTES ... --stack NAME=FUNCTION:BYTES ... [--arena BYTES]
             [--pointers FUNCTION=FUNCTION ...] [--callers FUNCTION=FUNCTION ...]

The linked code is read, whatever compiled it, libraries and assembly included: by how much the instructions of every function lower
the stack pointer, and whom it calls. A function that calls through a pointer calls those whose addresses are taken by itself, or else
by the last one above it that takes any; with `--pointers F=G`, those whose addresses the callers of G take (none where the program has no
G), and with `--callers F=G` the callers of G themselves. A jump to a place that is worked out is a switch, or such a call at the end
of a function.

BYTES are a number, or symbols of the program with `+` or `-` between. The stacks of `--core` lie in L1, behind an arena of `--arena`
bytes.

It prints the deepest path of each stack, each function with the bytes of its frame. Where one is deeper than its stack, calls itself,
or cannot be followed, it says so on stderr, and ends with status 1.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

CORES = 8  # every core has a stack in L1, and core 0 gets what it lacks where all of them get more
ALIGNMENT = 16  # of a stack
GUARD = 4  # bytes at the bottom of a stack that have to stay as they are: an overflow is seen there

_SYMBOL = re.compile(r"^([0-9a-f]+) .{6}(.) (\S+)\t[0-9a-f]+ (?:\.hidden )?(\S+)$")
_INSTRUCTION = re.compile(r"^ *([0-9a-f]+):\t(\S+)\s*([^#<]*)(?:<[^>]*>)?\s*(?:# ([0-9a-f]+))?")
_JUMPS = ("jal", "c.jal", "c.j")
_ENDS = ("mret", "unimp", "c.unimp")  # what follows is reached from nowhere; gcc fills gaps with the latter two


class Unknown(Exception):
    """The depth of a stack cannot be told; the text says why."""


@dataclass(frozen=True)
class Instruction:
    """``target`` is where a jump leads, or the address that was worked out, if it is known."""

    at: int
    name: str
    operands: tuple[str, ...]
    target: int | None

    @property
    def jumps(self) -> bool:
        return self.name in (*_JUMPS, "jalr", "c.jalr", "c.jr")

    @property
    def returns_here(self) -> bool:
        """Whether it is a call."""
        return self.name in ("c.jal", "c.jalr") or (self.jumps and self.operands[0] == "ra" and self.name != "c.jr")

    @property
    def is_last(self) -> bool:
        """Whether what follows is not reached from here."""
        return self.name in ("c.j", "c.jr", *_ENDS) or (self.jumps and self.operands[0] == "zero")

    @property
    def is_padding(self) -> bool:
        """Whether it does nothing, as what aligns the next function."""
        return self.name in ("addi", "c.addi", "c.nop") and self.operands[:1] in ((), ("zero",))

    @property
    def is_return(self) -> bool:
        return self.is_last and self.target is None and re.search(r"\b(ra|t0)\b", "".join(self.operands[-1:])) is not None

    @property
    def saves(self) -> bool:
        """Whether it calls one of the functions that save registers for others, and leave them on the stack."""
        return self.name == "jal" and self.operands[0] == "t0"


@dataclass
class Function:
    """Bytes that a function has on the stack, and what it does with other functions, by their addresses."""

    name: str
    frame: int = 0
    saved_by: set[int] = field(default_factory=set)
    calls: set[int] = field(default_factory=set)
    follows: set[int] = field(default_factory=set)  # where it goes on when its frame is gone
    takes: set[int] = field(default_factory=set)
    has_pointer_call: bool = False
    has_table: bool = False
    grows: str = ""  # the instruction that lowers the stack pointer by what is not known


def _moves(i: Instruction, known: Mapping[str, int]) -> int | None:
    """Bytes by which an instruction lowers the stack pointer, None where that is not known; a store of it does not change it."""
    if not i.operands or i.operands[0] != "sp" or i.name in ("sw", "c.sw", "c.swsp"):
        return 0
    last = i.operands[-1]
    if i.name in ("c.addi", "c.addi16sp") or (i.name == "addi" and i.operands[1] == "sp"):
        return -int(last)
    if i.name == "addi":
        return 0  # from the frame pointer: what was taken is given back
    if last in known and i.name in ("sub", "c.sub", "add", "c.add"):
        return known[last] if i.name.endswith("sub") else -known[last]
    return None


def _learn(i: Instruction, known: dict[str, int]) -> None:
    """Constants in registers, as frames of more than 2 KiB are made with them."""
    if not i.operands or i.operands[0] == "sp":
        return
    to, last = i.operands[0], i.operands[-1]
    source = i.operands[-2] if i.name == "addi" else to
    if i.name in ("lui", "c.lui"):
        pages = int(last, 16)
        known[to] = (pages - (1 << 20) if pages >> 19 else pages) << 12
    elif i.name == "c.li" or (i.name == "addi" and source == "zero"):
        known[to] = int(last)
    elif i.name in ("addi", "c.addi") and source in known:
        known[to] = known[source] + int(last)
    else:
        known.pop(to, None)


def _read(objdump: str, program: str) -> tuple[dict[str, int], dict[int, str], list[Instruction]]:
    """Symbols, names of functions by where they begin, and all instructions in order."""
    command = [objdump, "-d", "-t", "-w", "--no-show-raw-insn", "-Mno-aliases", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8", errors="replace")
    if done.returncode:
        raise Unknown(f"{objdump} cannot read the program: {done.stderr.strip()}")
    symbols, labels, names, code = dict[str, int](), dict[int, str](), dict[int, str](), list[Instruction]()
    for line in done.stdout.splitlines():
        if m := _INSTRUCTION.match(line):
            operands = tuple(m[3].strip().split(",")) if m[3].strip() else ()
            leads = m[2] in _JUMPS or re.match(r"(c\.|p\.)?b[a-z]+$", m[2])
            target = operands[-1] if leads else m[4]
            code.append(Instruction(int(m[1], 16), m[2], operands, int(target, 16) if target else None))
        elif m := _SYMBOL.match(line):
            at, name = int(m[1], 16), m[4]
            symbols[name] = at
            (names if m[2] == "F" else labels)[at] = name
    called = {i.target for i in code if (i.returns_here or i.saves) and i.target is not None} - names.keys()
    return symbols, names | {at: labels.get(at, hex(at)) for at in called}, code


def functions(objdump: str, program: str) -> tuple[dict[str, int], dict[int, Function]]:
    """The symbols of a program, and its functions by their addresses."""
    symbols, names, code = _read(objdump, program)
    found: dict[int, Function] = {}
    begin, end, known = 0, 0, dict[str, int]()
    starts = sorted(names)
    ends = dict(zip(starts, [*starts[1:], 1 << 32], strict=True))
    before: Instruction | None = None
    for i in code:
        if i.at in names:
            if before is not None and begin in found and not before.is_last and not before.returns_here:
                found[begin].follows.add(i.at)
            begin, end, known = i.at, ends[i.at], {}
            found[begin] = Function(names[begin])
        if begin in found:
            _add(found[begin], i, begin, end, names.keys(), known)
        if before is None or not (before.is_last and i.is_padding):
            before = i
    for f in found.values():
        f.frame += max((found[at].frame for at in f.saved_by), default=0)
    return symbols, found


def _add(f: Function, i: Instruction, begin: int, end: int, starts: Set[int], known: dict[str, int]) -> None:
    moved = _moves(i, known)
    _learn(i, known)
    if moved is None:
        f.grows = f"{i.name} {','.join(i.operands)}"
    f.frame += max(moved or 0, 0)
    if i.saves:
        f.saved_by.add(i.target or 0)
    elif i.returns_here and i.target is None:
        f.has_pointer_call = True
    elif i.returns_here:
        f.calls.add(i.target or 0)
    elif i.is_last and i.target is None:
        f.has_table |= not i.is_return and i.name not in _ENDS
    elif i.target is not None and i.operands and i.target in starts:
        if i.is_last and not begin <= i.target < end:
            f.follows.add(i.target)
        elif not i.is_last:
            f.takes.add(i.target)


class Graph:
    """Who calls whom, with what pointers can lead to."""

    def __init__(self, found: Mapping[int, Function], pointers: Mapping[str, str], callers: Mapping[str, str]) -> None:
        self.found = found
        self.at = {f.name: at for at, f in found.items()}
        self.direct: dict[int, set[int]] = {}
        for at, f in found.items():
            for callee in f.calls | f.follows:
                self.direct.setdefault(callee, set()).add(at)
        self.pointers, self.callers = pointers, callers
        self.known: dict[tuple[int, int | None], tuple[int, tuple[int, ...]]] = {}

    def function(self, name: str) -> int:
        if name not in self.at:
            raise Unknown(f"there is no function {name}")
        return self.at[name]

    def taken(self, at: int) -> set[int]:
        """The functions whose addresses the callers of one take; where one only hands on what it is given, its callers."""
        result, seen, work = set[int](), set[int](), [at]
        while work:
            for caller in self.direct.get(work.pop(), set()) - seen:
                seen.add(caller)
                result |= self.found[caller].takes
                work += [] if self.found[caller].takes else [caller]
        return result

    def led(self, at: int, giver: int | None) -> set[int]:
        """Where calls through pointers of a function lead; ``giver`` is the last one above it that takes addresses."""
        f = self.found[at]
        if f.name in self.callers:
            return self.direct.get(self.function(self.callers[f.name]), set())
        if f.name in self.pointers:
            giving = self.at.get(self.pointers[f.name])
            return set() if giving is None else self.taken(giving)  # what is not linked passes nothing
        result = f.takes or (set() if giver is None else self.found[giver].takes)
        if f.has_pointer_call and not result:
            raise Unknown(f"{f.name} calls through a pointer that nobody is seen to pass")
        return result

    def deepest(self, at: int, giver: int | None = None, above: tuple[int, ...] = ()) -> tuple[int, tuple[int, ...]]:
        """Bytes of the deepest path from a function on, and the path."""
        if at in above:
            names = " > ".join(self.found[one].name for one in (*above[above.index(at) :], at))
            raise Unknown(f"a function calls itself: {names}")
        if at not in self.found:
            raise Unknown(f"{self.found[above[-1]].name} calls {at:#x}, where there is no code")
        if (at, giver) not in self.known:
            f, path = self.found[at], (*above, at)
            if f.grows:
                raise Unknown(f"the frame of {f.name} has no fixed size: {f.grows}")
            next_giver = at if f.takes else giver
            led = self.led(at, giver) if f.has_pointer_call or f.has_table else set()
            inside = [self.deepest(callee, next_giver, path) for callee in sorted(f.calls | (led if f.has_pointer_call else set()))]
            after = [self.deepest(callee, next_giver, path) for callee in sorted(f.follows | led)]
            called, followed = max(inside, default=(0, ())), max(after, default=(0, ()))
            self.known[at, giver] = max((f.frame + called[0], (at, *called[1])), (followed[0], (at, *followed[1])))
        return self.known[at, giver]

    def text(self, path: tuple[int, ...]) -> str:
        return " > ".join(f"{self.found[at].name} {self.found[at].frame}" for at in path)


def _bytes(text: str, symbols: Mapping[str, int]) -> int:
    """A sum of numbers and symbols."""
    terms = re.findall(r"([+-]?)(\w+)", text)
    return sum((-1 if sign == "-" else 1) * (int(term) if term.isdigit() else symbols[term]) for sign, term in terms)


def _check(options: argparse.Namespace) -> list[str]:
    """Prints the deepest path of each stack; the result says which do not fit."""
    symbols, found = functions(options.objdump, options.program)
    graph = Graph(found, dict(options.pointers), dict(options.callers))
    problems = []
    for name, value in [*options.core, *options.stack]:
        function, _, size = value.partition(":")
        below, path = graph.deepest(graph.function(function))
        needed, there = below + GUARD, _bytes(size, symbols)
        print(f"{name}: {needed} of {there} bytes: {graph.text(path)}")
        if needed <= there:
            continue
        problems.append(f"the stack of {name} needs {needed} bytes, larger than the {there} that it has: {graph.text(path)}")
        if (name, value) in options.core and options.arena:
            missing = -(-(needed - there) // ALIGNMENT) * ALIGNMENT
            problems[-1] += f"; leave more of L1 to the stacks: --l1 {_bytes(options.arena, symbols) - CORES * missing} or less"
    return problems


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks the depth of a program's stacks.")
    parser.add_argument("program")
    parser.add_argument("--objdump", required=True)
    parser.add_argument("--arena", default="")
    for option in ("--core", "--stack", "--pointers", "--callers"):
        parser.add_argument(option, action="append", type=_pair, default=[])
    try:
        problems = _check(parser.parse_args())
    except Unknown as reason:
        problems = [f"the depth of a stack is not known: {reason}"]
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
