"""The papers' tables as data: which systems they compare, on which tasks, with which published figures.

A table has columns (a task and one of its figures) and rows (a system: a model type and what its configuration changes
of the task's recipe). A published figure stands here only if it could be checked against the paper's authors or a
second source; where it could not, the printed table shows "-".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import InputError


@dataclass(frozen=True, kw_only=True)
class Column:
    """A figure of a task.

    Attributes:
        name: heading, as in the paper.
        task: name in :data:`hf_blosan.tasks.TASKS`.
        figure: entry of the record's ``figures``, or ``"parameters"`` for their number without word vectors.
        scale, digits, unit: the figure is printed as ``f"{scale * figure:.{digits}f}{unit}"``.
        train_rows: what the papers train on, where a smaller set of rows is in use under the same name.
    """

    name: str
    task: str
    figure: str = "test_accuracy"
    scale: float = 100.0
    digits: int = 2
    unit: str = ""
    train_rows: int | None = None

    def text(self, figure: float) -> str:
        """The figure as it is printed."""
        return f"{self.scale * figure:.{self.digits}f}{self.unit}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A system.

    Attributes:
        name: as in the paper.
        encoder: model type.
        overrides: configuration fields that make the system out of the model type.
        paper: column name -> published figure, as printed.
    """

    name: str
    encoder: str
    overrides: Mapping[str, Any] = field(default_factory=dict, hash=False)
    paper: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of a paper.

    Attributes:
        title: what it is, in words.
        columns, rows: see there.
        options: training options (fields of ``RunArguments``) that differ from the recipes in every row.
        published: whether the table is a paper's, and has a column of published figures beside each of ours.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    published: bool = True


def get_table(name: str) -> Table:
    """The table of that name.

    Raises:
        InputError: there is none; the message names the choices.
    """
    if name not in TABLES:
        raise InputError(f"unknown table {name!r}; choose one of {', '.join(TABLES)}")
    return TABLES[name]


def choose(entries: tuple, names: list[str] | None, kind: str, table: str) -> tuple:
    """The rows or columns of these names, in the order of the table; all of them without names.

    Case, blanks and punctuation do not count: ``bi_lstm`` is Bi-LSTM.

    Raises:
        InputError: a name is none of the table; the message names the choices.
    """
    known = {slug(entry.name): entry for entry in entries}
    wanted = [slug(name) for name in names or known]
    for name, key in zip(names or known, wanted, strict=True):
        if key not in known:
            choices = ", ".join(entry.name for entry in entries)
            raise InputError(f"{table} has no {kind} {name!r}; choose of {choices}")
    return tuple(entry for key, entry in known.items() if key in wanted)


def slug(name: str) -> str:
    """A name for files: ``Bi-LSTM`` -> ``bi_lstm``, ``w/o local`` -> ``without_local``."""
    spelt = name.lower().replace("w/o", "without").replace("|θ|", "parameters").replace("ρ", "rho")
    return re.sub(r"[^a-z0-9]+", "_", spelt).strip("_")


def _variant(row: Row, name: str | None = None, paper: Mapping[str, str] | None = None, **overrides) -> Row:
    """The row under another name, with published figures, or with further configuration fields."""
    return replace(row, name=name or row.name, overrides={**row.overrides, **overrides}, paper=paper or {})


