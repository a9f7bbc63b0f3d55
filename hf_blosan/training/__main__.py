"""`python -m hf_blosan.training`: the command `run_glue_style.py` of an installed package."""

import sys

from ..errors import quiet_imports

if __name__ == "__main__":
    quiet_imports()
    from . import main

    sys.exit(main())
