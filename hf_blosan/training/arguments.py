"""Options of a training run: the names of transformers' `run_glue_no_trainer.py`, plus those of this package."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..cli.options import CheckedOptions, Parser, option, positional, same_as
from ..data.rows import check_table, check_vectors
from ..errors import InputError
from ..registry import FAMILIES, MODEL, pretrained_names
from ..tasks import Task, get_task
from .checks import cases_of_rows, cases_of_training, refuse

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from ..tasks.recipes import Recipe

DEFAULT_LEARNING_RATES = {"adadelta": 0.5, "adam": 1e-3, "adamw": 1e-3}
"""Learning rate of an optimiser other than the one in the task's recipe."""

BACKBONE_LEARNING_RATE = 5e-5
"""Learning rate of a backbone, transformers' default for fine-tuning."""

SECRETS = ("hub_token",)
"""Options that never appear in a log, a record or a card."""

CRITICAL_FOR_RESUMING = (
    *("optimizer", "learning_rate", "embedding_learning_rate", "embedding_warmup_steps", "weight_decay", "l2"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "max_grad_norm", "lr_scheduler_type"),
    *("num_warmup_steps", "label_smoothing", "ema_decay", "bucketing", "eval_every"),
    *("max_length", "pad_to_max_length", "seed", "fold", "num_folds", "validation_fraction"),
    *("watch_test", "cache_backbone"),
)
"""Options that determine the weights and the test rows: resuming a checkpoint requires the same values."""

FROM_RECIPE = (
    *("l2", "weight_decay", "max_grad_norm", "lr_scheduler_type", "num_warmup_steps", "label_smoothing", "ema_decay"),
)
"""Options that the recipe has under the same name."""


