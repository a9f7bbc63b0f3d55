"""Sentence vectors: `python -m benchmarks.similarity --models FOLDER,... --data_dir DIR --output NAME.json`.

Spearman's correlation of cosines with the scores of the test splits of STS13 to STS15, STS-B and SICK; accuracy of a
logistic regression on Banking77; size, and the speed of `SentenceTransformer.encode`, for which the models take turns.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression

from hf_blosan.cli.options import option
from hf_blosan.data.tables import read_table
from hf_blosan.errors import InputError

from .command import command
from .measure import times
from .order import ModelsOptions, encode, load
from .report import page, table

SETS = {"sts13": "STS13", "sts14": "STS14", "sts15": "STS15", "stsb": "STS-B", "sick": "SICK-R"}
VALIDATION = "stsb_validation"
BANKING, REGRESSION = "banking77", {"C": 10.0, "max_iter": 1000}
RESAMPLES = 1000
SPEED_ON, SPEED_BATCH = 2000, 128
"""Sentences of SICK that are encoded for the speed, and how many at once."""


def read_rows(data_dir: str, name: str, split: str) -> Any:
    """A table of DIR/NAME/SPLIT.jsonl.gz; raises InputError if it is missing."""
    return read_table(Path(data_dir, name, f"{split}.jsonl.gz"))


def correlation(first: np.ndarray, second: np.ndarray, scores: np.ndarray) -> float:
    """100 x Spearman's correlation of the cosines of unit vectors (rows, features) with scores."""
    return 100 * float(spearmanr((first * second).sum(1), scores)[0])


def bootstrap(first: np.ndarray, second: np.ndarray, scores: np.ndarray, seed: int) -> np.ndarray:
    """Correlations of rows that are drawn again, with replacement, the same rows for every model: (``RESAMPLES``,)."""
    cosines, rng = (first * second).sum(1), np.random.default_rng(seed)
    drawn = (rng.integers(0, len(scores), len(scores)) for _ in range(RESAMPLES))
    return 100 * np.array([spearmanr(cosines[rows], scores[rows])[0] for rows in drawn])


def interval(samples: np.ndarray) -> tuple[float, float]:
    """95 % of samples."""
    low, high = np.percentile(samples, [2.5, 97.5])
    return round(float(low), 2), round(float(high), 2)


def unit(vectors: np.ndarray, size: int) -> np.ndarray:
    """The first features of vectors, as unit vectors."""
    vectors = vectors[:, :size]
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def similarities(model: Any, options: SimilarityOptions) -> tuple[dict[str, Any], np.ndarray]:
    """The correlation on each set, and the means on the first features alone; samples of the mean."""
    found: dict[str, Any] = {"intervals": {}}
    samples = np.zeros(RESAMPLES)
    shortened: dict[int, list[float]] = {size: [] for size in options.sizes}
    for name, split in (*((name, "test") for name in SETS), ("stsb", "validation")):
        rows = read_rows(options.data_dir, name, split)
        scores = np.array(rows["score"])
        vectors = encode(model, [*rows["sentence1"], *rows["sentence2"]], options.batch_size)
        pair = [np.stack([vectors[text] for text in rows[column]]) for column in ("sentence1", "sentence2")]
        key = VALIDATION if split == "validation" else name
        found[key] = round(correlation(*pair, scores), 2)
        if split == "test":
            drawn = bootstrap(*pair, scores, options.seed)
            samples += drawn / len(SETS)
            found["intervals"][key] = interval(drawn)
            for size, values in shortened.items():
                values.append(correlation(*(unit(side, size) for side in pair), scores))
    found["mean"] = round(float(np.mean([found[name] for name in SETS])), 2)
    found["mean_of_first"] = {size: round(float(np.mean(values)), 2) for size, values in shortened.items()}
    return found, samples


