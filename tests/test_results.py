"""The figures shown to readers are those of recorded runs."""

import hashlib
import json
import platform
import re
import shlex
from dataclasses import replace
from pathlib import Path
from statistics import mean, median

import numpy as np
import pytest
from small_data import write_trec, write_vectors

from benchmarks import peers_report
from hf_blosan.hub.model_card import make_model_card
from hf_blosan.tasks import custom_task, get_task
from hf_blosan.training import RunArguments
from hf_blosan.training.reporting import digests, processor, read_record, write_record
from reproduce import page
from reproduce.page import recorded_table
from reproduce.significance import LOWER_IS_BETTER, paired_p_value

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
REPORTS = ROOT / "benchmarks" / "reports"
RECORDS = sorted((ROOT / "results").glob("*.json"))
IN_TABLES = sorted((ROOT / "results").glob("*/*.json"))
TRIALS = ROOT / "results" / "trials"
OTHERS = sorted(TRIALS.glob("*/*.json"))
FOLDERS = sorted({path.parent for path in IN_TABLES})
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
TABLES = [lines.splitlines() for lines in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE) if lines[:9] == "| system "]
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


def cells(lines: list[str]) -> dict[tuple[str, str], str]:
    """The cells of a Markdown table, by row and column; of a column "best seen" or "paper", with the one before it."""
    (_, *names), _, *rows = ([cell.strip() for cell in line.strip("|").split(" |")] for line in lines)
    for i, name in enumerate(names):
        if name in ("best seen", "paper"):
            names[i] = f"{names[i - 1].removesuffix(', best seen')}, {name}"
    return {(row[0], name): cell for row in rows for name, cell in zip(names, row[1:], strict=True)}


def test_the_table_of_the_readme_has_figures_of_the_page():
    """Beside the comparison with other ways, which has speeds, it has one table of systems."""
    overview = cells(TABLES[0])
    tables = re.findall(r"^\| system \|.*\n(?:\|.*\n)+", README, re.MULTILINE)
    (table,) = [table.splitlines() for table in tables if "rows/s" not in table]
    shown = {place: cell for place, cell in cells(table).items() if cell != "-"}
    assert len(shown) >= 6
    for place, cell in shown.items():
        assert overview[place] == cell, place


def test_the_numbers_on_the_first_screen():
    top = " ".join(README.split("\n## ")[0].split())
    rows = json.loads((REPORTS / "peers.json").read_text())["rows"]

    def seconds(system: str) -> float:
        return median(row["train_seconds"] for row in rows if row["system"] == system)

    assert f"**{seconds('disan'):.0f} seconds of training**" in top
    assert f"fine-tuning MiniLM takes {seconds('minilm_fine_tuned'):.0f}" in top
    (minilm,) = [r["figures"] for r in rows if (r["system"], r["task"]) == ("minilm_fine_tuned", "trec")]
    trec = float(cells(TABLES[0])["DiSAN", "TREC"].split()[0]) / 100
    assert f"accuracy of {trec:.3f} (three seeds), MiniLM {minilm['test_accuracy']:.3f} (one)" in top


def test_speeds_in_the_readme():
    run = json.loads((REPORTS / "encode.json").read_text())
    speeds = {row["system"]: f"{row['speed']:.1f}" for row in run["rows"] if row["system"] != "peer"}
    (section,) = re.findall(r"^## Speed\n(.*?)^## ", README, re.MULTILINE | re.DOTALL)
    shown = re.findall(r"\d+\.\d", section)
    assert shown == [
        speeds[f"{encoder} {form}"] for encoder in ("disan", "mtsa", "biblosan") for form in ("float32", "int8")
    ]
    assert re.fullmatch(r"[0-9a-f]{40}", run["header"]["commit"])
    # On Intel only layers have been compared with torch's.
    assert run["header"]["hardware"]["cpu"].startswith("AMD")
    layers = json.loads((REPORTS / "cpu_targets.json").read_text())
    assert layers["header"]["hardware"]["cpu"].startswith("Intel")
    ratios = [round(100 * float(ratio)) for ratio in layer_ratios((REPORTS / "cpu_targets.md").read_text())]
    assert f"{min(ratios)} to {max(ratios)} %" in section.replace("\n", " ")
    rows = json.loads((REPORTS / "cuda_lengths.json").read_text())["rows"]
    times = {(row["length"], row["operator"]): row["median_ms"] for row in rows if row["pass"] == "forward+backward"}
    short, long = (f"{times[length, 'disa'] / times[length, 'multihead']:.0%}"[:-1] for length in (64, 4096))
    assert f"takes {short} % at 64 tokens and {long} % at 4,096" in section


