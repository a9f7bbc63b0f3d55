"""Figures of a saved model on a task or on a user's rows."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

from accelerate import Accelerator
from datasets import Dataset, DatasetDict
from transformers import PreTrainedConfig
from transformers.utils.logging import disable_progress_bar

from ..data.columns import TEXTS_A_ROW, ColumnNames
from ..data.tables import load_splits, read_table
from ..errors import InputError, listed
from ..files import check_not_read, check_writable, write_json
from ..hub.configs import saved_labels
from ..hub.model_card import figure_table
from ..hub.saved import model_files
from ..registry import locate
from ..tasks import TASKS, Task, get_task, load_task
from ..tasks.base import TaskKind
from ..tasks.kinds import find_kind, kind_of, remembered_rows
from ..tasks.loading import sample
from ..text.tokenization import check_max_length, load_tokenizer
from .arguments import EvaluateArguments
from .evaluation import Evaluator
from .preparation import DATA_OPTIONS, HELD_OUT, Preparation, find_encoder, numbers_of
from .reporting import figure_lines, write_predictions
from .saved_model import check_order_of_labels, encoder_config, may_hold_out, pretrained_model, warn_of_other_splits

logger = logging.getLogger(__name__)


def evaluate(arguments: EvaluateArguments) -> dict[str, float]:
    """Print the figures of a saved model, and write them to the files in the options.

    Returns:
        ``test_<metric>``, and ``validation_<metric>`` for tasks with validation rows.

    Raises:
        InputError: the model, the task or the rows cannot be used, or do not match.
    """
    for name in ("output_file", "predictions_file"):
        if path := getattr(arguments, name):
            check_writable(f"--{name}", path, folder=False)
            read = [arguments.test_file, *model_files(Path(locate(arguments.model_name_or_path)))]
            check_not_read(f"--{name}", path, read)
    outputs = [path for path in (arguments.output_file, arguments.predictions_file) if path]
    if len({*map(os.path.realpath, outputs)}) < len(outputs):
        raise InputError(f"--output_file and --predictions_file are both {outputs[0]}; give two files")
    disable_progress_bar()  # of loading, which takes a moment
    accelerator = Accelerator(cpu=arguments.cpu)
    encoder, config = find_encoder(arguments)
    own_rows = arguments.test_file or arguments.dataset_name
    with accelerator.main_process_first():
        task, data = find_rows(arguments, config) if own_rows else find_task_rows(arguments, config)
        if own_rows:
            seed = HELD_OUT["seed"] if arguments.seed is None else arguments.seed
            data["test"] = sample(data["test"], arguments.max_eval_samples, seed)
        if arguments.predictions_file and "test" not in data:
            raise InputError(f"--predictions_file: {task.title} has no test rows; give --test_file, or leave it out")
        kind = find_kind(task)
        name, trust = arguments.model_name_or_path, arguments.trust_remote_code
        tokenizer = kind.prepare_tokenizer(load_tokenizer(name, config, trust_remote_code=trust), for_backbone=False)
        check_max_length(arguments.max_length, config)
        encoded = kind.encode(data, tokenizer, arguments.max_length)
    model = pretrained_model(arguments, kind, config, {})
    kind.check_config(model.config)
    collate, numbers = kind.collator(tokenizer), numbers_of(data)
    preparation = Preparation(kind, encoder, tokenizer, model, encoded, collate, numbers)
    evaluator = Evaluator(preparation, arguments.per_device_eval_batch_size, accelerator)
    figures, predictions = evaluator.measure(accelerator.prepare_model(model, evaluation_mode=True))
    if accelerator.is_main_process:
        counts = ", ".join(f"{split} {len(rows):,}" for split, rows in encoded.items())
        print(f"{arguments.model_name_or_path} on {task.title}; rows: {counts}")
        print("\n".join(figure_lines(figure_table({"figures": figures}))))
        if arguments.output_file:
            write_json(arguments.output_file, figures)
        if arguments.predictions_file:
            write_predictions(arguments.predictions_file, preparation, predictions)
    return figures


def run_command(arguments: EvaluateArguments) -> None:
    """Evaluate as a command."""
    evaluate(arguments)


def find_task_rows(arguments: EvaluateArguments, config: PreTrainedConfig) -> tuple[Task, DatasetDict]:
    """A task of the table, by default the model's, and its rows without the training rows."""
    name = arguments.task_name or getattr(config, "finetuning_task", None)
    if not arguments.task_name and name not in TASKS:
        raise InputError(
            f"the model at {arguments.model_name_or_path!r} was not trained on a task of this package; give "
            "--test_file with rows to measure it on, --dataset_name or --task_name"
        )
    task = get_task(name)
    check_fits(arguments.model_name_or_path, config, find_kind(task))
    options = {option: getattr(arguments, option) for option in DATA_OPTIONS if hasattr(arguments, option)}
    trained = remembered_rows(config) if name == getattr(config, "finetuning_task", None) else {}
    options |= {option: trained.get(option, HELD_OUT[option]) for option in HELD_OUT if options.get(option) is None}
    if may_hold_out(options, task) and trained.get("from_data_dir", bool(arguments.data_dir)) != bool(
        arguments.data_dir
    ):
        where, remedy = "the Hub", f"leave out --data_dir {arguments.data_dir}"
        if trained["from_data_dir"]:
            where, remedy = "files", "give the --data_dir of the training"
        raise InputError(
            f"the model at {arguments.model_name_or_path!r} was trained on rows of {name} from {where}; rows held out "
            f"here, of another source, may be among its training rows; {remedy}"
        )
    warn_of_other_splits(arguments.model_name_or_path, trained, options, task)
    # If the run used the user's file for a split that the task lacks, it also trained on the rows held out here.
    trained_on = [split for split in trained.get("own_splits", ()) if split not in task.local.splits]
    if "test" in trained_on and arguments.num_folds is None:
        options["num_folds"] = 0
    data = load_task(task, **options)
    for split in ("train", *trained_on):
        data.pop(split, None)
    if not data:
        raise InputError(
            f"the model at {arguments.model_name_or_path!r} was trained on all rows of {name} and tested on "
            "your own rows; give --test_file"
        )
    return task, data


