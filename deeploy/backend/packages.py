"""Projects as packages: what CMake, Zephyr, PlatformIO, Arduino, ESP-IDF, Cargo or a Makefile needs to build the networks in a firmware.

A package is the project itself with a few files more. Only Arduino, which compiles everything below ``src`` and searches headers there
alone, gets a copy of the sources in a folder of its own, ``arduino``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import get_args

from deeploy.backend.amalgamate import amalgamate
from deeploy.backend.emit import Project, kernel_folders
from deeploy.documents import Document
from deeploy.errors import UsageError, shorten
from deeploy.ir.target import Target
from deeploy.ir.templates import template_lookup
from deeploy.ir.types import DType
from deeploy.options import Package
from deeploy.resources import resource
from deeploy.version import VERSION

PACKAGES: tuple[Package, ...] = get_args(Package)

_FILES: Mapping[Package, Mapping[str, str]] = {
    "cmake": {
        "CMakeLists.txt": "CMakeLists.txt.mako",
        "example/CMakeLists.txt": "example.CMakeLists.txt.mako",
        "example/main.c": "example.c.mako",
        "toolchain.cmake": "toolchain.cmake.mako",
    },
    "zephyr": {
        "zephyr/module.yml": "module.yml.mako",
        "zephyr/Kconfig": "Kconfig.mako",
        "zephyr/CMakeLists.txt": "zephyr.CMakeLists.txt.mako",
    },
    "platformio": {"library.json": "library.json.mako"},
    "arduino": {"arduino/library.properties": "library.properties.mako", "arduino/examples/{name}/{name}.ino": "sketch.ino.mako"},
    "esp-idf": {"CMakeLists.txt": "idf_component.CMakeLists.txt.mako", "idf_component.yml": "idf_component.yml.mako"},
    "makefile": {"{name}.mk": "fragment.mk.mako"},
    "single": {},
    "cargo": {"Cargo.toml": "Cargo.toml.mako", "cargo/build.rs": "build.rs.mako", "cargo/lib.rs": "lib.rs.mako"},
}
_CROSS = re.compile(r"^QEMU_CC := (.*)$", re.MULTILINE)
_EMBEDDED = re.compile(r'\.incbin \\"\.\./([^"\\]+)')
_INCLUDED = re.compile(r'#include "(?:[^"]*/)?([^"/]+)\.([ch])"')


def check_package(kind: str, target: Target) -> None:
    """Raise UsageError unless there is such a package, and the target's projects can be one."""
    if kind not in PACKAGES:
        raise UsageError(f"--package {shorten(kind)} is unknown", f"Use one of {', '.join(PACKAGES)}.")
    if not target.is_flat:
        raise UsageError(
            f"--package: projects for {target.name} have a runtime that moves data between its memories, and a build of their own",
            "Build the project by its Makefile, or compile for a target with one memory (see: deeploy targets).",
        )


def make_package(kind: Package, files: Project, manifest: Document) -> Project:
    """The files that make a package of a project for a machine with one memory.

    Args:
        files: the project.
        manifest: what its ``deploy.json`` says.
    """
    entries = manifest.get("networks") or [manifest]
    name = entries[0]["name"]
    values = {
        "name": name,
        "version": ".".join(re.findall(r"\d+", VERSION)[:3]),
        "sources": sorted(file for file in files if file.startswith("src/") and file.endswith(".c")),
        "folders": kernel_folders(files),
        "headers": [f"{entry['name']}.h" for entry in entries],
        "texts": {entry["name"]: files[f"include/{entry['name']}.h"] for entry in entries},
        "cross": (_CROSS.findall(str(files["Makefile"])) or [""])[0],
        "files": files,
        "target": manifest["target"],
        "is_tested": "self_test" in entries[0],
        "ports": {side: [_describe_port(port) for port in entries[0][side]] for side in ("inputs", "outputs")},
    }
    if kind == "cargo" and not all(f"struct {prefix}_instance {{" in str(text) for prefix, text in values["texts"].items()):
        raise UsageError("--package cargo: networks that share states have no crate", "Compile them one by one, or use --package single.")
    lookup = template_lookup((resource("templates"),))
    texts = {path: lookup.get_template(f"packages/{file}").render(**values) for path, file in _FILES[kind].items()}
    made = {path.format(name=name): text for path, text in texts.items() if text}
    if kind == "arduino":
        made |= _gather_sources(files)
    return {**made, **amalgamate(files, list(values["texts"]))} if kind in ("single", "cargo") else made


def _describe_port(port: Document) -> Document:
    """An input or output as a sketch needs it."""
    elements = math.prod(port["shape"])
    return {"about": f"{port['type']}{port['shape']}", "elements": elements, "bytes": elements * DType(port["type"]).bytes}


def _gather_sources(files: Project) -> Project:
    """All headers and sources in one folder. Kernels, which are included by their instances, no longer end in ``.c``."""
    package_files: dict[str, str | bytes] = {}
    for path, text in files.items():
        folder, file = path.split("/")[0], PurePosixPath(path)
        if folder in ("include", "src", "kernels") and file.suffix in (".c", ".h") and isinstance(text, str):
            name = f"{file.stem}.inc" if folder == "kernels" and file.suffix == ".c" else file.name
            package_files[f"arduino/src/{name}"] = _INCLUDED.sub(_include_own, text)
            package_files |= {f"arduino/{name}": files[name] for name in _EMBEDDED.findall(text)}
    return package_files


def _include_own(include: re.Match[str]) -> str:
    """The same header, or kernel, in the folder of the file that includes it."""
    return f'#include "{include[1]}.{"inc" if include[2] == "c" else "h"}"'
