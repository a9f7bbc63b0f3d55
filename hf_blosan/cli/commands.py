"""The command ``hf-blosan``: a table of commands, each a thin layer over a function of the package.

Nothing heavy is imported before the arguments are parsed, so ``--help`` and errors in the options appear at once.
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from importlib import import_module

from .. import __version__
from ..analysis.arguments import DemoArguments, ExplainArguments
from ..errors import InputError, install
from ..inference.arguments import BenchArguments, EncodeArguments, PredictArguments, ShardsArguments
from ..registry import ENCODERS
from ..serving.arguments import ServeArguments
from ..tasks import TASKS
from ..tasks.kinds import describe_rows
from ..training import check_extra
from ..training.arguments import EvaluateArguments, RunArguments
from .arguments import CardArguments, ExportArguments, NoArguments, PushArguments
from .options import Parser, add_options, check_files, exit_status, read_options
from .startup import prepare_imports, quick_imports


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        summary: one line for ``hf-blosan --help``.
        options: dataclass of its options, in a module that is fast to import.
        function: ``"module:function"``, which takes the options and returns the exit status.
        epilog: text at the end of its help.
        needs_training: whether it needs the extra ``train``, some of whose packages are imported late in a run.
    """

    summary: str
    options: type
    function: str
    epilog: str = ""
    needs_training: bool = False


def task_list() -> str:
    """Name, title, and a description of the rows."""
    return "\n".join(f"  {task.name:<18}{task.title} ({describe_rows(task)})" for task in TASKS.values())


def encoder_list() -> str:
    """Model type and description."""
    return "\n".join(f"  {name:<18}{encoder.description}" for name, encoder in ENCODERS.items())


def print_tasks(options: NoArguments) -> None:
    """Print the tasks."""
    print(task_list())


def print_encoders(options: NoArguments) -> None:
    """Print the encoders."""
    print(encoder_list())


COMMANDS = {
    "train": Command(
        "train an encoder on a task or your own data",
        RunArguments,
        "hf_blosan.training.run:run_command",
        f"tasks:\n{task_list()}\n\nencoders:\n{encoder_list()}",
        needs_training=True,
    ),
    "evaluate": Command(
        "measure a saved model",
        EvaluateArguments,
        "hf_blosan.training.evaluate_model:run_command",
        needs_training=True,
    ),
    "predict": Command(
        "predictions of a trained model for a file of any size",
        PredictArguments,
        "hf_blosan.inference.stream:predict",
    ),
    "encode": Command("sentence vectors for a file of any size", EncodeArguments, "hf_blosan.inference.stream:encode"),
    "shards": Command(
        "check that all parts written with --shard are there", ShardsArguments, "hf_blosan.inference.shards:shards"
    ),
    "bench": Command("speed and size of a model on this machine", BenchArguments, "hf_blosan.inference.bench:bench"),
    "explain": Command(
        "prediction and attention for a sentence or a pair",
        ExplainArguments,
        "hf_blosan.analysis.command:explain_text",
    ),
    "demo": Command("a web page to try one model or two", DemoArguments, "hf_blosan.analysis.page:demo"),
    "serve": Command(
        "answer requests by HTTP, in the JSON of the Hub's inference API",
        ServeArguments,
        "hf_blosan.serving.command:serve",
    ),
    "export": Command("write a model as an ONNX graph", ExportArguments, "hf_blosan.export:run_command"),
    "card": Command("model cards from the records of runs", CardArguments, "hf_blosan.hub.model_card:write_cards"),
    "push": Command("upload a folder to the Hugging Face Hub", PushArguments, "hf_blosan.hub.upload:push"),
    "tasks": Command("list the tasks", NoArguments, "hf_blosan.cli.commands:print_tasks"),
    "encoders": Command("list the encoders", NoArguments, "hf_blosan.cli.commands:print_encoders"),
}
"""All commands."""


def make_parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(
        prog="hf-blosan",
        usage="%(prog)s COMMAND [options]",
        description="Sentence encoders by self-attention: DiSAN, Bi-BloSAN, MTSA.",
        epilog="hf-blosan COMMAND --help describes a command.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    subparsers = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")
    for name, command in COMMANDS.items():
        description = command.summary[0].upper() + command.summary[1:] + "."
        texts = {"help": command.summary, "description": description, "epilog": command.epilog}
        subparser = subparsers.add_parser(name, prog=f"hf-blosan {name}", **texts)
        add_options(subparser, command.options)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status: 2 after bad input, 130 after an interruption."""
    return exit_status(run, sys.argv[1:] if argv is None else argv)


def run(argv: list[str]) -> int | None:
    """Run a command; what it lacks, and output that cannot be written, raise InputError."""
    try:
        parser = make_parser()
        namespace, unknown = parser.parse_known_args(argv)
        if namespace.command is None:
            parser.refuse(unknown, NoArguments)
            parser.print_help()
            return None
        command = COMMANDS[namespace.command]
        parser.refuse(unknown, command.options, f"{parser.prog} {namespace.command}")
        options = read_options(namespace, command.options)
        check_files(options)
        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
        logging.getLogger("hf_blosan").setLevel(logging.INFO)
        logging.getLogger("huggingface_hub.utils._http").setLevel(logging.ERROR)  # it logs every attempt, twice
        prepare_imports()
        if command.needs_training:
            check_extra()
        status = find(command.function)(options)
        if sys.stdout:
            sys.stdout.flush()
        return status
    except ModuleNotFoundError as error:
        raise InputError(f"this command needs more packages ({error}); {install('train')}") from error
    except BrokenPipeError:  # `hf-blosan ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.filename is not None or not output_fails():
            raise
        raise InputError(f"standard output cannot be written ({error.strerror}); write to a file") from error


def output_fails() -> bool:
    """Whether standard output cannot be written; if so, its buffer is discarded."""
    try:
        print(flush=True)  # a flush alone writes nothing if the buffer is empty
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def find(function: str):
    """The function named by ``"module:function"``."""
    module, _, name = function.partition(":")
    if module not in sys.modules:
        with quick_imports():
            import_module(module)
    return getattr(sys.modules[module], name)
