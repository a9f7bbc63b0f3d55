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
    "model_name_or_path": "every run starts from random weights",
    "resume_from_checkpoint": "finished runs are kept, others start again",
    **dict.fromkeys(("train_file", "validation_file", "test_file"), "put the data into --data_dir"),
    "seed": "use --seeds",
    "fold": "use --folds",
    "results_file": "the records are in --output_dir",
    **dict.fromkeys(("push_to_hub", "hub_token"), "upload a model that --keep_models kept"),
}
"""Training options that the user cannot give because rows and columns set them -> what to do instead."""

BEST = "best"
"""In place of the name of a row: the best row of each column."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A figure of a task.

    Attributes:
        name: heading, as in the paper.
        task: name in :data:`hf_blosan.tasks.TASKS`.
        figure: key in the record's ``figures``; ``"parameters"`` for their number without word vectors,
            ``"seconds_per_update"`` or ``"peak_memory_mib"`` for what training took.
        scale, digits, unit: the figure is printed as ``f"{scale * figure:.{digits}f}{unit}"``.
        train_rows: number of training rows in the papers, for tasks of which smaller versions exist.
    """

    name: str
    task: str
    figure: str = "test_accuracy"
    scale: float = 100.0
    digits: int = 2
    unit: str = ""
    train_rows: int | None = None

    def figure_of(self, record: Mapping[str, Any]) -> float | None:
        """The figure in a record; None if undefined (a correlation of constant predictions)."""
        if self.figure == "parameters":
            return record["parameters"]["without_embeddings"]
        training = record["training"]
        if self.figure == "seconds_per_update":
            return training["seconds"] / training["steps"]
        if self.figure == "peak_memory_mib":
            return training.get("peak_memory_mib")
        return record["figures"].get(self.figure)

    def best_seen(self, record: Mapping[str, Any]) -> float | None:
        """The best value of the figure on the test split during training, if that was watched."""
        selecting = self.figure == f"test_{record['task']['best_metric']}"
        return record["training"].get("best_test") if selecting else None

    def text(self, figure: float) -> str:
        """The figure as printed."""
        return f"{self.scale * figure:.{self.digits}f}{self.unit}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A system.

    Attributes:
        name: as in the paper.
        encoder: model type.
        overrides: configuration fields that turn the model type into the system.
        paper: column name -> published figure, as printed.
        options: training options (fields of ``RunArguments``) that differ from the table's.
    """

    name: str
    encoder: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of a paper.

    Attributes:
        title: heading.
        columns, rows: its columns and rows.
        options: training options (fields of ``RunArguments``) of all rows that differ from the recipes.
        published: whether it is a paper's table, with a column of published figures beside each of ours.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    published: bool = True


def get_table(name: str) -> Table:
    """The table of that name; raises InputError with the choices if there is none."""
    if name not in TABLES:
        raise InputError(f"unknown table {name!r}; choose one of {', '.join(TABLES)}")
    return TABLES[name]


def choose(entries: tuple, names: list[str] | None, kind: str, table: str) -> tuple:
    """The rows or columns with these names, in the order of the table; all of them without names.

    Case and punctuation are ignored: ``bi_lstm`` selects Bi-LSTM.

    Raises:
        InputError: the table has no entry of that name.
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


_SENTENCES = tuple(Column(name=task.upper(), task=task) for task in ("cr", "mpqa", "subj", "trec"))
_SST1, _SST2 = Column(name="SST-1", task="sst5_phrases"), Column(name="SST-2", task="sst2_phrases")
_SST5 = replace(_SST1, name="SST-5")
_SICK = tuple(
    Column(name=name, task="sick_relatedness", figure=f"test_{figure}", scale=1.0, digits=4)
    for name, figure in (("Pearson's r", "pearson"), ("Spearman's ρ", "spearmanr"), ("MSE", "mse"))
)
_ENTAILMENT = Column(name="SICK-E", task="sick_entailment")
_SNLI = (
    Column(name="parameters", task="snli", figure="parameters", scale=1e-6, unit="m", train_rows=549_367),
    Column(name="SNLI", task="snli", train_rows=549_367),
)
_TRANSLATION = (
    Column(name="BLEU", task="multi30k_en_de", figure="test_bleu", scale=1.0),
    Column(name="parameters", task="multi30k_en_de", figure="parameters", scale=1e-6, unit="m"),
)

_SRL = (
    *(
        Column(name=name, task="propbank_srl", figure=f"test_{figure}")
        for name, figure in (("F1", "f1"), ("P", "precision"), ("R", "recall"), ("complete", "complete"))
    ),
    Column(name="parameters", task="propbank_srl", figure="parameters", scale=1e-6, unit="m"),
)

