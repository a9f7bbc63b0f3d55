"""The benchmarks at tiny shapes: what they record and refuse, never how fast anything is."""

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from benchmarks import command, compare, crossovers, report, run, targets
from benchmarks.measure import Case, Setting, clock, peak_mib, resident_peak
from benchmarks.operators import OPERATORS, Operator
from benchmarks.shapes import HALF_LENGTH, SELECTIONS, TARGETS
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


@pytest.mark.slow  # the first process imports torch and the package again
def test_peak_memory_of_fresh_processes():
    # Training keeps at least the gradients of the weights, 722400 numbers in each direction of an LSTM.
    assert peak_mib("lstm", 2, 8, "forward+backward", SETTING) > 2 * 722400 * 4 / 2**20


def test_every_operator_maps_two_directions(monkeypatch):
    options = []
    monkeypatch.setattr(torch, "compile", lambda module, **how: options.append(how) or module)
    assert {f"disa-{name}" for name in IMPLEMENTATIONS if name != "auto"} <= OPERATORS.keys()
    for name, operator in OPERATORS.items():
        if operator.device != "cuda":
            output, *gradients = Case(operator, 1, 5, SETTING).gradients()
            assert output.shape == (1, 5, 600), name
            assert all(torch.isfinite(gradient).all() for gradient in gradients), name
    assert options == [{"dynamic": False, "fullgraph": True}]


@pytest.mark.slow  # inductor compiles two passes
def test_the_compiled_textbook_form_is_the_textbook_form():
    compiled, eager = (Case(OPERATORS[name], 1, 6, SETTING) for name in ("disa-compiled", "disa-eager"))
    torch.testing.assert_close(compiled.forward(), eager.forward())
    torch.testing.assert_close(compiled.gradients(), eager.gradients())


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


def test_an_operator_that_raises_is_refused(tmp_path, monkeypatch):
    def build(length, size):
        raise RuntimeError("no kernel for this machine")

    monkeypatch.setitem(OPERATORS, "broken", Operator("Broken", build, checked=True))
    rows = measured(tmp_path / "broken.json", "--shapes", "1x3", "--operators", "broken")["rows"]
    assert all(row["refused"].startswith("RuntimeError at 2x3") and "no kernel" in row["refused"] for row in rows)
    assert report.main([str(tmp_path / "broken.json")]) == 0  # without a single time


def test_the_textbook_form_is_left_out_where_it_is_too_large():
    for eager in (OPERATORS["disa-eager"], OPERATORS["disa-compiled"]):
        assert eager.too_large(64, 64, "forward+backward") is None
        assert "the limit is 6 GiB" in eager.too_large(8, 384, "forward+backward")
    assert OPERATORS["disa"].too_large(2, 4096, "forward+backward") is None


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


def test_memory_is_added_to_times(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run, "peak_mib", lambda *arguments: 1.5)
    path = tmp_path / "both.json"
    options = ("--shapes", "1x3", "--operators", "convolution", "--passes", "forward", "--resume")
    times = measured(path, *options)
    both = measured(path, *options, "--no-times", "--memory", "--repeats", "7")
    assert "peak_mib" not in times["rows"][0] and both["rows"] == [{**times["rows"][0], "peak_mib": 1.5}]
    # The header still describes how the times were measured, and lists both commands.
    head = both["header"]
    assert head["repeats"] == 1
    assert head["command"].startswith(times["header"]["command"] + "\n") and "--no-times" in head["command"]
    assert run.main(["--output", str(path), "--no_memory", *options, "--threads", "1", "--repeats", "3"]) == 2
    assert "made with repeats 1, now it is 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shapes", "64by16"), "--shapes 64by16: give targets, cuda, sweep or batch x length"),
        (("--operators", "disa,warp"), "--operators warp: there is no such choice; choose from disa,"),
        (("--without", "warp"), "--without warp: there is no such choice"),
        (("--passes", "backward"), "--passes backward"),
        (("--repeats", "0"), "--repeats 0: give at least 1"),
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


def test_targets_are_met_or_missed():
    times = [rows_at(shape, disa={"median_ms": 9.0}, multihead={"median_ms": 10.0}) for shape in TARGETS]
    times += [rows_at(shape, mtsa_2={"median_ms": 13.0}) for shape in TARGETS]
    times += [rows_at(shape, mtsa_8={"refused": "wrong"}) for shape in TARGETS]
    times += [rows_at((8, 384), "forward+backward", disa={"peak_mib": 50.0}, lstm={"peak_mib": 40.0})]
    times += [rows_at(HALF_LENGTH, "forward+backward", disa={"peak_mib": 20.0})]
    rows = [row for group in times for row in group]
    table = targets.targets_table({"header": {"device": "cpu", "dtype": "float32"}, "rows": rows}).splitlines()

    def line(start):
        return next(line for line in table if line.startswith(f"| {start}"))

    assert line("DiSA / nn.MultiheadAttention | forward | 1 |").endswith("2x4096: 0.9 | met |")
    assert line("DiSA / nn.MultiheadAttention | forward+backward").endswith("| **not measured** |")
    assert line("MTSA, 2 heads").endswith("2x4096: **1.3** | **missed** |")
    assert line("MTSA, 8 heads").endswith("2x4096: refused | **refused** |")
    assert line("peak memory, DiSA / nn.LSTM").endswith("8x384: 1.25 | met |")
    assert line("peak memory, DiSA / at half").endswith("8x384: **2.5** | **missed** |")
    assert "no targets" in targets.targets_table({"header": {"device": "cpu", "dtype": "bfloat16"}, "rows": rows})


