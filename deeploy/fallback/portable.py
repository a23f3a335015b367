"""Generated C as the file of a kernel: no comments, arrays of functions in scratch memory, one entry that takes pointers.

The generator writes plain functions over static arrays. Their local arrays would lie on the stack, of which a core of a microcontroller
has a few hundred bytes; here each one becomes a pointer into memory that the caller passes on, so that the plan counts it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ENTRY = "fallback_model"  # how the generator is told to call the function of the model
STRUCT = "fallback"
LARGEST_FRAME = 256  # bytes of arrays that may stay on the stack: those with initial values
_ALIGNMENT = 8

_BYTES = {"float": 4, "double": 8, "int": 4, "idx_t": 4, "_Bool": 1, "bool": 1, "char": 1, "signed char": 1, "unsigned char": 1}
_BYTES |= {f"{sign}int{bits}_t": bits // 8 for bits in (8, 16, 32, 64) for sign in ("", "u")} | {"size_t": 8, "unsigned": 4, "long": 8}
_TYPES = "|".join(sorted(_BYTES, key=len, reverse=True))
_ARRAY = re.compile(rf"^(?P<indent>\s+)(?P<type>{_TYPES})\s+(?P<name>\w+)(?P<dims>(?:\[[^\]]*\])+)\s*(?P<value>=[^;]*)?;$", re.MULTILINE)
_HEAD = r"^((?:EMX_NODE_FN |static |inline |EMX_UNUSED )*(?:const )?\w+[ \*]+"  # what precedes the name of a function
_FUNCTION = re.compile(_HEAD + r")(?P<name>\w+)\((?P<rest>[^;{]*)\)\s*\{", re.MULTILINE)
_GLOBAL = re.compile(r"(?:extern )?(?!static |typedef |struct |union |enum |EMX_NODE_FN |EMX_UNUSED static )(?=[A-Za-z_])")
_TEXT = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'")
_FORBIDDEN = re.compile(r'\b(malloc|calloc|realloc|free|fopen|printf|fprintf|abort|exit|rand|alloca)\s*\(|#\s*include\s*"')

HEADER = f"""/* Operands and working memory of a kernel that a generator wrote, whole and packed. */
#ifndef DEEPLOY_FALLBACK_H
#define DEEPLOY_FALLBACK_H

#include <stdint.h>

struct {STRUCT} {{
    const void *const *inputs;
    void *const *outputs;
    void *scratch;
}};

#endif
"""


@dataclass(frozen=True)
class GeneratedCode:
    """The text of a kernel's C file, and the bytes of scratch memory that it wants."""

    text: str
    scratch: int


def make_portable(generated: str, inputs: int, outputs: int) -> GeneratedCode | str:
    """The kernel's file from what was generated for a model with so many inputs and outputs, or why there is none."""
    text = re.sub(r"/\*.*?\*/", "", generated, flags=re.DOTALL)
    text = re.sub(rf"^_Bool {ENTRY}_load\(.*?^}}\n", "", text, flags=re.DOTALL | re.MULTILINE)
    forbidden = _FORBIDDEN.search(text)
    if forbidden is not None:
        return f"the generated code uses {forbidden.group(0).rstrip('( ')}"
    entry = re.search(rf"^void {ENTRY}\(([^{{]*)\)\s*\{{", text, flags=re.MULTILINE)
    if entry is None or len(entry.group(1).split(",")) != inputs + outputs:
        return "the generated function has other operands than the node"
    moved = _move_arrays(_hide_functions(text))
    if isinstance(moved, str):
        return moved
    operands = [*(f"(void *)k->inputs[{i}]" for i in range(inputs)), *(f"k->outputs[{i}]" for i in range(outputs))]
    first = ["(unsigned char *)k->scratch"] if moved.scratch else []
    body = re.sub(r"\n{3,}", "\n\n", moved.text).strip()
    call = f"void KERNEL(const struct {STRUCT} *k) {{\n    {ENTRY}({', '.join([*first, *operands])});\n}}\n"
    head = f'#pragma GCC system_header /* generated: compilers do not warn of its style */\n\n#include "{STRUCT}.h"\n\n'
    return GeneratedCode(f"{head}{body}\n\n{call}", moved.scratch)


