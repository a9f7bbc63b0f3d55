"""Runs one run of a table, `python -m reproduce.one_run`, with its options as JSON on standard input."""

import json
import sys

from hf_blosan.cli.startup import prepare_imports

if __name__ == "__main__":
    prepare_imports()
    from hf_blosan.cli.options import exit_status
    from hf_blosan.training import RunArguments
    from hf_blosan.training.run import run_command

    sys.exit(exit_status(lambda: run_command(RunArguments(**json.load(sys.stdin)))))
