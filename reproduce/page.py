"""Regenerates the tables of docs/results.md from the records in results/: `python -m reproduce.page`."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from textwrap import fill

from hf_blosan.cli.options import Parser, exit_status, option
from hf_blosan.errors import InputError, listed
from hf_blosan.files import write_text
from hf_blosan.training.reporting import read_record

from .report import Leader, aligned, find_leaders, table_lines
from .runner import Run, plan
from .tables import Table, get_table

ROOT = Path(__file__).resolve().parents[1]
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
SENTENCE = re.compile(r"^- (.+?): ((.+?) is (not )?significantly different (?:.|\n )*?\.)$\n", re.MULTILINE)
OVERVIEW = ("TREC", "SST-2", "SST-5", "CR", "MPQA", "SUBJ", "Pearson's r", "SICK-E", "SNLI")


@dataclass
class PageArguments:
    """Options of ``python -m reproduce.page``."""

    page: str = option("The page.", str(ROOT / "docs" / "results.md"))
    results: str = option("Folder of the records.", str(ROOT / "results"))
    data_dir: str | None = option(
        "Folder of the tasks' rows, to repeat the paired tests (minutes). Default: keep the page's sentences."
    )


def recorded_table(folder: Path, data_dir: str | None = None) -> tuple[Table, list[Run]]:
    """The table of a folder of records, and all runs on its tasks, with the same seeds and folds; raises InputError if
    there are no records, they are of several tables, or a run has none.
    """
    records = [read_record(path) for path in sorted(folder.glob("*.json"))]
    names = {record["experiment"]["table"] for record in records}
    if len(names) != 1:
        what = f"records of {listed(sorted(names))}, not of one table" if names else "no records"
        raise InputError(f"{folder} has {what}; correct --results")
    table, tasks = get_table(*names), {record["task"]["name"] for record in records}
    table = replace(table, columns=tuple(column for column in table.columns if column.task in tasks))
    words = ["--data_dir", data_dir or "data"] if records[0]["data"]["source"] == "local files" else []
    seeds, folds = sorted({record["seed"] for record in records}), {r["data"]["held_out"].get("test") for r in records}
    runs = plan(table, seeds, len(folds - {None}) or None, folder, words)
    for run in runs:
        if not run.record_file.is_file():
            raise InputError(f"{folder} has no record {run.record_file.name}; train the table again")
        run.record = read_record(run.record_file)
    return table, runs


def update(page: str, results: Path, data_dir: str | None = None) -> str:
    """The page with the tables of these records; with ``data_dir`` also with their paired tests."""
    overview, bold = [], {}
    introduction, *sections = page.split("\n## ")
    for number, section in enumerate(sections):
        found = re.search(r"\[Records\]\(\.\./results/(\w+)\)", section)
        if not found:
            continue
        table, runs = recorded_table(results / found[1], data_dir)
        sentences = SENTENCE.findall(section)
        leaders = {column: Leader(row, not level, text) for column, text, row, level in sentences}
        if data_dir and sentences:
            leaders, _ = find_leaders(table, runs)
            lines = [f"- {column}: {leader.sentence}" for column, leader in leaders.items()]
            text = "".join(fill(line, 120, subsequent_indent="  ", break_on_hyphens=False) + "\n" for line in lines)
            start = SENTENCE.search(section).start()
            section = section[:start] + text + SENTENCE.sub("", section[start:])
        sections[number] = TABLE.sub("\n".join(table_lines(table, runs, {}, leaders)) + "\n", section, count=1)
        if table.title == get_table("summary").title:
            overview += runs
            bold |= {name: leader.name for name, leader in leaders.items() if leader.alone}
    for number, section in enumerate(sections):
        if section.startswith("All tasks\n"):
            sections[number] = TABLE.sub("\n".join(overview_lines(overview, bold)) + "\n", section, count=1)
    return "\n## ".join([introduction, *sections])


def overview_lines(runs: list[Run], bold: dict[str, str]) -> list[str]:
    """One table of the main figures, with the papers' in parentheses; ``bold``: column -> row."""
    summary = get_table("summary")
    columns = [["system", *(row.name for row in summary.rows)]]
    for column in (next(column for column in summary.columns if column.name == name) for name in OVERVIEW):
        cells = [column.name.replace("Pearson's", "SICK")]
        for row in summary.rows:
            figures = [column.figure_of(run.record) for run in runs if (run.row, run.task) == (row, column.task)]
            text = column.text(mean(figures))
            text = f"**{text}**" if bold.get(column.name) == row.name else text
            cells.append(f"{text} ({row.paper[column.name]})" if column.name in row.paper else text)
        columns.append(cells)
    return aligned(columns)


def write(argv: list[str] | None) -> None:
    """Write the page."""
    options = Parser(prog="python -m reproduce.page", description=__doc__).read(PageArguments, argv)
    page = Path(options.page)
    if not page.is_file():
        raise InputError(f"there is no page {page}; correct --page")
    before = page.read_text(encoding="utf-8")
    after = update(before, Path(options.results), options.data_dir)
    write_text(page, after)
    print(f"{page}: {'no change' if after == before else 'updated'}")


def main(argv: list[str] | None = None) -> int:
    return exit_status(write, argv)


if __name__ == "__main__":
    sys.exit(main())
