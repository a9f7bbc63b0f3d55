"""Made triplets: inflection and agreement, the lexicon, patterns, and what the filters keep out."""

import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from small_parses import (
    ADJECTIVES,
    no_filters,
    sentences,
    small_triplets,
    write_wordnet,
)

from benchmarks.order_suite import content_words, items, skeleton, skeletons, texts
from hf_blosan.data.columns import normal
from hf_blosan.errors import InputError
from pretraining import attributes, opposites, swaps, words
from pretraining.filters import Frames
from pretraining.inflection import TENSES, Noun, Phrase, Verb, indefinite, inflect
from pretraining.patterns import GIVEN, Pattern, expand, render, tidy
from pretraining.triplets import COUNTS, PATTERNS
from pretraining.wordnet import FOLDER, WordNet
from pretraining.words import Corpus, Lexicon

HE, THEY = Phrase("he", "him"), Phrase("they", "them", True)
SEMANTONEG = [
    {"text": "It's not good.", "choices": ["It's not bad.", "It's good.", "It's bad."], "label": 2},
    {
        "text": "This is not an easy task.",
        "choices": ["This is not a hard task.", "This is an easy task.", "This is a hard task."],
        "label": 2,
    },
]


@pytest.fixture
def wordnet(tmp_path):
    return write_wordnet(tmp_path)


@pytest.fixture
def lexicon(wordnet):
    return Lexicon(Corpus(sentences(), wordnet))


def forms_of(triplet):
    return [triplet["text"], triplet["paraphrase"], *triplet["foils"]]


def bag(text):
    """Words and how often they occur; forms that depend on the place of a phrase count as one."""
    same = {"him": "he", "her": "she", "an": "a"}
    return Counter(same.get(word, word) for word in re.findall(r"[a-z\d]+", text.lower()))


@pytest.mark.parametrize(
    "tense, active, passives",
    [
        ("past", "he chased them", "they were chased by him"),
        ("present", "he chases them", "they are chased by him"),
        ("progressive", "he is chasing them", "they are being chased by him"),
        ("past progressive", "he was chasing them", "they were being chased by him"),
        ("perfect", "he has chased them", "they have been chased by him"),
        ("pluperfect", "he had chased them", "they had been chased by him"),
        ("might have", "he might have chased them", "they might have been chased by him"),
        ("will", "he will chase them", "they will be chased by him"),
    ],
)
def test_both_voices_agree_in_every_tense(tense, active, passives):
    values = {"a": HE, "b": THEY, "v": Verb.of("chase"), "end": "", "tense": tense}
    assert [render(form, values) for form in (swaps.ACTIVE, swaps.PASSIVE)] == [f"{active}", f"{passives}"]
    exchanged = render(swaps.ACTIVE, values | {"a": THEY, "b": HE})
    assert exchanged.startswith("they ") and exchanged.endswith(" him") and "chas" in exchanged


def test_agreement():
    values = {"a": THEY, "b": HE, "v": Verb.of("chase"), "tense": "present"}
    assert render("{a} {a.v} {b.o}, {b} {b.v} {a.o}", values) == "they chase him, he chases them"
    assert render("{a.is} {b.is} {a.has} {b.has} {a.do} {b.do} {a.one} {b.one}", values) == (
        "are is have has do does the ones the one"
    )
    assert render("{a.is} {b.is} {a.do}", values | {"tense": "past"}) == "were was did"
    assert {tense for tense in TENSES if Verb.of("run").group(tense, False, first=True).startswith("am ")} == {
        "progressive"
    }
    loses = Verb.of("lose to")
    assert [loses.group("perfect", False), loses.group("past", True, True)] == ["has lost to", "were lost to"]
    farmers = Phrase("the farmers", "the farmers", True, Noun("farmer", "farmers"), "the")
    values |= {"m": farmers, "x": "old"}
    assert render("{m.with_x}, {m.some_x}, {m.bare_x}, {m.s}, {m.noun}", values) == (
        "the old farmers, some old farmers, old farmers, the farmers', farmers"
    )
    owl = Phrase("an owl", "an owl", False, Noun("owl", "owls"), "a")
    assert owl.with_attribute("red") == "a red owl" and owl.with_attribute("old") == "an old owl"


