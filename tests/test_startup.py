"""The start-up benchmark: what it records and refuses, never how fast anything is."""

import json

import pytest

from benchmarks import startup


@pytest.mark.slow
def test_startup_from_command_to_figures(tmp_path, capsys):
    path = tmp_path / "startup.json"
    options = ("--models", "disan", "--batch", "2", "--length", "5", "--threads", "1", "--repeats", "1")
    assert startup.main(["--output", str(path), *options]) == 0
    report = json.loads(path.read_text())
    assert report["header"]["hardware"]["cpu"] and report["header"]["threads"] == 1
    assert report["header"]["command"].startswith("python -m benchmarks.startup --output")
    assert [row["import"] for row in report["imports"]] == ["transformers", "hf_blosan"]
    identity = [(row["model"], row["pass"], row["call"]) for row in report["first_calls"]]
    assert identity == [("disan", name, call) for name in ("forward", "backward") for call in ("first", "second")]
    for row in report["imports"] + report["first_calls"]:
        assert 0 < row["min_s"] <= row["median_s"] <= row["max_s"] and row["samples"] == 1
    assert len(report["targets"]) == 3 and capsys.readouterr().out.count("at most") == 3


def test_targets_are_met_or_missed():
    imports = [{"median_s": 2.0}, {"median_s": 2.5}]
    seconds = {("forward", "first"): 0.5, ("forward", "second"): 0.25}
    calls = [{"model": "mtsa", "pass": name, "call": call, "median_s": s} for (name, call), s in seconds.items()]
    ratio, forward = startup.targets({"imports": imports, "first_calls": calls})
    assert ratio["is"] == 1.25 and not ratio["met"] and forward["is"] == 0.25 and forward["met"]


def test_a_process_that_fails_is_shown():
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        startup.fresh_process("1 / 0")


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--models", "bert"), "--models bert: there is no such choice"), (("--repeats", "0"), "give at least 1")],
)
def test_bad_options_get_one_sentence(options, message, tmp_path, capsys):
    assert startup.main(["--output", str(tmp_path / "x.json"), *options]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())