def layer_ratios(report: str) -> list[str]:
    """The time of this package's layers in units of nn.MultiheadAttention, from the table of a report."""
    rows = re.findall(r"^\| \d+x\d+ \| (?:DiSA|Bi-BloSA|MTSA).*$", report, re.MULTILINE)
    return [row.split(" | ")[column] for row in rows for column in (3, 6)]


def test_the_comparison_with_what_people_use():
    report = json.loads((REPORTS / "peers.json").read_text())
    assert peers_report.overview(report["rows"]) in README
    assert (REPORTS / "peers.md").read_text(encoding="utf-8") == peers_report.markdown(report)
    assert re.fullmatch(r"[0-9a-f]{40}", report["header"]["commit"])


def test_the_sentences_on_what_people_use():
    rows = json.loads((REPORTS / "peers.json").read_text())["rows"]
    (text,) = re.findall(r"^## Comparison with common .*\n\n((?:.+\n)+)", README, re.MULTILINE)

    def speed(system: str, size: str) -> float:
        return median(row["speed"][size]["rows_per_second"] for row in rows if row["system"] == system)

    text = " ".join(text.split())
    large, one = (speed("disan", size) / speed("minilm_fine_tuned", size) for size in ("64", "1"))
    assert f"predicts {large:.0f} times as many" in text and f"of 64, {one:.1f} times one by one" in text
    page = {place: cell for lines in reversed(TABLES) for place, cell in cells(lines).items()}
    trec = float(page["DiSAN", "TREC"].split()[0]) / 100
    assert f"DiSAN then has an accuracy of {trec:.3f} (three seeds)" in " ".join(README.split())
    assert f"has {page['Source2token', 'SICK r']}." in text
    (absolute,) = [
        row["compared"]["DiSAN"]
        for row in json.loads((REPORTS / "pair_features.json").read_text())["rows"]
        if not row["settings"]["signed_difference"]
    ]
    disan, (difference, low, high) = float(page["DiSAN", "SICK-E"].split()[0]) / 100, absolute
    assert f"DiSAN has {disan:.4f}, {difference:.3f} ± {(high - low) / 2:.3f} above word vectors" in text
    finetuned = float(page["disan-mini-en", "SICK-E"].split()[0].strip("*")) / 100
    assert f"[{finetuned:.4f}](docs/results.md#fine-tuning)" in text


def test_records_can_be_repeated():
    """Command, commit of a clean tree, versions and seed are there."""
    for path in (*RECORDS, *IN_TABLES):
        run = json.loads(path.read_text())
        assert run["command"].startswith("python run_glue_style.py --task_name "), path
        assert re.fullmatch(r"[0-9a-f]{40}", run["commit"]), f"{path}: recorded on a tree with uncommitted changes"
        assert run["seed"] is not None and run["versions"]["torch"] and run["training"]["seconds"] > 0, path


def test_commands_name_the_records_where_they_lie():
    """All of them: those of the page, of the tables and of trials."""
    assert len(OTHERS) > 100
    for path in (*RECORDS, *IN_TABLES, *OTHERS):
        words = shlex.split(json.loads(path.read_text())["command"])
        assert words[words.index("--results_file") + 1] == path.relative_to(ROOT).as_posix()