@dataclass
class RunArguments(CheckedOptions):
    """All options of a run. Options left at None are filled from the task's recipe for the encoder.

    Attributes:
        in_memory: whether the rows are given as a task rather than named by an option.
    """

    in_memory: ClassVar[bool] = False

    task_name: str | None = option("Task to train on, for instance trec, sick_relatedness or demo.", group="data")
    train_file: str | None = option(
        "Training data (csv, tsv, json, jsonl or parquet). With --task_name it replaces the task's training split; "
        "without, it defines a custom task.",
        reads=check_table,
    )
    validation_file: str | None = option("Validation data. Default: the task's.", reads=check_table)
    test_file: str | None = option("Test data. Default: the task's, if any.", reads=check_table)
    dataset_name: str | None = option("Data set on the Hub, or folder of `save_to_disk`, that defines a custom task.")
    dataset_config_name: str | None = option("Configuration of --dataset_name.")
    text_column_name: str | None = option(
        "Column of the (first) text of a custom task. Default: sentence1, text or sentence, else the first with texts."
    )
    text_pair_column_name: str | None = option(
        "Column of the second text of pairs. Default: sentence2, or the second with texts where none has such a name."
    )
    label_column_name: str | None = option("Column of the labels or scores. Default: label, labels or score.")
    do_regression: bool | None = option(
        "Whether the labels of your own texts are scores, or (`--do_regression false`) classes. Default: scores if "
        "their column is `score`, or if they have decimals."
    )
    data_dir: str | None = option("Folder with files DIR/<task>/<split>.jsonl.gz. Default: the data set on the Hub.")
    max_length: int = option("Truncate rows to this many tokens (both sentences of a pair together).", 256)
    pad_to_max_length: bool = option("Pad every batch to max_length instead of to its longest row.", False)
    max_train_samples: int | None = option("Train on a seeded sample of this many rows.")
    max_eval_samples: int | None = option("Evaluate on a seeded sample of this many rows of each split.")
    fold: int = option("Fold used as the test split of a data set that has none.", 0)
    num_folds: int | None = option(
        "Folds of the training data, one of which is the test split if there is none. Default: the task's protocol "
        "(10 for cr, mpqa, subj and mr); 0, no test split, for your own files.",
        zero=True,
    )
    validation_fraction: float | None = option(
        "Fraction of the training data held out if there is no validation split. Default: the task's (0.1, 0.05 for "
        "squad_sentences); none for your own files.",
        below=1,
    )
    select_on_test: bool = option(
        "Hold no validation rows out of the training rows, and keep the model that is best on the test rows: the "
        "protocol of the authors' code for TREC, CR, MPQA and SUBJ. Its figures are optimistic.",
        False,
    )

    encoder: str | None = option("Encoder to train from scratch, for instance disan, biblosan or mtsa.", group="model")
    model_name_or_path: str | None = option(
        "Model to continue from, or encoder that gets a new head, with its tokenizer and configuration: a folder, the "
        "name of an encoder that comes with the package, or a name on the Hub."
    )
    tokenizer_name: str | None = option("Pretrained tokenizer. Default: word level, built from the training data.")
    lower_case: bool = option(
        "Whether the words of a vocabulary built from the training data are in lower case.", True
    )
    backbone: str | None = option(
        "Pretrained transformer whose hidden states replace the encoder's word vectors; used with its tokenizer."
    )
    cache_backbone: Literal["float16", "float32"] | None = option(
        "Compute the states of a frozen backbone once, and cache them on disk in this precision for all epochs and "
        "runs."
    )
    config_overrides: str | None = option('Configuration fields to change: "dropout=0.3,hidden_size=480".')
    word_vectors: str | None = option(
        "Word vectors (GloVe text format, plain or .gz) to start the embedding from.", reads=check_vectors
    )
    vocabulary: Literal["train", "vectors"] | None = option(
        "train: the words of the training data; vectors: also every other word of --word_vectors, with fixed "
        "vectors, as in the papers. Default: vectors with --word_vectors, else train."
    )
    embedding_trainable: Literal["all", "train_words", "none"] | None = option(
        "Which embedding rows are trained. Default: train_words (padding and the unknown word stay zero, words "
        "outside the training data keep their vectors); all with --tokenizer_name; none with --backbone (all "
        "fine-tunes the backbone), and for squad_sentences with --word_vectors; as saved with --model_name_or_path."
    )
    distill_from: str | None = option(
        "Fine-tuned model of the same labels, for instance a transformer, that labels --unlabeled_file; its "
        "probabilities are learned beside the labels of the training rows."
    )
    unlabeled_file: str | None = option(
        "Texts for --distill_from (csv, tsv, json, jsonl or parquet), in the text columns of the training rows.",
        reads=check_table,
    )
    trust_remote_code: bool = option("Run code from the Hub that comes with a model or tokenizer.", False)
    ignore_mismatched_sizes: bool = option("Reinitialise saved weights whose shapes do not fit.", False)

    recipe: Literal["modern", "paper"] = option(
        "modern: a few epochs of AdamW; paper: the settings of the authors' released code.",
        "modern",
        group="optimisation",
    )
    optimizer: Literal["adadelta", "adam", "adamw"] | None = option("Optimiser. Default: the recipe's.")
    learning_rate: float | None = option("Learning rate. Default: the recipe's; 0.5 or 1e-3 for another optimiser.")
    embedding_learning_rate: float | None = option(
        "Learning rate of the word vectors or the backbone. Default: that of the layers; without --learning_rate, the "
        "recipe's for vectors that start from --word_vectors or a saved model; 5e-5 for a backbone."
    )
    weight_decay: float | None = option(
        "Weight decay of the matrices inside the optimiser. Default: the recipe's.", zero=True
    )
    l2: float | None = option(
        "Factor of the L2 term in the loss, over the matrices that the papers regularise.", zero=True
    )
    per_device_train_batch_size: int | None = option("Rows per training batch and process. Default: the recipe's.")
    per_device_eval_batch_size: int | None = option("Rows per evaluation batch and process. Default: the recipe's.")
    gradient_accumulation_steps: int = option(
        "Batches per optimiser update. For tagging and translation, each batch counts the same however many tokens it "
        "has.",
        1,
    )
    max_grad_norm: float | None = option(
        "Clip the gradient to this norm; 0: no clipping. Default: the recipe's.", zero=True
    )
    label_smoothing: float | None = option("Label-smoothing factor. Default: the recipe's.", zero=True, below=1)
    ema_decay: float | None = option(
        "Decay of a moving average of the weights, which is evaluated and saved; 0: no average. Default: the "
        "recipe's.",
        zero=True,
        below=1,
    )
    num_train_epochs: int | None = option("Maximum number of epochs. Default: the recipe's, for this number of rows.")
    max_train_steps: int | None = option("Maximum number of optimiser updates; overrides --num_train_epochs.")
    lr_scheduler_type: (
        Literal["constant", "constant_with_warmup", "linear", "cosine", "cosine_with_restarts", "polynomial"] | None
    ) = option("Learning-rate schedule, by its name in transformers. Default: the recipe's.")
    num_warmup_steps: float | None = option(
        "Updates over which the learning rate warms up from zero; below 1: as a fraction of all updates. Default: the "
        "recipe's.",
        zero=True,
    )
    embedding_warmup_steps: float | None = option(
        "The same for the learning rate of the word vectors or the backbone. Default: --num_warmup_steps.", zero=True
    )
    bucketing: bool = option("Batch rows of similar length together.", True)
    eval_every: int | None = option("Updates between evaluations on the validation data. Default: one epoch.")
    watch_test: bool = option(
        "Evaluate the test split at every validation, and record the best figure seen, which is what the "
        "authors' code reports for TREC, CR, MPQA and SUBJ. Does not affect model selection.",
        False,
    )
    early_stopping_patience: int | None = option(
        "Stop after this many evaluations without improvement; 0: never. Default: the recipe's. For your own data "
        "that is 3 epochs and at least 100 updates; 5 with --recipe paper, except for tags; never for translations.",
        zero=True,
    )
    seed: int = option(
        "Seed of the data split, the initial weights, the batches and dropout.", 42, zero=True, below=2**32
    )
    cpu: bool = option("Use the CPU even if an accelerator is available.", False)

    output_dir: str | None = option("Folder for the best model, its card, the log and the figures.", group="output")
    results_file: str | None = option("JSON file for the record (command, versions, data, figures) of the run.")
    checkpointing_steps: str | None = option("Updates between checkpoints, or `epoch` for one after each.")
    resume_from_checkpoint: str | None = option(
        "Checkpoint to resume from, with exactly the same result; `latest`: the last one in the output folder."
    )
    logging_steps: int = option("Updates between log entries of the training loss.", 50)
    with_tracking: bool = option("Report to experiment trackers.", False)
    report_to: str = option("Trackers to report to, by their names in accelerate, or `all` installed ones.", "all")
    push_to_hub: bool = option("Upload the output folder to the Hub after every epoch and at the end.", False)
    hub_model_id: str | None = option("Repository to upload to. Default: the name of the output folder.")
    hub_private_repo: bool = option("Make a new repository on the Hub private.", False)
    hub_token: str | None = option("Token for the Hub. Default: the stored login.")

    def __post_init__(self) -> None:
        if isinstance(self.config_overrides, Mapping):  # as estimators take them
            from ..cli.overrides import format_config_overrides

            self.config_overrides = format_config_overrides(self.config_overrides)
        super().__post_init__()
        steps = self.checkpointing_steps
        if steps not in (None, "epoch") and not (str(steps).isdecimal() and int(steps) > 0):
            raise InputError(f"--checkpointing_steps is {steps!r}; give a number of updates or `epoch`.")
        self.checkpointing_steps = steps and str(steps)
        refuse(*cases_of_training(self))
        if self.encoder and self.encoder not in FAMILIES:
            remedy = f"choose one of {', '.join(FAMILIES)}"
            if self.encoder in pretrained_names():
                remedy = f"this trained one is --model_name_or_path {self.encoder}"
            raise InputError(f"unknown encoder {self.encoder!r}; {remedy}")
        if self.model_name_or_path in FAMILIES and not os.path.isdir(self.model_name_or_path):
            raise InputError(
                f"--model_name_or_path {self.model_name_or_path} is a type of encoder, not a trained model; --encoder "
                f"{self.model_name_or_path} trains a new one"
            )
        if self.task_name and get_task(self.task_name).generated and self.data_dir:
            raise InputError(f"the rows of {self.task_name} are generated; leave out --data_dir.")

    def resolved(self, task: Task, encoder: str, saved_config: PreTrainedConfig | None = None) -> RunArguments:
        """Fill the options left at None from the task, its recipe for the encoder, and the saved model.

        The number of epochs and the patience stay None: they may depend on the number of rows (:meth:`scheduled`).

        Raises:
            InputError: a given option has no effect on this task, or beside another.
        """
        from ..cli.overrides import parse_config_overrides
        from ..tasks.kinds import find_kind

        overrides = parse_config_overrides(self.config_overrides)
        backbone, trainable = self.backbone or overrides.get("backbone"), overrides.get("embedding_trainable")
        recipe, own_rows = task.recipe(encoder, self.recipe), bool(self.train_file)
        constant = (self.lr_scheduler_type or recipe.lr_scheduler_type) == "constant"
        # What the task or the recipe says may come from a saved model, or from options resolved before.
        refuse(
            (
                self.select_on_test and self.validation_fraction not in (None, task.validation_fraction),
                "--select_on_test holds no validation rows out; leave out --validation_fraction.",
            ),
            (
                trainable and self.embedding_trainable not in (None, trainable),
                f"--embedding_trainable is {self.embedding_trainable}, but --config_overrides has "
                f"embedding_trainable={trainable}; leave one of them out.",
            ),
            (
                self.label_smoothing not in (None, 0, recipe.label_smoothing)
                and "label_smoothing" in find_kind(task).unused_fields,
                f"--label_smoothing has no effect on the scores of {task.title}; leave it out.",
            ),
            *(
                (
                    getattr(self, name) and constant,
                    f"--{name} has no effect on the learning-rate schedule constant; give --lr_scheduler_type "
                    "constant_with_warmup, or leave it out.",
                )
                for name in ("num_warmup_steps", "embedding_warmup_steps")
            ),
        )
        optimizer = self.optimizer or recipe.optimizer
        learning_rate, embedding_learning_rate = self.learning_rate, self.embedding_learning_rate
        if backbone or getattr(saved_config, "backbone_config", None) is not None:
            embedding_learning_rate = embedding_learning_rate or BACKBONE_LEARNING_RATE
        if learning_rate is None:
            same = optimizer == recipe.optimizer
            learning_rate = recipe.learning_rate if same else DEFAULT_LEARNING_RATES[optimizer]
            if same and (self.word_vectors or self.model_name_or_path):
                embedding_learning_rate = embedding_learning_rate or recipe.embedding_learning_rate
        given = {name: getattr(self, name) for name in FROM_RECIPE}
        return replace(
            self,
            **{name: getattr(recipe, name) if value is None else value for name, value in given.items()}
            | ({"num_warmup_steps": 0} if constant else {}),
            backbone=backbone,
            embedding_trainable=trainable or self.embedding_trainable,
            optimizer=optimizer,
            learning_rate=learning_rate,
            embedding_learning_rate=embedding_learning_rate or learning_rate,
            num_folds=(0 if own_rows else task.num_folds) if self.num_folds is None else self.num_folds,
            validation_fraction=self.validation_fraction or (None if own_rows else task.validation_fraction),
            per_device_train_batch_size=self.per_device_train_batch_size or recipe.batch_size,
            per_device_eval_batch_size=self.per_device_eval_batch_size or recipe.eval_batch_size,
        )

    def scheduled(self, recipe: Recipe, train_rows: int, num_processes: int = 1) -> RunArguments:
        """Fill the number of epochs and the patience, if they are None, from the recipe for that many training rows.

        `max_train_steps`, if given, replaces the number of epochs, which becomes None. The other options are those
        that :meth:`resolved` gives.
        """
        rows_per_update = self.per_device_train_batch_size * self.gradient_accumulation_steps * num_processes
        patience = recipe.patience(math.ceil(train_rows / rows_per_update), self.eval_every)
        given = self.num_train_epochs, self.early_stopping_patience
        epochs = None if self.max_train_steps else given[0] or recipe.for_rows(train_rows).num_train_epochs
        return replace(
            self, num_train_epochs=epochs, early_stopping_patience=patience if given[1] is None else given[1]
        )

    def changed(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        return {entry.name: value for entry in fields(self) if (value := getattr(self, entry.name)) != entry.default}

    def to_argv(self) -> list[str]:
        """The command line that `parse_arguments` turns into these options."""
        argv = []
        for name, value in self.changed().items():
            flag = value is True or (value is False and getattr(type(self), name) is True)
            argv += [f"--{name}" if value else f"--no_{name}"] if flag else [f"--{name}", str(value)]
        return argv

    def public(self) -> dict[str, Any]:
        """All options as a dictionary, without the secret ones."""
        return {name: value for name, value in asdict(self).items() if name not in SECRETS}


@dataclass
class EvaluateArguments(CheckedOptions):
    """Options of ``hf-blosan evaluate``."""

    encoder: ClassVar[None] = None

    model_name_or_path: str = positional(MODEL)
    task_name: str | None = option("Task to evaluate on. Default: the one the model was trained on.", group="data")
    test_file: str | None = option("Your own rows instead (csv, tsv, json, jsonl or parquet).", reads=check_table)
    dataset_name: str | None = option("Data set on the Hub, or folder of `save_to_disk`, instead.")
    dataset_config_name: str | None = same_as(RunArguments, "dataset_config_name")
    split: str | None = option("Split of --dataset_name, reported as test. Default: test.")
    text_column_name: str | None = option("Column of the (first) text of your own rows. Default: as in training.")
    text_pair_column_name: str | None = same_as(RunArguments, "text_pair_column_name")
    label_column_name: str | None = same_as(RunArguments, "label_column_name")
    data_dir: str | None = same_as(RunArguments, "data_dir")
    max_length: int | None = option("Truncate rows to this many tokens. Default: the tokenizer's limit.")
    max_eval_samples: int | None = same_as(RunArguments, "max_eval_samples")
    fold: int | None = option("Fold that is the test split. Default: that of the training run.", zero=True)
    num_folds: int | None = option("Number of folds. Default: as in training.", zero=True)
    validation_fraction: float | None = option("Fraction of the validation split. Default: as in training.", below=1)
    seed: int | None = option(
        "Seed of the held-out splits. Default: that of the training run.", zero=True, below=2**32
    )
    per_device_eval_batch_size: int = option("Rows per batch and process.", 64, group="computation")
    cpu: bool = same_as(RunArguments, "cpu")
    trust_remote_code: bool = same_as(RunArguments, "trust_remote_code")
    output_file: str | None = option("JSON file for the figures.", group="output")
    predictions_file: str | None = option("File for the predictions on the test rows, in run_glue's format.")

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("task_name", "test_file", "dataset_name") if getattr(self, name)]
        own = next((name for name in given if name != "task_name"), None)
        refuse(
            (len(given) > 1, f"--{' and --'.join(given[:2])} exclude each other; leave one of them out."),
            (
                self.split and not self.dataset_name,
                f"--split {self.split} needs --dataset_name; give both, or leave it out.",
            ),
            *cases_of_rows(self),
            (
                not own and (self.text_column_name or self.label_column_name),
                "A task knows its columns; leave out the names of columns, or give --test_file or --dataset_name.",
            ),
            *(
                (own and getattr(self, name) is not None, f"--{name} is for tasks, not for --{own}; leave it out.")
                for name in ("data_dir", "fold", "num_folds", "validation_fraction")
            ),
        )


def parse_arguments(argv: list[str] | None = None) -> RunArguments:
    """Read the options of a command line (default: `sys.argv`).

    Raises:
        InputError: an option is unknown or has a value of the wrong type or range, or two options exclude each other.
    """
    parser = Parser(prog="run_glue_style.py", description="Train a sentence encoder on a task and evaluate it.")
    return parser.read(RunArguments, argv)
