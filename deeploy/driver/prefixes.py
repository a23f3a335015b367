"""The names of a project's networks: prefixes of everything in C that belongs to one, and of the files that declare and define it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TypeVar

from deeploy.errors import UsageError, shorten
from deeploy.options import Options

_T = TypeVar("_T")
_NAME = re.compile("[A-Za-z][A-Za-z0-9_]{0,63}")
_PARTS = (
    "weights",
    "kernels",
    "kernel",
    "constant",
    "instance",
    "input",
    "output",
    "test",
)  # of NAME_PART
_HEADERS = frozenset(
    [
        *("assert", "complex", "ctype", "errno", "fenv", "float", "inttypes", "iso646", "limits", "locale", "math", "setjmp", "signal"),
        *("stdalign", "stdarg", "stdatomic", "stdbool", "stddef", "stdint", "stdio", "stdlib", "stdnoreturn", "string", "tgmath"),
        *("threads", "time", "uchar", "wchar", "wctype", "pthread", "unistd", "mpi", "pmsis"),
    ]
)  # of the C library and of systems: a file of the same name would be included in their place
_SOURCES = frozenset({"machine", "networks"})  # beside those of networks
_OTHERS = "Give each network a name that no other file has, for example: prompt=prompt.onnx step=step.onnx"


def check_prefixes(names: Iterable[str]) -> None:
    """Raise UsageError where files, include guards or symbols of two networks, or of one and the project, would have one name."""
    seen: dict[str, str] = {}
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{shorten(name, 60)} cannot be the name of a network", "Use up to 64 letters, digits and underscores.")
        same = name.lower()
        if same.startswith("deeploy") or same in _HEADERS or same in _SOURCES:
            raise UsageError(f"{name} cannot be the name of a network: another file is called like that", _OTHERS)
        if same in seen:
            raise UsageError(f"the networks {seen[same]} and {name} differ in case only", _OTHERS)
        seen[same] = name
    for one in seen:
        part = next((other for other in seen if any(re.match(rf"{one}_{part}(_|$)", other) for part in _PARTS)), None)
        if part is not None:
            raise UsageError(f"{seen[part]} is also the name of a part of the network {seen[one]}", _OTHERS)


def check_files(names: Collection[str], files: Iterable[str]) -> None:
    """Raise UsageError where a network has the name of another header of its project."""
    own = {f"include/{name}.h" for name in names}
    stems = {PurePosixPath(path).stem.lower(): path for path in files if path.endswith(".h") and path not in own}
    for name in names:
        if name.lower() in stems:
            raise UsageError(f"{name} cannot be the name of a network: the project has a file {stems[name.lower()]}", _OTHERS)


def select_options(options: Options, prefix: str, models: Mapping[str, str | Path]) -> Options:
    """The options of one of several networks: what names it, and what names none; graphs are saved under its name."""
    saved = options.save_after
    if saved is not None and len(models) > 1:
        saved = saved[0], saved[1].with_name(f"{saved[1].stem}.{prefix}{saved[1].suffix}")
    dims, pins = _select_own(options.dims, prefix, models), _select_own(options.pins, prefix, models)
    return replace(options, save_after=saved, dims=dims, pins=pins, fix=_select_own(options.fix, prefix, models))


def _select_own(given: Mapping[str, _T], prefix: str, models: Mapping[str, str | Path]) -> dict[str, _T]:
    """What is given for one of several networks, by name: that without a network's name, and its own."""
    split = {name: name.partition(":") if len(models) > 1 else ("", "", name) for name in given}
    common = {name: value for name, value in given.items() if split[name][0] not in models}
    return common | {split[name][2]: value for name, value in given.items() if split[name][0] == prefix}
