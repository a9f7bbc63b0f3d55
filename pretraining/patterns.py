"""Patterns of made sentences and what fills them.

A form is a text with slots: ``{a}`` is a phrase as a subject, ``{a.o}`` as an object, ``{a.v}`` the verb of slot v
as it agrees with it, ``{b.v_en}`` the same in the passive; see ``Phrase.part``. ``{v.base}`` and the like are forms
of a verb, ``{g.pl}`` the plural of a noun. ``{end}`` is an adjunct with a space before it, or nothing; ``{start}``
the same adjunct with a comma behind it.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

from .inflection import Noun, Phrase, Verb, indefinite
from .words import Lexicon

SLOT = re.compile(r"\{([a-z]+)(?:\.([a-z_]+))?\}")
POOLS = {
    **dict.fromkeys("ab", "anyone"),
    "c": "either",
    "t": "thing",
    **dict.fromkeys("mn", "bearer"),
    **dict.fromkeys("vw", "verb"),
    **dict.fromkeys("xy", "adjective"),
    **dict.fromkeys("pq", "number"),
    "g": "persons",
    "k": "things",
}
"""Where the value of a slot comes from unless its pattern says otherwise."""
GIVEN = {"it": Phrase("it", "it"), "all": Phrase("they", "them", plural=True)}
"""Subjects for agreement alone."""
VERBS = "vwu"
"""Slots whose texts are lemmas."""
USUAL = {"past": 3, "present": 2} | dict.fromkeys(
    "progressive,past progressive,perfect,pluperfect,will,may,should,would,might have,can,must".split(","), 1
)
"""Tenses by weight."""
PAST = {"past": 1}
SIMPLE = {"past": 2, "present": 1}
WRAPS = [("", "")] * 9 + [
    ("I think that ", ""),
    ("he said that ", ""),
    ("the report says that ", ""),
    ("we heard that ", ""),
    ("they know that ", ""),
    ("it seems that ", ""),
    ("maybe ", ""),
    ("", ", which surprised everyone"),
    ("", " because of the rain"),
    ("", ", as expected"),
]
"""What can be put around a statement."""


@dataclass(frozen=True)
class Pattern:
    """Forms that say the same; foils are these forms with two slots exchanged, or forms that say something else.

    Attributes:
        same: at least two forms.
        swap: two slots to exchange.
        other: forms for foils, if nothing is exchanged; they say the same too if there are several, and take turns.
        pools: of slots, or of several slots separated by spaces, whose pool is not the usual one.
        words: texts to choose from for slots of no pool.
        tenses: by weight.
        wrapped: whether something can be put around the forms.
        weight: among the patterns of its kind.
    """

    same: tuple[str, ...]
    swap: str = ""
    other: tuple[str, ...] = ()
    pools: dict[str, str] = field(default_factory=dict)
    words: dict[str, list[Any]] = field(default_factory=dict)
    tenses: dict[str, int] = field(default_factory=lambda: USUAL)
    wrapped: bool = False
    weight: float = 1

    @cached_property
    def slots(self) -> list[str]:
        """The slots whose values are drawn, in order, without those of ``pools`` and ``words``."""
        forms = " ".join(
            (*self.same, *self.other, *(form for forms in self.words.values() for form in map(str, forms)))
        )
        names = [part for name, parts in SLOT.findall(forms) for part in (name, *parts.split("_"))]
        given = {*self.words, *(slot for slots in self.pools for slot in slots.split())}
        return [name for name in dict.fromkeys(names) if name in POOLS and name not in given]

    def within(self, lexicon: Lexicon) -> Pattern | None:
        """The pattern without forms and texts that have a banned word; None if too little is left."""
        same, other = (
            [form for form in forms if lexicon.allows(SLOT.sub(" ", form))] for forms in (self.same, self.other)
        )
        words = {slot: [text for text in texts if lexicon.allows(str(text))] for slot, texts in self.words.items()}
        if len(set(same)) < 2 or (self.other and not other) or not all(words.values()):
            return None
        return replace(self, same=tuple(same), other=tuple(other), words=words)

    def draw(self, lexicon: Lexicon, rng: random.Random) -> dict[str, Any]:
        """A value for each slot."""
        groups: dict[str, list[str]] = {}
        for slot in self.slots:
            groups.setdefault(POOLS[slot], []).append(slot)
        drawn = [(slots, pool) for pool, slots in groups.items()]
        drawn += [(slots.split(), pool) for slots, pool in self.pools.items()]
        values: dict[str, Any] = dict(GIVEN)
        for slots, pool in drawn:
            values |= zip(slots, lexicon.draw(pool, rng, len(slots)), strict=True)
        for slot, texts in self.words.items():
            choice = rng.choice(texts)
            values |= zip(slot.split(), choice, strict=True) if isinstance(choice, tuple) else {slot: choice}
        for slot in VERBS:
            if isinstance(values.get(slot), str):
                values[slot] = lexicon.verb(values[slot])
        adjunct = lexicon.adjunct(rng, manner=any(isinstance(value, Verb) for value in values.values()))
        values |= {"end": adjunct and f" {adjunct}", "start": adjunct and f"{adjunct}, "}
        return values | {"tense": self.tense(lexicon, rng, values)}

    def tense(self, lexicon: Lexicon, rng: random.Random, values: dict[str, Any]) -> str:
        """One that suits the verbs: no progressive for verbs of state."""
        tense = rng.choices(list(self.tenses), list(self.tenses.values()))[0]
        verbs = [value for value in values.values() if isinstance(value, Verb)]
        if "progressive" in tense and not all(map(lexicon.can_progress, verbs)):
            return tense.replace("progressive", "").strip() or "present"
        return tense

    def fill(self, lexicon: Lexicon, rng: random.Random) -> tuple[str, str, list[str]]:
        """A text, a paraphrase and foils."""
        values = self.draw(lexicon, rng)
        before, after = rng.choice(WRAPS) if self.wrapped else ("", "")
        same, other = self.same, self.other
        if other and len(other) > 1 and rng.random() < 0.5:
            same, other = other, same
        forms = rng.sample(same, 2)
        foils = forms if self.swap else list(dict.fromkeys(nearest(other, form) for form in forms))
        exchanged = values
        if self.swap:
            first, second = self.swap.split()
            exchanged = values | {first: values[second], second: values[first]}
        texts = [before + render(form, values) + after for form in forms]
        return texts[0], texts[1], [before + render(form, exchanged) + after for form in foils]


def nearest(forms: tuple[str, ...], form: str) -> str:
    """That of the forms which shares most words with one: what says the opposite in almost the same words."""
    words = set(form.split())

    def shared(other: str) -> float:
        others = set(other.split())
        return len(words & others) / len(words | others)

    return max(forms, key=shared)


def render(form: str, values: dict[str, Any]) -> str:
    """A form with its slots filled; values can have slots of their own."""

    def part(match: re.Match[str]) -> str:
        value, name = values[match[1]], match[2] or ""
        if isinstance(value, Phrase):
            return value.part(name, values)
        return value.form(name) if isinstance(value, Verb | Noun) else render(str(value), values)

    return SLOT.sub(part, form)


def expand(*forms: str) -> tuple[str, ...]:
    """Each form once for every choice of its alternatives, which are written ``(one|other)``."""
    found = []
    for form in forms:
        pieces = [piece.split("|") for piece in re.split(r"[()]", form)]
        found += ["".join(choice) for choice in product(*pieces)]
    return tuple(dict.fromkeys(found))


def tidy(text: str) -> str:
    """One space between words, none before punctuation, "a" or "an" as the next word wants it, a capital letter."""
    text = re.sub(r"\s+([.,;:!?])", r"\1", re.sub(r"\s+", " ", text)).strip()
    text = re.sub(r"\ban? ([a-z]+)\b", lambda match: indefinite(match[1]), text)
    return text[:1].upper() + text[1:]
