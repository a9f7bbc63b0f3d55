"""The demo, cut short."""

import runpy
import sys
from functools import partial
from pathlib import Path

from hf_blosan.data import make_demo_corpus

DEMO = Path(__file__).resolve().parents[1] / "examples" / "demo.py"


def test_demo_runs_from_training_to_prediction(tmp_path, monkeypatch, capsys):
    """On a third of the corpus."""
    small = partial(make_demo_corpus, size=1_800)
    monkeypatch.setattr("hf_blosan.data.make_demo_corpus", small)
    monkeypatch.setattr("hf_blosan.data.loading.make_demo_corpus", small)
    arguments = ["demo.py", "--output_dir", str(tmp_path), "--num_train_epochs", "1"]
    monkeypatch.setattr(sys, "argv", arguments)
    runpy.run_path(str(DEMO), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    accuracies = [float(line.split()[-1]) for line in lines if line.startswith(("  with order masks", "  without"))]
    assert len(accuracies) == 2 and 0.4 < accuracies[1] <= 0.51  # the words alone are worth 0.5 at best
    answers = [line.rsplit(": ", 1)[1].split()[0] for line in lines if " / " in line]
    assert len(answers) == 8 and set(answers) <= {"entailment", "neutral", "contradiction"}
    for folder in ("with_order_masks", "without"):
        assert (tmp_path / folder / "README.md").is_file()
