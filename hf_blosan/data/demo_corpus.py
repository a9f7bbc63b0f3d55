"""A generated corpus of sentence pairs whose labels depend only on word order.

Sentences come from small grammars: who does what to whom, in the active and the passive ("the dog chases the man",
"the man is not chased by the dog"), and quantifiers with the scope of negation ("not all dogs are wet", and "all dogs
are not wet", which here means that no dog is). Labels and relatedness are computed from the sentences' meanings,
so a model has to combine order, voice and negation.

The pairs come in twins with different labels: their first sentences consist of the same words, and so do their second
sentences. A model that ignores word order gives both the same answer, at most one of them right: accuracy 0.5.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from itertools import combinations, permutations, product
from typing import NamedTuple

from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from ..errors import InputError

LABELS = ("entailment", "neutral", "contradiction")

_ANIMALS = {"dog": "dogs", "cat": "cats", "horse": "horses", "bird": "birds", "cow": "cows", "pig": "pigs"}
_PERSONS = {"boy": "boys", "girl": "girls", "man": "men", "woman": "women", "child": "children", "nurse": "nurses"}
_VERBS = {
    "chase": ("chases", "chased"),
    "follow": ("follows", "followed"),
    "carry": ("carries", "carried"),
    "pull": ("pulls", "pulled"),
    "push": ("pushes", "pushed"),
    "lead": ("leads", "led"),
}
_ADJECTIVES = ("wet", "hungry", "quiet", "tired", "young", "happy")
_PLACES = ("", " in the park", " at night", " near the old house")

_YES, _NO = frozenset({"yes"}), frozenset({"no"})
_YES_OR_NO = _YES | _NO
_NONE, _PART, _EVERY = frozenset({"none"}), frozenset({"part"}), frozenset({"every"})
_ANY_SHARE = _NONE | _PART | _EVERY
_SMALLEST, _LARGEST = 60, 10_000
# Shares of animals and persons among the agents; actives per passive. If all were equally frequent, order would say
# nothing without voice and the order of both sentences, and training would stay at chance for many epochs.
_AGENTS, _ACTIVE = (2 / 3, 1 / 3), 2


class _Form(NamedTuple):
    """A sentence with placeholders for words, and its meaning: fact -> the states that the fact may be in.

    Forms are drawn in proportion to their weights.
    """

    text: str
    meaning: Mapping[tuple[str, str], frozenset[str]]
    weight: float = 1


class _Pair(NamedTuple):
    """Two texts (with placeholders until words are drawn), their label, relatedness and weight."""

    premise: str
    hypothesis: str
    label: str
    score: float
    weight: float


def make_demo_corpus(seed: int = 13, size: int = 8_000) -> DatasetDict:
    """Generate the corpus; equal arguments give equal rows.

    Args:
        seed: random seed.
        size: total number of pairs, 60 to 10,000, rounded down to a multiple of 6; validation and test get a tenth
            each.

    Returns:
        Splits ``train``, ``validation``, ``test`` with columns ``sentence1``, ``sentence2``, ``label`` (entailment,
        neutral, contradiction; a third each) and ``score`` (relatedness, 1 to 5). All pairs differ.

    Raises:
        InputError: ``size`` is out of range; the grammars generate few pairs beyond its maximum.
    """
    if not _SMALLEST <= size <= _LARGEST:
        raise InputError(f"size is {size}; the demo corpus can have {_SMALLEST} to {_LARGEST} pairs")
    rng = random.Random(seed)
    # Each label is in two of these three combinations, so every label gets a third of the rows.
    label_pairs = list(combinations(LABELS, 2))
    rounds, seen = [], set()
    while len(rounds) < size // 6:
        pairs = [pair for labels in label_pairs for pair in _draw_twins(rng, labels)]
        texts = {(pair.premise, pair.hypothesis) for pair in pairs}
        if len(texts) == len(pairs) and not texts & seen:
            seen |= texts
            rounds.append(pairs)
    held_out = len(rounds) // 10
    parts = {"train": rounds[2 * held_out :], "validation": rounds[:held_out], "test": rounds[held_out : 2 * held_out]}
    return DatasetDict({split: _rows(part, rng) for split, part in parts.items()})


def _rows(rounds: list[list[_Pair]], rng: random.Random) -> Dataset:
    pairs = [pair for drawn in rounds for pair in drawn]
    rng.shuffle(pairs)
    text, label = Value("string"), ClassLabel(names=list(LABELS))
    features = Features(sentence1=text, sentence2=text, label=label, score=Value("float32"))
    columns = zip(*((pair.premise, pair.hypothesis, pair.label, pair.score) for pair in pairs), strict=True)
    return Dataset.from_dict(dict(zip(features, columns, strict=True)), features=features)


def _draw_twins(rng: random.Random, labels: tuple[str, str]) -> list[_Pair]:
    """Two pairs with the same words, one for each label."""
    groups = [group for grammar in _GRAMMARS for group in _groups(grammar) if group.keys() >= set(labels)]
    weights = [sum(pair.weight for pairs in group.values() for pair in pairs) for group in groups]
    (group,) = rng.choices(groups, weights)
    animal, person = rng.choice(sorted(_ANIMALS)), rng.choice(sorted(_PERSONS))
    plural = rng.choice((_ANIMALS[animal], _PERSONS[person]))
    verb, place = rng.choice(sorted(_VERBS)), rng.choice(_PLACES)
    words = {"animal": animal, "person": person, "plural": plural, "chase": verb, "adjective": rng.choice(_ADJECTIVES)}
    words |= dict(zip(("chases", "chased"), _VERBS[verb], strict=True))
    drawn = [rng.choices(group[label], [pair.weight for pair in group[label]])[0] for label in labels]
    return [
        pair._replace(premise=pair.premise.format(**words) + place, hypothesis=pair.hypothesis.format(**words) + place)
        for pair in drawn
    ]


@cache
def _groups(grammar) -> list[dict[str, list[_Pair]]]:
    """A grammar's pairs of forms, grouped by their words and then by label; only groups with more than one label."""
    forms, unknown = grammar()
    by_words: dict[tuple, dict[str, list[_Pair]]] = defaultdict(lambda: defaultdict(list))
    for premise, hypothesis in product(forms, repeat=2):
        label = _relation(premise.meaning, hypothesis.meaning, unknown)
        score = _relatedness(premise.meaning, hypothesis.meaning, unknown)
        words = (tuple(sorted(premise.text.split())), tuple(sorted(hypothesis.text.split())))
        weight = premise.weight * hypothesis.weight
        by_words[words][label].append(_Pair(premise.text, hypothesis.text, label, score, weight))
    return [group for group in by_words.values() if len(group) > 1]