def test_inflection_follows_the_corpus():
    assert inflect("brick", "NNS", {"brick": 9, "bricks": 2}) == inflect("brick", "NNS", {"brick": 9}) == "bricks"
    assert inflect("sheep", "NNS", {"sheep": 9}) == "sheep"
    assert [indefinite(word) for word in ("hour", "unit", "unimportant man", "uncle", "owl")] == [
        "an hour",
        "a unit",
        "an unimportant man",
        "an uncle",
        "an owl",
    ]
    assert tidy("an  unit of a  owl , here") == "A unit of an owl, here"


def test_wordnet(wordnet):
    assert wordnet.kind("pilot") == "noun.person" and wordnet.kind("push", "verb") == "verb.contact"
    assert wordnet.kind("hayek") is None and wordnet.kind("nothing") is None
    assert wordnet.antonyms("adj")["happy"] == ["sad"] and wordnet.frames("push") == {8, 9}
    assert {"what pilot is", "it is pilot"} <= set(wordnet.glosses())


def test_a_missing_wordnet_gets_a_sentence(tmp_path):
    with pytest.raises(InputError, match="data.noun cannot be read .*apt-get install wordnet-base"):
        WordNet(str(tmp_path))


@pytest.mark.skipif(not Path(FOLDER, "data.noun").exists(), reason="wordnet-base is not installed")
def test_the_wordnet_of_debian():
    wordnet = WordNet()
    assert wordnet.kind("nurse") == "noun.person" and wordnet.kind("horse") == "noun.animal"
    assert wordnet.kind("hayek") is None and "sad" in wordnet.antonyms("adj")["glad"]
    assert 8 in wordnet.frames("repair") and sum(1 for _ in wordnet.glosses()) > 100_000


def test_the_lexicon_is_that_of_the_sentences(lexicon, wordnet):
    assert {noun.singular for noun in lexicon.persons} == {"pilot", "farmer", "nurse", "painter", "singer", "lawyer"}
    assert {verb.past for verb in lexicon.verbs} == {"chased", "helped", "pushed", "pulled", "admired"}
    assert set(lexicon.adjectives) == {adjective for pair in ADJECTIVES for adjective in pair}
    assert set(lexicon.adjuncts) == {"in the garden", "in the street"}
    assert not lexicon.can_progress(Verb.of("admire")) and lexicon.can_progress(Verb.of("push"))
    without = Lexicon(Corpus(sentences(), wordnet), {"pilots", "pushing", "garden", "happy"})
    assert len(without.persons) == 5 and "push" not in {verb.base for verb in without.verbs}
    assert without.adjuncts == ["in the street"] and "happy" not in without.adjectives
    assert ["happy", "sad"] not in without.opposites


def test_too_few_sentences_get_a_sentence(wordnet):
    with pytest.raises(InputError, match="^verb: the parsed sentences give 0, 2 are needed; parse more$"):
        Lexicon(Corpus(sentences()[:1], wordnet))


def test_every_kind_is_made_and_no_foil_is_a_paraphrase(tmp_path):
    found = small_triplets(tmp_path)
    counts = Counter(triplet["kind"] for triplet in found)
    assert counts.keys() == COUNTS.keys() - {"real_attributes"}
    assert all(counts[kind] == 40 for kind in PATTERNS)
    for triplet in found:
        assert len(set(map(normal, forms_of(triplet)))) == 2 + len(triplet["foils"]), triplet
        assert triplet["foils"] or triplet["kind"] == "entailments"
        for text in forms_of(triplet):
            assert (
                not re.search(r"[{}|_]|  |None(?! of)| [.,?]|\ba [aeio]|\b(the|an?) (the|an?)\b", text)
                and text[0] == text[0].upper()
            ), text


