"""From a table and the user's options to runs, and what is already known of each."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..overrides import format_config_overrides, parse_config_overrides
from ..tasks import TASKS, Task
from ..training import RunArguments, parse_arguments
from ..training.preparation import check_overrides
from .tables import Column, Row, Table, slug

DECIDED = {
    "task_name": "name columns with --columns",
    "encoder": "name rows with --rows",
    "model_name_or_path": "every run starts afresh",
    "resume_from_checkpoint": "finished runs are kept, others start afresh",
    "train_file": "put the data into --data_dir",
    "validation_file": "put the data into --data_dir",
    "test_file": "put the data into --data_dir",
    "seed": "use --seeds",
    "fold": "use --folds",
    "results_file": "the records are in --output_dir",
    "push_to_hub": "upload a model that --keep_models kept",
    "hub_token": "upload a model that --keep_models kept",
}
"""Training options that are not for the user to give, since rows and columns decide them, and what to do instead."""

IGNORED_WHEN_RESUMING = (
    *("data_dir", "output_dir", "results_file"),
    *("per_device_eval_batch_size", "cpu", "trust_remote_code", "ignore_mismatched_sizes"),
    *("checkpointing_steps", "logging_steps", "with_tracking", "report_to", "hub_model_id"),
)
"""Options that say where things are or how a run is watched; what comes out does not hang on them."""


@dataclass(frozen=True)
class Run:
    """One training run of a table.

    Attributes:
        row: the system.
        task: name of the task.
        arguments: all options of the run; its model goes to ``arguments.output_dir``, its record to
            ``arguments.results_file``.
        folds: number of folds of which the run is one; 0 if the task has its own test split.
    """

    row: Row
    task: str
    arguments: RunArguments
    folds: int

    @property
    def label(self) -> str:
        """The run in words."""
        fold = f", fold {self.arguments.fold} of {self.folds}" if self.folds else ""
        return f"{self.row.name} on {self.task}, seed {self.arguments.seed}{fold}"

    @property
    def record_file(self) -> Path:
        return Path(self.arguments.results_file)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that decides what comes out: the options that are not at their default, and no paths."""
        changed = _deciding(self.arguments.changed())
        if self.arguments.word_vectors:
            changed["word_vectors"] = Path(self.arguments.word_vectors).name
        return changed | {"data": "local files" if self.arguments.data_dir else "Hugging Face Hub"}

    def record(self) -> dict[str, Any] | None:
        """The record of the run if it is finished.

        Raises:
            InputError: there is a file in its place that is no record, or that of a run with other settings.
        """
        if not self.record_file.exists():
            return None
        try:
            record = json.loads(self.record_file.read_text(encoding="utf-8"))
            made = _deciding(record["experiment"]["settings"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{self.record_file} is no record of a run of a table; remove it") from error
        wanted = self.settings
        for name in (*wanted, *made):
            if made.get(name) != wanted.get(name):
                given = [f"{values[name]!r}" if name in values else "the default" for values in (made, wanted)]
                raise InputError(
                    f"{self.record_file} was made with {name} {given[0]}, this call has {given[1]}; give another "
                    "--output_dir, or remove the file to train anew"
                )
        return record


def plan(
    table: Table,
    rows: tuple[Row, ...],
    columns: tuple[Column, ...],
    seeds: list[int],
    folds: int | None,
    output_dir: Path,
    words: list[str],
) -> list[Run]:
    """All runs for the given rows and columns: one for each system, task, seed and, without a test split, fold.

    Args:
        table: the table, for its options.
        rows, columns, seeds: what to run.
        folds: run only that many folds of a task without a test split; all of them by default.
        output_dir: folder of the records.
        words: training options as on a command line; they go before those of table, row and recipe.

    Raises:
        InputError: a training option is unknown, has an impossible value or is not for the user to give.
    """
    runs = []
    for task in dict.fromkeys(column.task for column in columns):
        for row in rows:
            common = _arguments(table, row, task, output_dir, words)
            available = _folds(TASKS[task], common)
            for seed in seeds:
                for fold in range(min(folds or available, available) or 1):
                    name = f"{slug(row.name)}_{task}_seed{seed}" + (f"_fold{fold}" if available else "")
                    arguments = replace(
                        common,
                        seed=seed,
                        fold=fold,
                        output_dir=str(output_dir / name),
                        results_file=str(output_dir / f"{name}.json"),
                    )
                    runs.append(Run(row, task, arguments, available))
    # A seed is complete before the next begins: a table that is stopped has whole columns.
    return sorted(runs, key=lambda run: seeds.index(run.arguments.seed))


def _arguments(table: Table, row: Row, task: str, output_dir: Path, words: list[str]) -> RunArguments:
    """Options of the runs of a row on a task, whatever their seed and fold."""
    expected = RunArguments(task_name=task, encoder=row.encoder, output_dir=str(output_dir), **table.options)
    arguments = parse_arguments([*expected.to_argv(), *words])
    for name, remedy in DECIDED.items():
        if getattr(arguments, name) != getattr(expected, name):
            raise InputError(f"--{name} is decided by the table; {remedy}")
    given = parse_config_overrides(arguments.config_overrides)
    check_overrides(given, row.encoder)
    return replace(arguments, config_overrides=format_config_overrides({**row.overrides, **given}) or None)


def _deciding(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings without those on which the result does not hang."""
    return {name: value for name, value in settings.items() if name not in IGNORED_WHEN_RESUMING}


def _folds(task: Task, arguments: RunArguments) -> int:
    """How many folds the task is tested in; 0 where it has a test or validation split of its own."""
    source = task.local if arguments.data_dir else task.hub
    if source is None or {"test", "validation"} & set(source.splits):
        return 0
    return arguments.num_folds
