"""`python -m hf_blosan.training`: the command `run_glue_style.py` of an installed package."""

import sys

from ..threads import wait_briefly

if __name__ == "__main__":
    wait_briefly()
    from . import main  # which imports torch

    sys.exit(main())
