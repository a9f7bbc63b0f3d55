"""Training with --push_to_hub: what is on the Hub after each commit, and what happens when the Hub is not well."""

import json
import logging
import socket

import pytest
from huggingface_hub import ModelCard, constants
from loopback_hub import TOKEN, LoopbackHub, problems
from small_data import TINY, options, pair_rows, write_splits

from hf_blosan.errors import InputError
from hf_blosan.hub.upload import NOT_UPLOADED
from hf_blosan.models.pretrained import code_in
from hf_blosan.training import main, train

CODE = 12
ALWAYS = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", ".gitignore", "log.jsonl"}
ALWAYS |= {"modules.json", "sentence_bert_config.json"}
AT_THE_END = ALWAYS | {"README.md", "all_results.json", "predict_results_custom.txt"}


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with LoopbackHub() as running:
        running.use_here(monkeypatch, tmp_path / "cache")
        yield running


def push(folder, data, **changes):
    return train(options(folder, data, push_to_hub=True, **changes))


def warnings_of(caplog) -> list[str]:
    return [entry.getMessage() for entry in caplog.records if entry.name == "hf_blosan.hub.upload"]


def test_every_commit_is_a_model_with_its_card(hub, tmp_path, questions):
    (tmp_path / "out" / "checkpoint-500").mkdir(parents=True)
    for unfinished in ("checkpoint-500/model.safetensors", ".vectors.npy.partial", ".vectors.npy.partial.json"):
        (tmp_path / "out" / unfinished).touch()
    (tmp_path / "out" / ".gitignore").write_text("mine\n.lock")
    push(tmp_path / "out", questions, hub_model_id="tiny", hub_token=TOKEN, checkpointing_steps="epoch")
    repo = hub.repos["me/tiny"]
    assert not repo.private
    assert repo.messages == ["Training in progress epoch 0", "Training in progress epoch 1", "End of training"]
    for _, files in repo.commits[1:]:
        assert len([name for name in files if name.endswith(".py")]) == CODE and not problems(
            files["README.md"].decode()
        )
        card = ModelCard(files["README.md"].decode())
        assert card.data.license is None and card.data.eval_results[0].metric_name == "validation accuracy"
        assert 'model="me/tiny"' in card.text and "`train.jsonl` (train)" in card.text
    first, last = repo.commits[1][1], repo.commits[-1][1]
    assert {name for name in first if not name.endswith(".py")} == ALWAYS | {"README.md"}
    assert {name for name in last if not name.endswith(".py")} == AT_THE_END
    added = [pattern for pattern in NOT_UPLOADED if pattern != ".lock"]
    assert last[".gitignore"].decode().splitlines() == ["mine", ".lock", *added]
    assert b"Training continues" in first["README.md"] and b"Training continues" not in last["README.md"]
    for name, content in last.items():
        assert TOKEN.encode() not in content and str(tmp_path).encode() not in content, name
    assert (tmp_path / "out" / "epoch_0").is_dir() and last == {
        path.name: path.read_bytes()
        for path in (tmp_path / "out").iterdir()
        if path.is_file() and ".partial" not in path.name
    }


def test_a_second_run_leaves_nothing_stale(hub, tmp_path, questions):
    """Another encoder and another task, in the same folder and repository; files of others stay."""
    once = {"hub_model_id": "me/twice", "num_train_epochs": 1}
    push(tmp_path / "out", questions, **once)
    repo, stale_head = hub.repos["me/twice"], {"modeling_disan_regression.py": b"3", "onnx/model.onnx": b"4"}
    (tmp_path / "out" / "onnx").mkdir()
    (tmp_path / "out" / "onnx" / "model_quantized.onnx").write_bytes(b"4")
    repo.commits.append(("by hand", repo.files | {"photo.png": b"1", "notes.md": b"2"} | stale_head))
    scores = write_splits(tmp_path / "scores", pair_rows)
    hub.fail("POST /api/models/me/twice/commit", times=1, with_status=400)  # of the first epoch
    data = {name: path for name, path in scores.items() if name != "test_file"} | {"num_folds": 0}
    push(
        tmp_path / "out",
        data,
        encoder="mtsa",
        config_overrides=f"{TINY},num_heads=2".replace(",dropout=0.3", ""),
        **once,
    )
    code = {path.name for path in code_in(tmp_path / "out")}
    assert "layers_mtsa.py" in code and "modeling_disan.py" not in code
    stale = {"predict_results_custom.txt"}
    assert {path.name for path in (tmp_path / "out").rglob("*")} - {"onnx"} == AT_THE_END - stale | code
    assert set(repo.files) == AT_THE_END - stale | code | {"photo.png", "notes.md"}
    assert "MTSA" in repo.text("README.md") and "DiSAN" not in repo.text("README.md")