@pytest.mark.parametrize("kind", [*swaps.KINDS, *attributes.KINDS])
def test_foils_of_swaps_have_the_words_of_text_and_paraphrase(lexicon, kind, monkeypatch):
    """With singular phrases alone, of which no word depends on agreement."""

    def phrase(self, rng, nouns=None):
        noun = rng.choice(nouns or self.persons)
        return Phrase(f"the {noun.singular}", f"the {noun.singular}", False, noun, "the")

    monkeypatch.setattr(Lexicon, "phrase", phrase)
    monkeypatch.setattr(Lexicon, "bearer", phrase)
    monkeypatch.setattr(words, "PRONOUNS", words.PRONOUNS[:2])
    rng = random.Random(0)
    for pattern in PATTERNS[kind]:
        for _ in range(20 if pattern.swap else 0):
            text, paraphrase, foils = pattern.fill(lexicon, rng)
            assert [bag(foil) for foil in foils] == [bag(text), bag(paraphrase)], pattern


def test_a_pattern_says_the_opposite_in_both_directions(lexicon):
    pattern = Pattern(("{a} runs", "it is {a} who runs"), other=("{a} rests", "it is {a} who rests"))
    found = {"runs" in pattern.fill(lexicon, random.Random(seed))[0] for seed in range(20)}
    assert found == {True, False}
    for seed in range(20):
        text, paraphrase, foils = pattern.fill(lexicon, random.Random(seed))
        verb, other = ("runs", "rests") if "runs" in text else ("rests", "runs")
        assert verb in paraphrase and len(foils) == 2 and all(other in foil for foil in foils)


def test_patterns_do_without_banned_words(lexicon):
    lexicon.banned = {"runs", "jumped"}
    pattern = Pattern(("{a} runs", "{a} rests", "{a} {deed}"), "a b", words={"deed": ["jumped", "sat"]}).within(
        lexicon
    )
    assert pattern.same == ("{a} rests", "{a} {deed}") and pattern.words == {"deed": ["sat"]}
    assert Pattern(("{a} runs", "{a} rests"), "a b").within(lexicon) is None


def test_alternatives():
    assert expand("{a} (is|was)( not|) here") == (
        "{a} is not here",
        "{a} is here",
        "{a} was not here",
        "{a} was here",
    )
    everything = [pattern for kind in PATTERNS.values() for pattern in kind]
    assert all("(" not in form for pattern in everything for form in (*pattern.same, *pattern.other))
    assert all(bool(pattern.swap) != bool(pattern.other) for pattern in everything)
    assert not GIVEN.keys() & {slot for pattern in everything for slot in pattern.slots}


PROGRAM = """
import tempfile
from small_parses import small_triplets
with tempfile.TemporaryDirectory() as folder:
    print(small_triplets(folder))
"""


def test_the_same_for_a_seed_in_every_process(tmp_path):
    """Another process has other hashes of texts."""
    root = Path(__file__).parents[1]
    paths = [str(root), str(root / "tests"), *sys.path]
    seed = "2" if os.getenv("PYTHONHASHSEED") == "1" else "1"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": seed}
    output = subprocess.check_output([sys.executable, "-c", PROGRAM], env=env, text=True)
    assert output == f"{small_triplets(tmp_path)}\n" and len(output) > 10_000
    assert small_triplets(tmp_path, 1) != small_triplets(tmp_path, 0)


def test_a_kind_does_not_depend_on_the_others(tmp_path):
    alone = small_triplets(tmp_path, counts={"questions": 40})
    assert alone == [triplet for triplet in small_triplets(tmp_path) if triplet["kind"] == "questions"]


def dropped(folder, counts, **given):
    filters = no_filters(**given)
    return small_triplets(folder, filters=filters, counts=counts), filters.dropped


