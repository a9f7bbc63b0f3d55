"""A training run on rows in memory, by the command's own code, in a temporary folder that is removed."""

from __future__ import annotations

import random
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NoReturn

import datasets
import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..cli.options import Parser, add_options, read_options
from ..errors import InputError
from ..hub.saved import quiet_transformers
from ..tasks import Task
from ..training.arguments import RunArguments
from ..training.interruption import Interrupted
from ..training.loop import TrainingLoop
from ..training.run import make_accelerator, prepare_run

OWN_GROUPS = ("model", "optimisation")
"""The groups of the command's options that also apply to rows in memory."""

_one_at_a_time = threading.Lock()


@dataclass
class InMemoryArguments(RunArguments):
    """Options of a run on rows in memory."""

    in_memory: ClassVar[bool] = True


class Values(Parser):
    """A parser for values that come from Python; its errors do not refer to the command's help."""

    def error(self, message: str) -> NoReturn:
        raise InputError(message)


def read_arguments(given: Mapping[str, Any], options: Mapping[str, Any], output_dir: str) -> InMemoryArguments:
    """Options by name, read and checked as on the command line; None stands for the default.

    ``given`` are the options that are an estimator's parameters, ``options`` further ones, named by the user;
    ``output_dir`` is the folder for the best model so far. Raises InputError if an option is unknown or has a value of
    the wrong type or range, or two exclude each other.
    """
    allowed, group = set(), None
    for entry in fields(RunArguments):
        group = entry.metadata.get("group") or group
        allowed |= {entry.name} if group in OWN_GROUPS else set()
    allowed -= given.keys() | {"encoder", "model_name_or_path"}
    for name in options:
        if name not in allowed:
            raise InputError(f"options has no {name!r}; choose from {', '.join(sorted(allowed))}")
    values = {**given, **options, "output_dir": output_dir}
    parser = Values(prog="hf-blosan train")
    add_options(parser, InMemoryArguments)
    # A search over numbers gives whole ones as floats.
    values = {name: int(x) if isinstance(x, float) and x.is_integer() else x for name, x in values.items()}
    words = [f"--{name}={value}" for name, value in values.items() if value is not None]
    return read_options(parser.parse_known_args(words)[0], InMemoryArguments)


def fit(
    given: Mapping[str, Any], options: Mapping[str, Any], task: Task, *, verbose: bool = False
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, list[dict[str, Any]]]:
    """Train, and return the best model, in eval mode, with its tokenizer and the history of its validation.

    ``given`` and ``options`` are as in :func:`read_arguments`, ``task`` is from
    :func:`hf_blosan.estimators.rows.make_task`; ``verbose`` prints a line for each evaluation. Raises InputError if an
    option cannot be used with these rows, or training diverges; KeyboardInterrupt if the fit is interrupted.
    """
    history: list[dict[str, Any]] = []
    loss = ""

    def log(event: str, *, step: int, **entries: Any) -> None:
        nonlocal loss
        if event == "train":
            loss = f", loss {entries['loss']:.4f}"
        elif event == "validation":
            history.append({"step": step} | entries)
            figures = (f", {name} {value:.4f}" for name, value in entries.items() if name.startswith("validation_"))
            if verbose:
                print(f"epoch {entries['epoch']:g}: {entries['seconds']:.1f} s{loss}{''.join(figures)}")
            loss = ""

    try:
        with _one_at_a_time, undisturbed(verbose), TemporaryDirectory(prefix="hf_blosan-") as folder:
            arguments = read_arguments(given, options, folder)
            accelerator = make_accelerator(arguments)
            if accelerator.num_processes > 1:
                raise InputError("fit runs in one process; train in several with `accelerate launch`")
            arguments, preparation, evaluator = prepare_run(arguments, accelerator, task)
            loop = TrainingLoop(arguments, preparation, accelerator, evaluator, log=log)
            for _ in loop.run():
                pass
            model = accelerator.unwrap_model(loop.best_model(), keep_fp32_wrapper=False)
            return model.eval(), preparation.tokenizer, history
    except Interrupted as stop:
        signal.raise_signal(stop.number)  # its handler is the caller's again
        raise KeyboardInterrupt("the fit was interrupted") from None


@contextmanager
def undisturbed(verbose: bool) -> Iterator[None]:
    """Leave the random state and the settings of other libraries as they are, and show no progress bars."""
    state, numpy_state = random.getstate(), np.random.get_state()
    bars = not datasets.are_progress_bars_disabled()
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(range(torch.cuda.device_count())))
        stack.enter_context(quiet_transformers(warnings=verbose))
        datasets.disable_progress_bars()
        try:
            yield
        finally:
            random.setstate(state)
            np.random.set_state(numpy_state)
            if bars:
                datasets.enable_progress_bars()


@contextmanager
def named(parameters: Mapping[str, str]) -> Iterator[None]:
    """Replace the options that errors name by parameters of the estimator: ``parameters`` has them by option."""
    known = {entry.name for entry in fields(RunArguments)}

    def parameter(found: re.Match[str]) -> str:
        name = found[1]
        return parameters.get(name, f"options[{name!r}]") if name in known else found[0]

    try:
        yield
    except InputError as error:
        sentence = re.sub(r"--(\w+)", parameter, str(error))
        if sentence == str(error):
            raise
        raise InputError(sentence) from error
