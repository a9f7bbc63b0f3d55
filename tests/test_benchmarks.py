"""The benchmarks at tiny shapes: what they record and refuse, never how fast anything is."""

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from benchmarks import command, compare, crossovers, report, run
from benchmarks.measure import Case, Setting, clock, resident_peak
from benchmarks.operators import OPERATORS, PASSES, Operator
from hf_blosan import kernels
from hf_blosan.functional import IMPLEMENTATIONS
from hf_blosan.kernels.library import has_cpu_kernels

SETTING = Setting(threads=1)
REPORTS = compare.NEW / "benchmarks" / "reports"


def measured(path, *options):
    """The report of a short run."""
    assert run.main(["--output", str(path), "--threads", "1", "--repeats", "1", "--no-memory", *options]) == 0
    return json.loads(path.read_text())


class Scaled(nn.Module):
    """A linear layer whose fast form is wrong by a factor."""

    implementation = "auto"

    def __init__(self, factor):
        super().__init__()
        self.map, self.factor = nn.Linear(300, 300), factor

    def forward(self, hidden, mask):
        return self.map(hidden) * (1.0 if self.implementation == "eager" else self.factor)


@pytest.fixture
def in_process(monkeypatch):
    """Peak memory is measured in this process: a fresh one imports torch for seconds."""
    monkeypatch.setattr(run, "peak_mib", resident_peak)


def test_run_from_command_to_report(tmp_path, in_process):
    path = tmp_path / "tiny.json"
    arguments = ["--output", str(path), "--shapes", "2x8", "--operators", "disa,lstm,gru", "--without", "gru"]
    assert run.main([*arguments, "--threads", "1", "--repeats", "2"]) == 0
    content = json.loads(path.read_text())
    head = content["header"]
    assert head["threads"] == 1 and head["seed"] == 42 and head["dtype"] == "float32" and head["device"] == "cpu"
    assert head["hardware"]["cpu"] and head["hardware"]["cores"] and head["hardware"]["memory_gib"] > 0
    assert torch.__version__.startswith(head["versions"]["torch"]) and {"commit", "date", "rule"} <= head.keys()
    assert head["instruction_set"] == kernels.instruction_set()
    assert head["command"].startswith("python -m benchmarks.run --output")
    identity = [(row["operator"], row["batch"], row["length"], row["pass"]) for row in content["rows"]]
    assert identity == [(name, 2, 8, pass_) for pass_ in ("forward", "forward+backward") for name in ("disa", "lstm")]
    for row in content["rows"]:
        assert 0 < row["min_ms"] <= row["lower_quartile_ms"] <= row["median_ms"] <= row["upper_quartile_ms"]
        assert "peak_mib" in row

    assert report.main([str(path)]) == 0
    text = (tmp_path / "tiny.md").read_text()
    assert head["command"] in text and "| 2x8 | nn.LSTM, bidirectional | " in text and "## Targets" in text
    assert sorted(file.name for file in tmp_path.iterdir()) == ["tiny.json", "tiny.md"]


def test_every_operator_maps_two_directions(monkeypatch):
    options = []
    monkeypatch.setattr(torch, "compile", lambda module, **how: options.append(how) or module)
    assert {f"disa-{name}" for name in IMPLEMENTATIONS if name != "auto"} <= OPERATORS.keys()
    for name, operator in OPERATORS.items():
        if operator.device != "cuda":
            case = Case(operator, 1, 5, SETTING)
            output, *gradients = case.gradients() if operator.passes == PASSES else [case.forward()]
            assert output.shape == (1, 5, 320 if name.startswith("stack") else 600), name
            assert all(torch.isfinite(gradient).all() for gradient in gradients), name
    assert options == [{"dynamic": False, "fullgraph": True}]


@pytest.mark.slow  # inductor compiles two passes
def test_the_compiled_textbook_form_is_the_textbook_form():
    compiled, eager = (Case(OPERATORS[name], 1, 6, SETTING) for name in ("disa-compiled", "disa-eager"))
    torch.testing.assert_close(compiled.forward(), eager.forward())
    torch.testing.assert_close(compiled.gradients(), eager.gradients())


