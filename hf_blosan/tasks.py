"""One table of every task: where its rows come from, what they mean, how they are scored, and the papers' settings.

``TASKS["trec"]`` is a :class:`Task`; ``TASKS["trec"].recipe("disan")`` is the :class:`Recipe` that encoder was trained
with. A task can be read from local files (``DIR/<folder>/<split>.jsonl.gz``) or from the Hugging Face Hub. The two
name their columns and order their labels differently; each :class:`Source` records its own, and
:func:`hf_blosan.data.load_task` maps both to the same columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from .errors import InputError
from .recipes import Recipe, find_recipe


@dataclass(frozen=True, kw_only=True)
class Source:
    """One place the rows of a task can be read from.

    Attributes:
        location: folder below the data directory, or dataset id on the Hub.
        text_columns: one column for single sentences, two for pairs.
        label_column: column of the label or score.
        splits: this package's split name -> the names it may have at the source, tried in order.
        label_order: names of the integer labels 0, 1, ... where they differ from ``Task.labels``.
        config: Hub configuration.
        revision: Hub revision; ``refs/convert/parquet`` for datasets whose main branch is a loading script, which
            current ``datasets`` no longer runs.
    """

    location: str
    text_columns: tuple[str, ...]
    label_column: str = "label"
    splits: Mapping[str, tuple[str, ...]] = field(hash=False)
    label_order: tuple[str, ...] | None = None
    config: str | None = None
    revision: str | None = None


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a task is, apart from the encoder that learns it.

    Attributes:
        name: key in :data:`TASKS`, the value of ``--task_name``.
        title: a few words for reports and model cards.
        problem: ``"classification"`` or ``"regression"``.
        num_sentences: 1, or 2 for sentence pairs.
        labels: class names, their order is that of the class ids; empty for regression.
        score_min, score_max, num_score_classes: range of the scores and number of equally spaced score classes that
            the pair-regression head spreads them over; ``None`` for classification.
        metrics: class names in :mod:`hf_blosan.metrics`.
        best_metric: key, in the metrics' result, by which the best checkpoint is chosen.
        greater_is_better: whether a larger ``best_metric`` is better.
        evaluation_splits: development splits, the first one selects the checkpoint.
        unlabelled: labels, as text, that mean "no gold label"; such rows are dropped.
        split_compounds: whether the papers split tokens further at hyphens, slashes and the like.
        pretokenized: whether the text is to be split on blanks only. False throughout: the package's tokenizer gives
            the same tokens for raw and for treebank-tokenised text, so a saved model takes either.
        settings: row of the settings table that :meth:`recipe` reads.
        local: local files, and the columns of files given on the command line.
        hub: dataset on the Hub, ``None`` where there is none.
        generated: the rows are those of :func:`hf_blosan.data.make_demo_corpus`.
        files: split -> path, for tasks made from a user's own files.
    """

    name: str
    title: str
    problem: Literal["classification", "regression"] = "classification"
    num_sentences: Literal[1, 2] = 1
    labels: tuple[str, ...] = ()
    score_min: float | None = None
    score_max: float | None = None
    num_score_classes: int | None = None
    metrics: tuple[str, ...] = ("Accuracy",)
    best_metric: str = "accuracy"
    greater_is_better: bool = True
    evaluation_splits: tuple[str, ...] = ("validation",)
    unlabelled: tuple[str, ...] = ()
    split_compounds: bool = False
    pretokenized: bool = False
    settings: str = "sst"
    local: Source
    hub: Source | None = None
    generated: bool = False
    files: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def num_labels(self) -> int:
        """Number of classes; 1 for regression, as in transformers."""
        return len(self.labels) or 1

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Text columns after loading: ``sentence1`` and, for pairs, ``sentence2``."""
        return ("sentence1", "sentence2")[: self.num_sentences]

    @property
    def hub_id(self) -> str | None:
        """Dataset id on the Hub, ``None`` where there is none."""
        return self.hub.location if self.hub else None

    @property
    def hub_config(self) -> str | None:
        """Dataset configuration on the Hub, ``None`` where there is none."""
        return self.hub.config if self.hub else None

    def recipe(self, encoder: str) -> Recipe:
        """Settings the given encoder is trained with on this task.

        Raises:
            InputError: no settings are recorded for that encoder.
        """
        return find_recipe(self.settings, encoder)


def get_task(name: str) -> Task:
    """The task of that name.

    Raises:
        InputError: there is none; the message names the choices.
    """
    if name not in TASKS:
        raise InputError(f"unknown task {name!r}; choose one of {', '.join(sorted(TASKS))}")
    return TASKS[name]


_TRAIN_ONLY = {"train": ("train",)}
_TRAIN_DEV = _TRAIN_ONLY | {"validation": ("validation",)}
_TRAIN_TEST = _TRAIN_ONLY | {"test": ("test",)}
_ALL_SPLITS = _TRAIN_DEV | {"test": ("test",)}
_MATCHED = _TRAIN_ONLY | {
    "validation": ("validation_matched", "validation"),
    "validation_mismatched": ("validation_mismatched",),
}
_POLARITY = ("negative", "positive")
_NLI = ("entailment", "neutral", "contradiction")
_ENTAILMENT = ("entailment", "not_entailment")
_PAIR = ("sentence1", "sentence2")
_PREMISE = ("premise", "hypothesis")
_NO_GOLD_LABEL = ("-", "-1")
_SCRIPTED = "refs/convert/parquet"
_FINE_QUESTIONS = {
    "ABBR": "abb exp",
    "ENTY": "animal body color cremat currency dismed event food instru lang letter other plant product religion "
    "sport substance symbol techmeth termeq veh word",
    "DESC": "def desc manner reason",
    "HUM": "gr ind title desc",
    "LOC": "city country mount other state",
    "NUM": "code count date dist money ord other period perc speed temp volsize weight",
}


def _single(name: str, title: str, labels: tuple[str, ...], hub: Source | None, **options) -> Task:
    splits = options.pop("splits", _TRAIN_ONLY)
    local = Source(location=name, text_columns=("text",), splits=splits)
    return Task(name=name, title=title, labels=labels, **({"local": local, "hub": hub} | options))


def _pair(name: str, title: str, labels: tuple[str, ...], hub: Source | None, **options) -> Task:
    splits = options.pop("splits", _TRAIN_DEV)
    local = Source(location=name, text_columns=_PAIR, splits=splits)
    options = {"local": local, "hub": hub, "settings": "snli", "num_sentences": 2} | options
    return Task(name=name, title=title, labels=labels, **options)


def _hub(location: str, *text_columns: str, splits: Mapping[str, tuple[str, ...]] = _ALL_SPLITS, **options) -> Source:
    return Source(location=location, text_columns=text_columns or ("text",), splits=splits, **options)


def _glue(config: str, *text_columns: str, splits: Mapping[str, tuple[str, ...]] = _TRAIN_DEV) -> Source:
    return _hub("nyu-mll/glue", *text_columns, splits=splits, config=config)


def _papers_tasks() -> list[Task]:
    trec_hub = {"revision": _SCRIPTED, "config": "default", "splits": _TRAIN_TEST}
    fine = tuple(f"{coarse}:{name}" for coarse, names in _FINE_QUESTIONS.items() for name in names.split())
    sick_local = Source(location="sick", text_columns=_PAIR, splits=_ALL_SPLITS)
    sick_hub = _hub("RobZamp/sick", "sentence_A", "sentence_B", revision=_SCRIPTED, config="default")
    folds = {"split_compounds": True}
    return [
        _single(
            "trec",
            "TREC question type",
            tuple(_FINE_QUESTIONS),
            _hub("CogComp/trec", label_column="coarse_label", **trec_hub),
            splits=_TRAIN_TEST,
            settings="trec",
        ),
        Task(
            name="trec_fine",
            title="TREC question type, 50 classes",
            labels=fine,
            local=Source(location="trec", text_columns=("text",), label_column="label_fine", splits=_TRAIN_TEST),
            hub=_hub("CogComp/trec", label_column="fine_label", **trec_hub),
            settings="trec",
        ),
        _single(
            "cr",
            "customer-review polarity",
            _POLARITY,
            _hub("SetFit/SentEval-CR", splits=_TRAIN_TEST),
            settings="cr",
            **folds,
        ),
        _single(
            "mpqa",
            "opinion polarity of phrases",
            _POLARITY,
            _hub("jxm/mpqa", splits=_TRAIN_TEST),
            settings="mpqa",
            **folds,
        ),
        _single(
            "subj",
            "subjective or objective",
            ("subjective", "objective"),
            _hub("SetFit/subj", splits=_TRAIN_TEST, label_order=("objective", "subjective")),
            settings="subj",
            **folds,
        ),
        _single(
            "mr",
            "movie-review polarity",
            _POLARITY,
            _hub("cornell-movie-review-data/rotten_tomatoes", label_order=_POLARITY),
            settings="cr",
            **folds,
        ),
        _single("sst2", "Stanford sentiment, 2 classes", _POLARITY, _hub("SetFit/sst2"), splits=_ALL_SPLITS),
        _single(
            "sst5",
            "Stanford sentiment, 5 classes",
            ("very negative", "negative", "neutral", "positive", "very positive"),
            _hub("SetFit/sst5"),
            splits=_ALL_SPLITS,
        ),
        Task(
            name="sick_relatedness",
            title="SICK relatedness",
            problem="regression",
            num_sentences=2,
            score_min=1.0,
            score_max=5.0,
            num_score_classes=5,
            metrics=("Pearson", "Spearman", "MeanSquaredError"),
            best_metric="pearson",
            settings="sick",
            local=replace(sick_local, label_column="score"),
            hub=replace(sick_hub, label_column="relatedness_score"),
        ),
        _pair("sick_entailment", "SICK entailment", _NLI, sick_hub, local=sick_local, settings="sick"),
        _pair(
            "snli",
            "Stanford natural language inference",
            _NLI,
            _hub("stanfordnlp/snli", *_PREMISE),
            splits=_ALL_SPLITS | {"train": ("train", "train_subset")},
            unlabelled=_NO_GOLD_LABEL,
            split_compounds=True,
        ),
        _pair(
            "multinli",
            "multi-genre natural language inference",
            _NLI,
            _hub("nyu-mll/multi_nli", *_PREMISE, splits=_MATCHED),
            splits=_MATCHED,
            evaluation_splits=("validation", "validation_mismatched"),
            unlabelled=_NO_GOLD_LABEL,
            split_compounds=True,
        ),
    ]


def _glue_tasks() -> list[Task]:
    both = {"metrics": ("Accuracy", "F1")}
    return [
        _single(
            "cola",
            "linguistic acceptability (GLUE)",
            ("unacceptable", "acceptable"),
            _glue("cola", "sentence"),
            splits=_TRAIN_DEV,
            metrics=("MatthewsCorrelation",),
            best_metric="matthews_correlation",
        ),
        _single("glue_sst2", "Stanford sentiment (GLUE)", _POLARITY, _glue("sst2", "sentence"), splits=_TRAIN_DEV),
        _pair(
            "mnli",
            "multi-genre natural language inference (GLUE)",
            _NLI,
            _glue("mnli", *_PREMISE, splits=_MATCHED),
            splits=_MATCHED,
            evaluation_splits=("validation", "validation_mismatched"),
            unlabelled=_NO_GOLD_LABEL,
        ),
        _pair(
            "mrpc",
            "paraphrase (GLUE)",
            ("not_equivalent", "equivalent"),
            _glue("mrpc", *_PAIR, splits=_ALL_SPLITS),
            splits=_ALL_SPLITS,
            **both,
        ),
        _pair("qnli", "question and answer sentence (GLUE)", _ENTAILMENT, _glue("qnli", "question", "sentence")),
        _pair(
            "qqp",
            "duplicate questions (GLUE)",
            ("not_duplicate", "duplicate"),
            _glue("qqp", "question1", "question2"),
            **both,
        ),
        _pair("rte", "recognising textual entailment (GLUE)", _ENTAILMENT, _glue("rte", *_PAIR)),
        _pair(
            "stsb",
            "semantic similarity (GLUE)",
            (),
            replace(_glue("stsb", *_PAIR), label_column="label"),
            local=Source(location="stsb", text_columns=_PAIR, label_column="score", splits=_ALL_SPLITS),
            problem="regression",
            score_min=0.0,
            score_max=5.0,
            num_score_classes=6,
            metrics=("Pearson", "Spearman"),
            best_metric="pearson",
            settings="sick",
        ),
        _pair("wnli", "pronoun resolution (GLUE)", _ENTAILMENT[::-1], _glue("wnli", *_PAIR)),
    ]


def _demo_tasks() -> list[Task]:
    relatedness = {
        "problem": "regression",
        "score_min": 1.0,
        "score_max": 5.0,
        "num_score_classes": 5,
        "metrics": ("Pearson", "Spearman", "MeanSquaredError"),
        "best_metric": "pearson",
    }
    generated = {"num_sentences": 2, "settings": "demo", "generated": True}
    columns = Source(location="demo", text_columns=_PAIR, splits=_ALL_SPLITS)
    return [
        Task(name="demo", title="word-order entailment (generated)", labels=_NLI, local=columns, **generated),
        Task(
            name="demo_relatedness",
            title="word-order relatedness (generated)",
            local=replace(columns, label_column="score"),
            **relatedness,
            **generated,
        ),
    ]


TASKS: dict[str, Task] = {task.name: task for task in (*_papers_tasks(), *_glue_tasks(), *_demo_tasks())}
"""Every task by name. GLUE's SST-2 is ``glue_sst2``: it has another size and split than the papers' ``sst2``."""
