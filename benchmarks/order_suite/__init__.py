"""A held-out suite of word order and negation for sentence encoders; light to import.

Each item is a text, a paraphrase and a foil, which has another meaning. The two parts have no content word and no
template in common. Training data for encoders that are measured here must have none of ``texts()``, and made training
sentences none of ``content_words(fixed=False)`` and none of ``skeletons()``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from .generate import Pools, Template, forms, generate
from .grammar import FUNCTION_WORDS, tokens
from .templates import test as test_templates
from .templates import validation as validation_templates
from .words import test as test_words
from .words import validation as validation_words

PARTS: dict[str, tuple[Pools, dict[str, list[Template]]]] = {
    "validation": (validation_words.POOLS, validation_templates.TEMPLATES),
    "test": (test_words.POOLS, test_templates.TEMPLATES),
}
"""The words and the templates of each part."""
SETTINGS = {
    "roles": ("same_form", "paraphrase_form"),
    "attributes": ("same_form", "paraphrase_form"),
    "negation": ("negation",),
}
"""Kinds of items, and the settings of each: which form the foil has."""
PER_KIND = 1000
FIXED = ("also", "rest")
"""Pools of the words that templates have themselves."""


@dataclass(frozen=True)
class Item:
    """An encoder is right if the text is nearer to the paraphrase than to the foil."""

    kind: str
    setting: str
    template: str
    text: str
    paraphrase: str
    foil: str


@cache
def items(part: str) -> tuple[Item, ...]:
    """All items of a part, the same in every process: at least 1,000 for each kind and setting, equally many for each
    template of a kind."""
    pools, kinds = PARTS[part]
    found = []
    for kind, templates in kinds.items():
        for template in templates:
            rows = generate(kind, template, pools, -(-PER_KIND // len(templates)))
            found += [Item(kind, row[0], template.name, *row[1:]) for row in rows]
    return tuple(found)


def texts() -> Iterator[str]:
    """Every text, paraphrase and foil of both parts, each once."""
    everything = (text for part in PARTS for item in items(part) for text in (item.text, item.paraphrase, item.foil))
    return iter(dict.fromkeys(everything))


@cache
def content_words(part: str | None = None, fixed: bool = True) -> frozenset[str]:
    """Content words in lower case, all inflected forms of each: of one part, or of both.

    Without ``fixed``, those that fill slots alone, not those that templates have themselves.
    """
    if part is None:
        return frozenset().union(*(content_words(name, fixed) for name in PARTS))
    pools = {name: pool for name, pool in PARTS[part][0].items() if fixed or name not in FIXED}
    words = {word for form in forms(pools) for word in tokens(form)}
    return frozenset(words - FUNCTION_WORDS)


def skeleton(text: str) -> str:
    """A text with its content words left out."""
    return " ".join(word if word in FUNCTION_WORDS else "_" for word in tokens(text))


@cache
def skeletons() -> frozenset[str]:
    """Of all texts of both parts."""
    return frozenset(map(skeleton, texts()))
