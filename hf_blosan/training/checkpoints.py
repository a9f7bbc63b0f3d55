"""The best model so far, and checkpoints from which a run resumes exactly.

Everything is written under a temporary name and then renamed, so a killed run leaves no partial file. A
damaged checkpoint is refused: ``checkpoint.json`` has the size and SHA-256 of each file, and its own. Nothing in
the files is executed: accelerate's are unpickled as tensors and numbers only, all others are JSON and safetensors.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import load
from safetensors import safe_open
from safetensors.torch import load_model, save_model
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import InputError, first_line
from ..files import plain, sha256, write_json
from ..models.pretrained import SENTENCE_TRANSFORMER, code_in

WEIGHTS = "model.safetensors"
BEST_WEIGHTS = "best_model.safetensors"
AVERAGED_WEIGHTS = "averaged_model.safetensors"
DESCRIPTION = "checkpoint.json"
OF_SOME_MODELS = (
    *(f"{WEIGHTS}.index.json", "generation_config.json", *SENTENCE_TRANSFORMER),
    *("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"),  # peft's, which loading would apply
    *("special_tokens_map.json", "added_tokens.json"),
)
"""Files that a later model saved in the same folder may lack."""
OF_THE_LAUNCH = ("num_processes", "mixed_precision")
"""What must be the same to resume, in addition to the options of a run."""
LATEST = "latest"

logger = logging.getLogger(__name__)


@dataclass
class Progress:
    """Progress of a run; part of every checkpoint.

    Attributes:
        step: optimiser updates made.
        epoch: epochs completed.
        batches: batches of the current epoch already used (per process).
        best_metric, best_step: best validation metric and the update after which it was measured.
        evaluations_since_best: number of evaluations since then.
        best_test: best value of that metric on the test split, with --watch_test.
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


def save_pretrained(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, output_dir: str | Path, weights: Path | None = None
) -> None:
    """Save model and tokenizer. `output_dir` never mixes two models, nor keeps reports of an earlier run's model.

    A model of the same run is replaced in one step. Another model's weights are removed before its configuration and
    its tokenizer are replaced, so an interruption leaves no model rather than a mixture. The folder is created if
    missing; `weights` is a file with weights to save instead of the model's own.
    """
    output_dir = Path(output_dir)
    output_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output_dir, prefix=".saving-") as temporary:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        new = {output_dir / file.name: file for file in sorted(Path(temporary).iterdir())}
        saved_weights = new.pop(output_dir / WEIGHTS)
        if weights is not None:
            saved_weights.unlink()
            _link_or_copy(weights, saved_weights)
        for path in _outputs(output_dir):
            path.unlink(missing_ok=True)
        parts = {*code_in(output_dir), *output_dir.glob("model-*-of-*.safetensors")}
        parts |= {output_dir / name for name in OF_SOME_MODELS}
        stale = [path for path in parts - new.keys() if path.exists()]
        changed = {
            path: file for path, file in new.items() if not (path.exists() and filecmp.cmp(path, file, shallow=False))
        }
        if stale or changed:
            (output_dir / WEIGHTS).unlink(missing_ok=True)
        for path in stale:
            path.unlink()
        for path, file in changed.items():
            os.replace(file, path)
        os.replace(saved_weights, output_dir / WEIGHTS)


def _outputs(output_dir: Path) -> Iterator[Path]:
    """Card, figures, predictions and exported graphs of an earlier run, which describe its final model."""
    if is_card(card := output_dir / "README.md"):
        yield card
    yield output_dir / "all_results.json"
    yield from output_dir.glob("predict_results_*.txt")
    yield from output_dir.glob("onnx/model*.onnx*")


def is_card(path: Path) -> bool:
    """Whether a file is there and is the card of a model of this package."""
    return path.is_file() and "\n- hf_blosan\n" in path.read_text(encoding="utf-8", errors="replace")


def save_checkpoint(
    accelerator: Accelerator,
    output_dir: str | Path,
    name: str,
    settings: dict[str, Any],
    progress: Progress,
    average: PreTrainedModel | None = None,
) -> Path:
    """Write `output_dir/name`: the state of all prepared objects, the averaged weights if there are any, the best
    model of this run so far if there is one, the settings and the progress.
    """
    final = Path(output_dir) / name
    temporary = final.with_name(f".{name}.tmp")
    if accelerator.is_main_process:
        shutil.rmtree(temporary, ignore_errors=True)
    accelerator.wait_for_everyone()
    accelerator.save_state(str(temporary))
    if accelerator.is_main_process:
        if progress.best_step:  # before that, the folder may hold another run's weights
            _link_or_copy(Path(output_dir) / WEIGHTS, temporary / BEST_WEIGHTS)
        if average is not None:
            save_model(average, temporary / AVERAGED_WEIGHTS)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        files = {path.name: _fingerprint(path) for path in sorted(temporary.iterdir())}
        description = {"settings": settings, "progress": asdict(progress), "files": files}
        description = plain(description | {name: getattr(accelerator, name) for name in OF_THE_LAUNCH})
        write_json(temporary / DESCRIPTION, description | {"sha256": _digest(description)})
        shutil.rmtree(final, ignore_errors=True)
        os.replace(temporary, final)
    accelerator.wait_for_everyone()
    return final


