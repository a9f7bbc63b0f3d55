"""What `benchmarks.peers` compares: each system is trained into a folder and used from there.

A system sees the training and the validation rows. ``fit`` saves all that its predictions need, so that its size on
disk is that of the folder, and ``load`` makes a function from texts to predictions from nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import joblib
import numpy as np
from scipy.sparse import hstack
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import StandardScaler

from hf_blosan.errors import InputError
from hf_blosan.hub.saved import load
from hf_blosan.inference.batches import Batches
from hf_blosan.tasks.kinds import kind_of
from hf_blosan.text.tokenization import build_tokenizer
from hf_blosan.text.word_vectors import embedding_matrix, read_word_vectors

from .peers_data import Predict, Problem, Row, Split

DENSE_CS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Values of C that are tried on standardised features."""
SPARSE_CS = (0.1, 1.0, 10.0, 100.0)
"""Values of C that are tried on tf-idf features, whose rows have norm 1."""

FINE_TUNING = {
    "learning_rate": 5e-5,
    "num_train_epochs": 4,
    "per_device_train_batch_size": 32,
    "warmup_steps": 0.1,
    "weight_decay": 0.01,
}
"""AdamW with warm-up and linear decay; the epoch that is best on the validation rows is kept."""
MAX_LENGTH = 256
"""Tokens of a row in fine-tuning, as in the training command."""


# Neural classifiers in the format of transformers: this package's, and fine-tuned ones.


def fit_encoder(encoder: str, problem: Problem, folder: Path) -> dict[str, Any]:
    """An encoder of this package, trained with the default options of the training command."""
    from hf_blosan.training import RunArguments, train

    arguments = RunArguments(
        task_name=problem.task.name,
        encoder=encoder,
        data_dir=problem.data_dir,
        word_vectors=problem.word_vectors,
        seed=problem.seed,
        cpu=True,
        output_dir=str(folder),
    )
    record = train(arguments)
    return record["settings"] | record["training"]


