"""Triplets from real sentences, by their parses: arguments or attributes exchanged, negation, antonyms.

Every function takes a sentence, a lexicon and random numbers, and yields texts, paraphrases and foils.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .inflection import MODALS, Verb
from .parses import Sentence, Token
from .words import Lexicon, object_form, subject_form

Changed = Iterator[tuple[str, str, list[str]]]
CLAUSES = ("ROOT", "ccomp", "advcl", "conj")
NOT_SUBJECTS = set("it that this there what these those which who".split())
BLOCKING = ("neg", "prt", "dative", "xcomp", "ccomp", "conj", "oprd")
"""Dependents of a verb that do not let its arguments change places."""
REFLEXIVE = re.compile(r"\b(\w+sel(f|ves)|each other|one another|own)\b")
NEGATIVE = set("not n't no never nobody nothing none neither nor hardly".split())
WITH_NOT = {
    **{word: f"{word}n't" for word in "is are was were has have had would could should do does did must".split()},
    "will": "won't",
    "can": "can't",
}
DO = {"VBD": "did", "VBZ": "does", "VBP": "do"}
TRUE = [
    "it is true that {}",
    "it is the case that {}",
    "indeed, {}",
    "in fact, {}",
    "certainly, {}",
    "it is a fact that {}",
]
FALSE = [
    "it is not true that {}",
    "it is not the case that {}",
    "it is false that {}",
    "nobody can say that {}",
    "it is wrong to say that {}",
    "it is untrue that {}",
]


@dataclass
class Argument:
    """A noun phrase of a sentence."""

    text: str
    plural: bool
    first: bool

    @classmethod
    def of(cls, sentence: Sentence, token: Token, lexicon: Lexicon) -> Argument | None:
        """Of its head; None if it is too long, or bound to its place."""
        start, end = sentence.span(token)
        text = lowered(sentence, start, end)
        common = token.tag in ("NN", "NNS")
        kind = lexicon.corpus.wordnet.kind(token.lemma) if common else None
        suits = common or token.tag in ("NNP", "NNPS", "PRP")
        if end - start > 6 or not suits or not token.text.isalpha() or token.lower in NOT_SUBJECTS:
            return None
        if kind == "noun.time" or REFLEXIVE.search(text.lower()):
            return None
        plural = token.tag in ("NNS", "NNPS") or token.lower in ("they", "we", "them", "us", "you")
        plural = plural or bool(sentence.children(token, "conj"))
        return cls(text, plural, token.lower in ("i", "me"))


def lowered(sentence: Sentence, start: int, end: int) -> str:
    """A part of a sentence as it is inside one."""
    text, first = sentence.text(start, end), sentence.tokens[start]
    keeps = first.pos == "PROPN" or first.text == "I" or first.text[1:] != first.text[1:].lower()
    return text if keeps else text[:1].lower() + text[1:]


def tense_of(verb: Token, auxiliaries: list[str]) -> str | None:
    """The tense of a verb with these words before it, the passive's own left out; None for other groups."""
    if not auxiliaries:
        return {"VBD": "past", "VBZ": "present", "VBP": "present"}.get(verb.tag)
    if len(auxiliaries) > 1:
        return None
    word = auxiliaries[0]
    if verb.tag == "VBG" and word in ("is", "are", "am", "was", "were"):
        return "past progressive" if word in ("was", "were") else "progressive"
    if verb.tag == "VBN" and word in ("has", "have", "had"):
        return "pluperfect" if word == "had" else "perfect"
    return word if verb.tag == "VB" and word in MODALS else None


def roles(sentence: Sentence, lexicon: Lexicon, rng: random.Random) -> Changed:
    """Active and passive, with subject and object exchanged for the foils."""
    if len(sentence) > 25:
        return
    for verb in sentence:
        if verb.pos != "VERB" or verb.dep not in CLAUSES or not lexicon.corpus.passive[verb.lemma]:
            continue
        found = active_clause(sentence, verb) or passive_clause(sentence, verb)
        if not found:
            continue
        subject, object_, tense, before, adverbs, after = found
        agent, patient = (Argument.of(sentence, token, lexicon) for token in (subject, object_))
        forms = lexicon.verb(verb.lemma)
        if not (agent and patient and forms):
            continue
        texts = []
        for one, other in ((agent, patient), (patient, agent)):
            texts += voices(one, other, forms, tense, before, adverbs, after)
        active, passive, *foils = texts
        yield (active, passive, foils) if rng.random() < 0.5 else (passive, active, foils[::-1])