def load_checkpoint(
    accelerator: Accelerator,
    checkpoint: Path,
    output_dir: str | Path,
    settings: dict[str, Any],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    average: PreTrainedModel | None,
) -> Progress:
    """Restore a checkpoint from :func:`find_checkpoint`, and into `output_dir` the best model at the time it was
    written, if there was one. Raises InputError if the checkpoint cannot be read, or its run had different settings.
    """
    description = _read_description(checkpoint)
    # Checkpoints of earlier versions do not have mixed_precision.
    launch = {name: getattr(accelerator, name) for name in OF_THE_LAUNCH if name in description}
    _check_settings(checkpoint, description, settings | launch)
    try:
        # accelerate silently keeps the current random state if it cannot read the saved one.
        for path in (*checkpoint.glob("*.bin"), *checkpoint.glob("*.pkl")):
            load(path, map_location="cpu")
        accelerator.load_state(str(checkpoint))
        if average is not None:
            load_model(average, checkpoint / AVERAGED_WEIGHTS)
        progress = Progress(**description["progress"])
        if progress.best_step:
            with safe_open(checkpoint / BEST_WEIGHTS, framework="pt"):
                pass
    except Exception as error:
        raise _refused(checkpoint, first_line(error)) from error
    if accelerator.is_main_process and progress.best_step:
        save_pretrained(model, tokenizer, output_dir, weights=checkpoint / BEST_WEIGHTS)
    accelerator.wait_for_everyone()
    return progress


def complete_checkpoints(output_dir: str | Path) -> None:
    """Rename the checkpoints that a killed run had written in full and not yet put in place of older ones."""
    for path in Path(output_dir).glob(f".*.tmp/{DESCRIPTION}"):
        temporary = path.parent
        final = temporary.with_name(temporary.name.removeprefix(".").removesuffix(".tmp"))
        if not _damage(temporary) and (not final.exists() or _damage(final)):
            shutil.rmtree(final, ignore_errors=True)
            os.replace(temporary, final)


def find_checkpoint(name: str | Path, output_dir: str | Path) -> Path:
    """The checkpoint at that path, or of that name in `output_dir`; for ``"latest"`` the last intact one there. Raises
    InputError if it is missing or damaged.
    """
    if name == LATEST:
        for checkpoint in _whole_checkpoints(Path(output_dir)):
            return checkpoint
        raise InputError(f"{output_dir} has no intact checkpoint; leave out --resume_from_checkpoint to start over.")
    if not str(name):
        raise InputError("--resume_from_checkpoint is empty; give a folder step_N or epoch_N, or latest.")
    checkpoint = Path(name)
    if not checkpoint.exists() and (Path(output_dir) / name).exists():
        checkpoint = Path(output_dir) / name
    if not (checkpoint / DESCRIPTION).exists():
        raise InputError(
            f"{checkpoint} is not a checkpoint: it has no {DESCRIPTION}; give a folder step_N or epoch_N that "
            "--checkpointing_steps wrote."
        )
    if damage := _damage(checkpoint):
        raise _refused(checkpoint, damage)
    return checkpoint


def _refused(checkpoint: Path, reason: str) -> InputError:
    """The error for a checkpoint that cannot be used; it names the last usable one in the folder."""
    others = (other for other in _whole_checkpoints(checkpoint.parent) if other != checkpoint)
    other = next(others, None)
    remedy = f"resume from {other}, the last intact one" if other else "no other is intact: start over without it"
    return InputError(f"{checkpoint} cannot be resumed from: {reason}; {remedy}.")


def _whole_checkpoints(folder: Path) -> Iterator[Path]:
    """The intact checkpoints in a folder, latest first."""
    found = [path.parent for path in folder.glob(f"*_*/{DESCRIPTION}")]
    for checkpoint in sorted(found, key=lambda path: (path / DESCRIPTION).stat().st_mtime_ns, reverse=True):
        if damage := _damage(checkpoint):
            logger.warning("%s is damaged: %s", checkpoint, damage)
        else:
            yield checkpoint


def _damage(checkpoint: Path) -> str | None:
    """What is damaged in a checkpoint, if anything."""
    try:
        description = _read_description(checkpoint)
        files, digest = description["files"].items(), description.pop("sha256")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{DESCRIPTION} cannot be read ({first_line(error)})"
    if digest != _digest(description):
        return f"{DESCRIPTION} has changed since it was written"
    for name, fingerprint in files:
        path = checkpoint / name
        if not path.is_file():
            return f"{name} is missing"
        if _fingerprint(path) != fingerprint:
            return f"{name} has changed since it was written"
    return None


def _read_description(checkpoint: Path) -> dict[str, Any]:
    return json.loads((checkpoint / DESCRIPTION).read_text(encoding="utf-8"))


def _digest(description: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def _fingerprint(path: Path) -> dict[str, Any]:
    return {"size": path.stat().st_size, "sha256": sha256(path)}


def _check_settings(checkpoint: Path, description: dict[str, Any], settings: dict[str, Any]) -> None:
    written = description["settings"] | {name: description.get(name) for name in OF_THE_LAUNCH}
    different = [name for name in settings if plain(settings[name]) != written.get(name)]
    if different:
        name = different[0]
        raise InputError(
            f"{checkpoint} belongs to a run with different settings ({', '.join(different)}): {name} was "
            f"{written.get(name)}, now it is {settings[name]}; resume with the options of that run, "
            "and its version of hf_blosan."
        )


def _link_or_copy(source: Path, target: Path) -> None:
    """Hard-link a file, or copy it where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
