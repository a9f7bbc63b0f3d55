"""The figures shown to readers are those of recorded runs."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from hf_blosan.experiments.report import render
from hf_blosan.experiments.runner import Run, plan
from hf_blosan.experiments.tables import Table, get_table
from hf_blosan.hub.model_card import make_model_card

ROOT = Path(__file__).resolve().parents[1]
RECORDS = sorted((ROOT / "results").glob("*.json"))
IN_TABLES = sorted((ROOT / "results").glob("*/*.json"))
FOLDERS = sorted({path.parent for path in IN_TABLES})
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| .*\[\w+\]\(\.\./results/(\w+)\.json\).*$", PAGE, re.MULTILINE)


def test_every_record_is_on_the_page():
    assert RECORDS and sorted(ROWS) == [path.stem for path in RECORDS]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_page_shows_the_figures_of_the_record(path):
    run = json.loads(path.read_text())
    (row,) = [line for line in PAGE.splitlines() if f"(../results/{path.name})" in line]
    figures = {name: value for name, value in run["figures"].items() if name.startswith("test_")}
    assert figures
    for value in figures.values():
        assert re.search(rf"\b{value:.4f}\b", row), f"{path.stem}: {value:.4f} is not in {row}"


def test_figures_in_the_readme_are_those_of_the_records_they_link_to():
    linked = re.findall(r"\[([\d.]+)\]\((results/\w+\.json)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(linked) >= 6
    for figure, path in linked:
        run = json.loads((ROOT / path).read_text())
        assert figure == f"{run['figures']['test_' + run['task']['best_metric']]:.4f}", path


@pytest.mark.parametrize("page", ["README.md", "docs/distillation.md"])
def test_figures_of_the_distilled_encoder(page):
    run = json.loads((ROOT / "benchmarks" / "reports" / "distillation.json").read_text())
    text, models = (ROOT / page).read_text(encoding="utf-8"), run["models"]
    for model in models.values():
        figures = [f"{model[f'{task}_spearman']:.4f}" for task in ("stsb", "sick")]
        assert " | ".join([*figures, f"{model['megabytes']:.1f}", f"{model['sentences_per_second']:,.0f}"]) in text
    assert re.fullmatch(r"[0-9a-f]{40}", run["commit"]) and re.fullmatch(r"[0-9a-f]{40}", run["training"]["commit"])
    assert models["DiSAN"]["stsb_spearman"] >= 0.79
    assert models["DiSAN"]["sentences_per_second"] >= 10 * models["teacher"]["sentences_per_second"]


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


def recorded_table(folder: Path) -> tuple[Table, list[Run]]:
    """The table whose runs are in a folder, and every run it has on the tasks that were run, with the same seeds."""
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    (name,) = {record["experiment"]["table"] for record in records}
    table, tasks = get_table(name), {record["task"]["name"] for record in records}
    table = replace(table, columns=tuple(column for column in table.columns if column.task in tasks))
    data = ["--data_dir", "data"] if records[0]["data"]["source"] == "local files" else []
    seeds = sorted({record["seed"] for record in records})
    return table, plan(table, seeds, None, folder, data)


def test_recorded_tables_are_complete():
    for folder in FOLDERS:
        _, runs = recorded_table(folder)
        assert sorted(folder.iterdir()) == sorted(run.record_file for run in runs)
        for run in runs:
            record = json.loads(run.record_file.read_text())
            made = record["experiment"]["row"], record["task"]["name"], record["seed"]
            assert made == (run.row.name, run.task, run.arguments.seed)


def test_the_page_shows_the_recorded_tables():
    """The tables of systems are those of the folders in results/, line by line as the command prints."""
    printed = []
    for folder in FOLDERS:
        table, runs = recorded_table(folder)
        for run in runs:
            run.record = json.loads(run.record_file.read_text())
        printed.append([line for line in render(table, runs, {}).splitlines() if line[:1] == "|"])
    tables = re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)
    assert sorted(lines.splitlines() for lines in tables if lines.startswith("| system ")) == sorted(printed)