def voices(
    agent: Argument, patient: Argument, verb: Verb, tense: str, before: str, adverbs: str, after: str
) -> tuple[str, str]:
    """The clause in the active and in the passive."""
    active = placed(adverbs, verb.group(tense, agent.plural, False, agent.first))
    passive = placed(adverbs, verb.group(tense, patient.plural, True, patient.first))
    return (
        " ".join((before, subject_form(agent.text), active, object_form(patient.text), after)),
        " ".join((before, subject_form(patient.text), passive, "by", object_form(agent.text), after)),
    )


def placed(adverbs: str, group: str) -> str:
    """Adverbs after the first auxiliary, or before the verb if there is none."""
    first, _, rest = group.partition(" ")
    return " ".join((first, adverbs, rest) if rest else (adverbs, first))


def active_clause(sentence: Sentence, verb: Token) -> tuple[Token, Token, str, str, str, str] | None:
    """Subject, object, tense, and what is before, between and after them; None if it is another clause."""
    subjects, objects = sentence.children(verb, "nsubj"), sentence.children(verb, "dobj")
    if len(subjects) != 1 or len(objects) != 1 or sentence.children(verb, *BLOCKING, "auxpass"):
        return None
    (_, end), (start, stop) = sentence.span(subjects[0]), sentence.span(objects[0])
    between = sentence.tokens[end:start]
    if not between or between[-1] is not verb or any(token.dep not in ("aux", "advmod") for token in between[:-1]):
        return None
    if any(token.head != verb.i for token in between[:-1]):
        return None
    tense = tense_of(verb, [token.lower for token in between[:-1] if token.dep == "aux"])
    return tense and (subjects[0], objects[0], tense, *around(sentence, subjects[0], between, stop))


def passive_clause(sentence: Sentence, verb: Token) -> tuple[Token, Token, str, str, str, str] | None:
    """The same of a passive whose agent follows the verb."""
    subjects, agents = sentence.children(verb, "nsubjpass"), sentence.children(verb, "agent")
    nouns = sentence.children(agents[0], "pobj") if len(agents) == 1 else []
    if len(subjects) != 1 or len(nouns) != 1 or sentence.children(verb, *BLOCKING) or agents[0].i != verb.i + 1:
        return None
    (_, end), (start, stop) = sentence.span(subjects[0]), sentence.span(nouns[0])
    between = sentence.tokens[end : verb.i + 1]
    inner = between[:-1]
    if start != verb.i + 2 or any(
        token.dep not in ("aux", "auxpass", "advmod") or token.head != verb.i for token in inner
    ):
        return None
    words = [token.lower for token in inner if token.dep != "advmod"]
    finite = {"are": "present", "is": "present", "am": "present", "was": "past", "were": "past"}
    if len(words) == 1:
        tense = finite.get(words[0])
    else:
        last = {"being": "VBG", "been": "VBN", "be": "VB"}.get(words[-1], "") if words else ""
        tense = tense_of(Token(verb.i, "", "", "", last, "", "", 0), words[:-1])
    return tense and (nouns[0], subjects[0], tense, *around(sentence, subjects[0], between, stop))


def around(sentence: Sentence, subject: Token, between: list[Token], stop: int) -> tuple[str, str, str]:
    """What is before the subject, the adverbs in between, and what is after the clause's core."""
    start, _ = sentence.span(subject)
    adverbs = " ".join(token.text for token in between if token.dep == "advmod")
    return sentence.text(0, start), adverbs, sentence.text(stop, len(sentence))


