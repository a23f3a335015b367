"""Projects built with their own Makefile, their objects kept: most files of a project are those of the one before."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from deeploy.runners import host

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def _is_shared(project: Path, source: Path) -> bool:
    """Whether other projects may have the same source: the network itself is unlike all others, its kernels are not."""
    return source.suffix == ".c" and source.parent != project / "src"


class Objects:
    """Objects by the hash of all that goes into them, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def build(self, make: Callable[..., Path]) -> Callable[..., Path]:
        """``host.build`` with objects put in place before and kept after; without sanitizers, -O1 is enough."""

        def built(project: Path, sanitize: host.Sanitizer | None = None, flags: str | None = None) -> Path:
            chosen = "-O1" if flags is None and sanitize is None else flags
            target = project / "build" / (sanitize or ("host" if chosen is None else "flags"))
            known = {path.name: path for path in project.rglob("*.[ch]")}
            shared = [path for path in known.values() if _is_shared(project, path)] if not (project / "chips").exists() else []
            keys = {path: self._key(project, path, f"{sanitize} {chosen}", known) for path in shared}
            for source, key in keys.items():
                kept, place = self.folder / key, target / source.relative_to(project).with_suffix(".o")
                if kept.exists():
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(kept, place)
            application = make(project, sanitize, chosen)
            for source, key in keys.items():
                place = target / source.relative_to(project).with_suffix(".o")
                if place.exists() and not (self.folder / key).exists():
                    fresh = self.folder / f"{key}.{os.getpid()}"
                    shutil.copyfile(place, fresh)
                    fresh.replace(self.folder / key)
            return application

        built.objects = self
        return built

    def _key(self, project: Path, source: Path, how: str, known: Mapping[str, Path]) -> str:
        """A hash of a source, of what it includes, and of how it is compiled."""
        digest, seen, waiting = hashlib.sha256(how.encode()), set[Path](), [source]
        while waiting:
            path = waiting.pop()
            if path in seen:
                continue
            seen.add(path)
            text = path.read_text()
            digest.update(f"{path.relative_to(project)}\0{text}\0".encode())
            waiting += [known[Path(name).name] for name in _INCLUDE.findall(text) if Path(name).name in known]
        return digest.hexdigest()
