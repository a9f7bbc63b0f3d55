"""The table of kinds of tasks. Kinds are imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .base import TaskKind
from .task import Source, Task

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

KINDS = {
    "tagging": ("Tagging", "words, {labels} tags"),
    "selection": ("Selection", "passages, one sentence"),
    "translation": ("Translation", "texts, translations"),
    "regression": ("Regression", "{rows}, scores"),
    "classification": ("Classification", "{rows}, {labels} classes"),
}
"""Each kind's module here -> its class, and a short description of its rows and predictions.

The first kind that recognises a user's rows, or a saved model's configuration, is used.
"""


def kind_class(name: str) -> type[TaskKind]:
    """The class of a kind."""
    return getattr(import_module(f".{name}", __package__), KINDS[name][0])


def find_kind(task: Task) -> TaskKind:
    """The kind of a task."""
    return kind_class(task.kind)(task)


def kind_of(config: PreTrainedConfig) -> TaskKind:
    """The kind of a saved model, with the task from its configuration."""
    name = next(name for name in KINDS if kind_class(name).recognises_config(config))
    kind, rows, trained_on = kind_class(name), remembered_rows(config), getattr(config, "finetuning_task", None)
    source = Source(
        location="",
        text_columns=tuple(rows.get("text_columns", ())),
        label_column=rows.get("label_column", ""),
        splits={},
    )
    task = {
        "name": trained_on or "custom",
        "title": trained_on or "custom",
        "kind": name,
        "num_sentences": getattr(config, "num_sentences", 1),
        "local": source,
        "evaluation_splits": ("test",),
    }
    return kind(Task(**task | kind.saved_fields(config)), config)


def remembered_rows(config: Any) -> dict[str, Any]:
    """What a saved model's configuration says about its training rows."""
    return getattr(config, "training_rows", None) or {}


def describe_rows(task: Task) -> str:
    """A short description of a task's rows and predictions."""
    rows = "pairs" if task.num_sentences == 2 else "texts"
    return KINDS[task.kind][1].format(rows=rows, labels=len(task.labels))