def find_rows(arguments: EvaluateArguments, config: PreTrainedConfig) -> tuple[Task, DatasetDict]:
    """The user's rows, and the model's training task with their columns."""
    table, where = read_rows(arguments)
    task = kind_of(config).for_rows(table, where, ColumnNames.of(arguments))
    task = replace(task, title=Path(where).name if arguments.test_file else where)
    kind = find_kind(task)
    check_fits(arguments.model_name_or_path, config, kind)
    return task, DatasetDict(test=kind.normalise(table, task.local, where))


def read_rows(arguments: EvaluateArguments) -> tuple[Dataset, str]:
    """The rows of a file or of a split of a data set, and their name in messages."""
    if arguments.test_file:
        return read_table(arguments.test_file), str(arguments.test_file)
    name = arguments.dataset_name
    remedy = "check --dataset_name and --dataset_config_name"
    splits = load_splits(name, arguments.dataset_config_name, remedy=remedy)
    split = arguments.split or "test"
    if split not in splits:
        raise InputError(f"{name} has no split {split!r}; it has {', '.join(splits)}; choose with --split")
    return splits[split], f"{name} {split}"


def check_fits(name: str, config: PreTrainedConfig, kind: TaskKind) -> None:
    """Raise InputError if the saved head does not fit the task."""
    task, wanted = kind.task, kind.model_class(encoder_config(config).model_type).__name__
    if config.architectures and wanted not in config.architectures:
        raise InputError(
            f"the model at {name!r} is of class {', '.join(config.architectures)}, {task.title} needs {wanted}; "
            "choose another model or other rows"
        )
    saved = saved_labels(config)
    if task.labels and {label.lower() for label in task.labels} != {label.lower() for label in saved}:
        raise InputError(
            f"the model at {name!r} predicts {listed(saved, 8)}, {task.title} has {listed(task.labels, 8)}; choose "
            "another model or other rows"
        )
    check_order_of_labels(name, kind, config)
    classes = kind.config_fields().get("num_score_classes") if task.num_sentences == 2 else None
    if classes and classes != config.num_score_classes:
        raise InputError(
            f"the model at {name!r} has {config.num_score_classes} classes of scores, {task.title} has {classes}; "
            "choose another model or other rows"
        )
    taken = getattr(encoder_config(config), "num_sentences", task.num_sentences)  # other classes do not say
    if taken != task.num_sentences:
        raise InputError(
            f"the model at {name!r} takes {TEXTS_A_ROW[taken]} a row, {task.title} has "
            f"{TEXTS_A_ROW[task.num_sentences]}; choose another model or other rows"
        )