def _hide_functions(text: str) -> str:
    """The text with everything at the level of the file static: the linker sees the kernel alone."""
    lines, depth, is_fresh, goes_on = list[str](), 0, True, False
    for line in text.splitlines():
        code = _TEXT.sub("", line)
        is_directive = goes_on or line.startswith("#")
        goes_on = is_directive and line.endswith("\\")
        lines.append(_GLOBAL.sub("static ", line, count=1) if is_fresh and not is_directive and _GLOBAL.match(line) else line)
        depth += 0 if is_directive else sum(code.count(c) for c in "({[") - sum(code.count(c) for c in ")}]")
        is_fresh = depth == 0 and (is_directive or code.rstrip()[-1:] in ("", ";", "}"))
    return "\n".join([*lines, ""])


def _move_arrays(text: str) -> GeneratedCode | str:
    """The text with the local arrays of its functions in memory that is passed along."""
    bodies = {match.group("name"): (match.start(), match.end(), _block_end(text, match.end())) for match in _FUNCTION.finditer(text)}
    pieces, users, at, offset = list[str](), set[str](), 0, 0
    for name, (_, begin, end) in sorted(bodies.items(), key=lambda entry: entry[1]):
        body = _FunctionBody(offset)
        moved = _ARRAY.sub(body.array, text[begin:end])
        if body.problem:
            return body.problem
        for array, count in body.sizes.items():
            moved = re.sub(rf"\bsizeof\s*\(\s*{array}\s*\)", str(count), moved)
        pieces += [text[at:begin], moved]
        at, offset = end, body.offset
        users |= {name} if body.sizes else set()
    text = "".join([*pieces, text[at:]])
    if not users:
        return GeneratedCode(text, 0)
    return GeneratedCode(_pass_scratch(text, _find_callers(text, users) | {ENTRY}), offset)


class _FunctionBody:
    """The arrays of one function: replaced by pointers to successive places from ``offset`` on."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.sizes: dict[str, int] = {}
        self.bytes_used = 0
        self.problem = ""

    def array(self, match: re.Match[str]) -> str:
        dims = [_read_number(dim) for dim in re.findall(r"\[([^\]]*)\]", match["dims"])]
        if any(dim is None for dim in dims):
            self.problem = self.problem or f"the generated array {match['name']} has no fixed size"
            return match[0]
        sizes = [dim for dim in dims if dim is not None]
        count = _BYTES[match["type"]]
        for size in sizes:
            count *= size
        value = (match["value"] or "").replace(" ", "")
        if value not in ("", "={0}"):
            self.bytes_used += count
            if self.bytes_used > LARGEST_FRAME:
                self.problem = self.problem or f"{self.bytes_used} bytes of generated arrays with initial values would lie on the stack"
            return match[0]
        inner = "".join(f"[{size}]" for size in sizes[1:])
        name = f"(*{match['name']}){inner}" if inner else f"*{match['name']}"
        text = f"{match['indent']}{match['type']} {name} = (void *)(kernel_scratch + {self.offset});"
        text += f" memset({match['name']}, 0, {count});" if value else ""
        self.sizes[match["name"]] = count
        self.offset += -(-count // _ALIGNMENT) * _ALIGNMENT
        return text


def _read_number(text: str) -> int | None:
    """The value of a product of whole numbers."""
    factors = [factor.strip(" ()uUlL") for factor in text.split("*")]
    if not all(factor.isdigit() for factor in factors):
        return None
    result = 1
    for factor in factors:
        result *= int(factor)
    return result


def _block_end(text: str, begin: int) -> int:
    """Where the block ends whose opening brace is just before ``begin``."""
    depth, at = 1, begin
    while depth:
        brace = re.compile(r"[{}]").search(text, at)
        if brace is None:
            return len(text)
        depth += 1 if brace[0] == "{" else -1
        at = brace.end()
    return at


def _find_callers(text: str, users: set[str]) -> set[str]:
    """The functions that need the scratch memory, and those that call them."""
    bodies = {m["name"]: text[m.end() : _block_end(text, m.end())] for m in _FUNCTION.finditer(text)}
    while True:
        more = {name for name, body in bodies.items() if any(re.search(rf"\b{user}\(", body) for user in users)} | users
        if more == users:
            return users
        users = more


def _pass_scratch(text: str, users: set[str]) -> str:
    """The text with the scratch memory as the first argument of functions."""
    names = "|".join(sorted(users))
    text = re.sub(rf"\b({names})\(\s*(?:void)?(?=(\))?)", lambda m: f"{m[1]}(kernel_scratch{'' if m[2] else ', '}", text)
    declared = re.compile(rf"{_HEAD}(?:{names})\()kernel_scratch", re.MULTILINE)
    text = declared.sub(r"\1unsigned char *kernel_scratch", text)
    return text if "#include <string.h>" in text else text.replace("#include <stdint.h>", "#include <stdint.h>\n#include <string.h>", 1)
