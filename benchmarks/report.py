"""The writer of all reports: `python -m benchmarks.report benchmarks/reports/NAME.json` writes NAME.md beside it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from hf_blosan.cli.options import Parser, exit_status, option, positional
from hf_blosan.errors import InputError
from hf_blosan.files import write_text


def page(title: str, head: dict[str, Any], notes: Iterable[str], *parts: str) -> str:
    """A report in Markdown: its header as a list, which ends with the notes, and its parts."""
    listed = "\n".join([*surroundings_lines(head), *(f"- {note}" for note in notes)])
    return "\n\n".join([f"# {title}", listed, *parts]) + "\n"


def table(headings: Iterable[Any], rows: Iterable[Iterable[Any]], left: int = 1) -> str:
    """A Markdown table; all columns but the first ones are aligned to the right."""
    headings = list(headings)
    rules = ["---"] * left + ["---:"] * (len(headings) - left)
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in (headings, rules, *rows))


def surroundings_lines(head: dict[str, Any]) -> list[str]:
    """The header of a report as a Markdown list."""
    hardware = head["hardware"]
    gpu = f"{hardware['gpu']}; " if hardware["gpu"] else ""
    dtype, device = head.get("dtype", "float32"), head.get("device", "cpu")
    precision = dtype if dtype == "float32" else f"autocast to {dtype}"
    return [
        f"- Hardware: {gpu}{hardware['cpu']}, {hardware['cores']} cores, {hardware['memory_gib']} GiB",
        f"- CPU kernels: {head['instruction_set'] or 'none, plain torch'}",
        f"- Device {device}, {precision}; threads: {head['threads']}; seed: {head['seed']}",
        f"- Versions: {', '.join(f'{name} {number}' for name, number in head['versions'].items() if number)}",
        f"- Commit: {head['commit'] or 'unknown'}",
        *(f"- Command: `{line}`" for line in head["command"].splitlines()),
        f"- Date: {head['date']}",
    ]


def write_markdown(path: Path, text: str) -> str:
    """Write what a report looks like beside its JSON file, with the text of NAME.remarks.md if there is one."""
    remarks = path.with_suffix(".remarks.md")
    if remarks.exists():
        text += f"\n## Remarks\n\n{remarks.read_text(encoding='utf-8').strip()}\n"
    write_text(path.with_suffix(".md"), text)
    return text


def read_report(path: Path) -> dict[str, Any]:
    """A JSON file of these benchmarks.

    Raises:
        InputError: it is not one.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        if program_of(report).startswith("benchmarks."):
            return report
        raise ValueError
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(f"{path} is not a report of these benchmarks; give a JSON file that one wrote") from error


def program_of(report: dict[str, Any]) -> str:
    """The module that made a report, from its command ``python -m benchmarks.NAME ...``."""
    return report["header"]["command"].split()[2]


def markdown(report: dict[str, Any]) -> str:
    """What a report looks like: the benchmark that made it knows.

    Raises:
        InputError: it has no page.
    """
    program = import_module(program_of(report))
    if not hasattr(program, "markdown"):
        raise InputError(f"a report of {program_of(report)} has no page in Markdown; read its JSON file")
    return program.markdown(report)


@dataclass
class ReportOptions:
    """Options of ``python -m benchmarks.report``."""

    reports: list[str] = positional("JSON files that benchmarks wrote.")
    figure: str | None = option("Image to draw of a report of benchmarks.peers: .png, .svg or .pdf.")

    def __post_init__(self) -> None:
        if self.figure and Path(self.figure).suffix not in (".png", ".svg", ".pdf"):
            raise InputError(f"--figure {self.figure}: give a name that ends in .png, .svg or .pdf")


def write(argv: list[str] | None) -> None:
    """Write the Markdown of reports."""
    options = Parser(prog="python -m benchmarks.report", description=__doc__).read(ReportOptions, argv)
    for path in map(Path, options.reports):
        report = read_report(path)
        write_markdown(path, markdown(report))
        if options.figure:
            module = import_module(program_of(report))
            if not hasattr(module, "draw"):
                raise InputError(f"--figure: {path} is not a report of benchmarks.peers; leave it out")
            module.draw(report["rows"], Path(options.figure))
        print(path.with_suffix(".md"))


def main(argv: list[str] | None = None) -> int:
    return exit_status(write, argv)


if __name__ == "__main__":
    sys.exit(main())
