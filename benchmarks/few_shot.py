"""Few labels: `python -m benchmarks.few_shot --encoder NAME --minilm FOLDER --data_dir DIR --output NAME.json`.

8 and 16 examples of each class of SST-2 and Banking77 are drawn from the training rows, the same for every system, and
each system is measured on all test rows:

* `probe`: logistic regression on unit vectors (C = 10), of the encoder and of MiniLM,
* `classifier`: `SentenceClassifier(NAME)` with its default options,
* `setfit`: what SetFit does (Tunstall et al., 2022, arXiv:2209.11055), of the encoder and of MiniLM: for each example
  pairs with examples of its own and of other classes, whose cosines are to be 1 and 0, one epoch, then the probe.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import MISSING, dataclass
from itertools import product
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from hf_blosan.cli.options import option
from hf_blosan.estimators import SentenceClassifier
from hf_blosan.files import write_json

from .command import Options, choose, command
from .order import load
from .report import page, table
from .similarity import REGRESSION, read_rows, unit

TASKS = {"sst2": "SST-2", "banking77": "Banking77"}
SHOTS = (8, 16)
KEYS = "system task shots seed".split()
PAIRS = 20
"""Pairs of each kind, for each example, as in SetFit's paper."""
SETFIT = {"learning_rate": 2e-5, "per_device_train_batch_size": 16, "num_train_epochs": 1, "warmup_steps": 0.1}
"""SetFit's published hyperparameters."""
ENCODER_RATE = 1e-3
"""The learning rate for the encoder in place of MiniLM's."""

Texts = list[str]


def sample(rows: Any, shots: int, seed: int) -> tuple[Texts, list]:
    """So many texts of each class, and their labels."""
    labels, rng = np.array(rows["label"]), np.random.default_rng(seed)
    chosen = [rng.choice(np.flatnonzero(labels == name), shots, replace=False) for name in np.unique(labels)]
    numbers = rng.permutation(np.concatenate(chosen))
    return [rows["text"][i] for i in numbers.tolist()], labels[numbers].tolist()


def encoded(model: Any, texts: Texts) -> np.ndarray:
    """Unit vectors, (texts, features)."""
    vectors = model.encode(texts, batch_size=64, show_progress_bar=False)
    return unit(vectors, vectors.shape[1])


def probe(model: Any, train: tuple[Texts, list], texts: Texts, **_: Any) -> np.ndarray:
    """The labels that a logistic regression predicts."""
    return LogisticRegression(**REGRESSION).fit(encoded(model, train[0]), train[1]).predict(encoded(model, texts))


def pairs(train: tuple[Texts, list], limit: int, seed: int) -> dict[str, list]:
    """SetFit's pairs: of each example ``PAIRS`` with its own class and ``PAIRS`` with others, ``limit`` at most."""
    texts, labels, rng = train[0], np.array(train[1]), np.random.default_rng(seed)
    rows = []
    for first in range(len(texts)):
        same, other = np.flatnonzero(labels == labels[first]), np.flatnonzero(labels != labels[first])
        for _ in range(PAIRS):
            rows.append((texts[first], texts[int(rng.choice(same))], 1.0))
            rows.append((texts[first], texts[int(rng.choice(other))], 0.0))
    chosen = [rows[i] for i in rng.permutation(len(rows))[:limit]]
    return {name: [row[i] for row in chosen] for i, name in enumerate(("sentence1", "sentence2", "label"))}


