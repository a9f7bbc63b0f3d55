"""Options of the commands export, card, push, tasks and encoders."""

from __future__ import annotations

from dataclasses import dataclass

from ..registry import MODEL
from ..training.arguments import RunArguments
from .options import option, positional, same_as


@dataclass
class ExportArguments:
    """Options of ``hf-blosan export``."""

    model: str = positional(MODEL)
    output: str = positional(
        "File to write, such as model.onnx; or a folder for onnx/model.onnx, its int8 form and the tokenizer."
    )


@dataclass
class CardArguments:
    """Options of ``hf-blosan card``."""

    results: list[str] = positional("JSON files written by `train --results_file`.")
    output_dir: str = option(
        "Folder for the cards, one NAME.md for every file. Default: the current folder.", ".", group="output"
    )


@dataclass
class PushArguments:
    """Options of ``hf-blosan push``."""

    folder: str = positional("Folder of a saved model, or the name of an encoder that comes with the package.")
    hub_model_id: str | None = option("Repository to upload to. Default: the name of the folder.", group="Hub")
    hub_private_repo: bool = same_as(RunArguments, "hub_private_repo")
    hub_token: str | None = same_as(RunArguments, "hub_token")
    commit_message: str = option("Message of the commit.", "Upload model")


@dataclass
class NoArguments:
    """A command without options."""
