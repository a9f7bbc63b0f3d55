"""`python -m hf_blosan`: the command `hf-blosan`."""

import sys

from .cli.commands import main

if __name__ == "__main__":
    sys.exit(main())
