"""The figures shown to readers are those of recorded runs."""

import json
import re
from pathlib import Path

import pytest

from hf_blosan.experiments.plan import Run
from hf_blosan.experiments.report import render
from hf_blosan.experiments.runner import Result
from hf_blosan.experiments.tables import get_table
from hf_blosan.hub.model_card import make_model_card

ROOT = Path(__file__).resolve().parents[1]
RECORDS = sorted((ROOT / "results").glob("*.json"))
IN_TABLES = sorted((ROOT / "results").glob("*/*.json"))
ROWS = re.findall(r"^\| .*\[\w+\]\(results/(\w+)\.json\).*$", (ROOT / "README.md").read_text(), re.MULTILINE)


def test_every_record_is_in_the_readme():
    assert RECORDS and sorted(ROWS) == [path.stem for path in RECORDS]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_readme_shows_the_figures_of_the_record(path):
    run = json.loads(path.read_text())
    (row,) = [line for line in (ROOT / "README.md").read_text().splitlines() if f"(results/{path.name})" in line]
    figures = {name: value for name, value in run["figures"].items() if name.startswith("test_")}
    assert figures
    for value in figures.values():
        assert re.search(rf"\b{value:.4f}\b", row), f"{path.stem}: {value:.4f} is not in {row}"


@pytest.mark.parametrize("path", [*RECORDS, *IN_TABLES], ids=lambda path: path.stem)
def test_record_can_be_repeated(path):
    """Command, commit of a clean tree, versions and seed are there."""
    run = json.loads(path.read_text())
    assert run["command"].startswith("python run_glue_style.py --task_name ")
    assert re.fullmatch(r"[0-9a-f]{40}", run["commit"]), "recorded on a tree with uncommitted changes"
    assert run["seed"] is not None and run["versions"]["torch"] and run["training"]["seconds"] > 0


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_model_card_is_made_from_the_record(path):
    card = (ROOT / "model_cards" / f"{path.stem}.md").read_text()
    assert card.strip() == str(make_model_card(json.loads(path.read_text()), location=path.stem)).strip()


def test_readme_shows_the_recorded_tables():
    """A folder in results/ holds the runs of a table; the README has its lines, as the command prints them."""
    readme = (ROOT / "README.md").read_text().splitlines()
    for folder in {path.parent for path in IN_TABLES}:
        records = [json.loads(path.read_text()) for path in IN_TABLES if path.parent == folder]
        table = get_table(records[0]["experiment"]["table"])
        rows = {row.name: row for row in table.rows}
        results = [Result(Run(rows[r["experiment"]["row"]], r["task"]["name"], None, 0), r) for r in records]
        tasks = {result.run.task for result in results}
        shown = tuple(row for row in table.rows if any(result.run.row == row for result in results))
        columns = tuple(column for column in table.columns if column.task in tasks)
        printed = render(table, shown, columns, results, {}).splitlines()
        assert [line for line in printed if line.startswith("|") and line not in readme] == []
