"""A run of a table in a process of its own, `python -m reproduce.one_run`: its options are JSON on standard input."""

import json
import sys

from hf_blosan.cli.commands import COMMANDS, load
from hf_blosan.cli.startup import prepare_imports
from hf_blosan.errors import InputError

if __name__ == "__main__":
    prepare_imports()
    command = COMMANDS["train"]
    try:
        sys.exit(load(command.function)(command.options(**json.load(sys.stdin))))
    except InputError as error:
        sys.exit(f"error: {error}")
