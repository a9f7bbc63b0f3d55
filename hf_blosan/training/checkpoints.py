"""The best model so far, and checkpoints from which a run resumes exactly.

Everything is written under a temporary name and then renamed, so a killed run leaves no half-written file.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_model, save_model

from ..errors import InputError
from ..models.pretrained import code_in
from .files import plain, write_json

if TYPE_CHECKING:
    from accelerate import Accelerator
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

WEIGHTS = "model.safetensors"
BEST_WEIGHTS = "best_model.safetensors"
AVERAGED_WEIGHTS = "averaged_model.safetensors"
DESCRIPTION = "checkpoint.json"


@dataclass
class Progress:
    """Progress of a run; part of every checkpoint.

    Attributes:
        step: optimiser updates made.
        epoch: epochs completed.
        batches: batches of the current epoch already used (per process).
        best_metric, best_step: best validation metric and the update after which it was measured.
        evaluations_since_best: number of evaluations since then.
        best_test: best value of that metric on the test split, if this is watched.
        loss_sum, loss_count: training loss accumulated since the last log entry.
        seconds: training time.
    """

    step: int = 0
    epoch: int = 0
    batches: int = 0
    best_metric: float | None = None
    best_step: int = 0
    evaluations_since_best: int = 0
    best_test: float | None = None
    loss_sum: float = 0.0
    loss_count: int = 0
    seconds: float = 0.0

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


def save_pretrained(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, output_dir: str | Path) -> None:
    """Save model and tokenizer; `output_dir` holds a complete model at any time, and nothing of another one."""
    output_dir = Path(output_dir)
    output_dir.mkdir(parents=True, exist_ok=True)
    stale = {*code_in(output_dir), *output_dir.glob("model-*-of-*.safetensors"), output_dir / f"{WEIGHTS}.index.json"}
    with tempfile.TemporaryDirectory(dir=output_dir, prefix=".saving-") as temporary:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        # Weights last: they cannot be loaded with an older configuration.
        for file in sorted(Path(temporary).iterdir(), key=lambda file: file.name == WEIGHTS):
            os.replace(file, output_dir / file.name)
            stale.discard(output_dir / file.name)
    for file in stale:
        file.unlink(missing_ok=True)


def save_checkpoint(
    accelerator: Accelerator,
    output_dir: str | Path,
    name: str,
    settings: dict[str, Any],
    average: PreTrainedModel | None = None,
) -> Path:
    """Write `output_dir/name`: the state of all registered objects, the averaged weights if there are any, the best
    model so far and the settings.
    """
    final = Path(output_dir) / name
    temporary = final.with_name(f".{name}.tmp")
    if accelerator.is_main_process:
        shutil.rmtree(temporary, ignore_errors=True)
    accelerator.wait_for_everyone()
    accelerator.save_state(str(temporary))
    if accelerator.is_main_process:
        best = Path(output_dir) / WEIGHTS
        if best.exists():
            _link_or_copy(best, temporary / BEST_WEIGHTS)
        if average is not None:
            save_model(average, temporary / AVERAGED_WEIGHTS)
        write_json(temporary / DESCRIPTION, {"num_processes": accelerator.num_processes, "settings": settings})
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        shutil.rmtree(final, ignore_errors=True)
        os.replace(temporary, final)
    accelerator.wait_for_everyone()
    return final


def load_checkpoint(
    accelerator: Accelerator,
    checkpoint: str | Path,
    output_dir: str | Path,
    settings: dict[str, Any],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    average: PreTrainedModel | None = None,
) -> None:
    """Restore a checkpoint, and the best model at the time it was written into `output_dir`.

    Raises:
        InputError: the folder is not a checkpoint, or its run had different settings.
    """
    checkpoint = Path(checkpoint)
    _check_settings(checkpoint, settings | {"num_processes": accelerator.num_processes})
    accelerator.load_state(str(checkpoint))
    if average is not None:
        load_model(average, checkpoint / AVERAGED_WEIGHTS)
    best = checkpoint / BEST_WEIGHTS
    if accelerator.is_main_process and best.exists():
        save_pretrained(model, tokenizer, output_dir)
        temporary = Path(output_dir) / f".{WEIGHTS}.tmp"
        temporary.unlink(missing_ok=True)
        _link_or_copy(best, temporary)
        os.replace(temporary, Path(output_dir) / WEIGHTS)
    accelerator.wait_for_everyone()


def _check_settings(checkpoint: Path, settings: dict[str, Any]) -> None:
    try:
        description = json.loads((checkpoint / DESCRIPTION).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{checkpoint} is not a checkpoint: it has no {DESCRIPTION}; give a folder step_N or epoch_N that "
            "--checkpointing_steps wrote."
        ) from None
    written = description["settings"] | {"num_processes": description["num_processes"]}
    different = [name for name in settings if plain(settings[name]) != written.get(name)]
    if different:
        name = different[0]
        raise InputError(
            f"{checkpoint} belongs to a run with different settings ({', '.join(different)}): {name} was "
            f"{written.get(name)}, now it is {settings[name]}; resume with the options of that run."
        )


def _link_or_copy(source: Path, target: Path) -> None:
    """Hard-link a file, or copy it where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
