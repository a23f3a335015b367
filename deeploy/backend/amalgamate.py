"""A project as one C file and one header.

Every source of the project becomes a section of the file, with the project's headers in place of their inclusions. What C keeps apart by
files is kept apart by names: of macros, a section undefines its own at its end; a static name that an earlier section has too gets the
section's number. Structures that several sections define alike are defined by the first of them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from deeploy.backend.emit import Project, kernel_folders

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include "([^"]+)"[^\n]*\n', re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/(?:(?P<continued>[ \t]*\\\n)|\n?)", re.DOTALL)  # to the end of its line, where a macro may go on
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_GIVEN = re.compile(r"^#ifndef (\w+)\n#define \1\b(?:[^\n]*\\\n)*[^\n]*\n#endif", re.MULTILINE)  # a macro that the user may define
_TYPE = re.compile(r"(^(?:struct|enum) \w+ \{(?:[^\n]*\}|\n.*?^\})[^;{}]*;\n)", re.MULTILINE | re.DOTALL)  # with a tag
_ENUM = re.compile(r"^enum(?: \w+)? \{(.*?)\}", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^(?!struct \w+;|extern |return )[A-Za-z][^\n]*", re.MULTILINE)
_DECLARED = re.compile(r"(\w+) ?(?=[(\[=;])")
_INVOKED = re.compile(r"[A-Z_0-9]+\((.*)\)")
_PASTED = re.compile(r"\b(\w+_)##\w")
_NOISE = re.compile(r'__attribute__\(\(.*?\)\)|"[^"]*"')


def amalgamate(files: Project, names: Sequence[str]) -> Project:
    """The C file and the header of all networks of a project, which are called like the first one.

    Args:
        names: prefixes of the networks, with which all names begin that other programs see.
    """
    headers = [*(f"include/{name}.h" for name in names), "include/deeploy_values.h"]
    header, public = _expand(files, headers, set[str]())
    sources = sorted((path for path in files if path.startswith("src/") and path.endswith(".c")), key=lambda path: (path.count("/"), path))
    texts = {source: _COMMENT.sub(lambda found: found["continued"] or "\n", _expand(files, [source], public)[0]) for source in sources}
    shared = list(dict.fromkeys(body for name in names for body in _TYPE.findall(texts[f"src/{name}.c"])))
    sections = [f'#include "{names[0]}.h"\n', "#if defined(__GNUC__)\n", '#pragma GCC diagnostic ignored "-Wunused-function"\n', "#endif\n"]
    sections += shared
    taken = set[str]()
    for number, (source, text) in enumerate(texts.items()):
        sections.append(f"\n/* ---- {source} ---- */\n\n{_separate_section(text, number, names, taken, shared)}")
    return {f"single/{names[0]}.h": header, f"single/{names[0]}.c": "".join(sections)}


def _expand(files: Project, paths: Sequence[str], known: set[str]) -> tuple[str, set[str]]:
    """Files, one after the other, with others where they include these, each of them once, and the paths of all; none that is known."""
    folders, seen = ["include", "src", *kernel_folders(files)], set(known)

    def expand(path: str) -> str:
        if path in seen:
            return ""
        text = str(files[path])
        seen.update({path} if path.endswith(".h") else ())
        return _INCLUDE.sub(lambda match: expand(find(match[1], path)), text)

    def find(name: str, path: str) -> str:
        places = [posixpath.normpath(f"{folder}/{name}") for folder in (posixpath.dirname(path), *folders)]
        return next(place for place in places if place in files)

    return "".join(map(expand, paths)), seen


def _separate_section(text: str, number: int, prefixes: Sequence[str], taken: set[str], shared: Sequence[str]) -> str:
    """A section without the types that are shared, and with names that no earlier section has.

    Args:
        taken: names of earlier sections, to which those of this one are added; with ``struct`` or ``enum`` in front where it is a tag.
    """
    text = _TYPE.sub(lambda match: "" if match[1] in shared else match[1], text)
    own = {name for name in _list_names(text) if not name.startswith(("_", "deeploy_", *(f"{p}_" for p in prefixes)))}
    pieces = _TYPE.split(text)  # every second one is a structure, whose fields keep their names, or an enumeration
    own |= {piece.split(" {")[0] for piece in pieces[1::2]}
    common = own & taken
    for pasted in set(_PASTED.findall(text)):  # a macro that makes names makes all of them in one way
        made = {name for name in own if name.startswith(pasted)}
        if made & common:
            common |= made
            pieces = [re.sub(rf"\b{pasted}##(\w+)", rf"{pasted}##\1##_in_{number}", piece) for piece in pieces]
    pieces[::2] = [_rename_section(piece, common, number) for piece in pieces[::2]]
    pieces[1::2] = [_rename_section(piece, {name for name in common if name.isupper() or " " in name}, number) for piece in pieces[1::2]]
    taken |= own
    text = re.sub(r"\n{3,}", "\n\n", "".join(pieces)).strip("\n")
    ends = [f"#undef {name}\n" for name in sorted(set(_MACRO.findall(text)) - set(_GIVEN.findall(text)))]
    return f"{text}\n\n{''.join(ends)}"


def _rename_section(text: str, names: set[str], number: int) -> str:
    """The text with the number of a section behind these names, but where they are fields."""
    return re.sub(rf"(?<![.\w])(?<!->)({'|'.join(sorted(names))})\b", rf"\1_in_{number}", text) if names else text


def _list_names(text: str) -> Iterator[str]:
    """What a section declares at the level of its file, structures excepted."""
    for body in _ENUM.findall(text):
        yield from (entry.split()[0] for entry in body.split(",") if entry.strip())
    for line in _LINE.findall(text):
        plain = _NOISE.sub("", line)
        invoked = _INVOKED.fullmatch(plain)
        if invoked is not None:
            yield from re.findall(r"[a-z]\w*", invoked[1])
        elif (declared := _DECLARED.search(plain)) is not None:
            yield declared[1]
