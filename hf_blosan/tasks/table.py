"""The table of tasks: where their rows come from, what they mean, their metrics, and the papers' settings.

``TASKS["trec"]`` is a :class:`Task`; ``TASKS["trec"].recipe("disan")`` is the :class:`Recipe` of that encoder. A task
is read from local files (``DIR/<folder>/<split>.jsonl.gz``) or from the Hugging Face Hub. The two differ in column
names and label order, which each :class:`Source` records; :func:`hf_blosan.tasks.load_task` maps both to the same
columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import InputError
from .task import Source, Task


def get_task(name: str) -> Task:
    """The task of that name; raises InputError with the choices if there is none."""
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
_DUPLICATE = ("not_duplicate", "duplicate")
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
    local = Source(location=name, text_columns=("text",), splits=options.pop("splits", _TRAIN_ONLY))
    return Task(name=name, title=title, labels=labels, **({"local": local, "hub": hub} | options))


def _pair(name: str, title: str, labels: tuple[str, ...], hub: Source | None, **options) -> Task:
    local = Source(location=name, text_columns=_PAIR, splits=options.pop("splits", _TRAIN_DEV))
    options = {"local": local, "hub": hub, "recipe_family": "snli", "num_sentences": 2} | options
    return Task(name=name, title=title, labels=labels, **options)


def _hub(location: str, *text_columns: str, splits: Mapping[str, tuple[str, ...]] = _ALL_SPLITS, **options) -> Source:
    return Source(location=location, text_columns=text_columns or ("text",), splits=splits, **options)


def _glue(config: str, *text_columns: str, splits: Mapping[str, tuple[str, ...]] = _TRAIN_DEV) -> Source:
    return _hub("nyu-mll/glue", *text_columns, splits=splits, config=config)


def _regression(low: float, high: float, *metrics: str) -> dict[str, Any]:
    """Options of a regression task with one score class per integer score."""
    scores = {"score_min": low, "score_max": high, "num_score_classes": int(high - low) + 1}
    return scores | {"kind": "regression", "metrics": metrics, "best_metric": "pearson"}


_RELATEDNESS = _regression(1.0, 5.0, "Pearson", "Spearman", "MeanSquaredError")
_COMPOUNDS = {"split_compounds": True}
_HELD_OUT = {"validation_fraction": 0.1}
_FOLDS = {"num_folds": 10} | _HELD_OUT | _COMPOUNDS
_NLI_OPTIONS = {"unlabelled": _NO_GOLD_LABEL} | _COMPOUNDS
_BOTH = {"splits": _MATCHED, "evaluation_splits": ("validation", "validation_mismatched")}
_F1 = {"metrics": ("Accuracy", "F1")}

_TREC_HUB = _hub("CogComp/trec", label_column="coarse_label", revision=_SCRIPTED, config="default", splits=_TRAIN_TEST)
_TREC_FINE = Source(location="trec", text_columns=("text",), label_column="label_fine", splits=_TRAIN_TEST)
_SICK = Source(location="sick", text_columns=_PAIR, splits=_ALL_SPLITS)
_SICK_HUB = _hub("RobZamp/sick", "sentence_A", "sentence_B", revision=_SCRIPTED, config="default")
_SUBJ_HUB = _hub("SetFit/subj", splits=_TRAIN_TEST, label_order=("objective", "subjective"))
_MR_HUB = _hub("cornell-movie-review-data/rotten_tomatoes", label_order=_POLARITY)
_STSB = Source(location="stsb", text_columns=_PAIR, label_column="score", splits=_ALL_SPLITS)

_SQUAD = Source(
    location="squad",
    text_columns=("question", "context"),
    label_column="answers",
    splits={"train": ("train",), "test": ("validation",)},
)
_MULTI30K = Source(location="multi30k", text_columns=("en",), label_column="de", splits=_ALL_SPLITS)
_DEMO = Source(location="demo", text_columns=_PAIR, splits=_ALL_SPLITS)
_GENERATED = {"recipe_family": "demo", "generated": True}

_SENTIMENTS = ("very negative", "negative", "neutral", "positive", "very positive")
_SST2 = Source(location="sst2", text_columns=("text",), splits=_ALL_SPLITS, phrases="train_phrases")
_SST5 = replace(_SST2, location="sst5")

# Arguments and adjuncts of PropBank; C- continues and R- refers to a role.
_ROLES = (
    "V ARG0 ARG1 ARG1-DSP ARG2 ARG3 ARG4 ARG5 ARGA ARGM-ADJ ARGM-ADV ARGM-CAU ARGM-COM ARGM-CXN ARGM-DIR ARGM-DIS "
    "ARGM-EXT ARGM-GOL ARGM-LOC ARGM-LVB ARGM-MNR ARGM-MOD ARGM-NEG ARGM-PRD ARGM-PRP ARGM-PRR ARGM-REC ARGM-TMP C-V "
    "C-ARG0 C-ARG1 C-ARG1-DSP C-ARG2 C-ARG3 C-ARG4 C-ARGM-ADV C-ARGM-COM C-ARGM-CXN C-ARGM-DIR C-ARGM-EXT C-ARGM-GOL "
    "C-ARGM-LOC C-ARGM-MNR C-ARGM-PRP C-ARGM-PRR C-ARGM-TMP R-ARG0 R-ARG1 R-ARG2 R-ARG3 R-ARG4 R-ARGM-ADJ R-ARGM-ADV "
    "R-ARGM-CAU R-ARGM-COM R-ARGM-DIR R-ARGM-GOL R-ARGM-LOC R-ARGM-MNR R-ARGM-TMP"
).split()

_TASKS = (
    _single(
        "trec",
        "TREC question type",
        tuple(_FINE_QUESTIONS),
        _TREC_HUB,
        splits=_TRAIN_TEST,
        recipe_family="trec",
        **_HELD_OUT,
    ),
    _single(
        "trec_fine",
        "TREC question type, 50 classes",
        tuple(f"{coarse}:{fine}" for coarse, names in _FINE_QUESTIONS.items() for fine in names.split()),
        replace(_TREC_HUB, label_column="fine_label"),
        local=_TREC_FINE,
        recipe_family="trec",
        **_HELD_OUT,
    ),
    _single(
        "cr",
        "customer-review polarity",
        _POLARITY,
        _hub("SetFit/SentEval-CR", splits=_TRAIN_TEST),
        recipe_family="cr",
        **_FOLDS,
    ),
    _single(
        "mpqa",
        "opinion polarity of phrases",
        _POLARITY,
        _hub("jxm/mpqa", splits=_TRAIN_TEST),
        recipe_family="mpqa",
        **_FOLDS,
    ),
    _single("subj", "subjective or objective", ("subjective", "objective"), _SUBJ_HUB, recipe_family="subj", **_FOLDS),
    _single("mr", "movie-review polarity", _POLARITY, _MR_HUB, recipe_family="cr", **_FOLDS),
    _single("sst2", "Stanford sentiment, 2 classes", _POLARITY, _hub("SetFit/sst2"), splits=_ALL_SPLITS),
    _single("sst5", "Stanford sentiment, 5 classes", _SENTIMENTS, _hub("SetFit/sst5"), splits=_ALL_SPLITS),
    # The papers train on the phrases of the training trees as well; no data set on the Hub has them.
    _single("sst2_phrases", "Stanford sentiment, 2 classes, with phrases", _POLARITY, None, local=_SST2),
    _single("sst5_phrases", "Stanford sentiment, 5 classes, with phrases", _SENTIMENTS, None, local=_SST5),
    _pair(
        "sick_relatedness",
        "SICK relatedness",
        (),
        replace(_SICK_HUB, label_column="relatedness_score"),
        local=replace(_SICK, label_column="score"),
        recipe_family="sick",
        **_RELATEDNESS,
    ),
    _pair("sick_entailment", "SICK entailment", _NLI, _SICK_HUB, local=_SICK, recipe_family="sick"),
    _pair(
        "snli",
        "Stanford natural language inference",
        _NLI,
        _hub("stanfordnlp/snli", *_PREMISE),
        splits=_ALL_SPLITS | {"train": ("train", "train_subset")},
        **_NLI_OPTIONS,
    ),
    _pair(
        "multinli",
        "multi-genre natural language inference",
        _NLI,
        _hub("nyu-mll/multi_nli", *_PREMISE, splits=_MATCHED),
        **_BOTH,
        **_NLI_OPTIONS,
    ),
    Task(
        name="propbank_srl",
        title="semantic roles of PropBank in the English Web Treebank",
        kind="tagging",
        labels=("O", *(f"{part}-{role}" for role in _ROLES for part in "BI")),
        metrics=("ArgumentScores",),
        best_metric="f1",
        recipe_family="srl",
        local=Source(
            location="propbank_ewt",
            text_columns=("tokens",),
            label_column="tags",
            predicate_column="predicate_index",
            splits=_ALL_SPLITS,
        ),
    ),
    # The published figures are those on SQuAD's development set; its test set is not public.
    Task(
        name="squad_sentences",
        title="SQuAD, the sentence with the answer",
        kind="selection",
        num_sentences=2,
        validation_fraction=0.05,
        recipe_family="squad",
        local=_SQUAD,
        hub=replace(_SQUAD, location="rajpurkar/squad"),
        **_COMPOUNDS,
    ),
    Task(
        name="multi30k_en_de",
        title="Multi30k image descriptions, English to German",
        kind="translation",
        languages=("en", "de"),
        metrics=("SacreBLEU",),
        best_metric="bleu",
        recipe_family="translation",
        local=_MULTI30K,
        hub=replace(_MULTI30K, location="bentrevett/multi30k"),
    ),
    # Of GLUE.
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
        unlabelled=_NO_GOLD_LABEL,
        **_BOTH,
    ),
    _pair(
        "mrpc",
        "paraphrase (GLUE)",
        ("not_equivalent", "equivalent"),
        _glue("mrpc", *_PAIR, splits=_ALL_SPLITS),
        splits=_ALL_SPLITS,
        **_F1,
    ),
    _pair("qnli", "question and answer sentence (GLUE)", _ENTAILMENT, _glue("qnli", "question", "sentence")),
    _pair("qqp", "duplicate questions (GLUE)", _DUPLICATE, _glue("qqp", "question1", "question2"), **_F1),
    _pair("rte", "recognising textual entailment (GLUE)", _ENTAILMENT, _glue("rte", *_PAIR)),
    _pair(
        "stsb",
        "semantic similarity (GLUE)",
        (),
        _glue("stsb", *_PAIR),
        local=_STSB,
        recipe_family="sick",
        **_regression(0.0, 5.0, "Pearson", "Spearman"),
    ),
    _pair("wnli", "pronoun resolution (GLUE)", _ENTAILMENT[::-1], _glue("wnli", *_PAIR)),
    # Generated; see hf_blosan/data/demo_corpus.py.
    _pair("demo", "word-order entailment (generated)", _NLI, None, local=_DEMO, **_GENERATED),
    _pair(
        "demo_relatedness",
        "word-order relatedness (generated)",
        (),
        None,
        local=replace(_DEMO, label_column="score"),
        **_RELATEDNESS,
        **_GENERATED,
    ),
)
TASKS: dict[str, Task] = {task.name: task for task in _TASKS}
"""Every task by name. GLUE's SST-2 is ``glue_sst2``: its size and splits differ from the papers' ``sst2``."""
