"""Made triplets from parsed sentences: arguments and attributes exchanged, negation, antonyms."""

import random
import re
from importlib.util import find_spec

import pytest
from small_parses import clause, parsed, passive, sentences, state, write_wordnet

from hf_blosan.errors import MissingExtra
from pretraining import clauses
from pretraining.parses import MODEL, Sentence, parse
from pretraining.patterns import tidy
from pretraining.words import Corpus, Lexicon


@pytest.fixture
def lexicon(tmp_path):
    return Lexicon(Corpus(sentences(), write_wordnet(tmp_path)))


def changed(change, sentence, lexicon, seed=0):
    return list(change(sentence, lexicon, random.Random(seed)))


def test_real_clauses_exchange_their_arguments(lexicon):
    expected = {"A pilot chased a nurse in the garden.", "A nurse was chased by a pilot in the garden."}
    foils = {"A nurse chased a pilot in the garden.", "A pilot was chased by a nurse in the garden."}
    for sentence in (
        clause("pilot", "chase", "chased", "nurse", place="garden"),
        parsed(
            "A a DT DET det 1|nurse nurse NN NOUN nsubjpass 3|was be VBD AUX auxpass 3|chased chase VBN VERB ROOT 3|"
            "by by IN ADP agent 3|a a DT DET det 6|pilot pilot NN NOUN pobj 4|in in IN ADP prep 3|"
            "the the DT DET det 9|garden garden NN NOUN pobj 7|. . . PUNCT punct 3"
        ),
    ):
        [(text, paraphrase, wrong)] = changed(clauses.roles, sentence, lexicon)
        assert {tidy(text), tidy(paraphrase)} == expected and set(map(tidy, wrong)) == foils


def test_real_pronouns_and_adverbs(lexicon):
    sentence = parsed(
        "They they PRP PRON nsubj 3|have have VBP AUX aux 3|often often RB ADV advmod 3|helped help VBN VERB ROOT 3|"
        "me i PRP PRON dobj 3|. . . PUNCT punct 3"
    )
    [(text, paraphrase, foils)] = changed(clauses.roles, sentence, lexicon)
    assert {tidy(text), tidy(paraphrase)} == {"They have often helped me.", "I have often been helped by them."}
    assert set(map(tidy, foils)) == {"I have often helped them.", "They have often been helped by me."}


def test_real_attributes(lexicon):
    sentence = parsed(
        "A a DT DET det 2|sad sad JJ ADJ amod 2|pilot pilot NN NOUN nsubj 3|pushed push VBD VERB ROOT 3|"
        "clean clean JJ ADJ amod 5|tables table NNS NOUN dobj 3|. . . PUNCT punct 3"
    )
    found = {tidy(form) for seed in range(9) for form in changed(clauses.attributes, sentence, lexicon, seed)[0][:2]}
    assert found == {
        "A sad pilot pushed clean tables.",
        "A pilot that is sad pushed clean tables.",
        "A sad pilot pushed tables that are clean.",
    }
    [(_, _, foils)] = changed(clauses.attributes, sentence, lexicon)
    assert all(re.search("clean pilot|pilot that is clean", foil) for foil in foils)


def test_attributes_that_take_no_relative_clause(lexicon):
    sentence = parsed(
        "A a DT DET det 2|sad sad JJ ADJ amod 2|group group NN NOUN nsubj 5|of of IN ADP prep 2|"
        "dogs dog NNS NOUN pobj 3|pushed push VBD VERB ROOT 5|very very RB ADV advmod 7|"
        "clean clean JJ ADJ amod 8|tables table NNS NOUN dobj 5"
    )
    assert not any(clauses.takes_clause(sentence, sentence.tokens[i]) for i in (1, 7))
    assert not changed(clauses.attributes, sentence, lexicon)


def test_real_attributes_around_and(lexicon):
    sentence = parsed(
        "Sad sad JJ ADJ amod 1|pilots pilot NNS NOUN nsubj 5|and and CC CCONJ cc 1|happy happy JJ ADJ amod 4|"
        "dogs dog NNS NOUN conj 1|ran run VBD VERB ROOT 5|. . . PUNCT punct 5"
    )
    pair = [sentence.tokens[0], sentence.tokens[3]]
    assert clauses.coordinated(sentence, *pair)
    assert tidy(clauses.reordered(sentence, pair, ["sad", "happy"])) == "Happy dogs and sad pilots ran."
    assert tidy(clauses.reordered(sentence, pair, ["happy", "sad"])) == "Sad dogs and happy pilots ran."


def test_real_negation(lexicon):
    sentence = clause("pilot", "chase", "chased", "nurse")
    verb = clauses.statement(sentence)
    assert [clauses.negated(sentence, verb, how) for how in ("not", "n't", "never")] == [
        "A pilot did not chase a nurse.",
        "A pilot didn't chase a nurse.",
        "A pilot never chased a nurse.",
    ]
    was = passive("pilot", "chase", "chased", "nurse")
    assert clauses.negated(was, clauses.statement(was), "n't") == "The pilot wasn't chased by the nurse."
    for seed in range(9):
        [(text, paraphrase, foils)] = changed(clauses.negation, sentence, lexicon, seed)
        denied = [
            bool(re.search("n't|not|never|false|untrue|nobody|wrong", form)) for form in (text, paraphrase, *foils)
        ]
        assert denied[0] == denied[1] and all(foil != denied[0] for foil in denied[2:])
    for text in (
        "But but CC CCONJ cc 1|runs run VBZ VERB ROOT 1",
        "He he PRP PRON nsubj 2|never never RB ADV neg 2|runs run VBZ VERB ROOT 2",
    ):
        assert clauses.statement(parsed(text)) is None


def test_real_antonyms(lexicon):
    found = {
        tuple(sorted((text, other))): foils
        for text, other, foils in changed(clauses.antonyms, state("pilot", "sad"), lexicon)
    }
    assert len(found) == 2
    same = {"The pilot was sad.", "The pilot was not happy."}
    for pair, foils in found.items():
        assert {*pair, *foils} == same | {"The pilot was happy.", "The pilot was not sad."}
        assert set(pair) == same or set(foils) == same


def test_parsing_needs_spacy(monkeypatch):
    if find_spec("spacy") is None or find_spec(MODEL) is None:
        with pytest.raises(MissingExtra, match=r"parsing needs .*\[pretraining\]"):
            parse(["A pilot chased a nurse."])
    else:
        [sentence] = parse(["A pilot chased a nurse."])
        assert isinstance(sentence, Sentence) and str(sentence) == "A pilot chased a nurse."
        assert [token.dep for token in sentence][1:3] == ["nsubj", "ROOT"] and sentence.span(sentence.tokens[4]) == (
            3,
            5,
        )