_SQUAD = (
    Column(name="Accuracy", task="squad_sentences"),
    Column(name="parameters", task="squad_sentences", figure="parameters", scale=1e-6, unit="m"),
    Column(
        name="Time per update", task="squad_sentences", figure="seconds_per_update", scale=1e3, digits=0, unit=" ms"
    ),
    Column(name="Peak memory", task="squad_sentences", figure="peak_memory_mib", scale=1.0, digits=0, unit=" MiB"),
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


def _with_published(rows: tuple[Row, ...], columns: tuple[Column, ...]) -> tuple[Row, ...]:
    """The rows with the published figures for these columns."""
    found = []
    for row in rows:
        words = _PUBLISHED.get(row.name, "").split()
        figures = dict(zip(words[::2], words[1::2], strict=True))
        figures |= {"SST-1": figures["SST-5"]} if "SST-5" in figures else {}
        keys = {column.name: column.name.split()[-1] for column in columns}
        found.append(replace(row, paper={name: figures[key] for name, key in keys.items() if key in figures}))
    return tuple(found)


_BASELINES = (_BI_LSTM, _BI_GRU, _BI_SRU, _MULTI_CNN, _HRCHY_CNN, _MULTI_HEAD)
_SNLI_RECURRENT = (_sized(_BI_LSTM, "2.9m"), _sized(_BI_GRU, "2.5m"))
_SNLI_OTHERS = (
    _sized(_MULTI_CNN, "1.4m"),
    _sized(_HRCHY_CNN, "3.4m", classifier_highway=True),
    _sized(_MULTI_HEAD, "2.0m"),
    _sized(_DISAN, "2.3m"),
)

_SUMMARY = (*_SENTENCES, _SST5, _SST2, *_SICK, _ENTAILMENT, _SNLI[1])

# The DiSAN repository trains its baselines like DiSAN itself.
_OF_DISAN = {"activation": "elu", "classifier_highway": False}
_600D = {"hidden_size": 600, "classifier_size": 300, "classifier_highway": False}

TABLES = {
    "disan_table1": Table(
        title="DiSAN (arXiv 1709.04696), Table 1: SNLI",
        columns=_SNLI,
        rows=(
            _sized(_WORDS_ADDITIVE, "0.45m", "Embedding with additive attention", **_OF_DISAN),
            _sized(_WORDS, "0.54m", "Embedding with s2t self-attention", **_OF_DISAN),
            _sized(_MULTI_HEAD, "1.98m", "Multi-head with s2t self-attention", **_OF_DISAN),
            _sized(_BI_LSTM, "2.88m", "Bi-LSTM with s2t self-attention", **_OF_DISAN),
            _sized(_DISAN_UNDIRECTED, "2.35m"),
            _sized(_DISAN, "2.35m", accuracy="85.6"),
        ),
        options={"per_device_train_batch_size": 64},
    ),
    "disan_sst": Table(
        title="DiSAN (arXiv 1709.04696): SST with five classes",
        columns=(_SST5,),
        rows=_with_published((_MULTI_HEAD, _BI_LSTM, _DISAN_UNDIRECTED, _DISAN), (_SST5,)),
    ),
    "disan_sick": Table(
        title="DiSAN (arXiv 1709.04696): SICK relatedness",
        columns=_SICK,
        rows=_with_published((_MULTI_HEAD, _BI_LSTM, _DISAN_UNDIRECTED, _DISAN), _SICK),
    ),
    "disan_sentences": Table(
        title="DiSAN (arXiv 1709.04696): sentence classification",
        columns=_SENTENCES,
        rows=_with_published((_MULTI_HEAD, _BI_LSTM, _DISAN), _SENTENCES),
    ),
    "biblosan_table1": Table(
        title="Bi-BloSAN (arXiv 1804.00857), Table 1: SNLI",
        columns=_SNLI,
        rows=(
            *_SNLI_RECURRENT,
            _sized(_BI_SRU, "2.0m"),
            *_SNLI_OTHERS,
            _sized(_BIBLOSAN, "2.8m", "480D Bi-BloSAN", "85.7"),
        ),
    ),
    "biblosan_ablation": Table(
        title="Bi-BloSAN (arXiv 1804.00857): ablation on SNLI",
        columns=_SNLI,
        rows=(
            _sized(_BIBLOSAN, "2.8m", accuracy="85.7"),
            _sized(_BIBLOSAN_GLOBAL, "2.5m", "w/o local"),
            _sized(_BIBLOSAN_LOCAL, "1.8m", "w/o global"),
            _sized(_WORDS, "0.54m", "w/o mBloSA"),
            _sized(_WORDS_ADDITIVE, "0.45m", "w/o mBloSA and source2token"),
        ),
    ),
    "biblosan_sick": Table(
        title="Bi-BloSAN (arXiv 1804.00857): SICK relatedness",
        columns=_SICK,
        rows=_with_published((*_BASELINES, _DISAN, _BIBLOSAN), _SICK),
    ),
    "biblosan_table5": Table(
        title="Bi-BloSAN (arXiv 1804.00857), Table 5: the sentence of a SQuAD passage with the answer",
        columns=_SQUAD,
        rows=(
            _variant(_BI_LSTM, paper={"Accuracy": "68.01"}),
            _MULTI_HEAD,
            _DISAN,
            _MTSA,
            _variant(_BIBLOSAN, paper={"Accuracy": "68.38"}),
        ),
    ),
    "biblosan_table6": Table(
        title="Bi-BloSAN (arXiv 1804.00857), Table 6: sentence classification",
        columns=(*_SENTENCES, _SST1, _SST2),
        rows=_with_published((*_BASELINES, _DISAN, _BIBLOSAN), (*_SENTENCES, _SST1, _SST2)),
    ),
    "mtsa_snli": Table(
        title="MTSA (arXiv 1805.00912): SNLI",
        columns=_SNLI,
        rows=(
            *_SNLI_RECURRENT,
            *_SNLI_OTHERS,
            _sized(_BIBLOSAN, "4.1m", "600D Bi-BloSAN", **_600D),
            _sized(_MTSA, "2.9m"),
        ),
    ),
    "mtsa_table3": Table(
        title="MTSA (arXiv 1805.00912), Table 3: ablation on SNLI",
        columns=_SNLI,
        rows=(
            _sized(_MTSA, "2.9m"),
            _variant(_MTSA_UNDIRECTED, "w/o order masks"),
            _sized(_MTSA_GLOBAL, "2.5m", "w/o token2token"),
            _sized(_MTSA_PAIRS, "2.5m", "w/o source2token"),
            _sized(_WORDS_DENSE, "1.8m", "w/o proposed modules", classifier_highway=True),
        ),
    ),
    "mtsa_sentences": Table(
        title="MTSA (arXiv 1805.00912): sentence classification",
        columns=(*_SENTENCES, _SST5),
        rows=_with_published((_BI_LSTM, _MULTI_HEAD, _DISAN, _BIBLOSAN, _MTSA), (*_SENTENCES, _SST5)),
    ),
    "mtsa_translation": Table(
        title="Translation of Multi30k by stacks of MTSA and DiSAN, and by the same model with multi-head attention",
        columns=_TRANSLATION,
        rows=(_MULTI_HEAD, _DISAN, _MTSA),
        published=False,
    ),
    "mtsa_srl": Table(
        title="MTSA (arXiv 1805.00912): semantic role labelling, with 4 layers on PropBank roles in the Web Treebank",
        columns=_SRL,
        rows=(_BI_LSTM, _MULTI_HEAD, _MTSA),
        published=False,  # on CoNLL-2005 and 2012
    ),
    "summary": Table(
        title="The encoders of the three papers and their baselines",
        columns=_SUMMARY,
        rows=_with_published((_BI_LSTM, _MULTI_HEAD, _MULTI_CNN, _DISAN, _BIBLOSAN, _MTSA), _SUMMARY),
    ),
    "released_protocol": Table(
        title="The released code's recipes and protocol: the best figure seen on the test rows of each fold",
        columns=_SENTENCES[:3],
        rows=_with_published((_DISAN, _BIBLOSAN, replace(_MTSA, options={"eval_every": 500})), _SENTENCES[:3]),
        options={"recipe": "paper", "select_on_test": True, "early_stopping_patience": 0}
        | {"max_train_steps": 1000, "eval_every": 10},
    ),
    "backbone": Table(
        title="Encoders on top of a frozen pretrained transformer",
        columns=(
            *(_SENTENCES[3], Column(name="SST-2", task="sst2"), _SENTENCES[0]),
            replace(_SICK[0], name="SICK r"),
        ),
        rows=(
            Row(name="Mean pooling", encoder="wordbag", overrides={"pooling": "mean"}),
            Row(name="[CLS]", encoder="wordbag", overrides={"pooling": "cls"}),
            Row(name="Source2token", encoder="wordbag"),
            # As wide as the backbone, so that all rows have the same head.
            *(_variant(row, hidden_size=384) for row in (_BI_LSTM, _MULTI_HEAD, _DISAN, _BIBLOSAN, _MTSA)),
        ),
        options={"backbone": "sentence-transformers/all-MiniLM-L6-v2", "cache_backbone": "float16"},
        published=False,
    ),
    "all_systems": Table(
        title="Every system and ablation of the three papers",
        columns=(*_SENTENCES, _SST1, _SST2, *_SICK, *_SNLI),
        rows=(
            *_BASELINES,
            *(_WORDS, _WORDS_ADDITIVE, _WORDS_DENSE),
            *(_DISAN, _DISAN_UNDIRECTED),
            *(_BIBLOSAN, _BIBLOSAN_GLOBAL, _BIBLOSAN_LOCAL),
            *(_MTSA, _MTSA_UNDIRECTED, _MTSA_GLOBAL, _MTSA_PAIRS),
        ),
        published=False,
    ),
}
