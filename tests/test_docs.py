"""The how-tos in docs/ hold: what they print makes an encoder and a task, and what they name is there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_data import WORDS, question_rows, write_rows

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
READABLE = [*DOCS, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "hf_blosan" / "kernels" / "README.md"]

USE = """
import sys
from pathlib import Path
import torch
import hf_blosan
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification
from hf_blosan.training import main

folder = Path(sys.argv[1])
assert Path(hf_blosan.__file__).is_relative_to(folder), hf_blosan.__file__
config = AutoConfig.for_model("toy", vocab_size=9, embedding_size=4, hidden_size=8)
model = AutoModel.from_config(config).eval()
assert type(model) is hf_blosan.ToyModel
ids = torch.tensor([[3, 4, 5]])
padded = torch.cat([ids, torch.full((1, 2), config.pad_token_id)], dim=1)
torch.testing.assert_close(model(ids).pooler_output, model(padded).pooler_output)

assert main(sys.argv[2:]) == 0
trained = AutoModelForSequenceClassification.from_pretrained(folder / "out").eval()
assert type(trained) is hf_blosan.ToyForSequenceClassification and trained.config.id2label == {0: "bad", 1: "good"}
trained.save_pretrained(folder / "again")
assert (folder / "out" / "modeling_toy.py").exists() and (folder / "again" / "modeling_toy.py").exists()
assert trained.config.auto_map["AutoModel"] == "modeling_toy.ToyModel"
again = AutoModelForSequenceClassification.from_pretrained(folder / "again").eval()
assert torch.equal(trained(ids).logits, again(ids).logits)
"""


def blocks(page: str, language: str) -> list[tuple[str, str]]:
    """The code blocks of a page in a language, each with the last path named before it."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = []
    for block in re.finditer(rf"```{language}\n(.*?)```", text, re.DOTALL):
        *_, path = re.findall(r"`([\w./]+\.py)`", text[: block.start()])
        found.append((path, block[1]))
    return found


def apply_diff(file: Path, diff: str) -> None:
    """Insert the lines of a diff that begin with + after its other lines."""
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line.startswith(" "))
    added = "".join(line[1:] for line in lines if line.startswith("+"))
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{file.name}: {before!r} occurs {text.count(before)} times"
    file.write_text(text.replace(before, before + added), encoding="utf-8")


def test_an_encoder_and_a_task_are_added_as_the_pages_say(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__", "csrc")
    shutil.copytree(ROOT / "hf_blosan", tmp_path / "hf_blosan", ignore=ignored)
    new_files = blocks("add_an_encoder.md", "python")
    edits = blocks("add_an_encoder.md", "diff")
    assert len(new_files) == len(edits) == 2
    for path, code in new_files:
        assert not (tmp_path / path).exists()
        (tmp_path / path).write_text(code, encoding="utf-8")
    for path, diff in edits + blocks("add_a_task.md", "diff"):
        apply_diff(tmp_path / path, diff)

    moods = {"bad": WORDS["animal"], "good": WORDS["colour"]}
    for seed, (split, count) in enumerate({"train": 40, "test": 8}.items()):
        write_rows(tmp_path / "data" / "mood" / f"{split}.jsonl", question_rows(count, seed, moods))
    options = "--task_name mood --encoder toy --max_train_steps 3 --per_device_train_batch_size 8 --cpu".split()
    options += ["--config_overrides", "hidden_size=8,embedding_size=4,classifier_size=4"]
    options += ["--data_dir", str(tmp_path / "data"), "--output_dir", str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    command = [sys.executable, "-c", USE, str(tmp_path), *options]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)
def test_places_in_tables_exist(page):
    """A row `file` | `place` | ... names a text that occurs in the file."""
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows
    for path, place in rows:
        assert place.replace("\\|", "|") in (ROOT / path).read_text(encoding="utf-8"), f"{path}: {place}"


@pytest.mark.parametrize("page", READABLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page):
    """Paths from the root in backticks, and links to files."""
    text = page.read_text(encoding="utf-8")
    made_by_the_reader = {path for path, _ in blocks("add_an_encoder.md", "python")}
    named = set(re.findall(r"`((?:hf_blosan|tests|benchmarks|docs|examples)/[\w./]*\w\.\w+)`", text))
    missing = [path for path in named - made_by_the_reader if not (ROOT / path).exists()]
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", text)
    missing += [link for link in links if not (page.parent / link).exists()]
    assert not missing
