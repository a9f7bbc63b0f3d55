"""What made sentences must not have, so that evaluations measure what is learned."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from benchmarks.order_suite import content_words, skeleton, skeletons, texts
from hf_blosan.data.columns import normal

SHORT = {"n't": " not", "'re": " are", "'m": " am", "'ll": " will", "'s": " is"}
LONGEST_GAP = 3
"""Words that a gap in a frame can stand for."""
Triplet = dict[str, Any]


def normalised(text: str) -> str:
    """Letters and digits of a text in lower case, however accents are encoded."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFC", text).lower())


def frame_words(text: str) -> list[str]:
    """The words without negation and contractions, with one indefinite article."""
    text = (
        text.lower()
        .replace("’", "'")
        .replace("can't", "can not")
        .replace("won't", "will not")
        .replace("cannot", "can")
    )
    for short, full in SHORT.items():
        text = text.replace(short, full)
    words = [word for word in re.findall("[a-z]+", text) if word not in ("not", "n't")]
    return ["a" if word == "an" else word for word in words]


class Frames:
    """Sentences with a gap where the choices of SemAntoNeg differ, negation apart."""

    def __init__(self, rows: Iterable[dict[str, Any]] = ()) -> None:
        self.found: set[tuple[str, ...]] = set()
        for row in rows:
            sentences = [frame_words(text) for text in (row["text"], *row["choices"])]
            for other in sentences:
                if other != sentences[0]:
                    self.add(sentences[0], other)
        self.longest = max(map(len, self.found), default=0) + LONGEST_GAP

    def add(self, one: list[str], other: list[str]) -> None:
        """What two sentences have before and after the words in which they differ."""
        shorter = min(len(one), len(other))
        before = next((i for i in range(shorter) if one[i] != other[i]), shorter)
        after = next((i for i in range(shorter - before) if one[-1 - i] != other[-1 - i]), shorter - before)
        self.found.add((*one[:before], "*", *one[len(one) - after :]))

    def __contains__(self, text: str) -> bool:
        words = frame_words(text)
        if len(words) > self.longest:
            return False
        return any(
            (*words[:start], "*", *words[end:]) in self.found
            for start in range(len(words) + 1)
            for end in range(start, min(start + LONGEST_GAP, len(words)) + 1)
        )


class Filters:
    """Takes triplets or drops them, and counts why.

    Args:
        evaluations: texts of evaluation splits, as ``normalised`` makes them.
        semantoneg: the rows of SemAntoNeg.
        words, shapes, suite: of the order suite, which is the default: words of its slots, skeletons, texts.
    """

    def __init__(
        self,
        evaluations: Collection[str],
        semantoneg: Iterable[dict[str, Any]],
        words: Collection[str] | None = None,
        shapes: Collection[str] | None = None,
        suite: Iterable[str] | None = None,
    ) -> None:
        self.evaluations = evaluations
        self.frames = Frames(semantoneg)
        self.words = content_words(fixed=False) if words is None else words
        self.shapes = skeletons() if shapes is None else shapes
        self.suite = set(map(normal, texts() if suite is None else suite))
        self.seen: set[tuple[str, ...]] = set()
        self.dropped: Counter[tuple[str, str]] = Counter()

    def takes(self, triplet: Triplet, made: bool = True, negated: bool = False) -> bool:
        """Whether it has none of what it must not have.

        ``made`` sentences have no word and no skeleton of the suite; ``negated`` ones no frame of SemAntoNeg.
        """
        sentences = [triplet["text"], triplet["paraphrase"], *triplet["foils"]]
        reason = next(self.reasons(sentences, made, negated), None)
        if reason:
            self.dropped[triplet["kind"], reason] += 1
        return not reason

    def reasons(self, sentences: list[str], made: bool, negated: bool) -> Iterator[str]:
        """Why to drop these."""
        normals = [normal(text) for text in sentences]
        if len(set(normals)) < len(normals):
            yield "two are the same"
        if made and any(word in self.words for text in sentences for word in re.findall("[a-z]+", text.lower())):
            yield "word of the suite"
        if made and any(skeleton(text) in self.shapes for text in sentences):
            yield "skeleton of the suite"
        if any(text in self.suite for text in normals):
            yield "text of the suite"
        if any(normalised(text) in self.evaluations for text in sentences):
            yield "text of an evaluation"
        if negated and any(text in self.frames for text in sentences):
            yield "frame of SemAntoNeg"
        if tuple(normals) in self.seen:
            yield "made before"
        self.seen.add(tuple(normals))
