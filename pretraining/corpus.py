"""The sentences that a student is distilled on, and those that stay out of them because they measure it.

Texts are compared in lower case, without punctuation and spaces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from hf_blosan.data.tables import read_table
from hf_blosan.errors import InputError
from hf_blosan.tasks.passages import sentence_spans

from .filters import normalised
from .wordnet import WordNet

SIMILARITY = ("sts13", "sts14", "sts15", "stsb", "sick")
"""The sets whose test splits measure similarity."""
EVALUATION = {
    **{name: ("sentence1", "sentence2") for name in SIMILARITY},
    "semantoneg": ("text", "choices"),
    **dict.fromkeys(("banking77", "trec", "sst2", "sst5", "subj", "cr", "mpqa", "cola"), ("text",)),
    **dict.fromkeys(("snli", "mrpc", "rte"), ("sentence1", "sentence2")),
    "squad": ("question",),
    "multi30k": ("en",),
}
"""Set -> the columns whose texts stay out, of every split but training ones that is there."""
SPLITS = ("validation", "test")
LONGEST = 350
"""Characters of a sentence at most."""
QUOTED = {"-LRB-": "(", "-RRB-": ")", "``": '"', "''": '"'}


def column_texts(data_dir: Path, name: str, split: str, columns: Iterable[str]) -> Iterator[str]:
    """The texts of some columns of a table, those of lists one by one."""
    rows = read_table(data_dir / name / f"{split}.jsonl.gz")
    for column in columns:
        for cell in rows[column][:]:
            yield from [cell] if isinstance(cell, str) else cell


def evaluation_texts(data_dir: Path) -> set[str]:
    """The normalised texts of all evaluation splits in a folder.

    Raises:
        InputError: a set that measures similarity has no test split there.
    """
    for name in SIMILARITY:
        if not (data_dir / name / "test.jsonl.gz").is_file():
            raise InputError(f"--data_dir {data_dir}: there is no {name}/test.jsonl.gz, whose texts must stay out")
    return {
        normalised(text)
        for name, columns in EVALUATION.items()
        for split in SPLITS
        if (data_dir / name / f"{split}.jsonl.gz").is_file()
        for text in column_texts(data_dir, name, split, columns)
    }


def detokenised(words: list[str]) -> str:
    """Words of a treebank as a sentence."""
    text = " ".join(QUOTED.get(word, word) for word in words)
    text = re.sub(r" ([.,;:!?%)\]}]|n't\b|'(?:s|re|ve|ll|d|m)\b)", r"\1", text)
    return re.sub(r"([(\[{$]) ", r"\1", text)


def column(*names: str, split: str = "train") -> Callable[[Path, str], Iterator[str]]:
    """A reader of some columns of ``NAME/SPLIT.jsonl.gz``."""
    return lambda data_dir, name: column_texts(data_dir, name, split, names)


def contexts(data_dir: Path, name: str) -> Iterator[str]:
    """The sentences of distinct passages."""
    for context in dict.fromkeys(read_table(data_dir / name / "train.jsonl.gz")["context"][:]):
        yield from (context[start:end] for start, end in sentence_spans(context))


def treebank(data_dir: Path, name: str) -> Iterator[str]:
    """Distinct sentences of a treebank; a row has one of their predicates."""
    yield from dict.fromkeys(map(detokenised, read_table(data_dir / name / "train.jsonl.gz")["tokens"][:]))


def phrases(data_dir: Path, name: str) -> Iterator[str]:
    """Phrases of four words or more."""
    texts = column_texts(data_dir, name, "train_phrases", ("text",))
    return (text for text in texts if len(text.split()) >= 4)


def acceptable(data_dir: Path, name: str) -> Iterator[str]:
    """Sentences that are good English."""
    rows = read_table(data_dir / name / "train.jsonl.gz")
    return (text for text, label in zip(rows["text"][:], rows["label"][:], strict=True) if label == 1)


SOURCES: list[tuple[str, Callable[[Path, str], Iterable[str]], float]] = [
    *((name, column("sentence1", "sentence2"), 1.0) for name in ("sick", "stsb", "mrpc", "rte")),
    ("snli", column("sentence1", "sentence2", split="train_subset"), 1.0),
    ("multi30k", column("en"), 1.0),
    ("propbank_ewt", treebank, 1.0),
    ("cola", acceptable, 1.0),
    *((name, column("text"), 1.0) for name in ("banking77", "trec", "sst5", "subj", "cr")),
    ("squad", column("question"), 0.4),
    ("text", column("text"), 0.6),
    ("squad", contexts, 0.4),
    ("sst5", phrases, 0.15),
    ("mpqa", column("text"), 0.3),
]
"""Set, reader, share of its sentences that are used."""
GLOSSES = 0.6
"""The share of WordNet's glosses and examples."""


def training_sentences(
    data_dir: Path, wordnet: WordNet, held_out: set[str], seed: int, everything: bool = False
) -> list[str]:
    """Distinct sentences of the training splits and of WordNet, in random order, none of ``held_out``.

    Args:
        data_dir: folder with NAME/train.jsonl.gz and so on.
        wordnet: whose glosses are sentences, too.
        held_out: normalised texts.
        seed: of the order and of what is left out.
        everything: leave nothing out.
    """
    rng, found = np.random.default_rng(seed), {}
    readers = [(lambda read=read, name=name: read(data_dir, name), share) for name, read, share in SOURCES]
    for read, share in [*readers, (wordnet.glosses, GLOSSES)]:
        for text in read():
            text = " ".join(text.split())
            key = normalised(text)
            if len(key) >= 3 and len(text) <= LONGEST and key not in held_out and key not in found:
                found[key] = text if everything or rng.random() < share else None
    kept = [text for text in found.values() if text]
    return [kept[i] for i in rng.permutation(len(kept))]
