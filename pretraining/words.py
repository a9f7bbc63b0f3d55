"""The lexicon of made sentences, drawn from parsed ones: nouns, verbs, adjectives, adverbs, adjuncts, opposites."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any

from benchmarks.order_suite.grammar import FUNCTION_WORDS
from hf_blosan.errors import InputError

from .inflection import OBJECT_FORMS, SUBJECT_FORMS, Noun, Phrase, Verb, indefinite, inflect
from .parses import Sentence, Token
from .wordnet import SOMEBODY, SOMETHING, WordNet

ANIMATE = {"noun.person", "noun.animal"}
THINGS = {"noun.artifact", "noun.food"}
SETTINGS = {
    *("noun.act", "noun.artifact", "noun.event", "noun.location", "noun.object", "noun.phenomenon", "noun.plant"),
    *("noun.group", "noun.time", "noun.state", "noun.communication", "noun.substance"),
}
"""What adjuncts of place and time are about."""
PREPOSITIONS = set("in on at near after before during behind outside inside under across through along beside".split())
STATES = {"verb.stative", "verb.emotion", "verb.cognition", "verb.perception", "verb.possession"}
LEAST = 2
"""Words without which patterns cannot be filled."""
LIGHT_VERBS = set("be have do get let want make keep bear".split())
TIMES = (
    "yesterday,last week,every day,today,this morning,again,on Monday,last night,in the summer,once more,"
    "every evening,in 1990,at noon,two days ago,at last,without warning,in secret,for years,twice,again and again,"
    "by mistake,on purpose,in May,many times,all day,for an hour,on Friday evening,after midnight,since 2010,"
    "three times,in public"
).split(",")
NAMES = """
    Michael James Robert Linda Barbara William Richard Jessica Thomas Sarah Charles Christopher Nancy Lisa Betty
    Matthew Anthony Sandra Ashley Donald Steven Kimberly Andrew Joshua Michelle Kenneth Kevin Amanda Melissa Deborah
    Stephanie Rebecca Timothy Edward Jason Jeffrey Ryan Jacob Cynthia Kathleen Amy Angela Shirley Brenda Pamela
    Nicole Samantha Katherine Christine Ben Carla David Emma Frank Grace Henry Irene Jack Karen Leo Nick Olivia Paul
    Rachel Sam Tina Wendy John Mary Susan Tom Alice Bob Lucy Mark Nina Martin Sophie Daniel Kate George Ahmed Fatima
    Chen Yuki Pablo Ingrid Omar Priya Ivan Elena
""".split()
PRONOUNS = [Phrase("he", "him"), Phrase("she", "her"), Phrase("they", "them", True), Phrase("we", "us", True)]
COLORS = """
    red blue green yellow black white brown orange pink purple gray golden silver violet beige turquoise maroon navy
    scarlet tan crimson teal blonde dark pale bright
""".split()
NUMBERS = """
    two three four five six seven eight nine ten twelve twenty eleven thirteen fourteen fifteen sixteen seventeen
    eighteen thirty forty fifty sixty several many few 11 15 16 20 25 30 50
