"""`python -m hf_blosan.training`: the command `run_glue_style.py` of an installed package."""

import sys

from ..cli.startup import prepare_imports, quick_imports

if __name__ == "__main__":
    prepare_imports()
    with quick_imports():
        from . import main

    sys.exit(main())
