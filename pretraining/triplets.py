"""Made triplets: a text, a paraphrase, and foils, which say something else in almost the same words."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from . import attributes, opposites, swaps
from .clauses import KINDS as CLAUSES
from .filters import Filters, Triplet
from .parses import Sentence
from .patterns import Pattern, tidy
from .wordnet import WordNet
from .words import Corpus, Lexicon

COUNTS = {
    "roles": 20_000,
    "converses": 10_000,
    "comparisons": 8_000,
    "relatives": 8_000,
    "questions": 8_000,
    "pronouns": 10_000,
    "events": 8_000,
    "attributes": 26_000,
    "bindings": 20_000,
    "antonyms": 18_000,
    "opposite_verbs": 5_000,
    "verb_negation": 12_000,
    "quantifiers": 8_000,
    "implicatives": 8_000,
    "both": 8_000,
    "conditions": 8_000,
    "real_roles": 20_000,
    "real_attributes": 10_000,
    "real_negation": 16_000,
    "real_antonyms": 8_000,
    "entailments": 20_000,
}
"""At most so many triplets of each kind; patterns give up after ``TRIES`` times as many trials."""
TRIES = 4
PATTERNS: dict[str, list[Pattern]] = swaps.KINDS | attributes.KINDS | opposites.KINDS
NEGATED = {*opposites.KINDS, "real_negation", "real_antonyms"}


def make_triplets(
    sentences: Iterable[Sentence],
    pairs: Iterable[Mapping[str, Any]],
    filters: Filters,
    wordnet: WordNet,
    seed: int = 0,
    counts: Mapping[str, int] = COUNTS,
) -> list[Triplet]:
    """Triplets ``{"kind", "text", "paraphrase", "foils"}``, the same for the same seed.

    Args:
        sentences: parsed; words are drawn from them, and the kinds "real_..." change them.
        pairs: rows with sentence1, sentence2 and label, as of SNLI and SICK; where the label holds in both directions,
            give them in both. An entailment's foil is a contradiction of the same sentence1; without one it has no
            foils.
        filters: what must not occur; counts what it dropped.
        counts: of some kinds, or of all.
    """
    sentences = list(sentences)
    lexicon = Lexicon(Corpus(sentences, wordnet), filters.words)
    found: list[Triplet] = []
    for kind, count in counts.items():
        rng = random.Random(f"{seed} {kind}")  # so that a kind does not depend on the others
        if kind in PATTERNS:
            made = from_patterns(kind, lexicon, rng, TRIES * count)
        elif kind in CLAUSES:
            made = from_clauses(kind, CLAUSES[kind], sentences, lexicon, rng)
        else:
            made = entailments(pairs, rng)
        taken = 0
        for triplet in made:
            if taken == count:
                break
            if filters.takes(triplet, made=kind != "entailments", negated=kind in NEGATED):
                found.append(triplet)
                taken += 1
    return found


def triplet(kind: str, text: str, paraphrase: str, foils: Iterable[str]) -> Triplet:
    """One of them, tidied."""
    return {"kind": kind, "text": tidy(text), "paraphrase": tidy(paraphrase), "foils": [*map(tidy, foils)]}


def from_patterns(kind: str, lexicon: Lexicon, rng: random.Random, trials: int) -> Iterator[Triplet]:
    """Fillings of the patterns of a kind."""
    patterns = [allowed for pattern in PATTERNS[kind] if (allowed := pattern.within(lexicon))]
    for pattern in rng.choices(patterns, [pattern.weight for pattern in patterns], k=trials):
        yield triplet(kind, *pattern.fill(lexicon, rng))


def from_clauses(
    kind: str,
    change: Callable[[Sentence, Lexicon, random.Random], Iterator[tuple[str, str, list[str]]]],
    sentences: list[Sentence],
    lexicon: Lexicon,
    rng: random.Random,
) -> Iterator[Triplet]:
    """What a function makes of parsed sentences, in another order."""
    for sentence in rng.sample(sentences, len(sentences)):
        for text, paraphrase, foils in change(sentence, lexicon, rng):
            yield triplet(kind, text, paraphrase, foils)


def entailments(pairs: Iterable[Mapping[str, Any]], rng: random.Random) -> Iterator[Triplet]:
    """Entailments with a contradiction of the same sentence, in another order."""
    labelled: dict[str, dict[str, list[str]]] = {}
    for row in pairs:
        labelled.setdefault(row["sentence1"], {}).setdefault(row["label"], []).append(row["sentence2"])
    for contradicted in (True, False):
        for text, by in labelled.items():
            if ("contradiction" in by) == contradicted:
                for entailed in by.get("entailment", []):
                    foils = [rng.choice(by["contradiction"])] if contradicted else []
                    yield {"kind": "entailments", "text": text, "paraphrase": entailed, "foils": foils}
