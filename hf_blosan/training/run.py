"""A complete run, from options to a saved model with figures and model card."""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState, is_initialized
from accelerate.utils import DistributedDataParallelKwargs, set_seed
from transformers.utils.logging import disable_progress_bar

from ..cli.options import exit_status
from ..errors import InputError
from ..files import write_json
from ..hub import Uploads, write_model_card
from ..tasks import Task
from .arguments import RunArguments, parse_arguments
from .checkpoints import find_checkpoint, save_pretrained
from .evaluation import Evaluator
from .interruption import Interrupted, other_processes
from .loop import TrainingLoop
from .output_folder import check_shared, output_folder
from .preparation import Preparation, find_encoder, find_task, prepare
from .reporting import RunLog, command_line, digests, record, summary, write_predictions, write_record

logger = logging.getLogger(__name__)


def train(arguments: RunArguments, *, command: str | None = None) -> dict[str, Any]:
    """Train a model, save the best one on the validation data, and evaluate it.

    `arguments.output_dir` then holds model, tokenizer, model card (README.md), `all_results.json`, `log.jsonl` and the
    predictions on the test split.

    Args:
        arguments: options of the run; those left at None come from the task's recipe for the encoder.
        command: command that repeats the run, for its record; by default this process's command line.

    Returns:
        The record of the run; `record["figures"]` has `validation_<metric>` and `test_<metric>`.

    Raises:
        InputError: an option or a file cannot be used, training diverges, or another process of the run has ended.
        Interrupted: Ctrl-C or SIGTERM during training; there is a checkpoint of the last update.
    """
    accelerator = make_accelerator(arguments)
    # Check every path option before reading the data.
    output = output_folder(arguments) if accelerator.is_main_process else nullcontext()
    with other_processes(arguments), output:
        accelerator.wait_for_everyone()
        check_shared(arguments)
        if arguments.resume_from_checkpoint is not None:
            checkpoint = find_checkpoint(arguments.resume_from_checkpoint, arguments.output_dir)
            arguments = replace(arguments, resume_from_checkpoint=str(checkpoint))
        return _train(arguments, accelerator, command)


def _train(arguments: RunArguments, accelerator: Accelerator, command: str | None) -> dict[str, Any]:
    begin = time.monotonic()
    arguments, preparation, evaluator = prepare_run(arguments, accelerator)
    files = digests(arguments, preparation.task)
    uploads = None
    if arguments.push_to_hub and accelerator.is_main_process:
        private = arguments.hub_private_repo
        uploads = Uploads(arguments.output_dir, arguments.hub_model_id, arguments.hub_token, private=private)
        uploads.exclude_checkpoints()
    start_trackers(arguments, accelerator)
    log = RunLog(Path(arguments.output_dir) / "log.jsonl", accelerator, append=bool(arguments.resume_from_checkpoint))
    loop = TrainingLoop(arguments, preparation, accelerator, evaluator, log=log)

    def record_of(figures: dict[str, float]) -> dict[str, Any]:
        seconds, line = time.monotonic() - begin, command or command_line()
        run = (arguments, preparation, accelerator, loop.progress, figures)
        return record(*run, epochs=loop.epochs, seconds=seconds, command=line, sha256=files)

    for epoch in loop.run():
        if uploads and loop.progress.best_step:
            run = record_of({loop.best_metric: loop.progress.best_metric})
            write_model_card(arguments.output_dir, run, location=uploads.repo_id, in_progress=True)
            uploads.try_upload(f"Training in progress epoch {epoch - 1}")

    progress = loop.progress
    model = loop.best_model()
    figures, predictions = evaluator.measure(model)
    log("end", step=progress.step, best_step=progress.best_step, **figures)
    run = record_of(figures)
    if predictions is not None and predictions.ndim == 1:
        run["test_predictions"] = predictions.tolist()
    if accelerator.is_main_process:
        save_pretrained(model, preparation.tokenizer, arguments.output_dir)
        write_outputs(arguments, run, preparation, predictions, location=uploads and uploads.repo_id)
        print(summary(run, arguments.output_dir))
    for tracker in accelerator.trackers:
        tracker.finish()
    accelerator.wait_for_everyone()
    if uploads:
        uploads.finish("End of training")
    return run


