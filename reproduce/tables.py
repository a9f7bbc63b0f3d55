"""The papers' tables as data: the systems they compare, the tasks, and the published figures.

A column is a task and one of its figures; a row is a system: a model type and changes to its configuration. A
published figure is listed only if the paper's authors or a second source confirm it; the printed table shows "-"
otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hf_blosan.errors import InputError

SET_BY_TABLE = {
    "task_name": "select columns with --columns",
    "encoder": "select rows with --rows",
    "model_name_or_path": "use --rows; the table finetuning has a pretrained encoder",
    "resume_from_checkpoint": "finished runs are kept, others start again",
    **dict.fromkeys(("train_file", "validation_file", "test_file"), "put the data into --data_dir"),
    **dict.fromkeys(("distill_from", "unlabeled_file"), "use --rows; the table distillation has students"),
    "seed": "use --seeds",
    "fold": "use --folds",
    "results_file": "the records are in --output_dir",
    **dict.fromkeys(("push_to_hub", "hub_token"), "upload a model that --keep_models kept"),
}
"""Training options that rows and columns set, so the user cannot -> what to do instead."""

BEST = "best"
"""Used as a row name: the best row of each column."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A figure of a task, printed as ``f"{scale * figure:.{digits}f}{unit}"``."""

    name: str  # as in the paper
    task: str
    figure: str = "test_accuracy"  # of a record's figures, or parameters, seconds_per_update, peak_memory_mib
    scale: float = 100.0
    digits: int = 2
    unit: str = ""
    train_rows: int | None = None  # in the papers, for tasks that also have smaller versions

    @property
    def is_tested(self) -> bool:
        """Whether it is a metric of the test rows, of which paired tests may be made."""
        return self.figure.startswith("test_")

    def figure_of(self, record: Mapping[str, Any]) -> float | None:
        """The figure in a record; None if undefined (a correlation of constant predictions)."""
        training = record["training"]
        if self.figure == "parameters":
            return record["parameters"]["without_embeddings"]
        if self.figure == "seconds_per_update":
            return training["seconds"] / training["steps"]
        if self.figure == "peak_memory_mib":
            return training.get("peak_memory_mib")
        return record["figures"].get(self.figure)

    def best_seen(self, record: Mapping[str, Any]) -> float | None:
        """The best value of the figure on the test split during training, with --watch_test."""
        selecting = self.figure == f"test_{record['task']['best_metric']}"
        return record["training"].get("best_test") if selecting else None

    def text(self, figure: float) -> str:
        """The figure as printed."""
        return f"{self.scale * figure:.{self.digits}f}{self.unit}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A system: a model type, and the configuration fields that turn it into the system."""

    name: str  # as in the paper
    encoder: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, str] = field(default_factory=dict)  # column name -> published figure, as printed
    options: Mapping[str, Any] = field(default_factory=dict)  # of RunArguments, overriding the table's
    pretrained: str | None = None  # where weights come from; None: random numbers
    teacher: str | None = None  # the row whose models label the table's texts for this one


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of a paper, or, unless it is ``published``, one of this package without published figures."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    options: Mapping[str, Any] = field(default_factory=dict)  # of RunArguments, for all rows
    texts: Mapping[str, str] = field(default_factory=dict)  # task -> source of the texts that teachers label
    published: bool = True


def get_table(name: str) -> Table:
    """The table of that name; raises InputError with the choices if there is none."""
    if name not in TABLES:
        raise InputError(f"unknown table {name!r}; choose one of {', '.join(TABLES)}")
    return TABLES[name]


def choose(entries: tuple, names: list[str] | None, kind: str, table: str) -> tuple:
    """The rows or columns with these names, in table order; without names, all of them.

    Case and punctuation are ignored: ``bi_lstm`` selects Bi-LSTM. Raises InputError if the table has no such entry.
    """
    known = {slug(entry.name): entry for entry in entries}
    wanted = {slug(name): name for name in names or known}
    for key, name in wanted.items():
        if key not in known:
            choices = ", ".join(entry.name for entry in entries)
            raise InputError(f"{table} has no {kind} {name!r}; choose one of {choices}")
    return tuple(entry for key, entry in known.items() if key in wanted)


