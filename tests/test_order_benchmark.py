"""The suite of word order and negation: its items, its words, and the command that measures encoders with it."""

import gzip
import json
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from benchmarks import order
from benchmarks.order_suite import PARTS, PER_KIND, SETTINGS, content_words, items, skeleton, skeletons, texts
from benchmarks.order_suite.generate import Template, generate
from benchmarks.order_suite.grammar import FUNCTION_WORDS, Noun, Verb, indefinite, tokens
from hf_blosan.text.tokenization import build_tokenizer

LEAST_TEMPLATES = {"roles": 15, "attributes": 10, "negation": 12}
QUICK = ["--threads", "1"]


def forms_of(item):
    return item.text, item.paraphrase, item.foil


def marks(text):
    """How often each word and each punctuation mark occurs."""
    return Counter(re.findall(r"[\w']+|[^\w\s]", text.lower()))


@pytest.fixture
def bag_of_words(tmp_path):
    """The folder of a model that adds random vectors of whole numbers, so that sums do not depend on the order."""
    tokenizer = build_tokenizer(texts())
    table = np.random.default_rng(0).integers(-8, 9, (len(tokenizer), 64)).astype(np.float32)
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, table)]).save(str(tmp_path / "bag"))
    return tmp_path / "bag"


@pytest.mark.parametrize("part", PARTS)
def test_enough_items_of_enough_templates(part):
    counts = Counter((item.kind, item.setting, item.template) for item in items(part))
    for kind, settings in SETTINGS.items():
        for setting in settings:
            sizes = [size for key, size in counts.items() if key[:2] == (kind, setting)]
            assert len(sizes) >= LEAST_TEMPLATES[kind] and sum(sizes) >= PER_KIND and len(set(sizes)) == 1
    assert len({(item.setting, *forms_of(item)) for item in items(part)}) == len(items(part))


@pytest.mark.parametrize("part", PARTS)
def test_no_form_of_an_item_is_another(part):
    for item in items(part):
        assert len(set(forms_of(item))) == 3, item
        for text in forms_of(item):
            assert text[0].isupper() and text[-1] in ".?" and "  " not in text and "{" not in text, text
            assert not re.search(r"\ba [aeiou]|\ban [^aeiou]|\b(\w+) \1\b", text.lower()), text


@pytest.mark.parametrize("part", PARTS)
def test_foils_of_swaps_have_the_words_of_the_text_or_of_the_paraphrase(part):
    for item in items(part):
        text, paraphrase, foil = map(marks, forms_of(item))
        if item.setting == "same_form":
            assert foil == text != paraphrase, item
        elif item.setting == "paraphrase_form":
            assert foil == paraphrase, item
        else:
            assert foil != text, item


def test_parts_have_no_content_word_and_no_template_in_common():
    words, found, names = {}, {}, {}
    for part, (_, kinds) in PARTS.items():
        used = {text for item in items(part) for text in forms_of(item)}
        words[part] = {word for text in used for word in tokens(text)} - FUNCTION_WORDS
        assert words[part] <= content_words(part)
        found[part] = {skeleton(text) for text in used}
        names[part] = {template.name for templates in kinds.values() for template in templates}
    assert not content_words("validation") & content_words("test") and content_words() > content_words("test")
    assert (
        skeletons() == found["validation"] | found["test"]
        and not found["validation"] & found["test"]
        and not names["validation"] & names["test"]
    )


@pytest.mark.parametrize("part", PARTS)
def test_enough_words(part):
    pools, _ = PARTS[part]
    entries = [entry for name, pool in pools.items() if name not in ("also", "rest") for entry in pool]
    pairs = {pair for entry in pools["states"] for pair in (entry.pos, entry.neg)}
    assert len({entry for entry in entries if isinstance(entry, Noun)}) >= 60
    assert len({entry.base.split()[0] for entry in entries if isinstance(entry, Verb)}) >= 40
    assert len(pairs) >= 40


def test_every_process_has_the_same_items_without_torch():
    program = (
        "import sys, hashlib; from benchmarks.order_suite import content_words, texts;"
        "assert 'torch' not in sys.modules;"
        "print(hashlib.sha256('\\n'.join([*texts(), *sorted(content_words())]).encode()).hexdigest())"
    )
    seeds = ({"PYTHONHASHSEED": seed} for seed in "01")
    found = {subprocess.check_output([sys.executable, "-c", program], env=seed) for seed in seeds}
    assert len(found) == 1
    unique = list(texts())
    assert len(set(unique)) == len(unique) > 15_000


