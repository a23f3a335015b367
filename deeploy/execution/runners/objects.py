"""Objects of earlier builds, by the hash of all that goes into them, so that a build compiles only what is new.

Kernels, the runtime and the model of the machine are the same in most projects; they are compiled once per machine, compiler and flags.
How a source is compiled is what make says that it would run: Makefiles also hold what differs from network to network and concerns no
object.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from deeploy.resources import cache_folder, mark_used, write_whole

MOST_SOURCE = 1 << 24  # bytes of a source whose object is kept: to hash and copy larger constants takes longer than what is saved
_ASSEMBLED = b".incbin"  # a file that the assembler puts in as it is: the source does not say what it holds, and it is made fast
_INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
_DESCRIBED = {"-fcallgraph-info": ".ci", "-fstack-usage": ".su"}  # what options of a compiler have it write beside an object
_BUILD = re.compile("(?:QEMU_)?BUILD=(.+)")
_TOOL = re.compile(r"[\w.+-]*(?:gcc|g\+\+|clang|cc)\b")


@contextlib.contextmanager
def keep_objects(project: Path, options: Sequence[str]) -> Iterator[None]:
    """Put objects in place before make runs with ``options``, among which is ``BUILD`` or ``QEMU_BUILD``; keep those that it makes.

    A cache that cannot be read or written is as good as none.
    """
    place = cache_folder("objects")
    build = next((match[1] for match in map(_BUILD.fullmatch, options) if match is not None), None)
    # What an object depends on, by which make compiles it again, what describes it, and the object last: make compiles what has none.
    kinds = (".d", *(kind for option, kind in _DESCRIBED.items() if any(option in given for given in options)), ".o")
    if place is None or build is None:
        yield
        return
    object_files: Mapping[Path, Path] = {}
    with contextlib.suppress(OSError):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        object_files = {place / key: project / build / name.with_suffix(".o") for name, key in _object_keys(project, options).items()}
        for object_, target in object_files.items():
            if _is_whole(object_, kinds) and not target.exists():
                for kind in kinds:
                    _copy_object(object_.with_suffix(kind), target.with_suffix(kind))
                    mark_used(object_.with_suffix(kind))
    yield
    with contextlib.suppress(OSError):
        for object_, target in object_files.items():
            if _is_whole(target, kinds) and not _is_whole(object_, kinds):
                for kind in kinds:
                    _copy_object(target.with_suffix(kind), object_.with_suffix(kind))


def _is_whole(object_: Path, kinds: Sequence[str]) -> bool:
    """Whether an object is there with what belongs to it: any of the files may have been removed alone."""
    return all(object_.with_suffix(kind).is_file() for kind in kinds)


def _copy_object(source: Path, target: Path) -> None:
    with write_whole(target) as fresh:
        shutil.copyfile(source, fresh)


@dataclass(frozen=True)
class _File:
    """A source or header: the hash of its text, and the names that it includes."""

    digest: bytes
    includes: tuple[str, ...]


def _object_keys(project: Path, options: Sequence[str]) -> dict[Path, str]:
    """For every source that make would compile, by its path inside the project, the name under which its object is kept."""
    texts = {path.relative_to(project): path.read_bytes() for kind in ("*.c", "*.h", "*.S") for path in project.rglob(kind)}
    plain = {name: text for name, text in texts.items() if len(text) <= MOST_SOURCE and _ASSEMBLED not in text}
    files = {name: _File(hashlib.sha256(text).digest(), _included_files(text)) for name, text in plain.items()}
    by_name: dict[str, list[Path]] = {}
    for name in texts:
        by_name.setdefault(name.name, []).append(name)
    commands = {Path(name): lines for name, lines in _make_commands(project, options).items()}
    tools = {tool: tool_identity(tool) for lines in commands.values() for line in lines for tool in _TOOL.findall(line)}
    keys = {}
    for name in commands.keys() & files.keys():
        used = [tools[tool] for line in commands[name] for tool in _TOOL.findall(line)]
        how = hashlib.sha256("\0".join([*commands[name], *used]).encode()).digest()
        if name.suffix != ".h" and (key := _hash_object(name, files, by_name, how)) is not None:
            keys[name] = key
    return keys


def _make_commands(project: Path, options: Sequence[str]) -> dict[str, list[str]]:
    """The commands that make would run, by the words in them that may be sources; none where it would fail."""
    command = ["make", "-n", "-C", str(project), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8", errors="replace")
    commands: dict[str, list[str]] = {}
    for line in done.stdout.splitlines() if done.returncode == 0 else ():
        for word in dict.fromkeys(line.split()):
            if word.endswith((".c", ".S")):
                commands.setdefault(word, []).append(line)
    return commands


def _included_files(text: bytes) -> tuple[str, ...]:
    return tuple(name.decode(errors="replace").rpartition("/")[2] for name in _INCLUDE.findall(text))


def _hash_object(source: Path, files: Mapping[Path, _File], by_name: Mapping[str, Sequence[Path]], how: bytes) -> str | None:
    """A hash of a source, of all that it may include, and of how it is compiled; None where one of these is not known."""
    digest, seen, waiting = hashlib.sha256(how), set[Path](), [source]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name not in files:
            return None
        digest.update(f"{name}\0".encode() + files[name].digest)
        waiting += [path for inner in files[name].includes for path in by_name.get(inner, ())]
    return f"{digest.hexdigest()}.o"


@cache
def tool_identity(tool: str) -> str:
    """What changes when another version of a tool is installed."""
    path = shutil.which(tool)
    if path is None:
        return tool
    resolved = Path(path).resolve()
    entry = resolved.stat()
    return f"{tool} {resolved} {entry.st_size} {entry.st_mtime_ns}"
