"""The data of a task: what it predicts, what it is measured by, and where its rows are.

Everything that is done with them is in a kind of task, :class:`hf_blosan.tasks.base.TaskKind`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from .recipes import Recipe, RecipeName, find_recipe

if TYPE_CHECKING:  # the command line reads the table of tasks before anything heavy is imported
    from datasets import Dataset


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where to read the rows of a task.

    Attributes:
        location: folder below the data directory, or dataset id on the Hub.
        text_columns: one column for single sentences, two for pairs.
        label_column: column of the label, score or translation, or of the list of tags.
        predicate_column: column of the predicate's index among the words (semantic role labelling).
        splits: split name -> the names it may have at the source, tried in order.
        phrases: additional file of a local source, whose rows are added to the training rows.
        label_order: names of the integer labels 0, 1, ... if they differ from ``Task.labels``.
        config: Hub configuration.
        revision: Hub revision; ``refs/convert/parquet`` for data sets whose main branch is a loading script, which
            ``datasets`` no longer runs.
    """

    location: str
    text_columns: tuple[str, ...]
    label_column: str = "label"
    predicate_column: str | None = None
    splits: Mapping[str, tuple[str, ...]] = field(hash=False)
    phrases: str | None = None
    label_order: tuple[str, ...] | None = None
    config: str | None = None
    revision: str | None = None


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task, independent of the encoder.

    Attributes:
        name: key in :data:`TASKS`, value of ``--task_name``.
        title: title in reports and model cards.
        kind: key in :data:`hf_blosan.tasks.kinds.KINDS`: ``"classification"``, ``"regression"``, ``"tagging"`` (a
            label for each word), ``"selection"`` (of a sentence of a passage) or ``"translation"``.
        num_sentences: 1, or 2 for sentence pairs.
        languages: those of the texts, empty if unknown; source and target of translations.
        labels: class names in the order of the class ids; empty if there are no classes.
        score_min, score_max, num_score_classes: range of the scores, and number of equally spaced score classes of
            the pair-regression head; ``None`` for classification.
        metrics: class names in :mod:`hf_blosan.tasks.metrics`.
        best_metric: key in the metrics' result whose largest value selects the best checkpoint.
        evaluation_splits: development splits; the first one selects the checkpoint. Empty: no rows are held out, and
            the last weights are kept.
        unlabelled: labels (as text) that mean "no gold label"; such rows are dropped.
        num_folds: number of cross-validation folds; 0 for none.
        validation_fraction: fraction of the training rows held out for validation if the task has no validation rows;
            ``None`` if it has some.
        split_compounds: whether the papers split tokens at hyphens, slashes and the like.
        recipe_family: row of the table of recipes that :meth:`recipe` reads.
        local: local files, and the columns of files given on the command line.
        hub: data set on the Hub, ``None`` if there is none.
        generated: whether the rows are those of :func:`hf_blosan.data.make_demo_corpus`.
        files: split -> path, for tasks defined by a user's own files.
        tables: split -> its rows as read, for tasks defined by a user's own data, which is read once.
    """

    name: str
    title: str
    kind: str = "classification"
    num_sentences: Literal[1, 2] = 1
    languages: tuple[str, ...] = ("en",)
    labels: tuple[str, ...] = ()
    score_min: float | None = None
    score_max: float | None = None
    num_score_classes: int | None = None
    metrics: tuple[str, ...] = ("Accuracy",)
    best_metric: str = "accuracy"
    evaluation_splits: tuple[str, ...] = ("validation",)
    unlabelled: tuple[str, ...] = ()
    num_folds: int = 0
    validation_fraction: float | None = None
    split_compounds: bool = False
    recipe_family: str = "sst"
    local: Source
    hub: Source | None = None
    generated: bool = False
    files: Mapping[str, str] = field(default_factory=dict, hash=False)
    tables: Mapping[str, Dataset] = field(default_factory=dict, hash=False, compare=False, repr=False)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Text columns after loading: ``sentence1`` and, for pairs, ``sentence2``."""
        return ("sentence1", "sentence2")[: self.num_sentences]

    def recipe(self, encoder: str, name: RecipeName = "modern") -> Recipe:
        """The settings of an encoder on this task; raises InputError if there are none."""
        return find_recipe(self.recipe_family, encoder, name)
