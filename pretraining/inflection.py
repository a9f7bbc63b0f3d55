"""Nouns, verbs and noun phrases with their forms, by lemminflect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from hf_blosan.errors import require

OBJECT_FORMS = {"i": "me", "he": "him", "she": "her", "we": "us", "they": "them", "who": "whom"}
SUBJECT_FORMS = {form: subject for subject, form in OBJECT_FORMS.items()}
TENSES = {
    "past": ("{past}", "{was} {done}"),
    "present": ("{s}", "{is} {done}"),
    "progressive": ("{is} {doing}", "{is} being {done}"),
    "past progressive": ("{was} {doing}", "{was} being {done}"),
    "perfect": ("{has} {done}", "{has} been {done}"),
    "pluperfect": ("had {done}", "had been {done}"),
    "might have": ("might have {done}", "might have been {done}"),
    "will": ("will {base}", "will be {done}"),
    "may": ("may {base}", "may be {done}"),
    "should": ("should {base}", "should be {done}"),
    "would": ("would {base}", "would be {done}"),
    "can": ("can {base}", "can be {done}"),
    "must": ("must {base}", "must be {done}"),
    "could": ("could {base}", "could be {done}"),
    "might": ("might {base}", "might be {done}"),
}
"""Active and passive."""
PRESENT = {"present", "progressive", "perfect", "will", "may", "should", "can", "must"}
"""Tenses that a copula in the present goes with."""
MODALS = {"will", "may", "should", "would", "can", "must", "could", "might"}


@lru_cache(maxsize=100_000)
def inflections(lemma: str, tag: str) -> tuple[str, ...]:
    """All forms of a lemma for a Penn tag, the most usual first; empty if there is none.

    Raises:
        MissingExtra: lemminflect is not installed.
    """
    require("inflection needs", "pretraining", "lemminflect")
    from lemminflect import getInflection

    return getInflection(lemma, tag=tag)


def inflect(lemma: str, tag: str, counts: Mapping[str, int] | None = None) -> str | None:
    """The form other than the lemma that a corpus uses most; if it uses none, the one that lemminflect puts first.

    None if there is no form.
    """
    found = inflections(lemma, tag)
    counts = counts or {}
    return max(found, key=lambda form: form != lemma and counts.get(form, 0), default=None)


def be(plural: bool, past: bool, first: bool = False) -> str:
    """The finite form of "be"."""
    if past:
        return "were" if plural else "was"
    return "are" if plural else "am" if first else "is"


def indefinite(text: str) -> str:
    """With a or an."""
    vowel = re.match(r"(?!uni(?![dmn])|use|usu|eu|one\b|once\b)[aeiou]|hour|honest|heir|honou?r", text, re.IGNORECASE)
    return f"{'an' if vowel else 'a'} {text}"


@dataclass(frozen=True)
class Verb:
    """The forms of a verb; ``tail`` follows each of them."""

    base: str
    s: str
    past: str
    done: str
    doing: str
    tail: str = ""

    @classmethod
    def of(cls, text: str, counts: Mapping[str, int] | None = None) -> Verb | None:
        """From a lemma and what follows it, as in "lose to"; None if a form is missing."""
        lemma, _, tail = text.partition(" ")
        if lemma == "be":
            return cls("be", "is", "was", "been", "being", tail)
        forms = [inflect(lemma, tag, counts) for tag in ("VBZ", "VBD", "VBN", "VBG")]
        return cls(lemma, *forms, tail) if all(forms) else None

    def group(self, tense: str, plural: bool, passive: bool = False, first: bool = False) -> str:
        """The finite verb group for a subject of that number and person."""
        values = {
            "base": self.base,
            "past": be(plural, True) if self.base == "be" else self.past,
            "s": be(plural, False, first) if self.base == "be" else self.base if plural or first else self.s,
            "done": self.done,
            "doing": self.doing,
            "is": be(plural, False, first),
            "was": be(plural, True),
            "has": "have" if plural or first else "has",
        }
        return f"{TENSES[tense][passive].format(**values)} {self.tail}".rstrip()

    def form(self, name: str) -> str:
        """One form, with what follows."""
        return f"{getattr(self, name or 'base')} {self.tail}".rstrip()


@dataclass(frozen=True)
class Noun:
    """A countable noun."""

    singular: str
    plural: str

    def form(self, name: str) -> str:
        """The singular, or the plural for "pl"."""
        return self.plural if name == "pl" else self.singular


@dataclass(frozen=True)
class Phrase:
    """A noun phrase.

    Attributes:
        text: as a subject.
        object: after a verb or a preposition.
        plural: its number.
        noun: its noun, if it is neither a name nor a pronoun.
        determiner: what is before noun and attributes.
    """

    text: str
    object: str
    plural: bool = False
    noun: Noun | None = None
    determiner: str = ""

    @cached_property
    def possessive(self) -> str:
        """With 's."""
        return f"{self.object}'" if self.plural and self.object.endswith("s") else f"{self.object}'s"

    @property
    def is_pronoun(self) -> bool:
        """Whether it has a form of its own as an object."""
        return self.text != self.object

    def with_attribute(self, attribute: str, determiner: str | None = None) -> str:
        """The phrase with an adjective or number before its noun."""
        determiner = self.determiner if determiner is None else determiner
        words = f"{attribute} {self.noun.form('pl' if self.plural else '')}"
        return indefinite(words) if determiner in ("a", "an") else f"{determiner} {words}".strip()

    def part(self, name: str, values: Mapping[str, Any]) -> str:
        """What a pattern asks for: its own form, or a verb that agrees with it in the tense of ``values``.

        The names: o, object; s, possessive; noun, without determiner; pl, in the plural; one, "the one"; is, has, do,
        finite auxiliaries; with_X, some_X, bare_X, with the attribute X; any verb's slot, and that with _en, passive.
        """
        past = values["tense"] not in PRESENT
        own = {
            "": lambda: self.text,
            "o": lambda: self.object,
            "s": lambda: self.possessive,
            "noun": lambda: self.noun.form("pl" if self.plural else ""),
            "pl": lambda: self.noun.plural,
            "one": lambda: "the ones" if self.plural else "the one",
            "is": lambda: be(self.plural, past),
            "has": lambda: "had" if past else "have" if self.plural else "has",
            "do": lambda: "did" if past else "do" if self.plural else "does",
        }
        if name in own:
            return own[name]()
        first, _, second = name.partition("_")
        if first in ("with", "some", "bare"):
            kind = {"with": None, "some": "some" if self.plural else "a", "bare": ""}[first]
            return self.with_attribute(values[second], kind)
        return values[first].group(values["tense"], self.plural, passive=second == "en")