def test_a_report_of_a_gpu_shows_kernels():
    figures = {"median_ms": 2.0, "lower_quartile_ms": 1.0, "upper_quartile_ms": 3.0}
    rows = [{"batch": 1, "length": 2, "pass": pass_, "operator": "multihead", **figures} for pass_ in PASSES]
    plain = run.full_table(rows)
    rows[0] |= {"kernels": 7, "kernels_ms": 0.36}
    shape, _, *cells = [cell.strip() for cell in run.full_table(rows).splitlines()[-1].strip("|").split("|")]
    assert shape == "1x2" and cells == ["2 (1 to 3)", "1.00", "", "7 in 0.36 ms", "2 (1 to 3)", "1.00", "", ""]
    assert "kernels" not in plain and "forward+backward kernels" in run.full_table(rows)


def test_equal_operators_have_equal_weights_and_inputs():
    first, second = (Case(OPERATORS[name], 1, 6, SETTING) for name in ("disa", "disa-eager"))
    assert torch.equal(first.hidden, second.hidden)
    for a, b in zip(first.module.parameters(), second.module.parameters(), strict=True):
        assert torch.equal(a, b)
    torch.testing.assert_close(first.forward(), second.forward())


@pytest.mark.parametrize("factor", [1.0, 1.0001, torch.nan])
def test_a_wrong_operator_has_no_speed(factor, tmp_path, monkeypatch):
    monkeypatch.setitem(OPERATORS, "scaled", Operator("Scaled", lambda length, size: Scaled(factor), checked=True))
    options = ("--shapes", "2x4", "--operators", "convolution,scaled", "--passes", "forward")
    peer, scaled = measured(tmp_path / "scaled.json", *options)["rows"]
    assert "median_ms" in peer and ("median_ms" in scaled) == (factor == 1)
    if factor != 1:
        assert scaled["refused"].endswith("times the allowed error")
        report.main([str(tmp_path / "scaled.json")])
        assert f"Scaled: refused, {scaled['refused']}" in (tmp_path / "scaled.md").read_text()


