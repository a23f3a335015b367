"""The C that the compiler prints, as Python functions: declarations, conditions, counted loops, calls and integer arithmetic, no more.

Addresses are integers. A pointer is the address of its first element; what is added to it is multiplied by the size of its elements, as C
does. A structure is a dictionary, an array a list. Functions are translated when they are first called.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

_TOKEN = re.compile(
    r"\d[\d.]*[eE][-+]?\d+f?|\d[\w.]*|\w+|##|->|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|\"(?:[^\"\\]|\\.)*\"|[-+*/%&|^!~<>=?:;,.(){}\[\]]"
)
_IGNORED = re.compile(r"/\*.*?\*/|^[ \t]*#(?:include|undef|error)[^\n]*", re.DOTALL | re.MULTILINE)
_CONDITIONAL = re.compile(r"^[ \t]*#ifdef \w+\n(.*?)(?:^[ \t]*#else[^\n]*\n(.*?))?^[ \t]*#endif[^\n]*\n", re.DOTALL | re.MULTILINE)
_MACRO = re.compile(r"^[ \t]*#define (\w+)(?:\(([^)]*)\))? ([^\n]+)\n", re.MULTILINE)
_OPERATORS = ("||", "&&", "|", "^", "&", "== !=", "< > <= >=", "<< >>", "+ -", "* / %")  # from those that bind least
_LEVELS = {operator: level for level, operators in enumerate(_OPERATORS) for operator in operators.split()}
_SUMS = _LEVELS["+"]
_PYTHON = {"||": "or", "&&": "and", "/": "//"}
_SIZES = {"char": 1, "void": 1, "int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4, "uint32_t": 4, "int": 4, "float": 4}
_SIZES |= {"int64_t": 8, "uint64_t": 8, "double": 8, "rt_address": 8, "uintptr_t": 8, "size_t": 8}
_TYPES = {*_SIZES, "const", "static", "struct", "unsigned", "instance", "TILED_LAYER"}
_SKIPPED = ("RT_STEP", "RT_STEP_AT_BARRIER", "RT_REGION")  # what only the model of the machine reads
_WORDS = {"smaller": "_min", "larger": "_max", "quotient": "_quotient", "INT64_C": "_int", "INFINITY": "1e999", "NAN": "(1e999 * 0)"}
_WORDS |= {"INT32_MIN": str(-(2**31)), "INT64_MIN": str(-(2**63))}


_ENDS = frozenset(",;)}]")


class TextError(Exception):
    """C of a form that the compiler does not print."""


class TranslationUnit:
    """The functions of C files.

    Args:
        texts: of the files.
        outside: what they call and name that is in none of them: the runtime's functions and its constants.
        call: is told of every call of a function that is nowhere: the function around the call, its name, its arguments, and the number
            of the tile.
    """

    def __init__(self, texts: list[str], outside: Mapping[str, object], call: Callable[..., object]) -> None:
        self.macros: dict[str, tuple[list[str] | None, list[str]]] = {}
        self.functions: dict[str, tuple[list[str], list[str]]] = {}  # parameters and tokens of the body
        self.globals: dict[str, object] = {
            "_call": call,
            "_F": self,
            "_quotient": lambda a, b: a // b,
            "_structure": _make_structure,
            "_min": min,
            "_max": max,
            "_int": int,
            **outside,
        }
        self.fields: dict[str, list[str]] = {}  # of structures
        self.sizes: dict[str, int] = {}  # of the elements of global arrays and pointers
        for text in texts:
            self._read(text)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self.functions:
            raise TextError(f"no function {name}")
        parameters, body = self.functions[name]
        function = self.compile(name, [_read_parameter(part) for part in _split_arguments(parameters)], body)
        setattr(self, name, function)
        return function

    def compile(self, name: str, parameters: list[tuple[str, int]], body: list[str]) -> Callable[..., Any]:
        """A Python function with this body, tokens of C; parameters with the sizes of the elements that they point to, 0 for numbers."""
        function = _Function(self, name, body, parameters)
        source = "\n".join([f"def {name}({', '.join(function.parameters)}):", *function.lines])
        exec(compile(source, f"<{name}>", "exec"), self.globals)
        return cast("Callable[..., Any]", self.globals.pop(name))

    def _read(self, text: str) -> None:
        text = _IGNORED.sub(" ", text).replace("\\\n", " ")
        text = _CONDITIONAL.sub(lambda words: words.group(2) or "", text)
        for name, parameters, body in _MACRO.findall(text):
            self.macros[name] = (
                [p.strip() for p in parameters.split(",")] if parameters else None,
                split_tokens(body.replace("##", " ## ")),
            )
        words = split_tokens(re.sub(r"^[ \t]*#[^\n]*", " ", _MACRO.sub("\n", text), flags=re.MULTILINE))
        at = 0
        while at < len(words):
            begin = at
            while words[at] not in ("{", ";", "="):
                at += 1
            if words[at] == "{" and words[begin] == "enum" and at == begin + 1:
                end = _closing_bracket(words, at)
                for entry in _split_arguments(words[at + 1 : end]):
                    self.globals[entry[0]] = int(entry[2], 0) if len(entry) == 3 else self._constant(entry[2:])
                at = end + 2
            elif words[at] == "{" and words[at - 1] == ")":
                opening = _opening_bracket(words, at - 1)
                end = _closing_bracket(words, at)
                self.functions[words[opening - 1]] = (words[opening + 1 : at - 1], words[at + 1 : end])
                at = end + 1
            else:
                if words[at] == "{" and words[begin] == "struct" and at == begin + 2:
                    self.fields[words[begin + 1]] = [words[i - 1] for i in range(at, _closing_bracket(words, at)) if words[i] == ";"]
                name = next((words[i - 1] for i in range(begin, at) if words[i] == "["), "")
                if name:
                    self.sizes[name] = _SIZES.get(words[words.index(name, begin) - 1], 1)
                while words[at] != ";":
                    at = _closing_bracket(words, at) if words[at] == "{" else at + 1
                at += 1

    def _constant(self, body: list[str]) -> int:
        return int(self.compile("constant", [], ["return", *body, ";"])())


def _make_structure(fields: list[str], values: list[Any]) -> SimpleNamespace:
    return SimpleNamespace(**dict(zip(fields, values, strict=True)))


def split_tokens(text: str) -> list[str]:
    """The tokens of C without comments and directives."""
    return _TOKEN.findall(text)


def _closing_bracket(words: list[str], at: int) -> int:
    """The bracket that closes the one at a position."""
    depth = 0
    while True:
        depth += (words[at] in "({[") - (words[at] in ")}]")
        if not depth:
            return at
        at += 1


def _opening_bracket(words: list[str], at: int) -> int:
    depth = 0
    while True:
        depth += (words[at] in ")}]") - (words[at] in "({[")
        if not depth:
            return at
        at -= 1


def _split_arguments(words: list[str]) -> list[list[str]]:
    """Tokens between commas outside of brackets."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in words:
        depth += (token in "({[") - (token in ")}]")
        if token == "," and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _read_parameter(parameter: list[str]) -> tuple[str, int]:
    """The name of a parameter, and the size of what it points to."""
    return parameter[-1], _pointed_size(parameter[:-1])