def attributes(sentence: Sentence, lexicon: Lexicon, rng: random.Random) -> Changed:
    """Two adjectives or two numbers, exchanged for the foils; with relative clauses or in another order."""
    alone = [token for token in sentence if token.i + 1 == token.head and sentence.head(token).tag in ("NN", "NNS")]
    alone = [
        token for token in alone if len(sentence.children(sentence.head(token), "amod", "compound", "nummod")) == 1
    ]
    plain = [token for token in alone if token.dep == "amod" and lexicon.corpus.is_plain(token.text)]
    numbers = [token for token in alone if token.dep == "nummod" and token.text.isalpha() and token.lower != "one"]
    for found in (plain, numbers):
        if len(found) < 2:
            continue
        pair = sorted(rng.sample(found, 2), key=lambda token: token.i)
        if len({token.lower for token in pair}) < 2 or len({sentence.head(token).lower for token in pair}) < 2:
            continue
        forms = [in_place]
        if found is plain:
            relatives = zip((relative_first, relative_second), pair, strict=True)
            forms += [form for form, token in relatives if takes_clause(sentence, token)]
        forms += [reordered] if coordinated(sentence, *pair) else []
        if len(forms) > 1:
            one, other = rng.sample(forms, 2)
            words = [token.lower for token in pair]
            yield (
                one(sentence, pair, words),
                other(sentence, pair, words),
                [one(sentence, pair, words[::-1]), other(sentence, pair, words[::-1])],
            )


def in_place(sentence: Sentence, pair: list[Token], words: list[str]) -> str:
    """The sentence with these attributes where the pair is."""
    return sentence.text(0, len(sentence), dict(zip((token.i for token in pair), words, strict=True)))


def relative_first(sentence: Sentence, pair: list[Token], words: list[str], which: int = 0) -> str:
    """The same with a relative clause in place of the first attribute."""
    replaced = dict(zip((token.i for token in pair), words, strict=True))
    noun = sentence.head(pair[which])
    replaced |= {pair[which].i: "", noun.i: with_clause(noun, words[which])}
    return sentence.text(0, len(sentence), replaced)


def relative_second(sentence: Sentence, pair: list[Token], words: list[str]) -> str:
    """The same with a relative clause in place of the second attribute."""
    return relative_first(sentence, pair, words, 1)


def takes_clause(sentence: Sentence, attribute: Token) -> bool:
    """Whether a relative clause can take an attribute's place: not of "very large", and not before "of"."""
    after = sentence.tokens[attribute.head + 1 : attribute.head + 2]
    return not sentence.children(attribute) and all(token.lower != "of" for token in after)


def with_clause(noun: Token, words: str) -> str:
    """A noun with a relative clause."""
    return f"{noun.text} that {'are' if noun.tag == 'NNS' else 'is'} {words}"


def coordinated(sentence: Sentence, first: Token, second: Token) -> bool:
    """Whether the nouns of two attributes are all that "and" joins."""
    one, other = sentence.head(first), sentence.head(second)
    joins = [token.lower for token in sentence.children(one, "cc")]
    return (
        other.dep == "conj" and other.head == one.i and joins == ["and"] and not sentence.children(other, "conj", "cc")
    )


def reordered(sentence: Sentence, pair: list[Token], words: list[str]) -> str:
    """The sentence with what "and" joins in the other order."""
    replaced = dict(zip((token.i for token in pair), words, strict=True))
    noun = sentence.head(pair[0])
    (start, _), (_, end) = sentence.span(noun), sentence.span(sentence.head(pair[1]))
    middle = sentence.children(noun, "cc")[0].i
    first, second = sentence.text(start, middle, replaced), sentence.text(middle + 1, end, replaced)
    first = first if start or sentence.tokens[0].pos == "PROPN" else first[:1].lower() + first[1:]
    return f"{sentence.text(0, start)} {second} and {first} {sentence.text(end, len(sentence))}"


