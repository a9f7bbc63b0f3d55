"""From templates and words to items, with a seed of their own for each template."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

from .grammar import Noun, Pair, Phrase, Verb, Word, indefinite

POOLS = {
    **dict.fromkeys("abc", "people"),
    **dict.fromkeys("vw", "acts"),
    **dict.fromkeys("mn", "things"),
    **dict.fromkeys("xy", "looks"),
    **dict.fromkeys("pq", "numbers"),
    **dict.fromkeys("de", "deeds"),
}
"""Where a slot's word comes from unless its template says otherwise; other slots are named after their pools."""
NUMBERED = {"is": ("is", "are"), "was": ("was", "were"), "has": ("has", "have")}
SINGULAR = {"the": 6, "a": 1, "name": 3, "kin": 1}
PLURAL = {"the": 6, "kin": 1, "you": 1}
Pools = dict[str, list]


@dataclass(frozen=True)
class Template:
    """A pattern of items; its strings are for ``str.format``.

    Attributes:
        name: unique over all parts.
        text, paraphrase: two ways to say the same.
        foil: what says the opposite; or, for a swap, empty.
        swap: two slots; with them exchanged, text and paraphrase are the two foils.
        people: what a, b, c can be: "the", "a" or "his" and a noun, a "name", "you" among plurals, or one "pronoun".
        plural: whether they can also be plural, all at once.
        pools: of slots whose pool is not the usual one.
    """

    name: str
    text: str
    paraphrase: str
    foil: str = ""
    swap: str = ""
    people: str = "the name kin"
    plural: bool = False
    pools: dict[str, str] = field(default_factory=dict)

    @property
    def slots(self) -> list[str]:
        """The names of the slots, in order, without attributes."""
        fields = (
            name for text in (self.text, self.paraphrase, self.foil) for _, name, _, _ in Formatter().parse(text)
        )
        return list(dict.fromkeys(name.split(".")[0] for name in fields if name))

    def draw(self, rng: random.Random, pools: Pools) -> dict[str, Any]:
        """A value for each slot; slots of the same pool differ."""
        plural = self.plural and rng.random() < 0.3
        values: dict[str, Any] = {slot: forms[plural] for slot, forms in NUMBERED.items()}
        wanted: dict[str, list[str]] = {}
        for slot in self.slots:
            if slot not in NUMBERED:
                wanted.setdefault(self.pools.get(slot, POOLS.get(slot, slot)), []).append(slot)
        for pool, slots in wanted.items():
            if pool == "people":
                values |= zip(slots, self.phrases(rng, pools, len(slots), plural), strict=True)
            else:
                values |= zip(slots, rng.sample(pools[pool], len(slots)), strict=True)
        return values

    def phrases(self, rng: random.Random, pools: Pools, count: int, plural: bool) -> list[Phrase]:
        """Noun phrases for people, all singular or all plural, no two with the same noun."""
        if self.people == "pronoun":
            pronoun = Phrase("they", "them", "they") if plural else rng.choice([HE, SHE])
            phrases = [pronoun, *(phrase(rng, pools, "the", plural) for _ in range(count - 1))]
            return rng.sample(phrases, count)
        weights = PLURAL if plural else SINGULAR
        kinds = [kind for kind in weights if kind in self.people.split() or kind == "you"]
        while True:
            chosen = rng.choices(kinds, [weights[kind] for kind in kinds], k=count)
            found = [phrase(rng, pools, kind, plural) for kind in chosen]
            if len({one.noun for one in found}) == count:
                return found

    def fill(self, values: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
        """Setting, text, paraphrase, foil."""
        text, paraphrase = (sentence(form, values) for form in (self.text, self.paraphrase))
        if not self.swap:
            yield "negation", text, paraphrase, sentence(self.foil, values)
            return
        first, second = self.swap.split()
        swapped = values | {first: values[second], second: values[first]}
        yield "same_form", text, paraphrase, sentence(self.text, swapped)
        yield "paraphrase_form", text, paraphrase, sentence(self.paraphrase, swapped)


def templates(text: str, swap: str = "") -> list[Template]:
    """Templates from lines ``name [options]: text | paraphrase | foil``; a deeper line continues the one before it.

    Options, separated by semicolons: "plural"; people=..., swap=...; SLOT=POOL where the pool is not the usual one.
    """
    found = []
    for line in re.sub(r"\n {8,}", " ", text).strip().splitlines():
        name, given, forms = re.fullmatch(r" *(\w+)(?: \[(.*?)\])?: (.*)", line).groups("")
        pools = {"swap": swap} | dict(re.findall(r"(\w+)=([^;]+)", given))
        own = {key: pools.pop(key) for key in ("swap", "people") if key in pools}
        found.append(Template(name, *forms.split(" | "), **own, plural="plural" in given.split("; "), pools=pools))
    return found


HE, SHE = Phrase("he", "him", "he"), Phrase("she", "her", "she")


def phrase(rng: random.Random, pools: Pools, kind: str, plural: bool) -> Phrase:
    """One noun phrase."""
    if kind == "you":
        return Phrase("you", "you", "you")
    if kind == "name":
        name = rng.choice(pools["names"])
        return Phrase(name, name, name)
    noun = rng.choice(pools["kin" if kind == "kin" else "people"])
    form = noun.s if plural else str(noun)
    determiner = rng.choice(["his", "her"]) if kind == "kin" else "the"
    text = indefinite(form) if kind == "a" else f"{determiner} {form}"
    return Phrase(text, text, noun.singular)


def sentence(form: str, values: dict[str, Any]) -> str:
    """A filled form with a capital letter."""
    text = form.format(**values)
    return text[0].upper() + text[1:]


def generate(kind: str, template: Template, pools: Pools, count: int) -> list[tuple[str, str, str, str]]:
    """So many different fillings of a template, each with its settings.

    Raises:
        ValueError: there are not so many.
    """
    rng, seen, rows = random.Random(f"{kind} {template.name}"), set(), []
    for _ in range(100 * count):
        filled = list(template.fill(template.draw(rng, pools)))
        if filled[0][1:3] not in seen and all(foil != text for _, text, _, foil in filled):
            seen.add(filled[0][1:3])
            rows += filled
        if len(seen) == count:
            return rows
    raise ValueError(
        f"template {template.name}: {len(seen)} different items, {count} wanted; give its slots more words"
    )


def forms(pools: Pools) -> Iterator[str]:
    """Every form of every word."""
    for entry in (entry for pool in pools.values() for entry in pool):
        if isinstance(entry, Pair):
            yield str(entry.noun)
            parts = [entry.pos, entry.neg]
        else:
            parts = [entry]
        for part in parts:
            yield from part.forms if isinstance(part, Verb | Noun | Word) else [part]
