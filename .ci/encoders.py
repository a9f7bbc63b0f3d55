"""What is written from the table of encoders: parts of the reference, and hf_blosan/__init__.pyi for type checkers.

`python .ci/encoders.py` writes the latter.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hf_blosan.registry import ENCODERS, MODULES, SUFFIXES  # noqa: E402

HEAD = """# Written by .ci/encoders.py; __init__.py imports these on first use.
from transformers.models.auto.auto_factory import _BaseAutoModelClass

from .registry import pretrained as pretrained
"""
END = """
__version__: str

class AutoModelForPairRegression(_BaseAutoModelClass): ...
"""


def stub() -> str:
    """The text of hf_blosan/__init__.pyi."""
    return HEAD + "".join(f"from {MODULES[name]} import {name} as {name}\n" for name in sorted(MODULES)) + END


def reference(markdown: str) -> str:
    """A page with what stands for its comments ``<!-- encoders -->``, ``<!-- Model -->`` and ``<!-- Config -->``.

    The first is a table of the classes, the others have a section for each class with that suffix.
    """
    rows = ["| family | " + " | ".join(SUFFIXES) + " |", "| --- " * (len(SUFFIXES) + 1) + "|"]
    for model_type, encoder in ENCODERS.items():
        rows.append(" | ".join([f"| `{model_type}`", *(f"`{encoder.stem}{suffix}`" for suffix in SUFFIXES)]) + " |")
    markdown = markdown.replace("<!-- encoders -->", "\n".join(rows))
    for suffix in SUFFIXES:
        names = [encoder.stem + suffix for encoder in ENCODERS.values()]
        sections = (f"::: hf_blosan{MODULES[name]}.{name}\n    options:\n      members: []\n" for name in names)
        markdown = markdown.replace(f"<!-- {suffix} -->", "\n".join(sections))
    return markdown


if __name__ == "__main__":
    (ROOT / "hf_blosan" / "__init__.pyi").write_text(stub(), encoding="utf-8")
