"""The options of a training run: names as in transformers' `run_glue_no_trainer.py`, plus those of this package."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from ..errors import InputError

if TYPE_CHECKING:
    from ..tasks import Recipe

DEFAULT_LEARNING_RATES = {"adadelta": 0.5, "adam": 1e-3, "adamw": 1e-3}
"""Learning rate of an optimiser that is not the one the task's recipe names."""

SECRETS = ("hub_token",)
"""Options that never enter a log, a record or a card."""

CRITICAL_FOR_RESUMING = (
    "optimizer",
    "learning_rate",
    "weight_decay",
    "l2",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "max_grad_norm",
    "lr_scheduler_type",
    "num_warmup_steps",
    "bucketing",
    "eval_every",
    "max_length",
    "pad_to_max_length",
    "seed",
    "fold",
    "num_folds",
    "validation_fraction",
)
"""Options that decide how the weights move and what is tested: a checkpoint can only be resumed with the same."""


def option(text: str, default: Any = None) -> Any:
    """A dataclass field that carries its help text, as `transformers.HfArgumentParser` reads it."""
    return field(default=default, metadata={"help": text})


@dataclass
class RunArguments:
    """Every option of a run. An option left at None takes the task's recipe for the encoder (the paper's setting)."""

    # Data
    task_name: str | None = option("Task to train on, for instance trec, sick_relatedness or demo.")
    train_file: str | None = option(
        "Training data (csv, tsv, json or jsonl): with --task_name in place of the task's own, without it a task of "
        "one's own (columns sentence1, sentence2 or text, and label or score)."
    )
    validation_file: str | None = option("Validation data; a seeded part of the training data where there is none.")
    test_file: str | None = option("Test data; a seeded fold of the training data where there is none.")
    data_dir: str | None = option("Folder with local files DIR/<task>/<split>.jsonl.gz; without it the Hub data set.")
    max_length: int = option("Tokens a row is cut to (both sentences of a pair together).", 256)
    pad_to_max_length: bool = option("Pad every batch to max_length instead of its longest row.", False)
    max_train_samples: int | None = option("Train on this many rows only (a quick trial).")
    max_eval_samples: int | None = option("Evaluate on this many rows of each split only (a quick trial).")
    fold: int = option("Which fold is the test split of a data set that has none.", 0)
    num_folds: int = option("Number of folds of a data set without a test split; 0 for no test split.", 10)
    validation_fraction: float = option("Part of the training data that validates where no split is given.", 0.1)

    # Model
    encoder: str | None = option("Encoder to train from scratch, for instance disan, biblosan or mtsa.")
    model_name_or_path: str | None = option("Continue from this saved model, with its tokenizer and configuration.")
    tokenizer_name: str | None = option("Pretrained tokenizer to use; without it word level, from the training data.")
    config_overrides: str | None = option('Configuration fields to change: "dropout=0.3,hidden_size=480".')
    word_vectors: str | None = option("Word vectors in GloVe text format (plain or .gz) to start the embedding from.")
    vocabulary: Literal["train", "vectors"] | None = option(
        "train: the words of the training data; vectors: also every other word of --word_vectors, as fixed rows, "
        "which is what the papers do and the default with --word_vectors."
    )
    embedding_trainable: Literal["all", "train_words", "none"] | None = option(
        "Which embedding rows are trained. Default: train_words (padding and unknown word stay zero, the rows of "
        "words outside the training data stay as read); all with --tokenizer_name."
    )
    trust_remote_code: bool = option("Run the code that comes with a model or tokenizer from the Hub.", False)
    ignore_mismatched_sizes: bool = option("Start a head of another size afresh with --model_name_or_path.", False)

    # Optimisation
    optimizer: Literal["adadelta", "adam", "adamw"] | None = option(
        "Optimiser; adadelta has TensorFlow's settings, as in the papers. Default: the task's."
    )
    learning_rate: float | None = option("Learning rate. Default: the task's; 0.5 or 1e-3 for another optimiser.")
    weight_decay: float = option("Weight decay inside the optimiser (decoupled with adamw).", 0.0)
    l2: float | None = option("Factor of the L2 term in the loss, on the matrices the papers regularise.")
    per_device_train_batch_size: int | None = option("Rows per training batch and process. Default: the task's.")
    per_device_eval_batch_size: int | None = option("Rows per evaluation batch and process. Default: the task's.")
    gradient_accumulation_steps: int = option("Batches per optimiser update.", 1)
    max_grad_norm: float | None = option("Clip the gradient to this norm. Default: no clipping, as in the papers.")
    num_train_epochs: int = option(
        "Most epochs to train. The default is generous: early stopping ends a run sooner as a rule.", 30
    )
    max_train_steps: int | None = option("Most optimiser updates to make; goes before --num_train_epochs.")
    lr_scheduler_type: Literal[
        "constant", "constant_with_warmup", "linear", "cosine", "cosine_with_restarts", "polynomial"
    ] = option("Schedule of the learning rate, by transformers' names.", "constant")
    num_warmup_steps: int = option("Updates over which the learning rate rises from zero.", 0)
    bucketing: bool = option("Batches of rows of similar length.", True)
    eval_every: int | None = option("Evaluate on the validation data every so many updates. Default: every epoch.")
    early_stopping_patience: int = option(
        "Stop after this many evaluations without a better validation metric; 0 never stops early.", 5
    )
    seed: int = option("Seed of the data split, the initial weights, the batches and dropout.", 42)
    cpu: bool = option("Stay on the CPU even where an accelerator is present.", False)

    # Output
    output_dir: str | None = option("Folder for the best model, its card, the log and the figures.")
    results_file: str | None = option("Also record the run (command, versions, data, figures) in this JSON file.")
    checkpointing_steps: str | None = option(
        "Save a checkpoint to resume from every so many updates (a number) or every epoch (`epoch`)."
    )
    resume_from_checkpoint: str | None = option("Continue the run that wrote this checkpoint, exactly.")
    logging_steps: int = option("Log the training loss every so many updates.", 50)
    with_tracking: bool = option("Report to experiment trackers.", False)
    report_to: str = option("Trackers to report to, by accelerate's names; `all` for every one installed.", "all")
    push_to_hub: bool = option("Upload the output folder to the Hub, after every epoch and at the end.", False)
    hub_model_id: str | None = option("Repository to upload to. Default: the name of the output folder.")
    hub_token: str | None = option("Token for the Hub; without it the one stored on this machine.")

    def __post_init__(self) -> None:
        for name in ("early_stopping_patience", "num_warmup_steps", "fold", "weight_decay", "l2", "seed"):
            self._require(name, lambda value: value >= 0, "0 or more")
        for name in _POSITIVE:
            self._require(name, lambda value: value > 0, "more than 0")
        steps = self.checkpointing_steps
        if steps not in (None, "epoch") and not (steps.isdecimal() and int(steps) > 0):
            raise InputError(f"--checkpointing_steps is {steps!r}; give a number of updates or `epoch`.")
        if not self.task_name and not self.train_file:
            raise InputError("Nothing to train on: give --task_name, or --train_file with your own data.")
        if not self.encoder and not self.model_name_or_path:
            raise InputError("No model: give --encoder, or --model_name_or_path to continue from a saved one.")
        if self.encoder and self.model_name_or_path:
            raise InputError("--encoder and --model_name_or_path exclude each other: a saved model is of one kind.")
        if self.model_name_or_path and (self.tokenizer_name or self.word_vectors):
            raise InputError(
                "A saved model brings its tokenizer and embedding: leave out --tokenizer_name and --word_vectors "
                "with --model_name_or_path."
            )
        if self.tokenizer_name and self.word_vectors:
            raise InputError("--word_vectors needs the word-level tokenizer: leave out --tokenizer_name.")
        if self.vocabulary == "vectors" and not self.word_vectors:
            raise InputError("--vocabulary vectors takes its words from --word_vectors, which is not given.")
        if not self.output_dir:
            raise InputError("No --output_dir: say where the model is to be written.")

    def _require(self, name: str, holds: Any, wanted: str) -> None:
        value = getattr(self, name)
        if value is not None and not holds(value):
            raise InputError(f"--{name} is {value}; it must be {wanted}.")

    def resolved(self, recipe: Recipe) -> RunArguments:
        """These options with every one left at None that the recipe knows taken from it."""
        optimizer = self.optimizer or recipe.optimizer
        learning_rate = self.learning_rate
        if learning_rate is None:
            same = optimizer == recipe.optimizer
            learning_rate = recipe.learning_rate if same else DEFAULT_LEARNING_RATES[optimizer]
        return replace(
            self,
            optimizer=optimizer,
            learning_rate=learning_rate,
            l2=recipe.l2 if self.l2 is None else self.l2,
            per_device_train_batch_size=self.per_device_train_batch_size or recipe.batch_size,
            per_device_eval_batch_size=self.per_device_eval_batch_size or recipe.eval_batch_size,
        )

    def changed(self) -> dict[str, Any]:
        """The options that are not at their default."""
        return {entry.name: value for entry in fields(self) if (value := getattr(self, entry.name)) != entry.default}

    def to_argv(self) -> list[str]:
        """The command line that `parse_arguments` reads as these options."""
        pairs = [
            [f"--{name}" if value else f"--no_{name}"] if isinstance(value, bool) else [f"--{name}", str(value)]
            for name, value in self.changed().items()
        ]
        return [word for pair in pairs for word in pair]

    def public(self) -> dict[str, Any]:
        """All options as a dictionary, without those that are secret."""
        return {name: value for name, value in asdict(self).items() if name not in SECRETS}


_POSITIVE = (
    "max_length",
    "max_train_samples",
    "max_eval_samples",
    "learning_rate",
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "max_grad_norm",
    "num_train_epochs",
    "max_train_steps",
    "eval_every",
    "logging_steps",
)


def parse_arguments(argv: list[str] | None = None) -> RunArguments:
    """Read the command line (`sys.argv` without argument).

    Raises:
        InputError: an option is unknown or has an impossible value, or two of them exclude each other.
        SystemExit: an option is of the wrong type (argparse has printed the reason).
    """
    from transformers import HfArgumentParser

    parser = HfArgumentParser(RunArguments, description="Train a sentence encoder on a task and evaluate it.")
    arguments, unknown = parser.parse_args_into_dataclasses(argv, return_remaining_strings=True)
    if unknown:
        raise InputError(f"unknown option {unknown[0]!r}; run_glue_style.py --help lists them all")
    return arguments
