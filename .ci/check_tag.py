"""Refuses a tag that is not the version, or whose version the changelog lacks: `python .ci/check_tag.py v0.1.0`."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def problem(tag: str) -> str | None:
    """Why no release can be made under a tag."""
    package = (ROOT / "hf_blosan" / "__init__.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(.+)"$', package, re.MULTILINE)[1]
    if tag != f"v{version}":
        return f"the tag is {tag}, but hf_blosan/__init__.py says {version}; change one of them"
    top = re.search(r"^## \[([^]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[1]
    if top != version:
        return f"the changelog begins with {top}, not {version}; give the version its entry"
    return None


if __name__ == "__main__":
    sys.exit(problem(sys.argv[1]))