def slug(name: str) -> str:
    """A name for files: ``Bi-LSTM`` -> ``bi_lstm``, ``w/o local`` -> ``without_local``."""
    spelt = name.lower().replace("w/o", "without").replace("ρ", "rho")
    return re.sub(r"[^a-z0-9]+", "_", spelt).strip("_")


def _variant(row: Row, name: str | None = None, paper: Mapping[str, str] | None = None, **overrides) -> Row:
    """A copy of the row with another name, published figures or additional configuration fields."""
    return replace(row, name=name or row.name, overrides={**row.overrides, **overrides}, paper=paper or {})


def _sized(row: Row, parameters: str, name: str | None = None, accuracy: str | None = None, **overrides) -> Row:
    """A copy of the row with the figures published for SNLI."""
    paper = {"parameters": parameters} | ({"SNLI": accuracy} if accuracy else {})
    return _variant(row, name, paper, **overrides)


def _parameters(task: str, **options: Any) -> Column:
    return Column(name="parameters", task=task, figure="parameters", scale=1e-6, unit="m", **options)


_SENTENCES = tuple(Column(name=task.upper(), task=task) for task in ("cr", "mpqa", "subj", "trec"))
_SST1, _SST2 = Column(name="SST-1", task="sst5_phrases"), Column(name="SST-2", task="sst2_phrases")
_SST5 = replace(_SST1, name="SST-5")
_SICK = tuple(
    Column(name=name, task="sick_relatedness", figure=f"test_{figure}", scale=1.0, digits=4)
    for name, figure in (("Pearson's r", "pearson"), ("Spearman's ρ", "spearmanr"), ("MSE", "mse"))
)
_SICK_E = Column(name="SICK-E", task="sick_entailment")
_SNLI = (_parameters("snli", train_rows=549_367), Column(name="SNLI", task="snli", train_rows=549_367))
_SRL = (
    *(
        Column(name=name, task="propbank_srl", figure=f"test_{figure}")
        for name, figure in (("F1", "f1"), ("P", "precision"), ("R", "recall"), ("complete", "complete"))
    ),
    _parameters("propbank_srl"),
)
_TIME = {"figure": "seconds_per_update", "scale": 1e3, "digits": 0, "unit": " ms"}
_MEMORY = {"figure": "peak_memory_mib", "scale": 1.0, "digits": 0, "unit": " MiB"}
_SQUAD = (
    Column(name="Accuracy", task="squad_sentences"),
    _parameters("squad_sentences"),
    Column(name="Time per update", task="squad_sentences", **_TIME),
    Column(name="Peak memory", task="squad_sentences", **_MEMORY),
)

_BI_LSTM = Row(name="Bi-LSTM", encoder="birnn", overrides={"cell": "lstm"})
_BI_GRU = Row(name="Bi-GRU", encoder="birnn", overrides={"cell": "gru"})
_BI_SRU = Row(name="Bi-SRU", encoder="birnn", overrides={"cell": "sru"})
_MULTI_CNN = Row(name="Multi-CNN", encoder="textcnn", overrides={"architecture": "multi", "pooling": "max"})
_HRCHY_CNN = Row(name="Hrchy-CNN", encoder="textcnn", overrides={"architecture": "hierarchical", "hidden_size": 300})
_MULTI_HEAD = Row(name="Multi-head", encoder="multihead")
_WORDS = Row(name="Word vectors, source2token", encoder="wordbag")
_WORDS_ADDITIVE = _variant(_WORDS, "Word vectors, additive attention", pooling="additive")
_WORDS_DENSE = _variant(_WORDS, "Dense layer, source2token", dense_map=True, hidden_size=600)
_DISAN = Row(name="DiSAN", encoder="disan")
_DISAN_UNDIRECTED = _variant(_DISAN, "DiSAN without directions", directions=["diagonal", "diagonal"])
_BIBLOSAN = Row(name="Bi-BloSAN", encoder="biblosan")
_BIBLOSAN_GLOBAL = _variant(_BIBLOSAN, "Bi-BloSAN w/o local", fuse_local=False)
_BIBLOSAN_LOCAL = _variant(_BIBLOSAN, "Bi-BloSAN w/o global", fuse_global=False)
_MTSA = Row(name="MTSA", encoder="mtsa")
_MTSA_UNDIRECTED = _variant(_MTSA, "MTSA w/o order masks", directions=["diagonal", "diagonal"])
_MTSA_GLOBAL = _variant(_MTSA, "MTSA w/o token2token", token2token=False)
_MTSA_PAIRS = _variant(_MTSA, "MTSA w/o source2token", source2token=False)