def setfit(model: Any, train: tuple[Texts, list], texts: Texts, *, limit: int, seed: int, rate: float) -> np.ndarray:
    """The labels that the probe predicts after the model was trained on pairs."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

    with tempfile.TemporaryDirectory() as folder:
        if hasattr(model[0].auto_model, "set_embedding_dtype"):
            model[0].auto_model.set_embedding_dtype("float32")  # an int8 table cannot be trained
        options = {**SETFIT, "learning_rate": rate, "seed": seed, "save_strategy": "no", "report_to": "none"}
        arguments = SentenceTransformerTrainingArguments(folder, use_cpu=True, disable_tqdm=True, **options)
        dataset = Dataset.from_dict(pairs(train, limit, seed))
        trainer = SentenceTransformerTrainer(model, arguments, train_dataset=dataset, loss=CosineSimilarityLoss(model))
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            trainer.train()
    return probe(model.eval(), train, texts)


def classifier(name: str, train: tuple[Texts, list], texts: Texts, *, seed: int, **_: Any) -> np.ndarray:
    """The labels that a trained SentenceClassifier predicts."""
    return SentenceClassifier(name, random_state=seed, cpu=True).fit(*train).predict(texts)


def systems(options: FewShotOptions) -> dict[str, Callable[..., np.ndarray]]:
    """By its name for each system what predicts labels of (train, texts)."""

    def of_fresh_model(name: str, predict: Callable, **settings: Any) -> Callable:
        return lambda *given, **others: predict(load(name, options.seed), *given, **{**others, **settings})

    found = {
        "encoder, probe": of_fresh_model(options.encoder, probe),
        "encoder, classifier": lambda *given, **others: classifier(options.encoder, *given, **others),
        "encoder, setfit": of_fresh_model(options.encoder, setfit, rate=ENCODER_RATE),
    }
    if options.minilm:
        found |= {
            "minilm, probe": of_fresh_model(options.minilm, probe),
            "minilm, setfit": of_fresh_model(options.minilm, setfit, rate=SETFIT["learning_rate"]),
        }
    return found


def measure(options: FewShotOptions, report: dict[str, Any]) -> None:
    """A row for each system, task, number of examples and seed; an interrupted run goes on after its last row."""
    done = {tuple(row[name] for name in KEYS) for row in report["rows"]}
    for task in choose("--tasks", options.tasks, TASKS):
        train, test = (read_rows(options.data_dir, task, split) for split in ("train", "test"))
        texts, labels = list(test["text"]), np.array(test["label"])
        for shots, seed in product(SHOTS, range(options.seed, options.seed + options.repeats)):
            drawn = sample(train, shots, seed)
            for name, predict in systems(options).items():
                if (name, task, shots, seed) in done:
                    continue
                begun = time.perf_counter()
                found = predict(drawn, texts, limit=options.pairs, seed=seed)
                row = {"system": name, "task": task, "shots": shots, "seed": seed}
                row |= {"accuracy": round(100 * float(np.mean(found == labels)), 2)}
                report["rows"].append(row | {"seconds": round(time.perf_counter() - begun, 1)})
                write_json(options.output, report)


def markdown(report: dict[str, Any]) -> str:
    """A line for each system."""
    cells: dict[str, dict[tuple, list]] = {}
    for row in report["rows"]:
        cells.setdefault(row["system"], {}).setdefault((row["task"], row["shots"]), []).append(row)
    columns = list(dict.fromkeys((row["task"], row["shots"]) for row in report["rows"]))

    def cell(rows: list) -> str:
        found = [row["accuracy"] for row in rows]
        return f"{np.mean(found):.1f} ± {np.std(found, ddof=min(1, len(found) - 1)):.1f}"

    def seconds(rows: list) -> str:
        return f"{np.median([row['seconds'] for row in rows]):,.0f}"

    return page(
        "Few labels",
        report["header"],
        [f"Encoder: {report['header']['encoder']}"],
        "Percent right on the test rows, mean and standard deviation over draws of the examples; in the last columns "
        "the median of the seconds for training and all test rows. At most "
        f"{report['header']['pairs']:,} pairs for SetFit.",
        table(
            ["system", *(f"{TASKS[task]}, {shots} a class" for task, shots in columns), *("s" for _ in columns)],
            [
                [name, *(cell(rows[column]) for column in columns), *(seconds(rows[column]) for column in columns)]
                for name, rows in cells.items()
            ],
        ),
    )


@dataclass(kw_only=True)
class FewShotOptions(Options):
    """Options of ``python -m benchmarks.few_shot``."""

    encoder: str = option("Folder or name of an encoder of this package.", MISSING)
    minilm: str | None = option("Folder or name of all-MiniLM-L6-v2. Default: the encoder alone.")
    data_dir: str = option("Folder with DIR/NAME/SPLIT.jsonl.gz.", MISSING)
    tasks: str = option("Of sst2 and banking77, separated by a comma.", ",".join(TASKS))
    repeats: int = option("Draws of the examples, with seeds from --seed on.", 3)
    pairs: int = option("Pairs for SetFit at most; its paper has 40 for each example.", 4096)


main = command(
    "benchmarks.few_shot",
    FewShotOptions,
    measure,
    recorded=("encoder", "minilm", "repeats", "pairs"),
    packages=("sentence-transformers", "scikit-learn"),
    resume=lambda options: (),
)

if __name__ == "__main__":
    sys.exit(main())
