"""The site that ``make docs`` builds, in a real browser: search without a network, dark and light, on a phone and on a desktop."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from tests.report.browser import Document, command, measured

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 1_500_000  # of a page with all that it loads


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, with pages derived from declarations."""
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed (make docs)")
    folder = tmp_path_factory.mktemp("docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHON": sys.executable, "NO_MKDOCS_2_WARNING": "1"}
    for program in ([str(ROOT / ".ci" / "pages"), "build/pages"], [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]):
        subprocess.run(program, cwd=folder, env=environment, check=True, capture_output=True, timeout=300)
    return folder / "build" / "site"


@pytest.mark.slow
def test_nothing_is_read_from_a_network(site: Path) -> None:
    """Links may lead elsewhere; what a page loads lies beside it."""
    loaded = re.compile(r'(?:<script[^>]*src|<link[^>]*rel="stylesheet"[^>]*href|<img[^>]*src)="(?:https?:)?//[^"]*')
    found = {page.name: loaded.findall(page.read_text()) for page in site.rglob("*.html")}
    assert len(found) > 40 and not any(found.values())


def test_every_page_is_in_the_navigation(site: Path) -> None:
    named = set(re.findall(r": ([\w-]+)\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)) - {"README"}
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} - {"README"} <= named
    assert all((site / f"{name}.html").exists() for name in named)


QUESTIONS = (  # of newcomers: what they type, and the page that answers
    ("fit 64 KB", "questions"),
    ("layer slow", "slow"),
    ("residence", "glossary"),
    ("inputs npz", "questions"),
    ("pytorch", "from-pytorch"),
    ("use npu", "questions"),
    ("flash firmware", "firmware"),
    ("new target", "tutorial-target"),
    ("differ onnxruntime", "questions"),
    ("kv cache", "state"),
)


@pytest.mark.share(0.1)
@pytest.mark.parametrize(("words", "page"), QUESTIONS)
def test_search_works_from_the_file(site: Path, tmp_path: Path, words: str, page: str) -> None:
    flags = [*command(tmp_path), "--virtual-time-budget=10000", "--dump-dom", f"{(site / 'index.html').as_uri()}?q={quote(words)}"]
    done = subprocess.run(flags, capture_output=True, text=True, timeout=120, check=True)
    found = [link.attributes["href"] for link in Document(done.stdout).find("a", "class", "md-search-result__link")]
    pages = list(dict.fromkeys(Path(urlsplit(link).path).stem for link in found))
    assert page in pages[:5], pages[:8]


@pytest.mark.slow
@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1280, "light"), (390, "light"), (1280, "dark")])
@pytest.mark.parametrize("page", ["index", "slow", "reference-options"])
def test_pages_fit_their_window(site: Path, tmp_path: Path, page: str, width: int, theme: str) -> None:
    found = measured(site / f"{page}.html", tmp_path, width, theme)
    assert found["overflow"] <= 0 and found["wide"] == [] and found["poor"] == []
    assert found["texts"] > 40


def test_pages_are_light(site: Path) -> None:
    """A page, and the scripts, styles and index of search that each of them loads."""
    assets = [*site.glob("assets/javascripts/bundle*.js"), *site.glob("assets/javascripts/workers/*.js"), site / "search/search_index.js"]
    assets += site.glob("assets/stylesheets/*.css")
    shared = sum(path.stat().st_size for path in assets)
    heaviest = max(page.stat().st_size for page in site.rglob("*.html"))
    assert len(assets) > 4 and shared + heaviest < MOST_BYTES, (shared, heaviest)
