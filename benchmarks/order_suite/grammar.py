"""English inflection for the suite: verbs, nouns, adjectives, noun phrases, and the words that every part may use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

FUNCTION_WORDS = frozenset(
    """
    a an the this that these those it its he him his she her they them their you your who whom whose which what
    i me my we us our one ones someone somebody something anyone anybody anything everyone everybody everything
    nobody none nothing no not nor neither either both all any some each every most few fewer more less many much
    am is are was were be been being do does did have has had having will would shall should can cannot could may
    might must to of in on at by for from with without into onto up out off over under behind beside near next
    well before after during when while where if unless whether because and or but as than so then there here too very
    only never always often once ever still even just rather hardly nearly longer away going got except unlike instead
    about against between through across along s
    """.split()
)
"""Closed classes; all other words of the suite are content words."""
VOWELS = "aeiou"


@dataclass(frozen=True)
class Verb:
    """The five forms of a verb, each followed by the same object or nothing."""

    base: str
    s: str
    past: str
    done: str
    doing: str

    @classmethod
    def parse(cls, line: str) -> Verb:
        """From ``base``, ``base past``, ``base past done`` or ``base past done doing``; the rest is regular."""
        base, *given = line.split()
        past = given[0] if given else past_of(base)
        done = given[1] if len(given) > 1 else past
        doing = given[2] if len(given) > 2 else (base[:-1] if re.search("[^eoy]e$", base) else base) + "ing"
        return cls(base, with_s(base), past, done, doing)

    def followed_by(self, tail: str) -> Verb:
        """The same verb with what comes after it."""
        return Verb(*(f"{form} {tail}".strip() for form in self.forms))

    @property
    def forms(self) -> tuple[str, ...]:
        """All forms."""
        return self.base, self.s, self.past, self.done, self.doing


@dataclass(frozen=True)
class Noun:
    """A countable noun; printed, it is the singular."""

    singular: str
    s: str

    @classmethod
    def parse(cls, line: str) -> Noun:
        """From ``singular`` or ``singular plural``."""
        singular, *plural = line.split()
        return cls(singular, plural[0] if plural else with_s(singular))

    def __str__(self) -> str:
        return self.singular

    @property
    def a(self) -> str:
        """With the indefinite article."""
        return indefinite(self.singular)

    @property
    def forms(self) -> tuple[str, str]:
        """Both forms."""
        return self.singular, self.s


class Word(str):
    """An adjective or another word that is not inflected."""

    @property
    def a(self) -> str:
        """With the indefinite article."""
        return indefinite(self)

    @property
    def forms(self) -> tuple[str]:
        """The word."""
        return (str(self),)


@dataclass(frozen=True)
class Phrase:
    """A noun phrase; printed, it is the subject.

    Attributes:
        him: as an object or after a preposition.
        noun: its noun without a determiner, or the name.
    """

    subject: str
    him: str
    noun: str

    def __str__(self) -> str:
        return self.subject

    @property
    def poss(self) -> str:
        """The possessive of a singular or of a name."""
        return f"{self.subject}'s"


@dataclass(frozen=True)
class Pair:
    """Opposites: adjectives with a noun of which both can be said, or verbs with the same object."""

    pos: str | Verb
    neg: str | Verb
    noun: str = ""


def past_of(base: str) -> str:
    """The regular past."""
    if base.endswith("e"):
        return base + "d"
    return base[:-1] + "ied" if re.search(f"[^{VOWELS}]y$", base) else base + "ed"


def with_s(word: str) -> str:
    """The regular plural of a noun and third person of a verb."""
    if re.search(f"[^{VOWELS}]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search("(s|x|z|ch|sh|[^aeiou]o)$", word) else "s")


def indefinite(text: str) -> str:
    """With a or an; no word of the suite begins with a silent h or with "one" or "uni"."""
    return f"{'an' if text[0].lower() in VOWELS else 'a'} {text}"


def verbs(text: str) -> list[Verb]:
    """Verbs, separated by commas."""
    return [Verb.parse(line) for line in text.split(",")]


def nouns(text: str) -> list[Noun]:
    """Nouns, separated by commas."""
    return [Noun.parse(line) for line in text.split(",")]


def words(text: str) -> list[Word]:
    """Words or fixed phrases, separated by commas."""
    return [Word(" ".join(line.split())) for line in text.split(",")]


def deeds(text: str) -> list[Verb]:
    """Verbs with objects: a line ``verb: object, object`` for each verb."""
    return [
        Verb.parse(verb).followed_by(tail)
        for verb, tails in lines(text)
        for tail in (" ".join(tail.split()) for tail in tails.split(","))
    ]


def opposites(text: str) -> list[Pair]:
    """Adjectives: a line ``positive/negative: noun, noun`` for each pair."""
    return [Pair(*pair.split("/"), " ".join(noun.split())) for pair, rest in lines(text) for noun in rest.split(",")]


def opposite_deeds(text: str) -> list[Pair]:
    """Verbs: a line ``verb/verb: object, object`` for each pair."""
    pairs = []
    for pair, tails in lines(text):
        first, second = map(Verb.parse, pair.split("/"))
        pairs += [Pair(first.followed_by(t.strip()), second.followed_by(t.strip())) for t in tails.split(",")]
    return pairs


def lines(text: str) -> Iterator[tuple[str, str]]:
    """What is before and after the colon of each line."""
    for line in text.strip().splitlines():
        before, after = line.split(":")
        yield before.strip(), after.strip()


def tokens(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation; a possessive's s is a word of its own."""
    return re.findall("[a-z]+", text.lower())
