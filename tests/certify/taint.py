"""Which branches, loop bounds, divisions and addresses of a kernel's C depend on data: a walk over its syntax tree.

Data is what lies behind the pointers of a kernel's argument; numbers in the argument are not. A variable, a field or what a pointer points
to is tainted for good once something tainted is put there, whatever the order of statements: nothing is missed, and some may be too many.
A choice between two values (``?:``, ``&&`` in an expression) is no branch: compilers select (docs/trust.md, what is assumed).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pycparser import c_ast, c_parser

_HEADERS = {
    "stdint.h": "\n".join(
        [
            f"typedef {c} {s}int{b}_t;"
            for b, t in ((8, "char"), (16, "short"), (32, "int"), (64, "long long"))
            for s, c in (("", f"signed {t}"), ("u", f"unsigned {t}"))
        ]
        + ["typedef long intptr_t; typedef unsigned long uintptr_t;"]
        + [
            f"#define INT{b}_MAX {2 ** (b - 1) - 1}\n#define INT{b}_MIN (-INT{b}_MAX - 1)\n#define UINT{b}_MAX {2**b - 1}u"
            for b in (8, 16, 32)
        ]
    ),
    "stddef.h": "typedef unsigned long size_t; typedef long ptrdiff_t;\n#define NULL ((void *)0)\n",
    "string.h": "#include <stddef.h>\n",
    "math.h": "#define INFINITY 1e999f\n#define NAN 0.0f\n",
    "limits.h": "#define INT_MAX 2147483647\n",
    "float.h": "#define FLT_MAX 3e38f\n",
    "stdbool.h": "",
}
_COPIES = ("memcpy", "memmove")
_DIVIDED = ("/", "%", "/=", "%=")


@dataclass(frozen=True)
class Taint:
    """Whether a value depends on data, and whether what it points to does."""

    value: bool = False
    content: bool = False

    def __or__(self, other: Taint) -> Taint:
        return Taint(self.value or other.value, self.content or other.content)


CLEAN, DATA = Taint(), Taint(content=True)


Key = tuple[str, str]  # a function and a variable of it, or nothing and a field of structures


@dataclass
class Walk:
    """The functions of a source, and what is known to be tainted; ``found`` are kinds of dependences with their places.

    Attributes:
        pointers: variables and fields that point to something, of which ``aliases`` may point to the same; ``constant`` ones only read.
        numbers: the values of enumerators.
    """

    functions: dict[str, Any]
    pointers: set[Key] = field(default_factory=set)
    constant: set[Key] = field(default_factory=set)
    numbers: dict[str, int] = field(default_factory=dict)
    aliases: dict[Key, set[Key]] = field(default_factory=dict)
    known: dict[Key, Taint] = field(default_factory=dict)
    results: dict[str, Taint] = field(default_factory=dict)
    found: set[tuple[str, str]] = field(default_factory=set)
    where: str = ""
    has_changed: bool = True

    def put(self, key: Key, taint: Taint) -> None:
        if key not in self.pointers:
            taint = Taint(taint.value)
        if self.known.get(key, CLEAN) | taint != self.known.get(key, CLEAN):
            self.known[key] = self.known.get(key, CLEAN) | taint
            self.has_changed = True
        if self.known.get(key, CLEAN).content:
            for other in self.aliases.get(key, ()):
                if not self.known.get(other, CLEAN).content:
                    self.put(other, DATA)

    def link(self, key: Key, node: Any) -> None:
        """A pointer gets the value of an expression: both may point to the same. What a pointer to constants points to is not written."""
        if key in self.pointers:
            for other in self._behind(node):
                self.aliases.setdefault(other, set()).add(key)
                if key not in self.constant:
                    self.aliases.setdefault(key, set()).add(other)
                self.put(key, CLEAN), self.put(other, CLEAN)

    def number(self, node: Any) -> int | None:
        """The value of an expression of enumerators and numbers."""
        if isinstance(node, c_ast.Constant) and node.type == "int":
            return int(node.value.rstrip("uUlL"), 0)
        if isinstance(node, c_ast.ID):
            return self.numbers.get(node.name)
        if isinstance(node, c_ast.UnaryOp) and node.op in ("!", "-"):
            value = self.number(node.expr)
            return None if value is None else int(not value) if node.op == "!" else -value
        if isinstance(node, c_ast.BinaryOp):
            left, right = self.number(node.left), self.number(node.right)
            if node.op == "&&" and 0 in (left, right):
                return 0
            known = {"&&": left and right, "||": left or right, "==": left == right, "!=": left != right}
            return int(bool(known[node.op])) if None not in (left, right) and node.op in known else None
        return None

    def _behind(self, node: Any) -> set[Key]:
        """The pointers by which the address in an expression is said."""
        if isinstance(node, c_ast.ID):
            return {(self.where, node.name)} & self.pointers
        if isinstance(node, c_ast.StructRef):
            return {("", node.field.name)} & self.pointers
        if isinstance(node, c_ast.ArrayRef):
            return self._behind(node.name)
        if isinstance(node, c_ast.BinaryOp):
            return self._behind(node.left) | self._behind(node.right) if node.op in "+-" else set()
        if isinstance(node, c_ast.TernaryOp):
            return self._behind(node.iftrue) | self._behind(node.iffalse)
        return self._behind(node.expr) if isinstance(node, c_ast.Cast | c_ast.UnaryOp) else set()

    def report(self, kind: str, node: Any) -> None:
        self.found.add((kind, f"{self.where}: {Path(str(node.coord.file)).name}:{node.coord.line}"))

    # ---- statements

    def walk(self, node: Any) -> None:
        """A statement, and all in it."""
        if node is None:
            return
        if isinstance(node, c_ast.If) and (chosen := self.number(node.cond)) is not None:
            self.walk(node.iftrue if chosen else node.iffalse)
        elif isinstance(node, c_ast.If):
            if self.read(node.cond).value:
                self.report("branch", node)
            self.walk(node.iftrue), self.walk(node.iffalse)
        elif isinstance(node, c_ast.For | c_ast.While | c_ast.DoWhile):
            if isinstance(node, c_ast.For):
                self.walk(node.init), self.read(node.next)
            if self.read(node.cond).value:
                self.report("loop", node)
            self.walk(node.stmt)
        elif isinstance(node, c_ast.Switch):
            if self.read(node.cond).value:
                self.report("branch", node)
            self.walk(node.stmt)
        elif isinstance(node, c_ast.Decl):
            if node.init is not None:
                self.put((self.where, node.name), self.read(node.init))
                self.link((self.where, node.name), node.init)
        elif isinstance(node, c_ast.Return):
            taint = self.results.get(self.where, CLEAN) | self.read(node.expr)
            self.has_changed |= taint != self.results.get(self.where, CLEAN)
            self.results[self.where] = taint
        elif isinstance(node, c_ast.Compound | c_ast.DeclList | c_ast.Case | c_ast.Default | c_ast.Label):
            for _, child in node.children():
                self.walk(child)
        else:
            self.read(node)

    # ---- expressions

    def read(self, node: Any) -> Taint:
        """The taint of an expression."""
        if node is None or isinstance(node, c_ast.Constant | c_ast.Break | c_ast.Continue | c_ast.EmptyStatement | c_ast.Typename):
            return CLEAN
        if isinstance(node, c_ast.ID):
            return self.known.get((self.where, node.name), CLEAN)
        if isinstance(node, c_ast.StructRef):
            inner = self.read(node.name)
            return self.known.get(("", node.field.name), CLEAN) | Taint(inner.value)
        if isinstance(node, c_ast.NamedInitializer):
            for name in node.name:
                if isinstance(name, c_ast.ID):
                    self.put(("", name.name), self.read(node.expr))
                    self.link(("", name.name), node.expr)
            return CLEAN
        if isinstance(node, c_ast.ArrayRef):
            base, index = self.read(node.name), self.read(node.subscript)
            if index.value or base.value:
                self.report("address", node)
            return Taint(base.content or base.value or index.value, base.content)
        if isinstance(node, c_ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, c_ast.Assignment):
            taint = self.read(node.rvalue)
            if node.op in _DIVIDED and (taint | self.read(node.lvalue)).value:
                self.report("division", node)
            self.write(node.lvalue, taint)
            for key in self._behind(node.lvalue) if isinstance(node.lvalue, c_ast.ID | c_ast.StructRef) else ():
                self.link(key, node.rvalue)
            return taint | self.read(node.lvalue)
        if isinstance(node, c_ast.FuncCall):
            return self._call(node)
        if isinstance(node, c_ast.TernaryOp) and (chosen := self.number(node.cond)) is not None:
            return self.read(node.iftrue if chosen else node.iffalse)
        if self.number(node) is not None or (isinstance(node, c_ast.BinaryOp) and node.op == "&&" and self.number(node.left) == 0):
            return CLEAN
        taint = CLEAN
        for _, child in node.children():
            taint |= self.read(child)
        if isinstance(node, c_ast.BinaryOp) and node.op in _DIVIDED and taint.value and self.number(node.right) is None:
            self.report("division", node)  # by a number that is known, compilers multiply
        if isinstance(node, c_ast.BinaryOp) and node.op in ("<", ">", "<=", ">=", "==", "!=", "&&", "||"):
            taint = Taint(taint.value)
        return taint

    def _unary(self, node: Any) -> Taint:
        if node.op == "sizeof":
            return CLEAN
        taint = self.read(node.expr)
        if node.op == "*":
            if taint.value:
                self.report("address", node)
            return Taint(taint.content or taint.value, taint.content)
        if node.op == "&":
            return Taint(False, taint.value or taint.content)
        if node.op in ("++", "p++", "--", "p--"):
            self.write(node.expr, taint)
        return taint

    def write(self, target: Any, taint: Taint) -> None:
        """Put something tainted where an expression says."""
        if isinstance(target, c_ast.ID):
            self.put((self.where, target.name), taint)
        elif isinstance(target, c_ast.StructRef):
            self.put(("", target.field.name), taint)
        else:
            self.read(target)
            if taint.value or taint.content:
                for key in self._behind(target):
                    self.put(key, DATA)

    def _call(self, node: Any) -> Taint:
        given = list(node.args.exprs) if node.args is not None else []
        taints = [self.read(argument) for argument in given]
        name = node.name.name if isinstance(node.name, c_ast.ID) else ""
        function = self.functions.get(name)
        if function is None:
            if name in _COPIES:
                if taints[1].content or taints[1].value:
                    self.write(c_ast.UnaryOp("*", given[0]), DATA)
                if taints[2].value:
                    self.report("loop", node)
            elif any(taint.value or taint.content for taint in taints):
                self.report("function", node)
            return Taint(any(taint.value or taint.content for taint in taints))
        parameters = [p.name for p in function.decl.type.args.params if p.name is not None] if function.decl.type.args else []
        for parameter, argument, taint in zip(parameters, given, taints, strict=False):
            key = (name, parameter)
            self.put(key, taint)
            self.link(key, argument)
            if (
                key not in self.constant
                and self.known.get(key, CLEAN).content
                and isinstance(argument, c_ast.UnaryOp)
                and argument.op == "&"
            ):
                self.write(argument.expr, Taint(True))
        return self.results.get(name, CLEAN)


def preprocess(source: Path, includes: Sequence[str], scratch: Path) -> str:
    """The C of a source without headers of the system, and without what only a compiler of GNU's knows."""
    fake = scratch / "fake"
    fake.mkdir(exist_ok=True)
    for name, text in _HEADERS.items():
        (fake / name).write_text(text, encoding="utf-8")
    command = ["gcc", "-E", "-undef", "-nostdinc", "-D__riscv", "-D__attribute__(x)=", "-D_Pragma(x)=", "-D__extension__=", f"-I{fake}"]
    return subprocess.run([*command, *includes, str(source)], check=True, capture_output=True, text=True).stdout