_SENTENCES = (
    Column(name="CR", task="cr"),
    Column(name="MPQA", task="mpqa"),
    Column(name="SUBJ", task="subj"),
    Column(name="TREC", task="trec"),
)
_SST1, _SST2, _SST5 = (
    Column(name="SST-1", task="sst5"),
    Column(name="SST-2", task="sst2"),
    Column(name="SST-5", task="sst5"),
)
_SICK = (
    Column(name="Pearson's r", task="sick_relatedness", figure="test_pearson", scale=1.0, digits=4),
    Column(name="Spearman's ρ", task="sick_relatedness", figure="test_spearman", scale=1.0, digits=4),
    Column(name="MSE", task="sick_relatedness", figure="test_mse", scale=1.0, digits=4),
)
_SNLI = (
    Column(name="|θ|", task="snli", figure="parameters", scale=1e-6, unit="m", train_rows=549_367),
    Column(name="SNLI", task="snli", train_rows=549_367),
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

_BASELINES = (_BI_LSTM, _BI_GRU, _BI_SRU, _MULTI_CNN, _HRCHY_CNN, _MULTI_HEAD)

# The DiSAN repository trains its baselines like DiSAN itself.
_OF_DISAN = {"activation": "elu", "classifier_highway": False}

TABLES = {
    "disan_table1": Table(
        title="DiSAN (arXiv 1709.04696), Table 1: SNLI",
        columns=_SNLI,
        rows=(
            _variant(_WORDS_ADDITIVE, "Embedding with additive attention", {"|θ|": "0.45m"}, **_OF_DISAN),
            _variant(_WORDS, "Embedding with s2t self-attention", {"|θ|": "0.54m"}, **_OF_DISAN),
            _variant(_MULTI_HEAD, "Multi-head with s2t self-attention", {"|θ|": "1.98m"}, **_OF_DISAN),
            _variant(_BI_LSTM, "Bi-LSTM with s2t self-attention", {"|θ|": "2.88m"}, **_OF_DISAN),
            _variant(_DISAN_UNDIRECTED, paper={"|θ|": "2.35m"}),
            _variant(_DISAN, paper={"|θ|": "2.35m", "SNLI": "85.6"}),
        ),
        options={"per_device_train_batch_size": 64},
    ),
    "disan_sst": Table(
        title="DiSAN (arXiv 1709.04696): SST with five classes",
        columns=(_SST5,),
        rows=(_MULTI_HEAD, _BI_LSTM, _DISAN_UNDIRECTED, _DISAN),
    ),
    "disan_sick": Table(
        title="DiSAN (arXiv 1709.04696): SICK relatedness",
        columns=_SICK,
        rows=(_MULTI_HEAD, _BI_LSTM, _DISAN_UNDIRECTED, _DISAN),
    ),
    "disan_sentences": Table(
        title="DiSAN (arXiv 1709.04696): sentence classification",
        columns=_SENTENCES,
        rows=(_MULTI_HEAD, _BI_LSTM, _DISAN),
    ),
    "biblosan_table1": Table(
        title="Bi-BloSAN (arXiv 1804.00857), Table 1: SNLI",
        columns=_SNLI,
        rows=(
            _variant(_BI_LSTM, paper={"|θ|": "2.9m"}),
            _variant(_BI_GRU, paper={"|θ|": "2.5m"}),
            _variant(_BI_SRU, paper={"|θ|": "2.0m"}),
            _variant(_MULTI_CNN, paper={"|θ|": "1.4m"}),
            _variant(_HRCHY_CNN, paper={"|θ|": "3.4m"}, classifier_highway=True),
            _variant(_MULTI_HEAD, paper={"|θ|": "2.0m"}),
            _variant(_DISAN, paper={"|θ|": "2.3m"}),
            _variant(_BIBLOSAN, "480D Bi-BloSAN", {"|θ|": "2.8m", "SNLI": "85.7"}),
        ),
    ),
    "biblosan_ablation": Table(
        title="Bi-BloSAN (arXiv 1804.00857): ablation on SNLI",
        columns=_SNLI,
        rows=(
            _variant(_BIBLOSAN, paper={"|θ|": "2.8m", "SNLI": "85.7"}),
            _variant(_BIBLOSAN_GLOBAL, "w/o local", {"|θ|": "2.5m"}),
            _variant(_BIBLOSAN_LOCAL, "w/o global", {"|θ|": "1.8m"}),
            _variant(_WORDS, "w/o mBloSA", {"|θ|": "0.54m"}),
            _variant(_WORDS_ADDITIVE, "w/o mBloSA and source2token", {"|θ|": "0.45m"}),
        ),
    ),
    "biblosan_sick": Table(
        title="Bi-BloSAN (arXiv 1804.00857): SICK relatedness",
        columns=_SICK,
        rows=(*_BASELINES, _DISAN, _BIBLOSAN),
    ),
    "biblosan_table6": Table(
        title="Bi-BloSAN (arXiv 1804.00857), Table 6: sentence classification",
        columns=(*_SENTENCES, _SST1, _SST2),
        rows=(*_BASELINES, _DISAN, _BIBLOSAN),
    ),
    "mtsa_snli": Table(
        title="MTSA (arXiv 1805.00912): SNLI",
        columns=_SNLI,
        rows=(
            _variant(_BI_LSTM, paper={"|θ|": "2.9m"}),
            _variant(_BI_GRU, paper={"|θ|": "2.5m"}),
            _variant(_MULTI_CNN, paper={"|θ|": "1.4m"}),
            _variant(_HRCHY_CNN, paper={"|θ|": "3.4m"}, classifier_highway=True),
            _variant(_MULTI_HEAD, paper={"|θ|": "2.0m"}),
            _variant(_DISAN, paper={"|θ|": "2.3m"}),
            _variant(
                _BIBLOSAN,
                "600D Bi-BloSAN",
                {"|θ|": "4.1m"},
                hidden_size=600,
                classifier_size=300,
                classifier_highway=False,
            ),
            _variant(_MTSA, paper={"|θ|": "2.9m"}),
        ),
    ),
    "mtsa_table3": Table(
        title="MTSA (arXiv 1805.00912), Table 3: ablation on SNLI",
        columns=_SNLI,
        rows=(
            _variant(_MTSA, paper={"|θ|": "2.9m"}),
            _variant(_MTSA_UNDIRECTED, "w/o order masks"),
            _variant(_MTSA_GLOBAL, "w/o token2token", {"|θ|": "2.5m"}),
            _variant(_MTSA_PAIRS, "w/o source2token", {"|θ|": "2.5m"}),
            _variant(_WORDS_DENSE, "w/o proposed modules", {"|θ|": "1.8m"}, classifier_highway=True),
        ),
    ),
    "mtsa_sentences": Table(
        title="MTSA (arXiv 1805.00912): sentence classification",
        columns=(*_SENTENCES, _SST5),
        rows=(_BI_LSTM, _MULTI_HEAD, _DISAN, _BIBLOSAN, _MTSA),
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
