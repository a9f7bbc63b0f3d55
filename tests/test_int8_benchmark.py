"""The benchmark of models in fewer bits: what it records and refuses, never how fast anything is."""

import json
from importlib.util import find_spec

import pytest

from benchmarks import int8
from hf_blosan.training import RunArguments, train


@pytest.mark.slow  # trains a model
@pytest.mark.skipif(not find_spec("torchao"), reason="needs torchao; pip install hf_blosan[quantization]")
@pytest.mark.filterwarnings("ignore:.*quantize_dynamic", "ignore:torch.ao.quantization is deprecated")
def test_from_a_trained_model_to_figures(tmp_path):
    options = {"task_name": "demo", "encoder": "mtsa", "max_train_steps": 20, "max_eval_samples": 100, "cpu": True}
    train(RunArguments(**options, output_dir=str(tmp_path / "run")))
    path = tmp_path / "int8.json"
    assert int8.main(["--run", f"demo={tmp_path / 'run'}", "--output", str(path), "--repeats", "1"]) == 0
    report = json.loads(path.read_text())
    assert report["header"]["command"].startswith("python -m benchmarks.int8 --run demo=")
    assert [row["form"] for row in report["rows"]] == list(int8.FORMS)
    base, *others = report["rows"]
    assert base["speed"] == 1 and base["changed_predictions"] == 0
    for row in others:
        assert row["megabytes"] < base["megabytes"] and row["speed"] > 0
        assert 0 <= row["changed_predictions"] < 0.1 and row["figures"].keys() == base["figures"].keys()
        assert f"| demo | {row['form']} | {row['megabytes']} |" in path.with_suffix(".md").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--run", "trec=nowhere"), "there is no saved model"), (("--run", "trec=.", "--repeats", "0"), "more than 0")],
)
def test_bad_options_get_one_sentence(options, message, tmp_path, capsys):
    assert int8.main([*options, "--output", str(tmp_path / "x.json")]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())
