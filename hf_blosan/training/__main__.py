"""`python -m hf_blosan.training`: the command `run_glue_style.py` of an installed package."""

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