def prepare_run(
    arguments: RunArguments, accelerator: Accelerator, task: Task | None = None
) -> tuple[RunArguments, Preparation, Evaluator]:
    """What a run starts from: all of its options, the data with the model, and the evaluation.

    The accelerator is from :func:`make_accelerator`; ``task`` is one with rows in memory, ``None``: the task that the
    options name. Raises InputError if an option or a file cannot be used.
    """
    set_seed(arguments.seed)
    encoder, saved_config = find_encoder(arguments)
    task = task or find_task(arguments)
    arguments = arguments.resolved(task, encoder, saved_config)
    with accelerator.main_process_first():
        preparation = prepare(arguments, task, encoder, saved_config)
    recipe, rows = task.recipe(encoder, arguments.recipe), len(preparation.data["train"])
    arguments = arguments.scheduled(recipe, rows, accelerator.num_processes)
    size, options = arguments.per_device_eval_batch_size, {"watch_test": arguments.watch_test}
    evaluator = Evaluator(preparation, size, accelerator, bars=not arguments.in_memory, **options)
    return arguments, preparation, evaluator


def make_accelerator(arguments: RunArguments) -> Accelerator:
    """The accelerator of a run; the loop itself steps the learning-rate schedule, once per update. Raises InputError
    if an experiment tracker is unknown.
    """
    earlier = is_initialized()
    try:
        accelerator = Accelerator(
            cpu=arguments.cpu,
            gradient_accumulation_steps=arguments.gradient_accumulation_steps,
            step_scheduler_with_optimizer=False,
            # Buffers, such as fixed word vectors, never change; broadcasting them at every step would be slow.
            kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],
            log_with=arguments.report_to.split(",") if arguments.with_tracking else None,
            project_dir=arguments.output_dir,
        )
    except ValueError as error:
        remedy = "correct --report_to or leave it out" if arguments.with_tracking else "start a new process"
        raise InputError(f"accelerate rejects these options ({error}); {remedy}") from error
    if (batches := accelerator.gradient_accumulation_steps) != arguments.gradient_accumulation_steps:
        raise InputError(
            f"ACCELERATE_GRADIENT_ACCUMULATION_STEPS is {batches}, --gradient_accumulation_steps "
            f"{arguments.gradient_accumulation_steps}; unset the variable and give the option"
        )
    available = torch.accelerator.current_accelerator(check_available=True)
    if earlier and available and accelerator.device.type == "cpu" and not arguments.cpu:  # accelerate keeps its device
        logger.warning(
            "training on the CPU, as earlier in this process; start a new process to use %s", available.type
        )
    return accelerator


def start_trackers(arguments: RunArguments, accelerator: Accelerator) -> None:
    """Start the experiment trackers, if any, with the options of the run."""
    if not arguments.with_tracking:
        return
    options = {name: value for name, value in arguments.public().items() if value is not None}
    accelerator.init_trackers("hf_blosan", config=options)
    if not accelerator.trackers and accelerator.is_main_process:
        logger.warning("--with_tracking: no experiment tracker is installed, only log.jsonl is written")


def write_outputs(
    arguments: RunArguments,
    run: dict[str, Any],
    preparation: Preparation,
    predictions: np.ndarray | None,
    *,
    location: str | None,
) -> None:
    """Write figures, predictions, model card and record of a finished run."""
    output_dir = Path(arguments.output_dir)
    training = run["training"]
    entries = {name: training[name] for name in ("epochs", "steps", "best_step", "seconds")}
    write_json(output_dir / "all_results.json", run["figures"] | entries)
    if predictions is not None:
        write_predictions(output_dir / f"predict_results_{run['task']['name']}.txt", preparation, predictions)
    write_model_card(output_dir, run, location=location)
    if arguments.results_file:
        write_record(arguments.results_file, run)


def main(argv: list[str] | None = None) -> int:
    """The command `run_glue_style.py`; bad input prints one sentence to standard error and returns 2."""
    return exit_status(lambda: run_command(parse_arguments(argv)))


def run_command(arguments: RunArguments) -> int | None:
    """Train as a command; returns the exit status.

    Ctrl-C and SIGTERM finish the update, save a checkpoint, say how to resume, and return 130 and 143.
    """
    rank = int(os.environ.get("RANK", 0))
    logging.basicConfig(
        format="%(levelname)s %(name)s: %(message)s", level=logging.INFO if rank == 0 else logging.ERROR, force=True
    )
    for noisy in ("httpx", "httpx2", "httpcore2", "huggingface_hub", "datasets", "evaluate", "accelerate"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("huggingface_hub.utils._http").setLevel(logging.ERROR)  # it logs every attempt
    disable_progress_bar()  # for saving and loading, which are fast
    try:
        train(arguments)
    except Interrupted as stop:
        if rank == 0:
            resume, state = " --resume_from_checkpoint latest", AcceleratorState()
            how = f"run: {command_line().removesuffix(resume)}{resume}"
            if state.num_processes > 1 or state.mixed_precision != "no":  # by a launcher, whose options are not known
                how = f"start it again as before, with{resume}"
            print(f"interrupted; to resume, {how}", file=sys.stderr)
        return 128 + stop.number
    PartialState().destroy_process_group()
    return None