def test_no_word_of_the_suite(tmp_path):
    counts = {"roles": 30, "converses": 30, "real_negation": 300}
    assert any(
        re.search("pilots?|give|to", text.lower())
        for t in small_triplets(tmp_path, counts=counts)
        for text in forms_of(t)
    )
    found, reasons = dropped(tmp_path, counts, words={"pilot", "pilots", "give", "gives"})
    assert found and not any(
        {"pilot", "pilots", "give", "gives"} & bag(text).keys() for t in found for text in forms_of(t)
    )
    assert reasons["real_negation", "word of the suite"] > 10


def test_no_skeleton_and_no_text_of_the_suite(tmp_path):
    counts = {"relatives": 60, "real_negation": 300}
    shape = "the _ was not _ by the _"
    plain = {form for triplet in small_triplets(tmp_path, counts=counts) for form in forms_of(triplet)}
    text = min(form for form in plain if skeleton(form) == shape)
    found, reasons = dropped(tmp_path, counts, shapes={shape})
    assert found and not any(skeleton(form) == shape for triplet in found for form in forms_of(triplet))
    assert reasons["real_negation", "skeleton of the suite"]
    found, reasons = dropped(tmp_path, counts, suite=[text.upper()])
    assert reasons["real_negation", "text of the suite"] and text not in {form for t in found for form in forms_of(t)}


def test_no_text_of_an_evaluation_and_entailments_keep_words_of_the_suite(tmp_path):
    counts = {"entailments": 9}
    found, _ = dropped(tmp_path, counts, words={"boy", "child"}, shapes={"a _ _"})
    assert [triplet["foils"] for triplet in found] == [["Nobody runs."], []]
    found, reasons = dropped(tmp_path, counts, evaluations={normal("a child MOVES")})
    assert len(found) == 1 and reasons == {("entailments", "text of an evaluation"): 1}
    found, reasons = dropped(tmp_path, counts, suite=["A child moves."])
    assert len(found) == 1 and reasons == {("entailments", "text of the suite"): 1}


def test_frames_of_semantoneg():
    frames = Frames(SEMANTONEG)
    assert all(text in frames for text in ("It isn't cheap.", "It is really very wet", "This isn't a pleasant task"))
    assert not any(text in frames for text in ("It was wet", "This is an easy job", "She says it is wet now"))


def test_no_frame_of_semantoneg(tmp_path):
    rows = [{"text": "The pilot was not sad.", "choices": ["The pilot was sad.", "The pilot was happy."]}]
    counts = {"real_negation": 300, "real_antonyms": 60, "antonyms": 200, "verb_negation": 60}
    found, reasons = dropped(tmp_path, counts, semantoneg=rows)
    frame = re.compile("the pilot (was|wasn't)( not)?( [a-z]+){1,3}[.]?", re.IGNORECASE)
    assert found and not any(frame.fullmatch(text) for triplet in found for text in forms_of(triplet))
    assert {kind for kind, reason in reasons if reason == "frame of SemAntoNeg"} >= {"real_negation", "real_antonyms"}
    plain = small_triplets(tmp_path, counts=counts)
    assert any(frame.fullmatch(text) for triplet in plain for text in forms_of(triplet))


def test_the_suite_is_filtered_by_default(tmp_path):
    from pretraining.filters import Filters

    filters = Filters((), SEMANTONEG)
    assert filters.words == content_words(fixed=False) and filters.shapes == skeletons()
    assert len(filters.suite) == len(set(map(normal, texts())))
    for item in items("test")[::97]:
        triplet = {"kind": "entailments", "text": item.text, "paraphrase": item.paraphrase, "foils": [item.foil]}
        assert not filters.takes(triplet, made=False) and not filters.takes(triplet)


def test_kinds_of_negation_are_checked_against_semantoneg():
    from pretraining.triplets import NEGATED

    assert NEGATED == {*opposites.KINDS, "real_negation", "real_antonyms"}
