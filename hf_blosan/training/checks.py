"""Checks of the options that training and evaluation share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .arguments import EvaluateArguments, RunArguments


def refuse(*cases: tuple[Any, str]) -> None:
    """Raise the sentence of the first case that is true as an InputError."""
    for wrong, sentence in cases:
        if wrong:
            raise InputError(sentence)


def cases_of_rows(options: RunArguments | EvaluateArguments) -> Iterator[tuple[Any, str]]:
    """Cases of :func:`refuse` that both commands have."""
    yield (
        options.text_pair_column_name and not options.text_column_name,
        "--text_pair_column_name needs --text_column_name, the column of the first text; give both.",
    )
    yield (
        options.dataset_config_name and not options.dataset_name,
        "--dataset_config_name needs --dataset_name; give both, or leave it out.",
    )


def cases_of_training(options: RunArguments) -> tuple[tuple[Any, str], ...]:
    """Cases of :func:`refuse` that the options of a training run have: what is missing, and what excludes another."""
    model, vectors, tokenizer = options.model_name_or_path, options.word_vectors, options.tokenizer_name
    return (
        (
            not (options.task_name or options.train_file or options.dataset_name or options.in_memory),
            "Nothing to train on: give --task_name, --train_file or --dataset_name.",
        ),
        (
            options.dataset_name and (options.task_name or options.train_file),
            "--dataset_name excludes --task_name and --train_file; leave one of them out.",
        ),
        (
            options.task_name
            and (options.text_column_name or options.text_pair_column_name or options.label_column_name),
            "--task_name knows its columns; leave out the names of columns, or --task_name.",
        ),
        (
            options.task_name and options.do_regression is not None,
            "--task_name knows whether it has scores or classes; leave out --do_regression.",
        ),
        (
            options.data_dir and not options.task_name,
            "--data_dir has the files of tasks that the package knows; give --task_name, or leave it out.",
        ),
        *cases_of_rows(options),
        (
            not options.encoder and not model,
            "No model: give --model_name_or_path, for instance disan-mini-en, an English encoder that comes with "
            "the package, or --encoder for a new one.",
        ),
        (options.encoder and model, "--encoder and --model_name_or_path exclude each other; leave one of them out."),
        (model and tokenizer, "--model_name_or_path has its own tokenizer; leave out --tokenizer_name."),
        (model and vectors, "--model_name_or_path has its own embedding; leave out --word_vectors."),
        *(
            (options.backbone and other, f"--backbone has its own {what}; leave out --{name}.")
            for name, other, what in (
                ("model_name_or_path", model, "weights"),
                ("tokenizer_name", tokenizer, "tokenizer"),
                ("word_vectors", vectors, "vectors"),
            )
        ),
        (
            not options.lower_case and (model or tokenizer or options.backbone),
            "--no_lower_case is for a vocabulary built from the training data; leave it out.",
        ),
        (tokenizer and vectors, "--word_vectors needs the word-level tokenizer; leave out --tokenizer_name."),
        (options.vocabulary == "vectors" and not vectors, "--vocabulary vectors needs --word_vectors; give both."),
        (
            bool(options.distill_from) != bool(options.unlabeled_file),
            "--distill_from and --unlabeled_file, the model and the texts that it labels, need each other; give both.",
        ),
        (not options.output_dir, "No --output_dir: give the folder for the model."),
        *(
            (given and not options.push_to_hub, f"--{name} needs --push_to_hub; give both, or leave it out.")
            for name, given in (("hub_model_id", options.hub_model_id), ("hub_private_repo", options.hub_private_repo))
        ),
        (
            options.report_to != "all" and not options.with_tracking,
            "--report_to needs --with_tracking; give both, or leave it out.",
        ),
    )
