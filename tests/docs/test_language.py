"""Pages are written in plain English: short sentences, no private words, and terms that lead to the glossary where they come first."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LONG, MOST = 30, 0.05  # words of a long sentence, and the share that may be so long
LONGEST = 40  # words

_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`*(\d\"'])|\n\s*\n")


def prose(text: str) -> list[str]:
    """The sentences of a page: without code, tables, headings and links."""
    text = _LINK.sub(r"\1", _CODE.sub("\n\n", text))
    kept = []
    for line in text.splitlines():
        is_other = line.lstrip().startswith(("|", "#", "<", "!", "---"))
        kept.append("" if is_other else re.sub(r"^\s*([-*]|\d+\.)\s+", "\n", line))
    sentences = _END.split("\n".join(kept))
    return [" ".join(found.split()) for found in sentences if len(found.split()) > 2]


def words(sentence: str) -> int:
    return len(_INLINE.sub("code", sentence).split())


def test_few_sentences_are_long() -> None:
    sentences = {path.name: prose(path.read_text()) for path in PAGES}
    every = [found for page in sentences.values() for found in page]
    long = [(words(found), page, found[:90]) for page, some in sentences.items() for found in some if words(found) > LONG]
    assert len(every) > 1000
    assert len(long) < MOST * len(every), sorted(long, reverse=True)[:20]


def test_no_sentence_is_too_long() -> None:
    """Neither on a page nor in what is written beside them."""
    others = [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "tests/README.md")]
    pages = [*PAGES, *others, *(ROOT / "docs" / "decisions").glob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
    assert [(path.name, found) for path in pages for found in prose(path.read_text()) if words(found) > LONGEST] == []


def test_first_pages_have_no_long_sentence() -> None:
    """Those that somebody reads who has never seen the project."""
    first = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("README", "getting-started", "gallery")))
    sentences = [(path.name, found) for path in first for found in prose(path.read_text())]
    assert len(sentences) > 80
    assert [(page, found) for page, found in sentences if words(found) > LONG] == []


def test_pages_use_the_words_of_the_field() -> None:
    """Not phrases of our own in their place: resident, depends on, results in, starts, belongs in."""
    own = re.compile(r"\bkept for ever|\bhangs? on\b|\bcomes? to\b|\bsets? out\b|\bbelongs? into\b", re.IGNORECASE)
    pages = [*PAGES, *(ROOT / "docs" / "decisions").glob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
    assert len(pages) > 50
    assert [(page.name, phrase[0]) for page in pages for phrase in own.finditer(page.read_text())] == []


def test_docstrings_can_be_read_alone() -> None:
    """The first line of a public function or class says what it is of, and not "of it" or "the same"."""
    fragment = re.compile(r"(?:Of|For scripts|That of|Those|The same (?!function of|kernel on)|Until|Nothing|Its)\b|See ``|As ``")
    found, count = [], 0
    for path in sorted((ROOT / "deeploy").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                count, told = count + 1, ast.get_docstring(node)
                found += [(path.name, node.name, told)] if told and fragment.match(told) else []
    assert count > 1000 and found == []


# ---- the glossary

TERMS = re.findall(r"^## (.+)$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
LINKED = [path for path in PAGES if path.parent.name == "docs" and path.name != "glossary.md"]
_HIDDEN = re.compile(r"^```.*?^```$|`[^`\n]*`|^ *[|#!<][^\n]*$|\[[^\]]*\]\((?!glossary\.md)[^)]*\)", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"\[([^\]]*)\]\(glossary\.md#([\w-]+)\)")


def anchor(term: str) -> str:
    return term.lower().replace(" ", "-")


def first_use(text: str, term: str) -> re.Match[str] | None:
    """Where a page uses a term first: in its prose, and not inside of links to elsewhere."""
    visible = _HIDDEN.sub(lambda found: re.sub(r"\S", " ", found[0]), text)
    plain = re.sub(r"\(glossary\.md#[\w-]+\)", lambda found: " " * len(found[0]), visible)
    wanted = r"\s+".join(re.escape(word) for word in term.removesuffix("y").split())
    ending = "(?:y|ies)" if term.endswith("y") else "s?"
    return re.search(rf"(?<![\w-]){wanted}{ending}(?![\w-])", plain, re.IGNORECASE)


def test_terms_lead_to_the_glossary_where_they_come_first() -> None:
    missing = []
    for path in LINKED:
        text = path.read_text()
        linked = [(found.start(1), found.end(1), found[2]) for found in _ENTRY.finditer(text)]
        for term in TERMS:
            use = first_use(text, term)
            if use is not None and not any(
                start <= use.start() and use.end() <= end and name == anchor(term) for start, end, name in linked
            ):
                missing.append((path.name, term, " ".join(text[use.start() - 20 : use.end() + 20].split())))
    assert len(TERMS) > 15 and sorted(TERMS, key=str.lower) == TERMS
    assert missing == []


def test_private_words_are_gone() -> None:
    """What readers outside of this project would not understand: in pages, messages, comments of C and templates."""
    private = re.compile(
        r"budgets? (?:is|are) (?:a )?laws?|poisons? what|software manages|manages? itself|managed memor|\bneediest\b|sets out as|nonsense",
        re.IGNORECASE,
    )
    folders = {"deeploy": "*.py", "templates": "*.mako", "kernels": "*.[ch]", "targets": "**/runtime/**/*.[ch]", "docs": "*.md"}
    paths = [ROOT / "README.md", *(path for folder, names in folders.items() for path in sorted((ROOT / folder).rglob(names)))]
    assert len(paths) > 500
    found = [(str(path.relative_to(ROOT)), word[0]) for path in paths for word in private.finditer(path.read_text(errors="replace"))]
    assert found == []