def probe(model: Any, options: SimilarityOptions) -> float:
    """Percent right on Banking77's test rows of a logistic regression on unit vectors of the training rows."""
    train, test = (read_rows(options.data_dir, BANKING, split) for split in ("train", "test"))
    vectors = encode(model, [*train["text"], *test["text"]], options.batch_size)
    inputs = [np.stack([vectors[text] for text in rows["text"]]) for rows in (train, test)]
    regression = LogisticRegression(**REGRESSION).fit(inputs[0], train["label"])
    return round(100 * float(regression.score(inputs[1], test["label"])), 2)


def megabytes(model: Any) -> float:
    """Of the files of the model when it is saved."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder, create_model_card=False)
        files = [path for path in Path(folder).rglob("*") if path.is_file() and path.suffix != ".py"]
        return round(sum(path.stat().st_size for path in files) / 1e6, 1)


def measure(options: SimilarityOptions, report: dict[str, Any]) -> None:
    """A row for each model."""
    models = {label: load(name, options.seed) for label, name in options.named.items()}
    sentences = list(read_rows(options.data_dir, "sick", "test")["sentence1"])[:SPEED_ON]
    calls: dict[str, Callable] = {
        label: partial(model.encode, sentences, batch_size=SPEED_BATCH) for label, model in models.items()
    }
    speeds = times(calls, options.repeats, "cpu")
    means: list[np.ndarray] = []
    for label, model in models.items():
        row = {"model": label, "features": model.get_embedding_dimension(), "megabytes": megabytes(model)}
        row |= {"sentences_per_second": round(1e3 * len(sentences) / speeds[label]["median_ms"])}
        found, samples = similarities(model, options)
        means.append(samples)
        if len(means) > 1:
            found["mean_less_first"] = interval(means[-1] - means[0])
        report["rows"].append(row | found | {BANKING: probe(model, options)})


def markdown(report: dict[str, Any]) -> str:
    """A line for each model."""
    sizes = list(report["rows"][0]["mean_of_first"])
    lines, first_row = [], report["rows"][0]
    differences = [
        f"{row['model']} {row['mean'] - first_row['mean']:+.1f} ({low:+.1f} to {high:+.1f})"
        for row in report["rows"]
        if "mean_less_first" in row
        for low, high in [row["mean_less_first"]]
    ]
    paired = f"The mean less that of {first_row['model']}, in brackets 95 % of bootstrap samples of the pairs: "
    for row in report["rows"]:
        means = [f"{row['mean_of_first'][size]:.1f}" for size in sizes]
        figures = [f"{row[name]:.1f}" for name in (*SETS, "mean", BANKING)]
        lines.append([row["model"], *figures, *means, row["features"], row["megabytes"], row["sentences_per_second"]])
    first = [f"first {size}" for size in sizes]
    headings = ["model", *SETS.values(), "mean", "Banking77", *first, "features", "MB", "sentences / s"]
    return page(
        "Sentence similarity",
        report["header"],
        [],
        "100 x Spearman's correlation of cosines with the scores of the test splits, and its mean over the sets; "
        "percent right of a logistic regression (C = 10) on unit vectors on Banking77; the mean of the sets with the "
        "first features of each vector alone; size of the saved model; speed of `SentenceTransformer.encode` on "
        f"{SPEED_ON} sentences in batches of {SPEED_BATCH}.",
        table(headings, lines),
        *([f"{paired}{', '.join(differences)}."] if differences else []),
    )


@dataclass(kw_only=True)
class SimilarityOptions(ModelsOptions):
    """Options of ``python -m benchmarks.similarity``."""

    data_dir: str = option("Folder with DIR/NAME/SPLIT.jsonl.gz.", MISSING)
    sizes: list[int] = option("Numbers of first features of which the mean is measured, too.", [96])
    repeats: int = option("Samples of the speed.", 7)

    def __post_init__(self) -> None:
        super().__post_init__()
        if parts := [name for name in self.named.values() if name.startswith("last_64:")]:
            raise InputError(
                f"--models {parts[0]}: a part of the features has no size on disk; use benchmarks.order for it"
            )


main = command(
    "benchmarks.similarity",
    SimilarityOptions,
    measure,
    recorded=("batch_size", "repeats"),
    packages=("sentence-transformers", "scikit-learn", "scipy"),
)

if __name__ == "__main__":
    sys.exit(main())
