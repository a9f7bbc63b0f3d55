"""What the site of mkdocs.yml needs beyond Markdown: hooks of mkdocs and an extension of griffe.

Pages can be read in the repository too: links name its files, README.md and its like stay where they are, and
equations are blocks of LaTeX, which GitHub shows. Here these become addresses, pages and MathML.
"""

import io
import os
import re
from contextlib import redirect_stdout
from pathlib import Path
from posixpath import dirname, normpath, relpath
from runpy import run_path

import griffe
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = "https://github.com/hf-blosan/hf_blosan"
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
    "hf_blosan/kernels/README.md": "kernels.md",
}
"""Files outside docs/ that are pages."""

CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(\]\()(?!\w+:|#)([^)\s#]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of other folders."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Equations, links, and the options of the command line."""
    source = Path(page.file.abs_src_path).relative_to(ROOT).as_posix()
    # Every other part is code.
    parts = CODE.split(markdown)
    parts[::2] = [
        LINK.sub(lambda link: link[1] + target(source, page.file.src_uri, link[2]) + link[3], text)
        for text in parts[::2]
    ]
    parts[1::2] = [equation(code) for code in parts[1::2]]
    markdown = run_path(str(ROOT / ".ci" / "encoders.py"))["reference"]("".join(parts))
    marker = "<!-- hf-blosan --help -->"
    return "".join(command_help() if part == marker else part for part in re.split(f"({marker})", markdown))


def target(source: str, page: str, link: str) -> str:
    """A link of a file of the repository as one of its page: to another page, or to the repository."""
    path = normpath(f"{dirname(source)}/{link}".lstrip("/"))
    if path in PAGES or path.startswith("docs/"):
        return relpath(PAGES.get(path, path.removeprefix("docs/")), dirname(page) or ".")
    return f"{REPOSITORY}/{'tree' if (ROOT / path).is_dir() else 'blob'}/main/{path}"


def equation(code: str) -> str:
    """A block of LaTeX as MathML, other code unchanged."""
    block = re.fullmatch(r"```math\n(.*?)```", code, re.DOTALL)
    if not block:
        return code
    mathml = convert(block[1].strip().replace("\n", " "), display="block")
    return f'<div class="equation">{mathml}</div>'


def command_help() -> str:
    """The help of every command."""
    from hf_blosan.cli.commands import COMMANDS, make_parser

    os.environ["COLUMNS"] = "100"
    (commands,) = make_parser()._subparsers._group_actions
    texts = []
    for name in COMMANDS:
        with redirect_stdout(io.StringIO()) as shown:
            commands.choices[name].print_help()
        texts.append(f"### hf-blosan {name}\n\n```text\n{shown.getvalue()}```\n")
    return "\n".join(texts)


class Docstrings(griffe.Extension):
    """Sphinx's roles, ``:func:`name```, as plain code; configurations and options as dataclasses with defaults."""

    def on_object(self, *, obj: griffe.Object, **kwargs) -> None:
        if obj.docstring:
            obj.docstring.value = re.sub(r":\w+:`([^`]+)`", r"`\1`", obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **kwargs) -> None:
        for decorator in cls.decorators:
            if str(decorator.value) == "strict":  # huggingface_hub's, which makes a dataclass
                decorator.value = griffe.ExprName("dataclasses.dataclass")

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs) -> None:
        value = attr.value
        if not isinstance(value, griffe.ExprCall):
            return
        keywords = {x.name: x.value for x in value.arguments if isinstance(x, griffe.ExprKeyword)}
        if str(value.function) == "option":  # option("help", default)
            attr.value = next((x for x in value.arguments[1:] if not isinstance(x, griffe.ExprKeyword)), "None")
        elif isinstance(factory := keywords.get("default_factory"), griffe.ExprLambda):
            attr.value = factory.body