def _pointed_size(kind: list[str]) -> int:
    """The size of what a type points to; 0 of a number or a structure."""
    if "*" not in kind:
        return 0
    return 8 if kind.count("*") > 1 else next((_SIZES[word] for word in reversed(kind) if word in _SIZES), 1)


class _Function:
    """Translates one function."""

    def __init__(self, unit: TranslationUnit, name: str, body: list[str], parameters: list[tuple[str, int]]) -> None:
        self.unit, self.name = unit, name
        self.at = 0
        self.tokens: list[str] = [*(body if unit.macros.keys().isdisjoint(body) else self._expanded(body)), "}"]
        self.scopes: list[dict[str, tuple[str, int]]] = [{}]
        self.lines: list[str] = []
        self.taken: set[str] = set()
        self.parameters = [self.declare(parameter, size) for parameter, size in parameters]
        self.tile = "t" if ("t", 0) in parameters else "0"
        self.block(1)

    def _expanded(self, body: list[str]) -> Iterator[str]:
        """The tokens with macros expanded."""
        at = 0
        while at < len(body):
            token = body[at]
            macro = self.unit.macros.get(token)
            at += 1
            if macro is None:
                yield token
                continue
            parameters, replacement = macro
            values: dict[str, list[str]] = {}
            if parameters is not None:
                end = _closing_bracket(body, at)
                values = dict(zip(parameters, _split_arguments(body[at + 1 : end]), strict=True))
                at = end + 1
            result: list[str] = []
            joins = False
            for each in replacement:
                if each == "##":
                    joins = True
                    continue
                new = values.get(each, [each])
                result = [*result[:-1], result[-1] + new[0], *new[1:]] if joins else [*result, *new]
                joins = False
            yield from self._expanded(result)

    # ---- statements

    def next(self, *expected: str) -> str:
        token = self.tokens[self.at]
        if expected and token not in expected:
            raise TextError(f"{self.name}: {token!r} instead of {' or '.join(expected)}")
        self.at += 1
        return token

    def emit(self, depth: int, line: str) -> None:
        self.lines.append(" " * depth + line)

    def block(self, depth: int) -> None:
        self.scopes.append({})
        begin = len(self.lines)
        while self.tokens[self.at] != "}":
            self.statement(depth)
        self.next("}")
        self.scopes.pop()
        if len(self.lines) == begin:
            self.emit(depth, "pass")

    def body(self, depth: int) -> None:
        if self.tokens[self.at] == "{":
            self.next()
            self.block(depth)
        else:
            begin = len(self.lines)
            self.statement(depth)
            if len(self.lines) == begin:
                self.emit(depth, "pass")

    def statement(self, depth: int) -> None:
        token = self.tokens[self.at]
        if token == "{":
            self.next()
            self.block(depth)
        elif token == ";":
            self.next()
        elif token == "if":
            self.next()
            self.next("(")
            condition, _ = self.expression()
            self.next(")")
            self.emit(depth, f"if {condition}:")
            self.body(depth + 1)
            if self.tokens[self.at] == "else":
                self.next()
                self.emit(depth, "else:")
                self.body(depth + 1)
        elif token == "for":
            self.loop(depth)
        elif token == "return":
            self.next()
            value = "None" if self.tokens[self.at] == ";" else self.value()
            self.next(";")
            self.emit(depth, f"return {value}")
        elif token in _SKIPPED:
            self.at = _closing_bracket(self.tokens, self.at + 1) + 1
            self.next(";")
        elif token in _TYPES:
            self.declaration(depth)
        else:
            self.assignment(depth)

    def assignment(self, depth: int) -> None:
        left, _ = self.expression()
        if self.tokens[self.at] == "=":
            self.next()
            if left in self.unit.globals:
                self.emit(depth, f"global {left}")
            left = f"{left} = {self.expression()[0]}"
        self.next(";")
        self.emit(depth, left)

    def loop(self, depth: int) -> None:
        self.next()
        self.next("(")
        kind = self.kind()
        name = self.next()
        self.next("=")
        first, _ = self.expression()
        self.next(";")
        self.next(name)
        self.next("<")
        last, _ = self.expression()
        self.next(";")
        self.next(name)
        self.next("++")
        self.next(")")
        self.scopes.append({})
        variable = self.declare(name, _pointed_size(kind))
        self.emit(depth, f"for {variable} in range({first}, {last}):")
        self.body(depth + 1)
        self.scopes.pop()

    def kind(self) -> list[str]:
        """Reads the words and stars of a type at the current token."""
        begin = self.at
        while self.tokens[self.at] in _TYPES or self.tokens[self.at] == "*" or self.tokens[self.at - 1] == "struct":
            self.at += 1
        return self.tokens[begin : self.at]

    def declare(self, name: str, size: int) -> str:
        own = name
        while own in self.taken or keyword.iskeyword(own):
            own += "_"
        self.taken.add(own)
        self.scopes[-1][name] = (own, size)
        return own

    def declaration(self, depth: int) -> None:
        kind = self.kind()
        while True:
            name = self.next()
            size = _pointed_size(kind)
            while self.tokens[self.at] == "[":
                self.at, size = _closing_bracket(self.tokens, self.at) + 1, size or 1
            if self.tokens[self.at] == "=":
                self.next()
                value = self.value()
                self.emit(depth, f"{self.declare(name, size)} = {value}")
            else:
                self.declare(name, size)
            if self.next(",", ";") == ";":
                return
            kind = [*(word for word in kind if word != "*"), *self.kind()]

    # ---- expressions: the Python of one, and the size of the elements that it points to

    def expression(self) -> tuple[str, int]:
        if self.tokens[self.at + 1] in _ENDS:  # one token, as most are
            return self.postfix()
        condition, size = self.binary(0)
        if self.tokens[self.at] != "?":
            return condition, size
        self.next()
        yes, size = self.expression()
        self.next(":")
        no, other = self.expression()
        return f"({yes} if {condition} else {no})", size or other

    def binary(self, least: int) -> tuple[str, int]:
        """An expression of operators that bind at least so tightly."""
        left, size = self.unary()
        while (level := _LEVELS.get(self.tokens[self.at], -1)) >= least:
            operator = self.next()
            right, other = self.binary(level + 1)
            if level == _SUMS and size:
                right = f"{size} * ({right})"
            elif level == _SUMS and other:
                left, size = f"{other} * ({left})", other
            left = f"({left} {_PYTHON.get(operator, operator)} {right})"
            size = size if level == _SUMS else 0
        return left, size

    def unary(self) -> tuple[str, int]:
        token = self.tokens[self.at]
        if token == "&":
            self.next()
            value, _ = self.unary()
            field = re.fullmatch(r"(\w+)\.(\w+)", value)
            return (f"_address({field[1]}, {field[2]!r})" if field else value), 1
        if token in ("-", "~", "!"):
            self.next()
            return f"({'not ' if token == '!' else token}{self.unary()[0]})", 0
        if token == "*":
            self.next()
            return self.unary()[0], 0
        if token == "(" and self.tokens[self.at + 1] in _TYPES:
            self.next()
            kind = self.kind()
            self.next(")")
            if self.tokens[self.at] == "{":
                fields = self.unit.fields.get(kind[-1], [])
                return (f"_structure({fields}, {self.braces()})" if fields else self.braces()), 0
            value, _ = self.unary()
            if "*" in kind:
                return value, _pointed_size(kind)
            return (f"({value} & 0xFFFFFFFF)" if kind[-1] == "uint32_t" else value), 0
        return self.postfix()

    def value(self) -> str:
        """Reads an expression, or an initialiser in braces, at the current token; returns it as Python."""
        return self.braces() if self.tokens[self.at] == "{" else self.expression()[0]

    def braces(self) -> str:
        """An initialiser: a dictionary where fields have names, else a list."""
        self.next("{")
        entries = []
        is_structure = False
        while self.tokens[self.at] != "}":
            key = ""
            if self.tokens[self.at] == ".":
                self.next()
                key, is_structure = f"{self.next()!r}: ", True
                self.next("=")
            entries.append(key + self.value())
            if self.tokens[self.at] == ",":
                self.next()
        self.next("}")
        return f"{{{', '.join(entries)}}}" if is_structure else f"[{', '.join(entries)}]"

    def arguments(self) -> list[str]:
        self.next("(")
        values = []
        while self.tokens[self.at] != ")":
            values.append(self.expression()[0])
            if self.tokens[self.at] == ",":
                self.next()
        self.next(")")
        return values

    def postfix(self) -> tuple[str, int]:
        token = self.next()
        size = 0
        if token == "(":
            inner, size = self.expression()
            self.next(")")
            value = f"({inner})"
        elif token[0].isdigit():
            value = _read_number(token)
        elif token[0] == '"':
            value = token
        else:
            value, size = self.mentioned(token)
        while self.tokens[self.at] in (".", "->", "["):
            if self.next() == "[":
                index, _ = self.expression()
                self.next("]")
                value, size = f"{value}[{index}]", 0
            else:
                value, size = f"{value}.{self.next()}", 0
        return value, size

    def mentioned(self, token: str) -> tuple[str, int]:
        local = next((scope[token] for scope in reversed(self.scopes) if token in scope), None)
        if local is not None:
            return local
        if self.tokens[self.at] == "(":
            if token == "sizeof":
                raise TextError("sizeof")
            return self.called(token), 0
        if token in _WORDS:
            return _WORDS[token], 0
        if token in self.unit.functions:
            return f"_F.{token}", 0
        if token not in self.unit.globals:
            self.unit.globals[token] = token  # an enumerator of another header stands for itself
        return token, self.unit.sizes.get(token, 0)

    def called(self, token: str) -> str:
        values = self.arguments()
        if token in _WORDS:
            return f"{_WORDS[token]}({', '.join(values)})"
        if token in self.unit.functions:
            return f"_F.{token}({', '.join(values)})"
        if token in self.unit.globals:
            return f"{token}({', '.join(values)})"
        return f"_call({self.name!r}, {token!r}, [{', '.join(values)}], {self.tile})"


@cache
def _read_number(token: str) -> str:
    if re.fullmatch(r"0[xX][0-9a-fA-F]+[uUlL]*|\d+[uUlL]*", token):
        return str(int(token.rstrip("uUlL"), 0))
    return repr(float(token.rstrip("fF")))