def _roles() -> tuple[list[_Form], frozenset[str]]:
    """Who does what to whom, in the active and the passive; one who chases another is not chased by it."""
    forms = []
    for (agent, patient), frequency in zip(permutations(("animal", "person")), _AGENTS, strict=True):
        it_does = {(agent, patient): _YES, (patient, agent): _NO}
        it_does_not = {(agent, patient): _NO}
        forms += [
            _Form(f"the {{{agent}}} {{chases}} the {{{patient}}}", it_does, frequency * _ACTIVE),
            _Form(f"the {{{agent}}} does not {{chase}} the {{{patient}}}", it_does_not, frequency * _ACTIVE),
            _Form(f"the {{{patient}}} is {{chased}} by the {{{agent}}}", it_does, frequency),
            _Form(f"the {{{patient}}} is not {{chased}} by the {{{agent}}}", it_does_not, frequency),
        ]
    return forms, _YES_OR_NO


def _quantifiers() -> tuple[list[_Form], frozenset[str]]:
    """Quantifiers; "not" before the quantifier negates the clause, after it the adjective."""
    states = {
        "all {plural} are {adjective}": _EVERY,
        "all {plural} are not {adjective}": _NONE,
        "not all {plural} are {adjective}": _NONE | _PART,
        "some {plural} are {adjective}": _PART | _EVERY,
        "some {plural} are not {adjective}": _NONE | _PART,
        "no {plural} are {adjective}": _NONE,
    }
    return [_Form(text, {("plural", "adjective"): share}) for text, share in states.items()], _ANY_SHARE


def _relation(premise: Mapping, hypothesis: Mapping, unknown: frozenset[str]) -> str:
    states = [(premise.get(fact, unknown), required) for fact, required in hypothesis.items()]
    if all(possible <= required for possible, required in states):
        return "entailment"
    if any(possible.isdisjoint(required) for possible, required in states):
        return "contradiction"
    return "neutral"


def _relatedness(premise: Mapping, hypothesis: Mapping, unknown: frozenset[str]) -> float:
    """1 to 5: the overlap of the possible states, averaged over the facts in either sentence."""
    facts = premise.keys() | hypothesis.keys()
    states = [(premise.get(fact, unknown), hypothesis.get(fact, unknown)) for fact in facts]
    return round(1 + 4 * sum(len(p & h) / len(p | h) for p, h in states) / len(facts), 2)


_GRAMMARS = (_roles, _quantifiers)