def find_dependences(text: str, kernel: str, data: Sequence[str] = ()) -> set[tuple[str, str]]:
    """What depends on data in a preprocessed source with the function ``kernel``; ``data`` are further fields by which it is reached."""
    tree = c_parser.CParser().parse(re.sub(r"^# \d+ \"<.*$", "", text, flags=re.MULTILINE), "kernel.c")
    functions = {node.decl.name: node for node in tree.ext if isinstance(node, c_ast.FuncDef)}
    walk = Walk(functions)
    for node in tree.ext:
        name = node.decl.name if isinstance(node, c_ast.FuncDef) else ""
        for variable, is_constant in _pointers(node):
            walk.pointers.add((name, variable))
            walk.constant |= {(name, variable)} if is_constant else set()
        for one, value in _enumerators(node):
            number = walk.number(value) if value is not None else None
            walk.numbers |= {one: number} if number is not None else {}
    for name in _data_fields(tree):
        walk.known["", name] = DATA
    for name in data:
        walk.known["", name] = Taint(True, True)
    reached = {kernel}
    while walk.has_changed:
        walk.has_changed = False
        walk.found.clear()
        for name in sorted(reached):
            walk.where = name
            walk.walk(functions[name].body)
        more = reached | {name for start in reached for name in _called(functions[start]) if name in functions}
        walk.has_changed |= more != reached
        reached = more
    return walk.found


