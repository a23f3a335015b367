"""Projects built with their own Makefile, their objects kept: most files of a project are those of the one before."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from deeploy.backend import host

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


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
            keys = {source: self._key(project, source, f"{sanitize} {chosen}") for source in sorted(project.rglob("*.c"))}
            for source, key in keys.items():
                kept, place = self.folder / key, target / source.relative_to(project).with_suffix(".o")
                if kept.exists():
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(kept, place)
            application = make(project, sanitize, chosen)
            for source, key in keys.items():
                place = target / source.relative_to(project).with_suffix(".o")
                if place.exists() and not (self.folder / key).exists() and not source.name.startswith("network"):
                    fresh = self.folder / f"{key}.{os.getpid()}"
                    shutil.copyfile(place, fresh)
                    fresh.replace(self.folder / key)
            return application

        built.objects = self
        return built

    def _key(self, project: Path, source: Path, how: str) -> str:
        """A hash of a source, of what it includes, and of how it is compiled."""
        known = {path.name: path for path in project.rglob("*.[ch]")}
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