def test_xet_storage(hub, tmp_path, questions, monkeypatch, caplog):
    """Where hf_xet is installed the client uses that; its errors are others. A private one, named as the folder."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    monkeypatch.setenv("HF_XET_CACHE", str(tmp_path / "xet"))
    hub.fail("GET /api/models/me/tiny/xet-write-token", with_status=404)
    push(tmp_path / "tiny", questions, hub_private_repo=True)
    (warning,) = warnings_of(caplog)
    assert warning.startswith("upload to me/tiny failed (") and "404" in warning
    repo = hub.repos["me/tiny"]
    assert repo.private and repo.messages == ["Training in progress epoch 1", "End of training"]
    assert repo.files["model.safetensors"] == (tmp_path / "tiny" / "model.safetensors").read_bytes()
    assert hub.seen("POST /v1/shards") and not hub.seen("lfs")


@pytest.mark.parametrize(
    "with_status", [pytest.param(500, marks=pytest.mark.slow), None], ids=["server error", "dropped connection"]
)
def test_training_goes_on_when_an_upload_fails(hub, tmp_path, questions, caplog, with_status):
    """One warning for each epoch whose upload fails; the end tries again."""
    hub.fail("PUT /lfs/", with_status=with_status)  # the client itself tries again
    hub.fail("POST /api/validate-yaml", times=2, with_status=with_status)  # of the first epoch, then of the second
    hub.fail("POST /api/models/me/tiny/preupload", times=6, with_status=with_status)  # the end's first attempt
    with caplog.at_level(logging.WARNING):
        run = push(tmp_path / "out", questions, hub_model_id="tiny")
    assert run["training"]["epochs"] == 2
    during, at_the_end = warnings_of(caplog)[:2], warnings_of(caplog)[2:]
    assert all(
        line.startswith("upload to me/tiny failed (") and line.endswith("training continues") for line in during
    )
    assert len(at_the_end) == 1 and at_the_end[0].endswith("; trying again")
    assert not any("\n" in line for line in warnings_of(caplog))
    repo = hub.repos["me/tiny"]
    assert repo.messages == ["End of training"]
    assert repo.files["model.safetensors"] == (tmp_path / "out" / "model.safetensors").read_bytes()


def test_failure_at_the_end_is_one_error_after_everything_is_saved(hub, tmp_path, questions, capsys):
    files = [word for name, path in questions.items() for word in (f"--{name}", path)]
    small = ["--encoder", "disan", "--config_overrides", TINY, "--num_train_epochs", "1", "--cpu"]
    hub.fail("POST /api/models/me/tiny/commit", times=1000)
    output = tmp_path / "out"
    assert main([*files, *small, "--output_dir", str(output), "--push_to_hub", "--hub_model_id", "tiny"]) == 2
    shown = capsys.readouterr()
    (error,) = [line for line in shown.err.splitlines() if line.startswith("error: ")]
    assert error == shown.err.splitlines()[-1] and "Traceback" not in shown.err
    assert error.startswith("error: the upload to me/tiny failed (the server has a bad day); everything is saved in ")
    assert f"`hf-blosan push {output} --hub_model_id me/tiny`" in error
    assert {path.name for path in output.iterdir() if path.suffix != ".py"} == AT_THE_END
    assert "best model after" in shown.out and json.loads((output / "all_results.json").read_text())
    noise = [line for line in shown.err.splitlines() if "httpx" in line or "HTTP" in line or "huggingface_hub" in line]
    assert not noise


class TestBeforeTraining:
    def refused(self, tmp_path, questions, **changes) -> str:
        with pytest.raises(InputError) as caught:
            push(tmp_path / "out", questions, **changes)
        assert not (tmp_path / "out" / "model.safetensors").exists() and "\n" not in str(caught.value)
        return str(caught.value)

    def test_the_hub_refuses(self, hub, tmp_path, questions):
        message = self.refused(tmp_path, questions, hub_token="hf_wrong")
        assert message.startswith("the Hub rejects the repository 'out' (Invalid username or password.); check")
        message = self.refused(tmp_path, questions, hub_model_id="others/x")
        assert "You don't have the rights to create a model" in message and message.endswith("and --hub_token")
        assert "'a--b'" in self.refused(tmp_path, questions, hub_model_id="a--b")
        assert not hub.repos

    def test_the_hub_cannot_be_reached(self, hub, tmp_path, questions, monkeypatch):
        remedy = "; check the connection and HF_HUB_OFFLINE, or do not push"
        for with_status, said in ((503, "the server has a bad day"), (None, "")):
            hub.fail("POST /api/repos/create", with_status=with_status)
            message = self.refused(tmp_path, questions)
            assert message.startswith(f"the Hub at {hub.url} cannot be reached ({said}") and message.endswith(remedy)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
            message = self.refused(tmp_path, questions)
            assert "cannot be reached" in message and message.endswith(remedy)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        assert "offline mode is enabled" in self.refused(tmp_path, questions)
