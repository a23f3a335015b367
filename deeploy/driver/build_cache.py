"""Projects as they were written before: the same request of the same files gives the same project, without compiling again.

A project is kept under the hash of what was asked and of the installation that answered, with a list of the files that were read and what
they held. It is taken only where all of them still hold the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from deeploy.documents import digest_of
from deeploy.resources import cache_folder, mark_used, resource, write_whole

MOST_BYTES = 1 << 27  # of a project that is kept: writing a larger one takes longer than what is saved is worth
_FILES, _NOTES, _READ = "project/", "notes.json", "read.json"


@dataclass(frozen=True)
class CachedProject:
    """A project that was written before: its files by their paths inside, and what the user was told when it was compiled."""

    files: Mapping[str, bytes]
    notes: Sequence[str]


@dataclass(frozen=True)
class CachePlace:
    """Where the project of a request is kept."""

    file: Path

    def find(self) -> CachedProject | None:
        """The project, where there is one and every file that was read for it still holds the same.

        A cache that cannot be read is as good as none.
        """
        try:
            with zipfile.ZipFile(self.file) as archive:
                read: Mapping[str, str] = json.loads(archive.read(_READ))
                names = [name.removeprefix(_FILES) for name in archive.namelist() if name.startswith(_FILES)]
                if any(PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts for name in names):
                    return None
                if any(_stamp_file(Path(path)) != stamp for path, stamp in read.items()):
                    return None
                files = {name: archive.read(_FILES + name) for name in names}
                notes = json.loads(archive.read(_NOTES))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            return None
        mark_used(self.file)
        return CachedProject(files, notes)

    def keep(self, folder: Path, notes: Sequence[str], read: Mapping[str, str]) -> None:
        """Keep the project in ``folder``, for which the files of ``read`` were read; see ``stamp_paths``."""
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        if sum(path.stat().st_size for path in paths) > MOST_BYTES:
            return
        with contextlib.suppress(OSError), write_whole(self.file) as fresh, zipfile.ZipFile(fresh, "w") as archive:
            archive.writestr(_READ, json.dumps(read))
            archive.writestr(_NOTES, json.dumps(list(notes)))
            for path in paths:
                archive.write(path, _FILES + path.relative_to(folder).as_posix())


def place_of(request: str, models: Iterable[Path]) -> CachePlace | None:
    """Where the project of a request is kept; None where nothing is kept.

    Args:
        request: all that was asked, as text.
        models: what is compiled; the projects of large models are not kept.
    """
    folder = cache_folder("projects")
    if folder is None or any(model.is_file() and model.stat().st_size > MOST_BYTES for model in models):
        return None
    what = hashlib.sha256("\0".join([request, str(Path.cwd()), sys.version, *_stamp_installation()]).encode())
    return CachePlace(folder / f"{what.hexdigest()}.zip")


def stamp_paths(paths: Iterable[Path]) -> dict[str, str]:
    """What files hold now, and what folders list, by their absolute paths."""
    return {str(path.absolute()): _stamp_file(path) for path in paths}


def loaded_modules() -> list[Path]:
    """The Python files that were imported from beside the interpreter, its packages and the compiler: of targets and generators."""
    around = [Path(folder).resolve() for folder in (sys.base_prefix, sys.prefix, Path(__file__).parents[1])]
    named = {Path(file).resolve() for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    return sorted(file for file in named if not any(file.is_relative_to(folder) for folder in around))


def _stamp_file(path: Path) -> str:
    if path.is_dir():
        return hashlib.sha256("\n".join(_list_folder(path)).encode()).hexdigest()
    try:
        return digest_of(path)
    except OSError as error:
        return str(error.errno)


def _stamp_installation() -> list[str]:
    """What changes when the compiler, what travels with it, an installed package or a cross compiler is another one."""
    package = Path(__file__).resolve().parents[1]
    folders = {package, *(resource(kind) for kind in ("targets", "kernels", "templates"))}
    packages = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    places = [*packages, *os.environ.get("PATH", "").split(os.pathsep)]
    changed = [f"{path} {os.stat(path).st_mtime_ns}" for path in places if os.path.isdir(path)]
    return [*changed, *(line for folder in sorted(folders) for line in _list_folder(folder))]


def _list_folder(folder: Path) -> list[str]:
    """The files below a folder, each with its size and the time of its last change."""
    file_entries = []
    for around, inner, names in os.walk(folder):
        inner[:] = sorted(name for name in inner if name != "__pycache__")
        for name in sorted(names):
            with contextlib.suppress(OSError):  # links to nowhere
                entry = os.stat(path := os.path.join(around, name))
                file_entries.append(f"{path} {entry.st_size} {entry.st_mtime_ns}")
    return file_entries