_PUBLISHED = {
    "DiSAN": "CR 84.8 MPQA 90.1 SUBJ 94.2 TREC 94.2 SST-5 51.7 SST-2 87.8 r .8695 ρ .8139 MSE .2879",
    "Bi-BloSAN": "CR 84.8 MPQA 90.4 SUBJ 94.5 TREC 94.8 SST-5 50.6 SST-2 87.4 r .8616 ρ .8038 MSE .3008",
    "MTSA": "CR 84.9 MPQA 90.5 SUBJ 94.5 TREC 95.3 SST-5 51.3",
}
"""Published figures on sentence classification and SICK relatedness: column (last word of its name) and figure."""


def _paper(title: str, columns: tuple[Column, ...], *rows: Row, options: Mapping[str, Any] | None = None) -> Table:
    """A table of a paper, with the published figures of these columns."""
    found = []
    for row in rows:
        words = _PUBLISHED.get(row.name, "").split()
        figures = dict(zip(words[::2], words[1::2], strict=True))
        figures |= {"SST-1": figures["SST-5"]} if "SST-5" in figures else {}
        keys = {column.name: column.name.split()[-1] for column in columns}
        known = {name: figures[key] for name, key in keys.items() if key in figures}
        found.append(replace(row, paper={**row.paper, **known}))
    return Table(title=title, columns=columns, rows=tuple(found), options=options or {})


def _own(title: str, columns: tuple[Column, ...], *rows: Row, **fields: Mapping[str, Any]) -> Table:
    """A table without published figures."""
    return Table(title=title, columns=columns, rows=rows, published=False, **fields)


_BASELINES = (_BI_LSTM, _BI_GRU, _BI_SRU, _MULTI_CNN, _HRCHY_CNN, _MULTI_HEAD)
_SNLI_RECURRENT = (_sized(_BI_LSTM, "2.9m"), _sized(_BI_GRU, "2.5m"))
_SNLI_OTHERS = (
    _sized(_MULTI_CNN, "1.4m"),
    _sized(_HRCHY_CNN, "3.4m", classifier_highway=True),
    _sized(_MULTI_HEAD, "2.0m"),
    _sized(_DISAN, "2.3m"),
)
# The DiSAN repository trains its baselines like DiSAN itself.
_OF_DISAN = {"activation": "elu", "classifier_highway": False}
_600D = {"hidden_size": 600, "classifier_size": 300, "classifier_highway": False}
_BACKBONE = "sentence-transformers/all-MiniLM-L6-v2"
_SIMILARITY = Row(name="disan-mini-en-similarity", encoder="disan", pretrained="disan-mini-en-similarity")
_MINILM = Row(
    name="all-MiniLM-L6-v2",
    encoder="wordbag",
    overrides={"pooling": "mean"},
    options={"backbone": _BACKBONE, "embedding_trainable": "all", "num_train_epochs": 3},
)
_DISAN_ROWS = (_MULTI_HEAD, _BI_LSTM, _DISAN_UNDIRECTED, _DISAN)