def commits(content) -> list[str]:
    """The commits that a record or a report names, wherever they are in it."""
    if isinstance(content, dict):
        found = [value for name, value in content.items() if name.endswith("commit") and value]
        return found + [commit for value in content.values() for commit in commits(value)]
    return [commit for value in content for commit in commits(value)] if isinstance(content, list) else []


def test_nothing_was_recorded_with_uncommitted_changes():
    lines = [json.loads(line) for path in TRIALS.glob("*.jsonl") for line in path.read_text().splitlines()]
    files = [*RECORDS, *IN_TABLES, *OTHERS, *REPORTS.glob("*.json")]
    found = [*map(commits, lines), *(commits(json.loads(path.read_text())) for path in files)]
    assert sum(map(len, found)) > len(files) and not [commit for own in found for commit in own if "dirty" in commit]


def test_the_index_of_trials_names_each():
    rows = (TRIALS / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"\[([\w.]+)\]\(([\w.]+)\)", rows)
    assert all(text == target for text, target in named)
    assert sorted(target for _, target in named) == sorted(
        path.name for path in TRIALS.iterdir() if path.suffix != ".md"
    )


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_model_card_is_made_from_the_record(path):
    card = (ROOT / "model_cards" / f"{path.stem}.md").read_text()
    assert card.strip() == str(make_model_card(json.loads(path.read_text()), location=path.stem)).strip()


def test_recorded_tables_are_complete():
    for folder in FOLDERS:
        _, runs = recorded_table(folder)
        assert sorted(folder.iterdir()) == sorted(run.record_file for run in runs)
        for run in runs:
            made = run.record["experiment"]["row"], run.record["task"]["name"], run.record["seed"]
            assert made == (run.row.name, run.task, run.arguments.seed)


def test_the_page_is_what_the_command_makes_of_the_records():
    """And it has the tables of all folders."""
    assert page.update(PAGE, ROOT / "results") == PAGE
    assert sorted(re.findall(r"\[Records\]\(\.\./results/(\w+)\)", PAGE)) == [folder.name for folder in FOLDERS]


def test_the_command_writes_the_page(tmp_path, capsys):
    """Figures of other records, and in its own column what is bold."""
    file, (start, end) = tmp_path / "page.md", (PAGE.index("## SICK entailment"), PAGE.index("## SST-2"))
    text = PAGE[start:end].replace("85.64", "0.00").replace("| **0.00 ± 0.30** |", "| 0.00 ± 0.30 |")
    assert text.count("0.00 ± 0.30") == 1
    file.write_text(f"# Results\n\n{text}")
    assert page.main(["--page", str(file), "--results", str(ROOT / "results")]) == 0
    assert capsys.readouterr().out == f"{file}: updated\n"
    assert file.read_text() == f"# Results\n\n{PAGE[start:end]}"
    for words, message in (
        (["--page", str(tmp_path / "gone.md")], "gone.md"),
        (["--page", str(file), "--results", str(tmp_path)], "has no records; correct --results"),
    ):
        assert page.main(words) == 2 and message in capsys.readouterr().err


COMPARED = [folder for folder in FOLDERS if folder.name not in ("mtsa_srl", "mtsa_translation", "trec_all_systems")]
"""The folders whose records have predictions that paired tests can be made of."""
OTHER = r" \(([-+.\d]+), ([-+.\d]+) to ([-+.\d]+)(?:, p = ([.\d]+))?\)"
"""What follows the name of a system."""