def test_targets_name_what_is_measured():
    for target in (*targets.ON_CPU, *targets.ON_CUDA):
        assert {target.above, target.below} <= OPERATORS.keys()
        assert set(target.shapes) <= set(SELECTIONS["targets" if target.device == "cpu" else "cuda"])


@pytest.mark.parametrize("path", sorted(REPORTS.glob("*.md")), ids=lambda path: path.stem)
def test_the_reports_are_what_the_writer_makes_of_their_figures(path, tmp_path):
    if path.name.endswith(".remarks.md"):
        return
    for name in (f"{path.stem}.json", f"{path.stem}.remarks.md"):
        if (REPORTS / name).exists():
            shutil.copy(REPORTS / name, tmp_path)
    assert report.main([str(tmp_path / f"{path.stem}.json")]) == 0
    assert (tmp_path / path.name).read_text() == path.read_text()


def test_what_is_no_report_is_refused(tmp_path, capsys):
    for text in ("[]", "{", '{"header": {"command": "python -m other.program"}}'):
        (tmp_path / "x.json").write_text(text)
        assert report.main([str(tmp_path / "x.json")]) == 2
        error = capsys.readouterr().err
        assert "x.json is not a report of these benchmarks; give a JSON file that one wrote" in error


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

    class Side:
        def __init__(self, checkout, shape, setting):
            self.checkout, self.shape, self.setting = checkout, shape, Setting(**setting)

        def sample(self, operator, pass_):
            turns.append(self.checkout)
            return clock(Case(OPERATORS[operator], *self.shape, self.setting).call(pass_), 1, "cpu")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    other = tmp_path / "other"
    (other / "hf_blosan").mkdir(parents=True)
    (other / "hf_blosan" / "__init__.py").touch()
    monkeypatch.setattr(compare, "Side", Side)
    monkeypatch.setattr(compare, "commit_of", lambda checkout: command.surroundings()["commit"])
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


def test_a_comparison_meets_or_misses_its_targets():
    cells = [compare.cell(*([ms] for ms in pair)) for pair in ((4.0, 2.0), (1.0, 2.0))]
    assert [cell["ratio"] for cell in cells] == [0.5, 2.0]
    found = compare.verdicts(cells)
    assert found["geometric mean"] == {"measured": pytest.approx(1.0), "limit": 1.0, "result": "met"}
    assert found["largest ratio"] == {"measured": 2.0, "limit": 1.1, "result": "missed"}
    rows = [
        {"operator": name, "pass": "forward", "batch": 1, "length": 3, **cell}
        for name, cell in zip(("disa", "biblosa"), cells, strict=True)
    ]
    head = {**command.surroundings(), "device": "cpu", "dtype": "float32", "threads": 1, "seed": 42}
    head |= {"repeats": 1, "old_commit": None, "command": "python"}
    text = compare.markdown({"header": head, "rows": rows, "targets": found})
    assert "| DiSA | forward | 0.5 (0.5) |" in text and "| Bi-BloSA | forward | **2** (2) |" in text
    assert "- Commit of the old version: unknown" in text and "at most 1.1: missed" in text


def test_compare_needs_a_checkout(tmp_path, capsys):
    assert compare.main(["--old", str(tmp_path), "--output", str(tmp_path / "x.json")]) == 2
    assert f"error: --old {tmp_path}: there is no hf_blosan in this folder" in capsys.readouterr().err


@pytest.mark.skipif(not has_cpu_kernels(), reason="compares forms of the compiled kernels")
def test_crossovers_from_command_to_record(tmp_path, monkeypatch):
    monkeypatch.setattr(crossovers, "LENGTHS", (32, 40))
    monkeypatch.setattr(crossovers, "TOKENS", 32)
    assert crossovers.main(["--output", str(tmp_path / "x.json"), "--repeats", "1"]) == 0
    content = json.loads((tmp_path / "x.json").read_text())
    assert content["command"].startswith("python -m benchmarks.crossovers") and len(content["rows"]) == 7
    for row in content["rows"]:
        assert row["ratios"].keys() == {"32", "40"} and row["from"].keys() == {"forward", "backward"}
