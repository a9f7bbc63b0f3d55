"""The pages of the documentation: their text, blocks of code, links and anchors."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OTHER_PAGES = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "hf_blosan/kernels/README.md"),
    *("results/NOTES.md", "results/trials/README.md"),
)
PAGES = [*OTHER_PAGES, *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
GUIDES = [page for page in PAGES if page == "README.md" or page.startswith("docs/")]
"""Pages whose code is run."""

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """A block of code; ``line`` is that of its first line on the page."""

    page: str
    language: str
    code: str
    line: int

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def text_of(page: str) -> str:
    """The text of a page without comments, in the same lines."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.sub(r"<!--.*?-->", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.DOTALL)


def blocks(page: str, *languages: str) -> list[Block]:
    """The blocks of code of a page, in these languages or in all."""
    text = text_of(page)
    found = [Block(page, b[1], b[2], text.count("\n", 0, b.start(2)) + 1) for b in FENCED.finditer(text)]
    return [block for block in found if not languages or block.language in languages]


def prose(page: str) -> str:
    """The text of a page without its blocks of code."""
    return FENCED.sub("", text_of(page))


def inline_code(page: str) -> list[str]:
    """The code between single backticks."""
    return INLINE.findall(prose(page))


def links(page: str) -> list[str]:
    """The targets of links and images."""
    text = INLINE.sub("", prose(page))
    return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"^\[[^]]+\]: (\S+)$", text, re.MULTILINE)


@cache
def anchors(page: str) -> set[str]:
    """The anchors of the headings of a page, as mkdocs and GitHub make them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings)
    return {re.sub(r"[-\s]+", "-", heading) for heading in plain}
