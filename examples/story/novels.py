"""The novels of Jane Austen, as the Debian package r-cran-janeaustenr carries them: public domain, 4.4 million letters.

The package is the work of Julia Silge and others (MIT); the novels are Project Gutenberg's. They lie in it as vectors of lines in
R's serialisation (XDR form), compressed one by one; only these vectors are read here.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import zlib
from pathlib import Path

PACKAGE = "r-cran-janeaustenr"
STORED = "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
HELD_OUT = 16_000  # letters at the end of every novel that are not trained on
_STRINGS, _STRING = 16, 9  # type codes of a vector of strings and of a string, in the low byte of their flags


def novels() -> list[str]:
    """Download the package and return its novels, one text each."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, check=True, capture_output=True)
        package = next(Path(folder).glob("*.deb"))
        subprocess.run(["dpkg-deb", "-x", package.name, "."], cwd=folder, check=True)
        data = (Path(folder) / STORED).read_bytes()
    texts = []
    while data:
        stream = zlib.decompressobj()
        texts.append(_clean(_lines(stream.decompress(data[4:]))))  # four bytes of length come first
        data = stream.unused_data
    return texts


def _lines(data: bytes) -> list[str]:
    """The strings of a serialised vector: header, flags, count, then flags, length and bytes of each."""
    position = 18 + int.from_bytes(data[14:18], "big")  # behind the name of the native encoding
    if data[:2] != b"X\n" or data[position + 3] != _STRINGS:
        raise ValueError("the package holds something else than vectors of strings")
    count, lines = int.from_bytes(data[position + 4 : position + 8], "big"), []
    position += 8
    for _ in range(count):
        if data[position + 3] != _STRING:
            raise ValueError("a line is missing")
        length = int.from_bytes(data[position + 4 : position + 8], "big")
        lines.append(data[position + 8 : position + 8 + length].decode())
        position += 8 + length
    return lines


def _clean(lines: list[str]) -> str:
    """Paragraphs in one line each, in a small alphabet, without headings."""
    paragraphs = [" ".join(part.split()) for part in "\n".join(lines).split("\n\n")]
    plain = [re.sub(r"[^A-Za-z .,;:'\"!?()-]", "", p.replace("--", " - ").replace("&", "and")) for p in paragraphs]
    kept = [" ".join(p.split()) for p in plain if re.search(r"[a-z]", p) and not re.match(r"(CHAPTER|Chapter|VOLUME|by )", p)]
    return "\n".join(kept) + "\n"


def split(texts: list[str]) -> tuple[list[str], str]:
    """What is trained on, and the end of the second novel as the held-out text (a piece of the others' ends is dropped)."""
    ends = [text.rfind("\n", 0, len(text) - HELD_OUT) + 1 for text in texts]
    return [text[:end] for text, end in zip(texts, ends, strict=True)], texts[1][ends[1] :]