""".split()
SINGULAR = [
    ("the", 6),
    ("a", 4),
    ("this", 1),
    ("that", 1),
    ("my", 1),
    ("her", 1),
    ("our", 1),
    ("one", 1),
    ("another", 1),
]
PLURAL = [("the", 3), ("some", 1), ("two", 1), ("three", 1), ("many", 1), ("those", 1), ("these", 1), ("their", 1)]


class Corpus:
    """What parsed sentences say about their words, counted.

    Attributes:
        forms: texts of tokens in lower case.
        nouns, counted: lemmas of common nouns; of those in the plural or after "a".
        verbs, acted, passive, progressive: lemmas of verbs; of those with an object or in the passive; in the passive;
            in the progressive.
        on_persons, on_things: lemmas of verbs with a person or an animal, or a thing, as their object.
        attributes, predicates, after_a: adjectives before nouns; after copulas; between "a" and a noun.
        adverbs, anywhere: adverbs in -ly after their verb; in all places.
        adjuncts: short prepositional phrases of place and time after their verb.
    """

    COUNTERS = (
        "forms nouns counted verbs acted passive progressive on_persons on_things attributes predicates after_a "
        "adverbs anywhere adjuncts"
    ).split()

    def __init__(self, sentences: Iterable[Sentence], wordnet: WordNet) -> None:
        self.wordnet = wordnet
        for name in self.COUNTERS:
            setattr(self, name, Counter())
        for sentence in sentences:
            for token in sentence:
                self.forms[token.lower] += 1
                if token.pos == "VERB":
                    self.count_verb(sentence, token)
                elif token.tag in ("NN", "NNS") and token.text.islower():
                    self.nouns[token.lemma] += 1
                    self.counted[token.lemma] += token.tag == "NNS" or after_a(sentence, token)
                elif token.tag == "JJ" and token.text.islower():
                    self.count_adjective(sentence, token)
                elif token.dep == "prep" and token.lower in PREPOSITIONS and token.i > token.head:
                    self.count_adjunct(sentence, token)
                elif token.dep == "advmod" and token.tag == "RB" and re.fullmatch("[a-z]+ly", token.text):
                    self.anywhere[token.text] += 1
                    self.adverbs[token.text] += token.i > token.head and sentence.head(token).pos == "VERB"

    def count_verb(self, sentence: Sentence, token: Token) -> None:
        """Its objects, and how it is used."""
        lemma = token.lemma
        self.verbs[lemma] += 1
        children = sentence.children(token)
        if any(child.dep == "prt" for child in children):
            return
        objects = [child for child in children if child.dep == "dobj"]
        passive = any(child.dep == "auxpass" for child in children)
        self.acted[lemma] += bool(objects) or passive
        self.passive[lemma] += passive
        self.progressive[lemma] += token.tag == "VBG" and any(
            child.dep == "aux" and child.lemma == "be" for child in children
        )
        for child in objects:
            kind = self.wordnet.kind(child.lemma) if child.tag in ("NN", "NNS") else None
            self.on_persons[lemma] += kind in ANIMATE or child.lower in SUBJECT_FORMS
            self.on_things[lemma] += kind in THINGS

    def count_adjective(self, sentence: Sentence, token: Token) -> None:
        """Where it stands."""
        if token.dep == "amod" and sentence.head(token).tag in ("NN", "NNS"):
            self.attributes[token.text] += 1
            self.after_a[token.text] += after_a(sentence, token)
        elif token.dep == "acomp":
            self.predicates[token.text] += 1

    def count_adjunct(self, sentence: Sentence, token: Token) -> None:
        """If it is short, of plain words, and says where or when."""
        start, end = sentence.span(token)
        words = sentence.tokens[start:end]
        last = words[-1]
        if (
            start != token.i
            or sentence.head(token).pos != "VERB"
            or not 2 <= len(words) <= 5
            or last.tag not in ("NN", "NNS")
        ):
            return
        if not all(word.text.isalpha() and word.pos not in ("VERB", "PRON") for word in words[:-1]):
            return
        if last.text.isalpha() and self.wordnet.kind(last.lemma) in SETTINGS:
            text = " ".join(word.text if word.pos == "PROPN" else word.lower for word in words)
            self.adjuncts[text] += 1

    def is_plain(self, adjective: str) -> bool:
        """Whether it is said of things both before their nouns and after copulas."""
        usual = self.predicates[adjective] and self.after_a[adjective]
        return bool(usual) and adjective not in FUNCTION_WORDS


def after_a(sentence: Sentence, token: Token) -> bool:
    """Whether an indefinite article is right before it, and it is no part of a compound."""
    return token.dep != "compound" and token.i > 0 and sentence.tokens[token.i - 1].lower in ("a", "an")


class Lexicon:
    """Words to draw from, without those that are banned, and what draws them for the slots of patterns.

    Raises:
        InputError: the sentences have too few.
    """

    def __init__(self, corpus: Corpus, banned: Collection[str] = ()) -> None:
        self.corpus, self.banned = corpus, banned
        self._verbs: dict[str, Verb | None] = {}
        wordnet = corpus.wordnet
        kinds = {word: wordnet.kind(word) for word, count in corpus.nouns.items() if count >= 3}
        self.persons = self.nouns(word for word, kind in kinds.items() if kind == "noun.person")
        self.animals = self.nouns(word for word, kind in kinds.items() if kind == "noun.animal")
        self.things = self.nouns(word for word, kind in kinds.items() if kind in THINGS and corpus.nouns[word] >= 5)
        self.bearers = self.things + self.persons[: len(self.things) // 2] + self.animals
        self.verbs = self.transitive(corpus.on_persons, SOMEBODY, 1)
        self.thing_verbs = self.transitive(corpus.on_things, SOMETHING, 2)
        self.adjectives = [
            word
            for word, count in corpus.attributes.items()
            if count >= 5 and corpus.is_plain(word) and wordnet.kind(word, "adj") and self.allows(word)
        ]
        self.colors, self.numbers = ([word for word in pool if self.allows(word)] for pool in (COLORS, NUMBERS))
        self.adjuncts = [
            text
            for text, count in corpus.adjuncts.items()
            if (count >= 3 or " " in text.partition(" ")[2]) and self.allows(text)
        ]
        self.times = [text for text in TIMES if self.allows(text)]
        self.manners = [
            word
            for word, count in corpus.adverbs.items()
            if count >= max(3, 0.7 * corpus.anywhere[word]) and self.allows(word)
        ]
        self.names = [name for name in NAMES if self.allows(name)]
        self.opposites = self.antonyms("adj", corpus.predicates, corpus.attributes)
        self._opposites = dict(self.opposites)
        self.opposite_verbs = [
            pair
            for pair in (
                [Verb.of(word, corpus.forms) for word in words]
                for words in self.antonyms("verb", corpus.acted, corpus.verbs)
            )
            if all(pair)
        ]

        self.lists = self.pools()
        for name, words in self.lists.items():
            if len(words) < LEAST:
                raise InputError(f"{name}: the parsed sentences give {len(words)}, {LEAST} are needed; parse more")

    def pools(self) -> dict[str, list[Any]]:
        """The words that patterns draw from, by the names that they use."""
        return {
            "verb": self.verbs,
            "deed": self.thing_verbs,
            "number": self.numbers,
            "cardinal": [word for word in self.numbers if word not in ("several", "many", "few")],
            "things": self.things,
            "persons": self.persons,
            "animals": self.animals,
            "adjective": self.adjectives,
            "long adjective": [word for word in self.adjectives if len(word) > 7],
            "opposites": self.opposites,
            "opposite verbs": self.opposite_verbs,
        }

    def allows(self, text: str) -> bool:
        """Whether none of its words is banned."""
        return not any(word in self.banned for word in re.findall("[a-z]+", text.lower()))

    def nouns(self, lemmas: Iterable[str]) -> list[Noun]:
        """Those that are countable in the corpus."""
        found = []
        for lemma in lemmas:
            plural = inflect(lemma, "NNS", self.corpus.forms)
            if len(lemma) > 2 and lemma.isalpha() and self.corpus.counted[lemma] and plural and plural.isalpha():
                found.append(Noun(lemma, plural))
        return [noun for noun in found if self.allows(f"{noun.singular} {noun.plural}")]

    def transitive(self, objects: Counter[str], frame: int, least: int) -> list[Verb]:
        """Verbs that WordNet has with this frame and that are met with such objects, in attested forms."""
        corpus, found = self.corpus, []
        for lemma, count in objects.items():
            usual = count >= least and corpus.verbs[lemma] >= 3 and corpus.acted[lemma] >= 0.2 * corpus.verbs[lemma]
            if usual and lemma.isalpha() and lemma not in LIGHT_VERBS and frame in corpus.wordnet.frames(lemma):
                verb = Verb.of(lemma, corpus.forms)
                if verb and all(corpus.forms[form] for form in (verb.past, verb.done)):
                    found.append(verb)
        return [verb for verb in found if self.allows(" ".join((verb.base, verb.s, verb.past, verb.done, verb.doing)))]

    def can_progress(self, verb: Verb) -> bool:
        """Whether it is no verb of state, or is met in the progressive often enough."""
        corpus = self.corpus
        if corpus.wordnet.kind(verb.base, "verb") not in STATES:
            return True
        return corpus.progressive[verb.base] >= max(1, 0.01 * corpus.verbs[verb.base])

    def antonyms(self, pos: str, used: Counter[str], more: Counter[str]) -> list[list[str]]:
        """Words with the most frequent of their antonyms, if both are met, and one as it is used here."""
        pairs, counts, wordnet = [], used + more, self.corpus.wordnet
        for word, others in wordnet.antonyms(pos).items():
            pair = [word, max(others, key=lambda one: counts[one])]
            if pos == "verb" and not all(
                one not in LIGHT_VERBS and {SOMETHING, SOMEBODY} & wordnet.frames(one) for one in pair
            ):
                continue
            usual = any(used[one] for one in pair) and all(counts[one] for one in pair)
            if usual and all(one not in FUNCTION_WORDS and self.allows(one) for one in pair):
                pairs.append(pair)
        return pairs

    def verb(self, text: str) -> Verb | None:
        """From a lemma and what follows it; None if a form is missing."""
        if text not in self._verbs:
            self._verbs[text] = Verb.of(text, self.corpus.forms)
        return self._verbs[text]

    def antonym(self, adjective: str) -> str | None:
        """Of an adjective."""
        return self._opposites.get(adjective)

    def phrase(self, rng: random.Random, nouns: list[Noun] | None = None) -> Phrase:
        """A noun phrase of one of these nouns; or of a person or animal, a name, a pronoun."""
        chance = rng.random()
        if nouns is None and chance < 0.12:
            name = rng.choice(self.names)
            return Phrase(name, name)
        if nouns is None and chance < 0.17:
            return rng.choice(PRONOUNS)
        noun = rng.choice(nouns or (self.persons if chance < 0.85 else self.animals))
        plural = rng.random() < 0.25
        attribute = rng.choice(self.adjectives) if rng.random() < 0.15 else ""
        determiner = weighted(rng, PLURAL if plural else SINGULAR)
        words = f"{attribute} {noun.plural if plural else noun.singular}".strip()
        text = indefinite(words) if determiner == "a" else f"{determiner} {words}"
        return Phrase(text, text, plural, noun, determiner)

    def bearer(self, rng: random.Random, nouns: list[Noun]) -> Phrase:
        """A noun phrase that a pattern gives attributes to."""
        noun, plural = rng.choice(nouns), rng.random() < 0.2
        determiner = "the" if plural or rng.random() < 0.5 else "a"
        text = f"the {noun.plural if plural else noun.singular}" if determiner == "the" else indefinite(noun.singular)
        return Phrase(text, text, plural, noun, determiner)

    def suitable(self, rng: random.Random, test: Callable[[Phrase], bool]) -> Phrase:
        """The next noun phrase that passes."""
        return next(phrase for phrase in iter(lambda: self.phrase(rng), None) if test(phrase))

    def adjunct(self, rng: random.Random, manner: bool) -> str:
        """An adjunct, also of manner if that suits, or three times in ten nothing."""
        chance = rng.random()
        if chance < 0.3:
            return ""
        if chance < 0.75 and self.adjuncts:
            return rng.choice(self.adjuncts)
        return rng.choice(self.manners if manner and self.manners and chance < 0.87 else self.times)

    def draw(self, pool: str, rng: random.Random, count: int) -> list[Any]:
        """So many different values of a pool that a pattern names."""
        phrases = {
            "anyone": lambda: self.phrase(rng),
            "someone": lambda: self.suitable(rng, lambda phrase: not phrase.is_pronoun),
            "individual": lambda: self.suitable(rng, lambda phrase: not (phrase.is_pronoun or phrase.plural)),
            "thing": lambda: self.phrase(rng, self.things),
            "either": lambda: self.phrase(rng, self.persons if rng.random() < 0.35 else self.things),
            "bearer": lambda: self.bearer(rng, self.bearers),
            "object": lambda: self.bearer(rng, self.things),
            "pronoun": lambda: rng.choice(PRONOUNS),
        }
        if pool in phrases:
            found: dict[Any, Any] = {}
            while len(found) < count:
                phrase = phrases[pool]()
                found.setdefault(phrase.noun or phrase.text, phrase)
            return list(found.values())
        if pool == "adjective":
            return rng.sample(self.colors if rng.random() < 0.35 else self.adjectives, count)
        words = self.lists[pool]
        return list(rng.choice(words)) if pool in ("opposites", "opposite verbs") else rng.sample(words, count)


def weighted(rng: random.Random, choices: list[tuple[str, int]]) -> str:
    """One of the texts, by weight."""
    return rng.choices([text for text, _ in choices], [weight for _, weight in choices])[0]


def subject_form(text: str) -> str:
    """An object pronoun as a subject; all else as it is."""
    return SUBJECT_FORMS.get(text.lower(), text)


def object_form(text: str) -> str:
    """A subject pronoun as an object; all else as it is."""
    return OBJECT_FORMS.get(text.lower(), text)
