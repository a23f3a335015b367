"""A page as a real browser shows it: the document after its scripts ran, and what they complained about."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
MEASURE = Path(__file__).with_name("measure.js")
_WATCH = "<script>addEventListener('error', (e) => { document.documentElement.dataset.failed = e.message; });</script>"


def command(folder: Path) -> list[str]:
    """The browser's command line; the test is skipped where there is none."""
    found = os.environ.get("BROWSER_FOR_TESTS") or next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no browser is installed (on Debian: apt-get install chromium)")
    flags = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1180,1600",
        "--enable-logging=stderr",
    ]
    return [found, *flags, f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=3000"]


def shown(page: str, folder: Path, script: str = "") -> Document:
    """The page as it is after its scripts and, once it is loaded, ``script`` ran.

    Fails where a script failed or the page's policy stopped something.
    """
    file = folder / "shown.html"
    watched = page.replace("<head>", f"<head>{_WATCH}", 1)
    run = f"<script>addEventListener('load', () => {{ {script} }});</script></body>"  # when the window may have the focus
    file.write_text(watched.replace("</body>", run) if script else watched)
    done = subprocess.run([*command(folder), "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not complaints, complaints
    document = Document(done.stdout)
    failed = document.find("html", "data-failed")
    assert not failed, failed[0].attributes["data-failed"]
    return document


def measured(page: str | Path, folder: Path, width: int, theme: str) -> dict[str, Any]:
    """What is seen of a page in a window of some width: pixels that it is too wide, texts of poor contrast, labels that are clipped.

    Args:
        page: its text, or where it lies.
    """
    file = page if isinstance(page, Path) else folder / "inner.html"
    if isinstance(page, str):
        file.write_text(page)
    frame = f'<iframe src="{file.as_uri()}" style="width:{width}px;height:900px;border:0"></iframe>'
    script = MEASURE.read_text().replace("THEME", theme)
    (folder / "frame.html").write_text(f"<html><body>{frame}<script>{script}</script></body></html>")
    flags = ["--allow-file-access-from-files", "--dump-dom", (folder / "frame.html").as_uri()]
    done = subprocess.run([*command(folder), *flags], capture_output=True, text=True, timeout=120, check=True)
    (told,) = Document(done.stdout).find("pre")
    found: dict[str, Any] = json.loads(told.own)
    assert found["width"] == width
    return found


def opened(page: str, folder: Path) -> float:
    """Seconds of processor time until a page's scripts ran and it is laid out, less those of an empty page: the same on a busy machine."""

    def spent(text: str) -> float:
        file = folder / "opened.html"
        file.write_text(text.replace("</body>", "<script>addEventListener('load', () => document.body.offsetHeight);</script></body>"))
        flags = [flag for flag in command(folder) if "virtual-time" not in flag]
        with subprocess.Popen(
            [*flags, "--single-process", "--no-zygote", "--dump-dom", file.as_uri()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            assert len(process.stdout.read()) > len(text) // 3
            _, process.returncode, used = os.wait4(process.pid, 0)
        assert process.returncode == 0
        return used.ru_utime + used.ru_stime

    return min(spent(page) for _ in range(2)) - min(spent("<html><body></body></html>") for _ in range(2))


class Element:
    """An element with its attributes, its own text, and what lies in it."""

    def __init__(self, name: str, attributes: dict[str, str], parent: Element | None) -> None:
        self.name = name
        self.attributes = attributes
        self.parent = parent
        self.children: list[Element] = []
        self.own = ""

    @property
    def text(self) -> str:
        """All text inside, spaces of any kind made one."""
        return re.sub(r"\s+", " ", self._all()).strip()

    def _all(self) -> str:
        return self.own + "".join(child._all() for child in self.children)

    def all(self, name: str, attribute: str = "", value: str | None = None) -> list[Element]:
        """Elements inside by name, and by an attribute: one of its words, where ``value`` is given."""
        found = []
        for child in self.children:
            held = child.attributes.get(attribute)
            if child.name == name and (not attribute or (held is not None and (value is None or value in held.split()))):
                found.append(child)
            found += child.all(name, attribute, value)
        return found


class Document(HTMLParser):
    """A parsed page."""

    _VOID = frozenset({"meta", "br", "img", "input", "link", "hr"})

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = source
        self.root = Element("", {}, None)
        self._open = self.root
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {key: value or "" for key, value in attrs}, self._open)
        self._open.children.append(element)
        if tag not in self._VOID:
            self._open = element

    def handle_endtag(self, tag: str) -> None:
        at: Element | None = self._open
        while at is not None and at.name != tag:
            at = at.parent
        if at is not None and at.parent is not None:
            self._open = at.parent

    def handle_data(self, data: str) -> None:
        self._open.own += data

    def find(self, name: str, attribute: str = "", value: str | None = None) -> list[Element]:
        """See ``Element.all``."""
        return self.root.all(name, attribute, value)


if __name__ == "__main__":  # python -m tests.report.browser PAGE ...: what opening pages takes
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as scratch:
            print(f"{name}: {opened(Path(name).read_text(encoding='utf-8'), Path(scratch)):.2f} CPU s")