def fit_fine_tuned(problem: Problem, folder: Path) -> dict[str, Any]:
    """A pretrained model with a new head; both texts of a pair are read together."""
    from datasets import Dataset
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        PrinterCallback,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    set_seed(problem.seed)
    tokenizer = AutoTokenizer.from_pretrained(problem.minilm)
    kind = "regression" if problem.scored else "single_label_classification"
    head = {"num_labels": len(problem.task.labels) or 1, "problem_type": kind}
    model = AutoModelForSequenceClassification.from_pretrained(problem.minilm, **head)

    def encoded(split: Split) -> Dataset:
        columns = (list(column) for column in zip(*split.texts, strict=True))
        labels = {"label": split.labels.tolist()}
        return Dataset.from_dict({**tokenizer(*columns, truncation=True, max_length=MAX_LENGTH), **labels})

    def figures(prediction: Any) -> dict[str, float]:
        # The rows are in the order of their lengths.
        return problem.metrics(decided(prediction.predictions, problem.scored), prediction.label_ids)

    with TemporaryDirectory() as checkpoints:
        options = TrainingArguments(
            checkpoints,
            **FINE_TUNING,
            per_device_eval_batch_size=64,
            train_sampling_strategy="group_by_length",
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            load_best_model_at_end=True,
            metric_for_best_model=problem.task.best_metric,
            seed=problem.seed,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model,
            options,
            data_collator=DataCollatorWithPadding(tokenizer),
            train_dataset=encoded(problem.splits["train"]),
            eval_dataset=encoded(problem.splits["validation"]),
            compute_metrics=figures,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    state = trainer.state
    progress = {"steps": state.global_step, "best_step": state.best_global_step, "validation": state.best_metric}
    return FINE_TUNING | progress


def load_classifier(folder: Path) -> Predict:
    """The way from text to prediction of `hf-blosan predict`."""

    model, tokenizer = load(str(folder), "text-classification", cpu=True)
    logits = Batches(model, tokenizer, kind_of(model.config), batch_size=64)
    return lambda rows: decided(np.stack(logits(rows)), model.config.num_labels == 1)


def decided(logits: np.ndarray, scored: bool) -> np.ndarray:
    """Predictions (rows,) from logits (rows, labels)."""
    return logits[:, 0] if scored else logits.argmax(axis=1)


# Logistic regression on features of the texts.


def features(encode: Callable[[list[str]], Any], rows: Sequence[Row], signed: bool = False) -> Any:
    """Features of rows, a dense or sparse matrix: those of the text, for pairs [u; v; |u - v|; u * v].

    ``signed`` has u - v in place of |u - v|, as the encoders' head for classes.
    """
    columns = [list(column) for column in zip(*rows, strict=True)]
    if len(columns) == 1:
        return encode(columns[0])
    both = encode(columns[0] + columns[1])
    first, second = both[: len(rows)], both[len(rows) :]
    difference = first - second if signed else abs(first - second)
    if isinstance(both, np.ndarray):
        return np.concatenate([first, second, difference, first * second], axis=1)
    return hstack([first, second, difference, first.multiply(second)], format="csr")


def targets(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What logistic regression is trained on: row numbers, classes and weights of these.

    A score is spread over the two integers beside it, as in the papers' head: 3.6 is 3 with weight 0.4 and 4 with 0.6.
    """
    labels = problem.splits["train"].labels
    numbers = np.arange(len(labels))
    if not problem.scored:
        return numbers, labels, np.ones(len(labels))
    low = np.floor(labels)
    numbers, classes = np.tile(numbers, 2), np.concatenate([low, low + 1])
    weights = np.concatenate([low + 1 - labels, labels - low])
    kept = weights > 0
    return numbers[kept], classes[kept].astype(int), weights[kept]


def linear_predictions(classifier: Any, inputs: Any, scored: bool) -> np.ndarray:
    """The most probable class, or the expected score."""
    return classifier.predict_proba(inputs) @ classifier.classes_ if scored else classifier.predict(inputs)


def fit_linear(
    problem: Problem, encode: Callable[[list[str]], Any], folder: Path, signed: bool = False
) -> dict[str, Any]:
    """Logistic regression whose C is best on the validation rows; the smallest of equally good ones."""
    inputs = {split: features(encode, problem.splits[split].texts, signed) for split in ("train", "validation")}
    dense = isinstance(inputs["train"], np.ndarray)
    numbers, classes, weights = targets(problem)
    best, figures = None, {}
    for c in DENSE_CS if dense else SPARSE_CS:
        steps = [StandardScaler()] if dense else []
        classifier = make_pipeline(*steps, LogisticRegression(C=c, max_iter=2000, random_state=problem.seed))
        classifier.fit(inputs["train"][numbers], classes, logisticregression__sample_weight=weights)
        predictions = linear_predictions(classifier, inputs["validation"], problem.scored)
        figures[c] = problem.figures("validation", predictions)[problem.task.best_metric]
        if best is None or figures[c] > figures[best]:
            best, best_classifier = c, classifier
    joblib.dump((best_classifier, problem.scored, signed), folder / "classifier.joblib")
    return {"C": best, "validation": {f"{c:g}": figure for c, figure in figures.items()}}


def load_linear(folder: Path, encode: Callable[[list[str]], Any]) -> Predict:
    classifier, scored, signed = joblib.load(folder / "classifier.joblib")
    return lambda rows: linear_predictions(classifier, features(encode, rows, signed), scored)


def fit_ngrams(problem: Problem, folder: Path) -> dict[str, Any]:
    """Tf-idf of words and pairs of words, and of 3 to 5 characters inside words."""
    options = {"sublinear_tf": True, "dtype": np.float32}
    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]", **options)
    characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), **options)
    vectorizer = make_union(words, characters)
    vectorizer.fit([text for row in problem.splits["train"].texts for text in row])
    joblib.dump(vectorizer, folder / "vectorizer.joblib")
    return fit_linear(problem, vectorizer.transform, folder)


def load_ngrams(folder: Path) -> Predict:
    return load_linear(folder, joblib.load(folder / "vectorizer.joblib").transform)


def encoder_of(model: Any) -> Callable[[list[str]], np.ndarray]:
    """Texts -> vectors of a sentence-transformers model, the texts of 64 pairs as one batch."""
    return partial(model.encode, batch_size=128, show_progress_bar=False)


def fit_vectors(
    make: Callable[[Problem], Any], problem: Problem, folder: Path, signed: bool = False
) -> dict[str, Any]:
    """Logistic regression on the vectors of a sentence-transformers model that is not trained."""
    model = make(problem)
    model.save(str(folder / "encoder"), create_model_card=False)
    return fit_linear(problem, encoder_of(model), folder, signed)


def load_vectors(folder: Path) -> Predict:
    return load_linear(folder, encoder_of(SentenceTransformer(str(folder / "encoder"), device="cpu")))


def word_vector_model(problem: Problem) -> Any:
    """The mean of the word vectors of a sentence, with the words of the training command."""
    vectors = read_word_vectors(problem.word_vectors)
    texts = [text for row in problem.splits["train"].texts for text in row]
    options = {"split_compounds": problem.task.split_compounds}
    tokenizer = build_tokenizer(texts, extra_words=vectors.words, **options)
    return static_model(tokenizer, embedding_matrix(tokenizer, vectors, seed=problem.seed)[0])


def static_model(tokenizer: Any, table: np.ndarray) -> Any:
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, np.ascontiguousarray(table))], device="cpu")


@cache
def token_table(minilm: str, seed: int) -> Any:
    from pretraining.teachers import token_vectors

    teacher = SentenceTransformer(minilm, device="cpu")
    size = teacher.get_embedding_dimension()
    return static_model(teacher.tokenizer, token_vectors(teacher, teacher.tokenizer, size, seed))


@cache
def model2vec_table(minilm: str) -> Any:
    table = StaticEmbedding.from_distillation(minilm)
    table.embedding.weight.data = table.embedding.weight.data.contiguous()  # safetensors saves no other tensors
    return SentenceTransformer(modules=[table], device="cpu")


@dataclass(frozen=True)
class System:
    """A way from training rows to predictions.

    Attributes:
        title: name in the tables.
        fit: trains and saves to a folder; returns the settings to be recorded.
        load: makes predictions from the folder.
        prepare: makes what is the same for all tasks and kept in memory: its time is not that of training.
        needs: options that must be given.
        packages: modules that must be installed -> what to install.
        optional: whether it runs only if ``--systems`` names it.
    """

    title: str
    fit: Callable[[Problem, Path], dict[str, Any]]
    load: Callable[[Path], Predict]
    prepare: Callable[[Problem], Any] | None = None
    needs: tuple[str, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    optional: bool = False


def _ours(title: str, encoder: str) -> System:
    return System(title, partial(fit_encoder, encoder), load_classifier, needs=("word_vectors",))


def _on_vectors(title: str, make: Callable[[Problem], Any], need: str = "minilm", **options: Any) -> System:
    return System(title, partial(fit_vectors, make), load_vectors, needs=(need,), **options)


def _of_minilm(title: str, make: Callable[[Problem], Any], **options: Any) -> System:
    return _on_vectors(title, make, prepare=make, **options)


SYSTEMS = {
    "disan": _ours("DiSAN", "disan"),
    "biblosan": _ours("Bi-BloSAN", "biblosan"),
    "mtsa": _ours("MTSA", "mtsa"),
    "word_vectors": _on_vectors("word vectors, logistic regression", word_vector_model, "word_vectors"),
    "token_vectors": _of_minilm(
        "MiniLM's token vectors, logistic regression", lambda problem: token_table(problem.minilm, problem.seed)
    ),
    "model2vec": _of_minilm(
        "model2vec of MiniLM, logistic regression",
        lambda problem: model2vec_table(problem.minilm),
        packages=dict.fromkeys(("model2vec", "skeletoken"), "--no-deps model2vec skeletoken"),
        optional=True,
    ),
    "ngrams": System("n-grams, logistic regression", fit_ngrams, load_ngrams),
    "minilm": _on_vectors(
        "MiniLM, logistic regression", lambda problem: SentenceTransformer(problem.minilm, device="cpu")
    ),
    "minilm_fine_tuned": System(
        "MiniLM, fine-tuned", fit_fine_tuned, load_classifier, needs=("minilm",), optional=True
    ),
}
OURS = ("disan", "biblosan", "mtsa")


def check(names: Iterable[str], given: Mapping[str, Any]) -> None:
    """Raises InputError if a system lacks an option or a package."""
    for name in names:
        for need in SYSTEMS[name].needs:
            if not given[need]:
                raise InputError(f"--systems {name} needs --{need}; give it, or leave the system out")
            if not Path(given[need], "modules.json" if need == "minilm" else "").is_file():
                what = "folder of a sentence-transformers model" if need == "minilm" else "file"
                raise InputError(f"--{need} {given[need]}: there is no such {what}; correct the path")
        for module, package in SYSTEMS[name].packages.items():
            if find_spec(module) is None:
                raise InputError(f"--systems {name} needs {module}: pip install {package}")
