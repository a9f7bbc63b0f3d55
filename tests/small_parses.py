"""A small WordNet and parsed sentences, with words enough for made triplets."""

from pathlib import Path

from pretraining.filters import Filters
from pretraining.parses import Sentence, Token
from pretraining.triplets import COUNTS, make_triplets
from pretraining.wordnet import NAMES, WordNet

PERSONS = "pilot farmer nurse painter singer lawyer".split()
ANIMALS = "dog cat horse".split()
THINGS = "lamp table box wagon".split()
PLACES = "garden street".split()
VERBS = {"chase": "chased", "help": "helped", "push": "pushed", "pull": "pulled", "admire": "admired"}
ADJECTIVES = [("happy", "sad"), ("clean", "dirty"), ("thick", "thin"), ("loud", "quiet"), ("formidable", "negligible")]
PAIRS = [
    {"sentence1": "A boy runs.", "sentence2": "A child moves.", "label": "entailment"},
    {"sentence1": "A boy runs.", "sentence2": "Nobody runs.", "label": "contradiction"},
    {"sentence1": "A boy sleeps.", "sentence2": "A child rests.", "label": "entailment"},
    {"sentence1": "A boy sings.", "sentence2": "A boy sings well.", "label": "neutral"},
]


def parsed(text):
    """A sentence from ``text lemma tag pos dep head`` for each token, separated by ``|``."""
    rows = [row.split() for row in text.split("|")]
    tokens = [
        Token(i, word, " ", lemma, tag, pos, dep, int(head))
        for i, (word, lemma, tag, pos, dep, head) in enumerate(rows)
    ]
    if tokens[-1].pos == "PUNCT":
        tokens[-2].space = ""
    return Sentence(tokens)


def clause(subject, lemma, past, thing, adjective=None, place=None):
    """ "A subject past a thing.", with an adjective for the thing or a place."""
    rows = [f"A a DT DET det 1|{subject} {subject} NN NOUN nsubj 2|{past} {lemma} VBD VERB ROOT 2"]
    head = 5 if adjective else 4
    rows += [f"a a DT DET det {head}", *([f"{adjective} {adjective} JJ ADJ amod {head}"] if adjective else [])]
    rows.append(f"{thing} {thing} NN NOUN dobj 2")
    if place:
        rows.append(f"in in IN ADP prep 2|the the DT DET det {head + 3}|{place} {place} NN NOUN pobj {head + 1}")
    return parsed("|".join([*rows, ". . . PUNCT punct 2"]))


def state(subject, adjective):
    """ "The subject was adjective." """
    return parsed(
        f"The the DT DET det 1|{subject} {subject} NN NOUN nsubj 2|was be VBD AUX ROOT 2|"
        f"{adjective} {adjective} JJ ADJ acomp 2|. . . PUNCT punct 2"
    )


def passive(subject, lemma, past, agent):
    """ "The subject was past by the agent." """
    return parsed(
        f"The the DT DET det 1|{subject} {subject} NN NOUN nsubjpass 3|was be VBD AUX auxpass 3|"
        f"{past} {lemma} VBN VERB ROOT 3|by by IN ADP agent 3|the the DT DET det 6|{agent} {agent} NN NOUN pobj 4|"
        ". . . PUNCT punct 3"
    )


def sentences():
    """Parsed sentences with every word above."""
    found = []
    for lemma, past in VERBS.items():
        for i, subject in enumerate(PERSONS + ANIMALS):
            other = (PERSONS + ANIMALS)[i - 1]
            found += [clause(subject, lemma, past, other, place=PLACES[i % 2]), passive(subject, lemma, past, other)]
        found += [clause(PERSONS[0], lemma, past, thing) for thing in THINGS]
    for pair in ADJECTIVES:
        for adjective in pair:
            found += [state(PERSONS[0], adjective)]
            found += [clause(PERSONS[1], "push", "pushed", THINGS[i % 4], adjective) for i in range(6)]
    return found


def write_wordnet(folder):
    """WordNet's files with these words."""
    folder = Path(folder)
    number = {name: f"{i:02d}" for i, name in enumerate(NAMES)}
    nouns = dict.fromkeys(PERSONS, "noun.person") | dict.fromkeys(ANIMALS, "noun.animal")
    nouns |= dict.fromkeys(THINGS, "noun.artifact") | dict.fromkeys(PLACES, "noun.location")
    entries = {
        "noun": [(word, number[kind], "", "") for word, kind in nouns.items()] + [("Hayek", "18", "", "")],
        "verb": [
            (word, number[kind], {"push": "pull", "pull": "push"}.get(word, ""), "02 + 08 00 + 09 00")
            for word in VERBS
            for kind in ["verb.emotion" if word == "admire" else "verb.contact"]
        ],
        "adj": [(word, "00", other, "") for pair in ADJECTIVES for word, other in (pair, pair[::-1])],
        "adv": [],
    }
    for pos, rows in entries.items():
        offsets = {word: f"{i + 1:08d}" for i, (word, *_) in enumerate(rows)}
        data, index = ["  1 license\n"], ["  1 license\n"]
        for word, kind, other, frames in rows:
            pointers = f"001 ! {offsets[other]} a 0101" if other else "000"
            gloss = f'(usual) what {word} is; "it is {word}"'
            data.append(f"{offsets[word]} {kind} {pos[0]} 01 {word} 0 {pointers} {frames} | {gloss}  \n")
            index.append(f"{word.lower()} {pos[0]} 1 0 1 0 {offsets[word]}  \n")
        (folder / f"data.{pos}").write_text("".join(data))
        (folder / f"index.{pos}").write_text("".join(index))
    return WordNet(str(folder))


def no_filters(**given):
    """Filters that drop nothing that is well made, except what is given."""
    return Filters(**{"evaluations": (), "semantoneg": (), "words": (), "shapes": (), "suite": ()} | given)


def small_triplets(folder, seed=0, filters=None, counts=None):
    """Some triplets of every kind, or of some kinds."""
    counts = counts or dict.fromkeys(COUNTS, 40)
    return make_triplets(sentences(), PAIRS, filters or no_filters(), write_wordnet(folder), seed, counts)