TABLES = {
    "disan_table1": _paper(
        "DiSAN (arXiv 1709.04696), Table 1: SNLI",
        _SNLI,
        _sized(_WORDS_ADDITIVE, "0.45m", "Embedding with additive attention", **_OF_DISAN),
        _sized(_WORDS, "0.54m", "Embedding with s2t self-attention", **_OF_DISAN),
        _sized(_MULTI_HEAD, "1.98m", "Multi-head with s2t self-attention", **_OF_DISAN),
        _sized(_BI_LSTM, "2.88m", "Bi-LSTM with s2t self-attention", **_OF_DISAN),
        _sized(_DISAN_UNDIRECTED, "2.35m"),
        _sized(_DISAN, "2.35m", accuracy="85.6"),
        options={"per_device_train_batch_size": 64},
    ),
    "disan_sst": _paper("DiSAN (arXiv 1709.04696): SST with five classes", (_SST5,), *_DISAN_ROWS),
    "disan_sick": _paper("DiSAN (arXiv 1709.04696): SICK relatedness", _SICK, *_DISAN_ROWS),
    "disan_sentences": _paper(
        "DiSAN (arXiv 1709.04696): sentence classification", _SENTENCES, _MULTI_HEAD, _BI_LSTM, _DISAN
    ),
    "biblosan_table1": _paper(
        "Bi-BloSAN (arXiv 1804.00857), Table 1: SNLI",
        _SNLI,
        *_SNLI_RECURRENT,
        _sized(_BI_SRU, "2.0m"),
        *_SNLI_OTHERS,
        _sized(_BIBLOSAN, "2.8m", "480D Bi-BloSAN", "85.7"),
    ),
    "biblosan_ablation": _paper(
        "Bi-BloSAN (arXiv 1804.00857): ablation on SNLI",
        _SNLI,
        _sized(_BIBLOSAN, "2.8m", accuracy="85.7"),
        _sized(_BIBLOSAN_GLOBAL, "2.5m", "w/o local"),
        _sized(_BIBLOSAN_LOCAL, "1.8m", "w/o global"),
        _sized(_WORDS, "0.54m", "w/o mBloSA"),
        _sized(_WORDS_ADDITIVE, "0.45m", "w/o mBloSA and source2token"),
    ),
    "biblosan_sick": _paper("Bi-BloSAN (arXiv 1804.00857): SICK relatedness", _SICK, *_BASELINES, _DISAN, _BIBLOSAN),
    "biblosan_table5": _paper(
        "Bi-BloSAN (arXiv 1804.00857), Table 5: the sentence of a SQuAD passage with the answer",
        _SQUAD,
        _variant(_BI_LSTM, paper={"Accuracy": "68.01"}),
        *(_MULTI_HEAD, _DISAN, _MTSA),
        _variant(_BIBLOSAN, paper={"Accuracy": "68.38"}),
    ),
    "biblosan_table6": _paper(
        "Bi-BloSAN (arXiv 1804.00857), Table 6: sentence classification",
        (*_SENTENCES, _SST1, _SST2),
        *(*_BASELINES, _DISAN, _BIBLOSAN),
    ),
    "mtsa_snli": _paper(
        "MTSA (arXiv 1805.00912): SNLI",
        _SNLI,
        *(*_SNLI_RECURRENT, *_SNLI_OTHERS),
        _sized(_BIBLOSAN, "4.1m", "600D Bi-BloSAN", **_600D),
        _sized(_MTSA, "2.9m"),
    ),
    "mtsa_table3": _paper(
        "MTSA (arXiv 1805.00912), Table 3: ablation on SNLI",
        _SNLI,
        _sized(_MTSA, "2.9m"),
        _variant(_MTSA_UNDIRECTED, "w/o order masks"),
        _sized(_MTSA_GLOBAL, "2.5m", "w/o token2token"),
        _sized(_MTSA_PAIRS, "2.5m", "w/o source2token"),
        _sized(_WORDS_DENSE, "1.8m", "w/o proposed modules", classifier_highway=True),
    ),
    "mtsa_sentences": _paper(
        "MTSA (arXiv 1805.00912): sentence classification",
        (*_SENTENCES, _SST5),
        *(_BI_LSTM, _MULTI_HEAD, _DISAN, _BIBLOSAN, _MTSA),
    ),
    "mtsa_translation": _own(
        "Translation of Multi30k by stacks of MTSA and DiSAN, and by the same model with multi-head attention",
        (Column(name="BLEU", task="multi30k_en_de", figure="test_bleu", scale=1.0), _parameters("multi30k_en_de")),
        *(_MULTI_HEAD, _DISAN, _MTSA),
    ),
    "mtsa_srl": _own(  # the paper has CoNLL-2005 and 2012
        "MTSA (arXiv 1805.00912): semantic role labelling, with 4 layers on PropBank roles in the Web Treebank",
        _SRL,
        *(_BI_LSTM, _MULTI_HEAD, _MTSA),
    ),
    "summary": _paper(
        "The encoders of the three papers and their baselines",
        (*_SENTENCES, _SST5, _SST2, *_SICK, _SICK_E, _SNLI[1]),
        *(_BI_LSTM, _MULTI_HEAD, _MULTI_CNN, _DISAN, _BIBLOSAN, _MTSA),
    ),
    "released_protocol": _paper(
        "The released code's recipes and protocol: the best figure seen on the test rows of each fold",
        _SENTENCES[:3],
        *(_DISAN, _BIBLOSAN, replace(_MTSA, options={"eval_every": 500})),
        options={"recipe": "paper", "select_on_test": True, "early_stopping_patience": 0}
        | {"max_train_steps": 1000, "eval_every": 10},
    ),
    "backbone": _own(
        "Encoders on top of a frozen pretrained transformer",
        (_SENTENCES[3], Column(name="SST-2", task="sst2"), _SENTENCES[0], replace(_SICK[0], name="SICK r")),
        Row(name="Mean pooling", encoder="wordbag", overrides={"pooling": "mean"}),
        Row(name="[CLS]", encoder="wordbag", overrides={"pooling": "cls"}),
        Row(name="Source2token", encoder="wordbag"),
        # As wide as the backbone, so that all rows have the same head.
        *(_variant(row, hidden_size=384) for row in (_BI_LSTM, _MULTI_HEAD, _DISAN, _BIBLOSAN, _MTSA)),
        options={"backbone": _BACKBONE, "cache_backbone": "float16"},
    ),
    "finetuning": _own(
        "A pretrained encoder with a head, and the same training of a new one",
        (_SENTENCES[3], _SENTENCES[0], Column(name="SST-2", task="sst2"), _SICK_E),
        *(_DISAN, Row(name="disan-mini-en", encoder="disan", pretrained="disan-mini-en"), _SIMILARITY),
    ),
    "distillation": _own(
        "An encoder that learns from 20,000 texts labelled by a fine-tuned transformer, and the same training without",
        (*_SENTENCES, Column(name="SST-2", task="sst2")),
        *(_MINILM, _SIMILARITY, replace(_SIMILARITY, name=f"{_SIMILARITY.name}, taught", teacher=_MINILM.name)),
        texts={"trec": "squad", "cr": "pros_cons", "mpqa": "masc", **dict.fromkeys(("subj", "sst2"), "movie_reviews")},
    ),
    "pair_features": _own(
        "How a classifier compares the vectors of a pair",
        (_SICK_E, *(Column(name=task.upper(), task=task) for task in ("mrpc", "rte")), _SNLI[1]),
        *(_variant(_DISAN, f"DiSAN, {name}", pair_features=name) for name in ("released", "absolute", "both")),
    ),
    "ablations": _own(
        "The encoders of the three papers without one of their parts",
        (_SENTENCES[3], _SICK_E),
        *(_DISAN, _DISAN_UNDIRECTED, _BIBLOSAN, _BIBLOSAN_GLOBAL, _BIBLOSAN_LOCAL),
        *(_MTSA, _MTSA_UNDIRECTED, _MTSA_GLOBAL, _MTSA_PAIRS),
    ),
    "all_systems": _own(
        "Every system and ablation of the three papers",
        (*_SENTENCES, _SST1, _SST2, *_SICK, *_SNLI),
        *(*_BASELINES, _WORDS, _WORDS_ADDITIVE, _WORDS_DENSE, _DISAN, _DISAN_UNDIRECTED),
        *(_BIBLOSAN, _BIBLOSAN_GLOBAL, _BIBLOSAN_LOCAL, _MTSA, _MTSA_UNDIRECTED, _MTSA_GLOBAL, _MTSA_PAIRS),
    ),
}
