"""Functions of kernels' C for all values at once, by z3: what they return, and what must hold so that nothing is undefined.

A value is a bit vector with its C type, and the interval that is known of it, by which most overflows are excluded without z3. What a
signed operation, a shift or a division needs is an obligation, under the conditions on the way to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import z3
from pycparser import c_ast, c_parser

_BITS = {
    "int8_t": (8, True),
    "int16_t": (16, True),
    "int32_t": (32, True),
    "int64_t": (64, True),
    "int": (32, True),
    "unsigned": (32, False),
}
_BITS |= {"uint8_t": (8, False), "uint16_t": (16, False), "uint32_t": (32, False), "uint64_t": (64, False)}


@dataclass(frozen=True)
class Value:
    """A bit vector of a C type, and the interval of its numbers."""

    vector: Any
    bits: int
    is_signed: bool
    low: int
    high: int

    def convert(self, bits: int, is_signed: bool) -> Value:
        vector = self.vector
        if bits > self.bits:
            vector = (z3.SignExt if self.is_signed else z3.ZeroExt)(bits - self.bits, vector)
        elif bits < self.bits:
            vector = z3.Extract(bits - 1, 0, vector)
        least, most = _range(bits, is_signed)
        low, high = (self.low, self.high) if least <= self.low and self.high <= most else (least, most)
        return Value(vector, bits, is_signed, low, high)


def _range(bits: int, is_signed: bool) -> tuple[int, int]:
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)


def number(value: int, bits: int = 32, is_signed: bool = True) -> Value:
    return Value(z3.BitVecVal(value, bits), bits, is_signed, value, value)


def unknown(name: str, kind: str, low: int | None = None, high: int | None = None) -> tuple[Value, Any]:
    """Any value of a type within limits, and what says so."""
    bits, is_signed = _BITS[kind]
    least, most = _range(bits, is_signed)
    low, high = least if low is None else low, most if high is None else high
    vector = z3.BitVec(name, bits)
    within = (vector >= low, vector <= high) if is_signed else (z3.UGE(vector, low), z3.ULE(vector, high))
    return Value(vector, bits, is_signed, low, high), z3.And(*within)


@dataclass
class Execution:
    """One run of a function; ``obligations`` are what must hold, with the place in C.

    ``products`` are what stands for products of two unknown numbers that no type limits, with the interval of each.
    """

    functions: Mapping[str, Any]
    numbers: Mapping[str, int]
    obligations: list[tuple[Any, str]] = field(default_factory=list)
    products: list[tuple[Any, Any]] = field(default_factory=list)

    def call(self, name: str, given: list[Value], path: Any = True) -> Value:
        function = self.functions[name]
        parameters = function.decl.type.args.params
        values = {
            p.name: v.convert(*_type(p.type)) for p, v in zip(parameters, given, strict=True) if not isinstance(p.type, c_ast.PtrDecl)
        }
        values |= {p.name: v for p, v in zip(parameters, given, strict=True) if isinstance(p.type, c_ast.PtrDecl)}
        returned: list[tuple[Any, Value]] = []
        self._run(function.body, values, path, returned)
        result = returned[-1][1].convert(*_type(function.decl.type.type))
        for condition, value in reversed(returned[:-1]):
            result = self._merge(condition, value.convert(result.bits, result.is_signed), result)
        return result

    def _merge(self, condition: Any, one: Value, other: Value) -> Value:
        vector = z3.If(condition, one.vector, other.vector)
        return Value(vector, one.bits, one.is_signed, min(one.low, other.low), max(one.high, other.high))

    def _run(self, node: Any, values: dict[str, Value], path: Any, returned: list[tuple[Any, Value]]) -> Any:
        """Run a statement; the condition under which what follows is reached."""
        if node is None:
            return path
        if isinstance(node, c_ast.Compound):
            for item in node.block_items or ():
                path = self._run(item, values, path, returned)
        elif isinstance(node, c_ast.Decl):
            if node.init is not None:
                values[node.name] = self._read(node.init, values, path).convert(*_type(node.type))
        elif isinstance(node, c_ast.Return):
            returned.append((path, self._read(node.expr, values, path)))
            return z3.BoolVal(False)
        elif isinstance(node, c_ast.If):
            condition = self._truth(node.cond, values, path)
            yes, no = dict(values), dict(values)
            after = [
                self._run(branch, own, z3.And(path, taken), returned)
                for branch, own, taken in ((node.iftrue, yes, condition), (node.iffalse, no, z3.Not(condition)))
            ]
            for name in values:
                if yes[name] is not no[name]:
                    values[name] = self._merge(condition, yes[name], no[name])
            return z3.simplify(z3.Or(*after))
        else:
            self._read(node, values, path)
        return path

    def _need(self, what: Any, path: Any, node: Any) -> None:
        self.obligations.append((z3.Implies(path, what), f"{node.coord}"))

    def _truth(self, node: Any, values: dict[str, Value], path: Any) -> Any:
        value = self._read(node, values, path)
        return z3.simplify(value.vector != 0)

    def _read(self, node: Any, values: dict[str, Value], path: Any) -> Value:
        if isinstance(node, c_ast.Constant):
            text = node.value.lower()
            plain = int(text.rstrip("ul"), 0)
            return number(plain, 64 if "ll" in text or plain >= 2**32 else 32, "u" not in text)
        if isinstance(node, c_ast.ID):
            return values[node.name] if node.name in values else number(self.numbers[node.name])
        if isinstance(node, c_ast.StructRef):
            return values[node.field.name]
        if isinstance(node, c_ast.Cast):
            return self._read(node.expr, values, path).convert(*_type(node.to_type))
        if isinstance(node, c_ast.ExprList):
            return [self._read(one, values, path) for one in node.exprs][-1]
        if isinstance(node, c_ast.FuncCall):
            return self.call(node.name.name, [self._read(one, values, path) for one in node.args.exprs], path)
        if isinstance(node, c_ast.TernaryOp):
            condition = self._truth(node.cond, values, path)
            one, other = (
                self._read(side, values, z3.And(path, taken))
                for side, taken in ((node.iftrue, condition), (node.iffalse, z3.Not(condition)))
            )
            return self._merge(condition, *_balance(one, other))
        if isinstance(node, c_ast.Assignment):
            kind = values[node.lvalue.name]
            value = self._read(node.rvalue, values, path)
            if node.op != "=":
                value = self._binary(node.op[:-1], kind, value, path, node)
            values[node.lvalue.name] = value.convert(kind.bits, kind.is_signed)
            return values[node.lvalue.name]
        if isinstance(node, c_ast.UnaryOp):
            if node.op in ("p++", "p--"):
                old = values[node.expr.name]
                values[node.expr.name] = self._binary(node.op[1], old, number(1), path, node).convert(old.bits, old.is_signed)
                return old
            value = _promote(self._read(node.expr, values, path))
            if node.op == "!":
                return _boolean(value.vector == 0)
            assert node.op == "-"
            return self._binary("-", number(0, value.bits, value.is_signed), value, path, node)
        assert isinstance(node, c_ast.BinaryOp), node
        if node.op in ("&&", "||"):
            left = self._truth(node.left, values, path)
            reached = z3.And(path, left if node.op == "&&" else z3.Not(left))
            right = self._truth(node.right, values, reached)
            return _boolean(z3.And(left, right) if node.op == "&&" else z3.Or(left, right))
        return self._binary(node.op, self._read(node.left, values, path), self._read(node.right, values, path), path, node)

    def _binary(self, op: str, left: Value, right: Value, path: Any, node: Any) -> Value:
        if op in ("<<", ">>"):
            return self._shift(op, _promote(left), _promote(right), path, node)
        left, right = _balance(left, right)
        a, b, bits, signed = left.vector, right.vector, left.bits, left.is_signed
        if op in ("<", ">", "<=", ">=", "==", "!="):
            signs = {"<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b} if signed else {}
            plain = {"<": z3.ULT(a, b), ">": z3.UGT(a, b), "<=": z3.ULE(a, b), ">=": z3.UGE(a, b), "==": a == b, "!=": a != b}
            return _boolean((plain | signs)[op])
        if op in ("&", "|", "^"):
            vector = {"&": a & b, "|": a | b, "^": a ^ b}[op]
            low, high = _range(bits, signed)
            if op == "&" and right.low == right.high >= 0:
                low, high = 0, right.high
            return Value(vector, bits, signed, low, high)
        if op in ("/", "%"):
            self._need(b != 0, path, node)
            if signed:
                self._need(z3.Not(z3.And(a == _range(bits, True)[0], b == -1)), path, node)
            vector = (a / b if op == "/" else z3.SRem(a, b)) if signed else (z3.UDiv(a, b) if op == "/" else z3.URem(a, b))
            largest = max(abs(left.low), abs(left.high)) if op == "/" else max(abs(right.low), abs(right.high)) - 1
            return Value(vector, bits, signed, -largest if left.low < 0 else 0, largest)
        ends = {"+": (left.low + right.low, left.high + right.high), "-": (left.low - right.high, left.high - right.low)}
        products = [x * y for x in (left.low, left.high) for y in (right.low, right.high)]
        low, high = ends.get(op, (min(products), max(products)))
        vector = {"+": a + b, "-": a - b, "*": a * b}[op]
        least, most = _range(bits, signed)
        if low < least or high > most:
            if signed:
                wide = {"+": z3.SignExt(1, a) + z3.SignExt(1, b), "-": z3.SignExt(1, a) - z3.SignExt(1, b)}
                exact = wide[op] if op != "*" else z3.SignExt(bits, a) * z3.SignExt(bits, b)
                self._need(exact == z3.SignExt(exact.size() - bits, vector), path, node)
            low, high = least, most
        elif op == "*" and left.low != left.high and right.low != right.high:  # any number of the interval, which is more than there are
            vector = z3.BitVec(f"product{len(self.products)}", bits)
            self.products.append((vector, z3.And(vector >= low, vector <= high) if signed else z3.ULE(vector, high)))
        return Value(vector, bits, signed, low, high)

    def _shift(self, op: str, left: Value, right: Value, path: Any, node: Any) -> Value:
        right = right.convert(left.bits, right.is_signed)
        if not (right.low >= 0 and right.high < left.bits):
            self._need(z3.ULT(right.vector, left.bits), path, node)
        low, high = _range(left.bits, left.is_signed)
        if op == "<<" and left.low == left.high >= 0 and right.low == right.high and left.low << right.low <= high:
            return number(left.low << right.low, left.bits, left.is_signed)
        if op == ">>":
            vector = left.vector >> right.vector if left.is_signed else z3.LShR(left.vector, right.vector)
            return Value(vector, left.bits, left.is_signed, min(left.low, 0), max(left.high, 0))
        vector = left.vector << right.vector
        if left.is_signed:
            self._need(z3.And(left.vector >= 0, vector >> right.vector == left.vector), path, node)
        return Value(vector, left.bits, left.is_signed, low, high)


def _promote(value: Value) -> Value:
    return value.convert(32, True) if value.bits < 32 else value


def _balance(left: Value, right: Value) -> tuple[Value, Value]:
    """Both operands in the type that C computes with."""
    left, right = _promote(left), _promote(right)
    bits = max(left.bits, right.bits)
    is_signed = not any(side.bits == bits and not side.is_signed for side in (left, right))
    return left.convert(bits, is_signed), right.convert(bits, is_signed)


def _boolean(condition: Any) -> Value:
    return Value(z3.If(condition, z3.BitVecVal(1, 32), z3.BitVecVal(0, 32)), 32, True, 0, 1)


def _type(node: Any) -> tuple[int, bool]:
    while not isinstance(node, c_ast.IdentifierType):
        node = node.type
    return _BITS[" ".join(node.names)]


def read_functions(text: str, macros: Mapping[str, str], names: list[str]) -> dict[str, Any]:
    """Functions of a source by their names, with words in place of macros."""
    found = []
    for name in names:
        match = re.search(rf"^static inline [^;{{]*\b{name}\([^;]*?\) \{{\n.*?^\}}\n", text, re.MULTILINE | re.DOTALL)
        assert match is not None, name
        found.append(match[0])
    body = re.sub(r"/\*.*?\*/", "", "".join(found), flags=re.DOTALL)
    for macro, word in macros.items():
        body = re.sub(rf"\b{macro}\b", word, body)
    declared = "\n".join(f"typedef int {name};" for name in _BITS if name.endswith("_t"))
    tree = c_parser.CParser().parse(declared + "\n" + body)
    return {node.decl.name: node for node in tree.ext if isinstance(node, c_ast.FuncDef)}


def prove(what: Any, given: list[Any], seconds: float = 20) -> str:
    """Nothing where something always holds, or a case where it does not."""
    solver = z3.Solver()
    solver.set("timeout", int(seconds * 1000))
    solver.add(*given, z3.Not(what))
    answer = solver.check()
    return "" if answer == z3.unsat else str(solver.model()) if answer == z3.sat else "not decided"
