"""The demo, cut short; and the model of the README's command, asked about every pair that is printed anywhere."""

import re
import runpy
import shlex
import sys
from functools import partial
from pathlib import Path

import pytest
from transformers import pipeline

from hf_blosan.analysis.page import EXAMPLES
from hf_blosan.cli.commands import main
from hf_blosan.data import demo_corpus, make_demo_corpus
from hf_blosan.hub import model_card

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "examples" / "demo.py"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_demo_runs_from_training_to_prediction(tmp_path, monkeypatch, capsys):
    """On a third of the corpus."""
    small = partial(make_demo_corpus, size=1_800)
    monkeypatch.setattr("hf_blosan.data.make_demo_corpus", small)
    monkeypatch.setattr("hf_blosan.tasks.loading.make_demo_corpus", small)
    arguments = ["demo.py", "--output_dir", str(tmp_path), "--num_train_epochs", "1"]
    monkeypatch.setattr(sys, "argv", arguments)
    runpy.run_path(str(DEMO), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    accuracies = [float(line.split()[-1]) for line in lines if line.startswith(("  with order masks", "  without"))]
    assert len(accuracies) == 2 and 0.4 < accuracies[1] <= 0.51  # the words alone are worth 0.5 at best
    answers = [line.rsplit(": ", 1)[1].split()[0] for line in lines if " / " in line]
    assert len(answers) == 8 and set(answers) <= {"entailment", "neutral", "contradiction"}
    for folder in ("with_order_masks", "without"):
        assert (tmp_path / folder / "README.md").is_file()


def labels_of_all_pairs() -> dict[tuple[str, str], str]:
    """What the grammars say of every pair that the corpus can hold, places left out."""
    labels = {}
    for grammar in demo_corpus._GRAMMARS:
        pairs = [pair for group in demo_corpus._groups(grammar) for pairs in group.values() for pair in pairs]
        for words in words_of(grammar):
            labels |= {(pair.premise.format(**words), pair.hypothesis.format(**words)): pair.label for pair in pairs}
    return labels


def words_of(grammar) -> list[dict[str, str]]:
    if grammar is demo_corpus._quantifiers:
        plurals = (demo_corpus._ANIMALS | demo_corpus._PERSONS).values()
        return [{"plural": plural, "adjective": word} for plural in plurals for word in demo_corpus._ADJECTIVES]
    return [
        {"animal": animal, "person": person, "chase": verb, "chases": chases, "chased": chased}
        for animal in demo_corpus._ANIMALS
        for person in demo_corpus._PERSONS
        for verb, (chases, chased) in demo_corpus._VERBS.items()
    ]


def printed_pairs() -> set[tuple[str, str]]:
    """Pairs of quoted sentences, next to each other, of the words of the corpus."""
    words = {word for row in make_demo_corpus()["train"] for word in f"{row['sentence1']} {row['sentence2']}".split()}
    pages = ["README.md", "docs/*.md", "examples/*.py", ".ci/*.py", "hf_blosan/**/*.py", "model_cards/demo_*.md"]
    found = {tuple(pair) for pair in EXAMPLES["demo"]}
    for path in (path for page in pages for path in ROOT.glob(page)):
        text = re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))
        quoted = [
            match for match in re.finditer(r'(?<=")[a-z]+( [a-z]+){3,}(?=")', text) if {*match[0].split()} <= words
        ]
        for first, second in zip(quoted, quoted[1:], strict=False):
            gap = text[first.end() : second.start()]
            if len(gap) < 20 and not set(gap) & set(")]}"):
                found.add((first[0], second[0]))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the README's command for the task was run."""
    folder = tmp_path_factory.mktemp("readme")
    (command,) = re.findall(r"^hf-blosan train --task_name demo (?:.*\\\n)*.*", README, re.MULTILINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(shlex.split(command.replace("\\\n", ""))[1:]) == 0
    return folder


def test_every_printed_pair_is_of_the_corpus_and_answered_rightly(folder):
    labels, printed = labels_of_all_pairs(), printed_pairs()
    active = ("the man pushes the cat", "the cat is pushed by the man")
    assert labels[active] == "entailment" and active in printed and len(printed) >= 6
    assert not printed - labels.keys()
    assert {labels[pair] for pair in printed} == set(demo_corpus.LABELS)
    check(folder, {pair: labels[pair] for pair in printed})


def test_the_trained_model_reads_every_pattern(folder):
    """One pair of every pattern of the grammars, with words that take turns."""
    patterns = {}
    for grammar in demo_corpus._GRAMMARS:
        pairs = [pair for group in demo_corpus._groups(grammar) for pairs in group.values() for pair in pairs]
        words = words_of(grammar)
        for number, pair in enumerate(pairs):
            chosen = words[number * 7 % len(words)]
            patterns[pair.premise.format(**chosen), pair.hypothesis.format(**chosen)] = pair.label
    assert len(patterns) > 64  # those of who does what to whom, and quantifiers
    check(folder, patterns)


def check(folder, labels):
    classify = pipeline("text-classification", model=str(folder / "out" / "demo"))
    answers = classify([{"text": first, "text_pair": second} for first, second in labels])
    wrong = {pair: answer for pair, answer in zip(labels, answers, strict=True) if answer["label"] != labels[pair]}
    assert not wrong


def test_cards_of_the_demo_show_its_sentences():
    card = (ROOT / "model_cards" / "demo_disan_with_order_masks.md").read_text(encoding="utf-8")
    for row in model_card.GENERATED_EXAMPLES:
        assert f"- text: {row['text']}\n  text_pair: {row['text_pair']}\n" in card
