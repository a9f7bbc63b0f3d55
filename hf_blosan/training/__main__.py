"""`python -m hf_blosan.training`: the command `run_glue_style.py`, where that file is not at hand."""

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