def test_resume_measures_what_is_missing(tmp_path, capsys):
    path = tmp_path / "resumed.json"
    options = ("--operators", "convolution", "--passes", "forward", "--resume")
    first = measured(path, "--shapes", "1x3", *options)["rows"]
    both = measured(path, "--shapes", "1x3,1x4", *options)["rows"]
    assert both[0] == first[0] and [row["length"] for row in both] == [3, 4]
    more = measured(path, "--shapes", "1x3", "--operators", "gru", *options[2:])["rows"]
    assert [(row["operator"], row["length"]) for row in more] == [("convolution", 4), ("gru", 3), ("convolution", 3)]
    assert (
        run.main(["--output", str(path), "--no_memory", *options, "--threads", "1", "--repeats", "1", "--seed", "7"])
        == 2
    )
    assert "made with seed 42, now it is 7; give another --output" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shapes", "64by16"), "--shapes 64by16: give targets, cuda, sweep or batch x length"),
        (("--operators", "disa,warp"), "--operators warp: there is no such choice; choose from disa,"),
        (("--without", "warp"), "--without warp: there is no such choice"),
        (("--passes", "backward"), "--passes backward"),
        (("--repeats", "0"), "--repeats is 0; it must be more than 0"),
        (("--no-times", "--no-memory"), "--no_times --no_memory: nothing is left to measure"),
    ],
)
def test_bad_options_get_one_sentence(options, message, tmp_path, capsys):
    assert run.main(["--output", str(tmp_path / "x.json"), *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def rows_at(shape, pass_="forward", **figures):
    batch, length = shape
    names = {name.replace("_", "-"): value for name, value in figures.items()}
    return [{"operator": name, "batch": batch, "length": length, "pass": pass_, **row} for name, row in names.items()]


@pytest.mark.parametrize("path", sorted(REPORTS.glob("*.md")), ids=lambda path: path.stem)
def test_the_reports_are_what_the_writer_makes_of_their_figures(path, tmp_path):
    if path.name.endswith(".remarks.md"):
        return
    for name in (f"{path.stem}.json", f"{path.stem}.remarks.md"):
        if (REPORTS / name).exists():
            shutil.copy(REPORTS / name, tmp_path)
    assert report.main([str(tmp_path / f"{path.stem}.json")]) == 0
    assert (tmp_path / path.name).read_text() == path.read_text()


def check_comparison(path, old, shapes, rounds, *others):
    """Compare forward passes at tiny shapes, and check the report."""
    options = ["--shapes", ",".join(f"{B}x{N}" for B, N in shapes), "--passes", "forward"]
    options += others or ["--rounds", str(rounds)]
    options += ["--old", str(old), "--output", str(path), "--threads", "1", "--repeats", "2"]
    assert compare.main(options) == 0
    content = json.loads(path.read_text())
    head = content["header"]
    assert head["commit"] == head["old_commit"] and head["command"].startswith("python -m benchmarks.compare --")
    assert head["threads"] == 1 and head["hardware"]["cpu"] and head["versions"]["torch"]
    identity = [(row["batch"], row["length"], row["operator"], row["pass"]) for row in content["rows"]]
    assert identity == [(*shape, name, "forward") for shape in shapes for name in compare.COMPARED]
    for row in content["rows"]:
        ratios = [new / old for new, old in zip(row["new_ms"], row["old_ms"], strict=True)]
        assert len(ratios) == 2 * rounds and row["ratio"] == pytest.approx(statistics.median(ratios), rel=0.02)
        assert row["ratio_of_minima"] == pytest.approx(min(row["new_ms"]) / min(row["old_ms"]), rel=0.02)
    text = path.with_suffix(".md").read_text()
    assert "| layer | pass | 1x3 |" in text and text.count("| MTSA, 8 heads | forward | ") == 1
    assert "- geometric mean: " in text and head["command"] in text and f"- Commit: {head['commit']}" in text


def test_two_versions_take_turns(tmp_path, monkeypatch, capsys):
    turns = []

    @cache
    def call(operator, shape, setting, pass_):
        return Case(OPERATORS[operator], *shape, setting).call(pass_)

    class Side:
        def __init__(self, checkout, shape, setting):
            self.checkout, self.shape, self.setting = checkout, shape, Setting(**setting)

        def sample(self, operator, pass_):
            turns.append(self.checkout)
            return clock(call(operator, self.shape, self.setting, pass_), 1, "cpu")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    other = tmp_path / "other"
    (other / "hf_blosan").mkdir(parents=True)
    (other / "hf_blosan" / "__init__.py").touch()
    monkeypatch.setattr(compare, "Side", Side)
    monkeypatch.setattr(compare, "git_commit", lambda file: command.surroundings()["commit"])
    check_comparison(tmp_path / "x.json", other, [(1, 3), (2, 4)], rounds=2)
    pairs = [(other, compare.NEW), (compare.NEW, other), (other, compare.NEW)]
    assert turns == [side for pair in pairs for side in pair] * len(compare.COMPARED) * 4
    assert "largest ratio: " in capsys.readouterr().out
    monkeypatch.setattr(compare, "time", SimpleNamespace(monotonic=itertools.count(step=40).__next__))
    check_comparison(tmp_path / "x.json", other, [(1, 3), (2, 4)], 3, "--rounds", "1", "--seconds", "100")
    assert "| pairs of processes |  | 3 | 3 |" in (tmp_path / "x.md").read_text()


@pytest.mark.slow  # two processes import torch and the package
def test_compare_a_checkout_with_itself(tmp_path):
    check_comparison(tmp_path / "x.json", compare.NEW, [(1, 3)], rounds=1)


def test_a_comparison_refuses_another_hf_blosan(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(compare.NEW)}
    command = [sys.executable, str(compare.NEW / "benchmarks" / "one_side.py"), str(tmp_path), "{}"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 1 and f"not from {tmp_path}" in done.stderr
    with (
        compare.Side(tmp_path, (1, 3), {}) as side,
        pytest.raises(RuntimeError, match=f"measures {tmp_path} has ended"),
    ):
        side.sample("disa", "forward")


def test_compare_needs_a_checkout(tmp_path, capsys):
    assert compare.main(["--old", str(tmp_path), "--output", str(tmp_path / "x.json")]) == 2
    assert f"error: --old {tmp_path}: there is no hf_blosan in this folder" in capsys.readouterr().err


@pytest.mark.skipif(not has_cpu_kernels(), reason="compares forms of the compiled kernels")
def test_crossovers_from_command_to_record(tmp_path, monkeypatch):
    monkeypatch.setattr(crossovers, "LENGTHS", (32, 40))
    monkeypatch.setattr(crossovers, "TOKENS", 32)
    assert crossovers.main(["--output", str(tmp_path / "x.json"), "--repeats", "1"]) == 0
    content = json.loads((tmp_path / "x.json").read_text())
    assert content["header"]["command"].startswith("python -m benchmarks.crossovers") and len(content["rows"]) == 7
    for row in content["rows"]:
        assert row["ratios"].keys() == {"32", "40"} and row["from"].keys() == {"forward", "backward"}