def test_inflection():
    assert Verb.parse("carry").forms == ("carry", "carries", "carried", "carried", "carrying")
    assert Verb.parse("bite bit bitten").forms == ("bite", "bites", "bit", "bitten", "biting")
    assert Verb.parse("hit hit hit hitting").followed_by("the target").doing == "hitting the target"
    assert [Noun.parse(line).s for line in ("box", "thief thieves", "puppy", "monkey")] == [
        "boxes",
        "thieves",
        "puppies",
        "monkeys",
    ]
    assert indefinite("apple") == "an apple" and indefinite("red box") == "a red box"


def test_a_template_with_too_few_words_is_named():
    template = Template("narrow", "{a} runs.", "It is {a} who runs.", "{a} rests.", people="the")
    with pytest.raises(ValueError, match="template narrow: 2 different items, 3 wanted"):
        generate("negation", template, {"people": [Noun.parse("cat"), Noun.parse("dog")]}, 3)


@pytest.mark.parametrize("part", PARTS)
def test_bags_of_words_are_at_chance(tmp_path, bag_of_words, part):
    path = tmp_path / "order.json"
    options = ["--models", f"bag={bag_of_words}", "--part", part, "--output", str(path)]
    assert order.main([*QUICK, *options]) == 0
    rows = {(row["kind"], row["setting"]): row for row in json.loads(path.read_text())["rows"]}
    assert rows.keys() == {(kind, setting) for kind, settings in SETTINGS.items() for setting in settings}
    for (_, setting), row in rows.items():
        assert row["model"] == "bag" and row["items"] >= PER_KIND
        assert row["low"] <= row["percent"] <= row["high"]
        if setting != "negation":
            expected = {"same_form": 0, "paraphrase_form": 50}[setting]
            assert row["percent"] == row["low"] == row["high"] == expected
            assert set(row["templates"].values()) == {expected}
    assert "| bag | 0.0 (0.0 to 0.0) | 50.0 (50.0 to 50.0) |" in path.with_suffix(".md").read_text()


def test_semantoneg(tmp_path):
    words = ["hot", "warm", "cold", "icy"]
    vectors = dict(zip(words, np.array([[1, 0], [0.8, 0.6], [0, 1], [0, 1]]), strict=True))
    entries = [
        {"text": "hot", "choices": ["cold", "warm", "icy"], "label": 1},
        {"text": "cold", "choices": ["hot", "warm", "icy"], "label": 1},
        {"text": "hot", "choices": ["cold", "icy", "cold"], "label": 0},
    ]
    row = order.semantoneg_row(vectors, entries, 0)
    assert row["percent"] == pytest.approx(100 * (1 + 0 + 1 / 3) / 3, abs=0.01) and row["items"] == 3


def test_the_last_features_of_vectors(bag_of_words):
    texts = ["some words", "others"]
    model, same = (order.load(name, 0) for name in (str(bag_of_words), f"last_64:{bag_of_words}"))
    assert np.array_equal(same.encode(texts), model.encode(texts)) and same.size == model.encode(texts).shape[1]
    assert np.array_equal(order.LastFeatures(model, 3).encode(texts), model.encode(texts)[:, 61:])


def test_ties_count_half():
    assert order.share(0.5, 0.4) == 1 and order.share(0.4, 0.5) == 0
    assert order.share(0.5, 0.5 + 1e-8) == order.share(0.5 + 1e-8, 0.5) == 0.5


def test_bad_options_get_a_sentence(tmp_path, capsys):
    output = ["--output", str(tmp_path / "order.json")]
    (tmp_path / "others" / "semantoneg").mkdir(parents=True)
    with gzip.open(tmp_path / "others" / "semantoneg" / "test.jsonl.gz", "wt") as file:
        file.write('{"text": "a"}\n')
    for options, message in (
        (["--models", "x", "--data_dir", str(tmp_path / "others")], "has no column 'choices'"),
        (["--models", str(tmp_path / "none")], "it cannot be loaded"),
        (["--models", "a/model,b/model"], "two have the same name"),
        (["--models", "x", "--part", "training"], "--part training: there is no such choice"),
        (["--models", "x", "--data_dir", str(tmp_path)], "semantoneg/test.jsonl.gz does not exist"),
    ):
        assert order.main([*QUICK, *options, *output]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert not (tmp_path / "order.json").exists()