def _data_fields(tree: Any) -> Iterator[str]:
    """The fields of structures that point to ``void``: operands."""
    for node in tree.ext:
        kind = getattr(node, "type", None)
        for declared in getattr(kind, "decls", None) or ():
            inner = declared.type
            if (
                isinstance(inner, c_ast.PtrDecl)
                and isinstance(inner.type, c_ast.TypeDecl)
                and getattr(inner.type.type, "names", []) == ["void"]
            ):
                yield declared.name


def _enumerators(node: Any) -> Iterator[tuple[str, Any]]:
    """Names of enumerators in a piece of C with their values, where these are said."""
    if isinstance(node, c_ast.Enumerator):
        yield node.name, node.value
    for _, child in node.children():
        yield from _enumerators(child)


def _pointers(node: Any) -> Iterator[tuple[str, bool]]:
    """The names of pointers and arrays that are declared in a piece of C, and whether they are pointers to constants."""
    if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.PtrDecl | c_ast.ArrayDecl):
        inner = node.type.type
        while isinstance(inner, c_ast.PtrDecl | c_ast.ArrayDecl):
            inner = inner.type
        yield node.name, isinstance(node.type, c_ast.PtrDecl) and "const" in getattr(inner, "quals", [])
    for _, child in node.children():
        yield from _pointers(child)


def _called(node: Any) -> Iterator[str]:
    if isinstance(node, c_ast.FuncCall) and isinstance(node.name, c_ast.ID):
        yield node.name.name
    for _, child in node.children():
        yield from _called(child)