@pytest.mark.parametrize("folder", COMPARED, ids=lambda folder: folder.name)
def test_bold_figures_are_told_apart(folder):
    """The sentences below a table fit its records, and a figure is bold if and only if its sentence says so."""
    (section,) = [part for part in PAGE.split("\n## ") if f"(../results/{folder.name})" in part]
    sentences = dict(
        re.findall(r"^- (.+?): ((?:.|\n )*? significantly different (?:.|\n )+\.)$", section, re.MULTILINE)
    )
    bold = re.findall(r"\*\*([\d.]+)", "".join(line for line in section.splitlines() if line[:1] == "|"))
    table, runs = recorded_table(folder)
    for column in table.columns:
        if not column.figure.startswith("test_"):
            continue
        sentence = " ".join(sentences.pop(column.name).split())
        first, kind, others = re.fullmatch(
            r"(.+) is (not significantly different from|significantly different from all others,) (.+)\.", sentence
        ).groups()
        found = {}
        for run in runs:
            if run.task == column.task:
                found.setdefault(run.row.name, []).append(run)
        means = {name: mean(column.figure_of(run.record) for run in own) for name, own in found.items()}
        assert first == (min if column.figure in LOWER_IS_BETTER else max)(means, key=means.get)
        alone = kind.startswith("significantly")
        assert (column.text(means[first]) in bold) == alone, column.name
        names = "|".join(map(re.escape, sorted(found, key=len, reverse=True)))
        compared = re.findall(f"({names}){OTHER}", others)
        assert compared
        for name, *numbers in compared:
            difference, low, high = map(float, numbers[:3])
            p = paired_p_value(column.figure, found[first], found[name])
            assert numbers[3] == ("" if p is None else f"{p:.3f}")
            # Folds differ a little in size.
            assert difference == pytest.approx(column.scale * (means[first] - means[name]), abs=column.scale / 5000)
            apart = low * high > 0 and (p is None or p < 0.05)
            assert low <= difference <= high and apart == alone, (column.name, name)
    assert not sentences and len(bold) <= len(table.columns)


@pytest.mark.parametrize("path", [IN_TABLES[0], ROOT / "results" / "sst2" / "disan_sst2_phrases_seed1.json"])
def test_a_record_is_written_as_it_was_read(path, tmp_path):
    """In memory predictions are numbers, in the file one line of text, as in every record so far."""
    record = read_record(path)
    assert {type(number) for number in record["test_predictions"]} == {float}
    write_record(tmp_path / "record.json", record)
    assert (tmp_path / "record.json").read_bytes() == path.read_bytes()
    write_record(tmp_path / "record.json", {"test_predictions": np.array([2003.3049, 1.0], np.float32)})
    assert json.loads((tmp_path / "record.json").read_text()) == {"test_predictions": "2003.305 1"}


def test_a_record_has_the_digest_of_every_file_that_was_read(tmp_path, monkeypatch):
    folder, own = write_trec(tmp_path / "data", train=12, test=6), tmp_path / "own.csv"
    vectors = write_vectors(tmp_path / "vectors.txt", ["who"])
    own.write_text("text,label\n")
    (folder / "trec" / "notes.txt").write_text("not read")
    options = {"task_name": "trec", "encoder": "disan", "output_dir": "out", "word_vectors": str(vectors)}
    found = digests(RunArguments(data_dir=str(folder), test_file=str(own), **options), get_task("trec"))
    (train,) = (folder / "trec").glob("train.*")
    files = {f"trec/{train.name}": train, "own.csv": own, "vectors.txt": vectors}
    assert found == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    files = {"train": "a/x/rows.csv", "validation": "b/x/rows.csv", "test": "c/x/rows.csv"}
    for path in files.values():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(f"text,label\n{path},a\n{path},b\n")
    given = {f"{split}_file": str(tmp_path / path) for split, path in files.items()}
    arguments = RunArguments(encoder="disan", output_dir="out", **given)
    assert sorted(digests(arguments, custom_task(**given))) == ["c/x/rows.csv", "rows.csv", "x/rows.csv"]
    monkeypatch.chdir(tmp_path / "c" / "x")
    assert len(digests(replace(arguments, test_file="rows.csv"), custom_task(**given))) == 3


def test_the_processor_has_a_name():
    named = "model name" in Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else False
    assert processor() and (not named or processor() != platform.machine())
