"""Retrieval: `python -m benchmarks.retrieval --models FOLDER,... --data_dir DIR --output NAME.json`.

For each question of SQuAD's validation split all distinct sentences of the split's passages are ranked, by the cosine
of their vectors or by BM25 (bm25s, English stop words left out); right are the sentences in which an answer begins.
"""

from __future__ import annotations

import sys
from bisect import bisect
from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from typing import Any

import numpy as np

from hf_blosan.cli.options import option
from hf_blosan.errors import require
from hf_blosan.tasks.passages import sentence_spans

from .command import command
from .order import ModelsOptions, encode, interval, load
from .report import page, table
from .similarity import read_rows

DEPTH = 10
"""Ranks that count."""
BLOCK = 500
"""Questions whose cosines are computed at once."""


@dataclass(frozen=True)
class Search:
    """Questions, sentences, and for each question the numbers of the right ones."""

    questions: list[str]
    sentences: list[str]
    right: list[set[int]]


def read_search(data_dir: str) -> Search:
    """The questions and sentences of SQuAD's validation split.

    Raises:
        InputError: it is missing.
    """
    rows, numbers = read_rows(data_dir, "squad", "validation"), {}
    spans = {context: sentence_spans(context) for context in dict.fromkeys(rows["context"])}
    for context, places in spans.items():
        for start, end in places:
            numbers.setdefault(context[start:end], len(numbers))
    right = []
    for context, answers in zip(rows["context"], rows["answers"], strict=True):
        starts = [start for start, _ in spans[context]]
        places = [spans[context][max(0, bisect(starts, at) - 1)] for at in answers["answer_start"]]
        right.append({numbers[context[start:end]] for start, end in places})
    return Search(list(rows["question"]), list(numbers), right)


def by_vectors(model: Any, search: Search, batch_size: int) -> Iterator[np.ndarray]:
    """For each question the numbers of the nearest sentences, nearest first."""
    vectors = encode(model, [*search.questions, *search.sentences], batch_size)
    sentences = np.stack([vectors[text] for text in search.sentences]).astype(np.float32)
    questions = np.stack([vectors[text] for text in search.questions]).astype(np.float32)
    for start in range(0, len(questions), BLOCK):
        yield from np.argsort(-(questions[start : start + BLOCK] @ sentences.T), axis=1, kind="stable")[:, :DEPTH]


def by_bm25(search: Search) -> Iterator[np.ndarray]:
    """The same, by BM25 with the usual k1 = 1.5 and b = 0.75."""
    require("BM25 needs", "benchmark", "bm25s")
    import bm25s

    index = bm25s.BM25()
    index.index(bm25s.tokenize(search.sentences, stopwords="en", show_progress=False), show_progress=False)
    queries = bm25s.tokenize(search.questions, stopwords="en", show_progress=False)
    yield from index.retrieve(queries, k=min(DEPTH, len(search.sentences)), show_progress=False).documents


def scores(ranked: Iterator[np.ndarray], search: Search, seed: int) -> dict[str, Any]:
    """Percent of questions with a right sentence first and among the first ten, and the mean reciprocal rank."""
    reciprocal = []
    for found, right in zip(ranked, search.right, strict=True):
        rank = next((place for place, number in enumerate(found, 1) if int(number) in right), None)
        reciprocal.append(1 / rank if rank else 0.0)
    first = [value == 1 for value in reciprocal]
    low, high = interval(first, seed)
    return {
        "first": round(100 * float(np.mean(first)), 2),
        "low": round(100 * low, 2),
        "high": round(100 * high, 2),
        f"first_{DEPTH}": round(100 * float(np.mean([value > 0 for value in reciprocal])), 2),
        "mean_reciprocal_rank": round(100 * float(np.mean(reciprocal)), 2),
    }


def measure(options: RetrievalOptions, report: dict[str, Any]) -> None:
    """A row for BM25 and each model."""
    search = read_search(options.data_dir)
    report["header"] |= {"questions": len(search.questions), "sentences": len(search.sentences)}
    report["rows"].append({"model": "BM25", **scores(by_bm25(search), search, options.seed)})
    for label, name in options.named.items():
        ranked = by_vectors(load(name, options.seed), search, options.batch_size)
        report["rows"].append({"model": label, **scores(ranked, search, options.seed)})


def markdown(report: dict[str, Any]) -> str:
    """A line for each model."""
    header = report["header"]
    lines = [
        [
            row["model"],
            f"{row['first']:.1f} ({row['low']:.1f} to {row['high']:.1f})",
            f"{row[f'first_{DEPTH}']:.1f}",
            f"{row['mean_reciprocal_rank']:.1f}",
        ]
        for row in report["rows"]
    ]
    return page(
        "Retrieval of sentences",
        header,
        [f"{header['questions']:,} questions, {header['sentences']:,} sentences"],
        "Percent of the questions of SQuAD's validation split for which a sentence with an answer comes first among "
        f"the sentences of all passages (95 % of bootstrap samples of the questions), and among the first {DEPTH}; "
        f"mean reciprocal rank x 100, 0 beyond rank {DEPTH}.",
        table(["ranked by", "first", f"first {DEPTH}", "reciprocal rank"], lines),
    )


@dataclass(kw_only=True)
class RetrievalOptions(ModelsOptions):
    """Options of ``python -m benchmarks.retrieval``."""

    data_dir: str = option("Folder with DIR/squad/validation.jsonl.gz.", MISSING)


main = command(
    "benchmarks.retrieval",
    RetrievalOptions,
    measure,
    recorded=("batch_size",),
    packages=("sentence-transformers", "bm25s"),
)

if __name__ == "__main__":
    sys.exit(main())