def statement(sentence: Sentence) -> Token | None:
    """The main verb of a sentence that can be negated; None if there is none."""
    roots = [token for token in sentence if token.dep == "ROOT" and token.pos in ("VERB", "AUX")]
    if len(roots) != 1 or len(sentence) > 22 or any(token.lower in NEGATIVE for token in sentence):
        return None
    text = str(sentence)
    opening = sentence.tokens[0]
    if text.endswith("?") or re.search(r"[\"“”:;()]", text) or opening.pos in ("CCONJ", "SCONJ", "INTJ", "PUNCT"):
        return None
    return roots[0] if sentence.children(roots[0], "nsubj", "nsubjpass", "expl") else None


def negated(sentence: Sentence, verb: Token, how: str, replaced: dict[int, str] | None = None) -> str | None:
    """The sentence with its verb negated by "not", "n't" or "never"; None if that is not possible."""
    auxiliaries = [
        token for token in sentence.children(verb, "aux", "auxpass") if token.i < verb.i and token.lower != "to"
    ]
    host = auxiliaries[0] if auxiliaries else verb if verb.lemma == "be" or verb.pos == "AUX" else None
    if host is None:
        if verb.tag not in DO:
            return None
        do = {"not": f"{DO[verb.tag]} not", "n't": f"{DO[verb.tag]}n't"}
        text = f"never {verb.text}" if how == "never" else f"{do[how]} {verb.lemma}"
        return sentence.text(0, len(sentence), (replaced or {}) | {verb.i: text})
    word = host.lower
    if how == "n't":
        text = WITH_NOT.get(word)
    else:
        text = (
            "cannot"
            if word == "can" and how == "not"
            else f"{host.text} {how}"
            if word.isalpha() or how == "not"
            else None
        )
    if text is None:
        return None
    text = text.capitalize() if host.text.istitle() else text
    return sentence.text(0, len(sentence), (replaced or {}) | {host.i: text})


def negation(sentence: Sentence, lexicon: Lexicon, rng: random.Random) -> Changed:
    """What is said and what is denied, each in several ways."""
    verb = statement(sentence)
    plain = verb and negated(sentence, verb, "not")
    if not plain:
        return
    text = lowered(sentence, 0, len(sentence)).rstrip(" .")
    ways = (plain, negated(sentence, verb, "n't"), negated(sentence, verb, "never") if rng.random() < 0.3 else None)
    denied = [way for way in ways if way] + [rng.choice(FALSE).format(text)]
    said = [str(sentence), rng.choice(TRUE).format(text)]
    if rng.random() < 0.5:
        yield (*rng.sample(denied, 2), rng.sample(said, 1))
    else:
        yield (*rng.sample(said, 2), rng.sample(denied, 2))


def antonyms(sentence: Sentence, lexicon: Lexicon, rng: random.Random) -> Changed:
    """An adjective and its antonym under negation."""
    verb = statement(sentence)
    for token in sentence:
        other = lexicon.antonym(token.text) if token.tag == "JJ" else None
        if other is None or verb is None:
            continue
        noun = sentence.head(token)
        replaced = {token.i: other}
        text, opposite = str(sentence), sentence.text(0, len(sentence), replaced)
        if token.dep == "acomp" and noun is verb:
            denied, not_opposite = (negated(sentence, verb, "not", change) for change in ({}, replaced))
            if denied and not_opposite:
                quadruples = [
                    (text, not_opposite, [opposite, denied]),
                    (opposite, denied, [text, not_opposite]),
                    (denied, opposite, [not_opposite, text]),
                    (not_opposite, text, [denied, opposite]),
                ]
                yield from rng.sample(quadruples, 2)
            return
        suits = token.dep == "amod" and token.i + 1 == noun.i and noun.tag in ("NN", "NNS")
        if suits and takes_clause(sentence, token):
            clauses = [token.text, f"not {other}", other, f"not {token.text}"]
            same, also, *foils = (
                sentence.text(0, len(sentence), {token.i: "", noun.i: with_clause(noun, words)}) for words in clauses
            )
            yield text, rng.choice([same, also]), rng.sample([opposite, *foils], 2)
            return


KINDS: dict[str, Callable[[Sentence, Lexicon, random.Random], Changed]] = {
    "real_roles": roles,
    "real_attributes": attributes,
    "real_negation": negation,
    "real_antonyms": antonyms,
}
