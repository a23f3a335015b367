"""Byte pair encoding over a small alphabet: the table is a list of strings, the order of which is the order of the merges.

Token 0 ends a text. The tokens after it are single letters, the others are two earlier ones joined; words are joined
with the space before them, never with each other.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

END = 0
_WORD = re.compile(r" ?[A-Za-z]+| ?[^A-Za-z\s]|\s")


@dataclass(frozen=True)
class Tokenizer:
    """Pieces of text by token, and how they were joined."""

    pieces: tuple[str, ...]
    merges: tuple[tuple[int, int], ...]

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        table = json.loads(path.read_text())
        return cls(tuple(table["pieces"]), tuple((a, b) for a, b in table["merges"]))

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"pieces": self.pieces, "merges": self.merges}, separators=(",", ":")) + "\n")

    @cached_property
    def _ranks(self) -> dict[tuple[int, int], int]:
        return {pair: rank for rank, pair in enumerate(self.merges)}

    @cached_property
    def _letters(self) -> dict[str, int]:
        return {piece: token for token, piece in enumerate(self.pieces) if len(piece) == 1}

    def encode(self, text: str) -> list[int]:
        """Tokens of a text; letters outside the alphabet are left out."""
        known: dict[str, list[int]] = {}
        result: list[int] = []
        for word in _WORD.findall(text):
            if word not in known:
                known[word] = self._join([self._letters[c] for c in word if c in self._letters])
            result += known[word]
        return result

    def _join(self, tokens: list[int]) -> list[int]:
        first = len(self.pieces) - len(self.merges)
        while len(tokens) > 1:
            rank, at = min((self._ranks.get((a, b), len(self.merges)), i) for i, (a, b) in enumerate(itertools.pairwise(tokens)))
            if rank == len(self.merges):
                break
            tokens = [*tokens[:at], first + rank, *tokens[at + 2 :]]
        return tokens

    def decode(self, tokens: list[int]) -> str:
        return "".join(self.pieces[token] for token in tokens)


def learn(text: str, size: int) -> Tokenizer:
    """Join the most frequent pair of neighbours until there are ``size`` tokens."""
    pieces = ["", *sorted(set(text))]
    letters = {piece: token for token, piece in enumerate(pieces)}
    words = [([letters[c] for c in word], count) for word, count in Counter(_WORD.findall(text)).items()]
    merges: list[tuple[int, int]] = []
    while len(pieces) < size:
        pairs: Counter[tuple[int, int]] = Counter()
        for tokens, count in words:
            for pair in itertools.pairwise(tokens):
                pairs[pair] += count
        (a, b), _ = max(pairs.items(), key=lambda item: (item[1], item[0]))
        merges.append((a, b))
        pieces.append(pieces[a] + pieces[b])
        for tokens, _ in words:
            _replace(tokens, a, b, len(pieces) - 1)
    return Tokenizer(tuple(pieces), tuple(merges))


def _replace(tokens: list[int], a: int, b: int, joined: int) -> None:
    at = 0
    while at < len(tokens) - 1:
        if tokens[at] == a and tokens[at + 1] == b:
            tokens[at : at + 2] = [joined]
        at += 1
