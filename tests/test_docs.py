"""The pages hold: what they print makes an encoder and a task, what they name is there, and the site can be built."""

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from urllib.parse import urlsplit

import pytest
from pages import PAGES, ROOT, anchors, blocks, links, text_of
from small_data import WORDS, question_rows, write_rows

import hf_blosan
from hf_blosan.tasks import TASKS

USE = """
import sys
from pathlib import Path
from runpy import run_path
import torch
import hf_blosan
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification
from hf_blosan.tasks import TASKS
from hf_blosan.training import main

folder = Path(sys.argv[1])
assert Path(hf_blosan.__file__).is_relative_to(folder), hf_blosan.__file__
config = AutoConfig.for_model("toy", vocab_size=9, embedding_size=4, hidden_size=8)
model = AutoModel.from_config(config).eval()
assert type(model) is hf_blosan.ToyModel
ids = torch.tensor([[3, 4, 5]])
padded = torch.cat([ids, torch.full((1, 2), config.pad_token_id)], dim=1)
torch.testing.assert_close(model(ids).pooler_output, model(padded).pooler_output)
for task in TASKS.values():  # each has a recipe that the configuration accepts
    recipe = task.recipe("toy")
    hf_blosan.ToyConfig(**{"vocab_size": 9, "hidden_size": recipe.hidden_size} | recipe.config)

assert main(sys.argv[2:]) == 0
trained = AutoModelForSequenceClassification.from_pretrained(folder / "out").eval()
assert type(trained) is hf_blosan.ToyForSequenceClassification and trained.config.id2label == {0: "bad", 1: "good"}
trained.save_pretrained(folder / "again")
assert (folder / "out" / "modeling_toy.py").exists() and (folder / "again" / "modeling_toy.py").exists()
assert trained.config.auto_map["AutoModel"] == "modeling_toy.ToyModel"
again = AutoModelForSequenceClassification.from_pretrained(folder / "again").eval()
assert torch.equal(trained(ids).logits, again(ids).logits)
"""
ADDITIONS = ("docs/add_an_encoder.md", "docs/add_a_task.md", "docs/add_a_kind.md")
"""Pages that say how something is added."""

LANGUAGES = ("bash", "python", "javascript", "diff", "csv", "json", "text", "math", "bibtex")
REPOSITORY = "https://github.com/hf-blosan/hf_blosan"
API_PAGES = [page for page in PAGES if page.startswith("docs/api/")]


def named_blocks(page: str, language: str) -> list[tuple[str, str]]:
    """The blocks of code of a page in a language, each with the last path named before it."""
    found = []
    for block in blocks(page, language):
        before = "".join(text_of(page).splitlines(keepends=True)[: block.line - 1])
        *_, path = re.findall(r"`([\w./]+\.py)`", before)
        found.append((path, block.code))
    return found


def apply_diff(file: Path, diff: str) -> None:
    """Insert the lines of a diff that begin with + after its other lines."""
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line.startswith(" "))
    added = "".join(line[1:] for line in lines if line.startswith("+"))
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{file.name}: {before!r} occurs {text.count(before)} times"
    file.write_text(text.replace(before, before + added), encoding="utf-8")


def apply_page(page: str, checkout: Path) -> None:
    """Write the new files and the edits of a page; those of the page on encoders are two files and two lines."""
    new_files = [block for block in named_blocks(page, "python") if not (checkout / block[0]).exists()]
    edits = named_blocks(page, "diff")
    if page == "docs/add_an_encoder.md":
        taken = "its files are there already; give your encoder another name, and leave those of the page to the test"
        assert new_files, taken
        assert len(new_files) == len(edits) == sum(diff.count("\n+") for _, diff in edits) == 2
    for path, code in new_files:
        (checkout / path).write_text(code, encoding="utf-8")
    for path, diff in edits:
        apply_diff(checkout / path, diff)


def test_an_encoder_and_a_task_are_added_as_the_pages_say(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__", "csrc")
    shutil.copytree(ROOT / "hf_blosan", tmp_path / "hf_blosan", ignore=ignored)
    for page in ADDITIONS:
        apply_page(page, tmp_path)

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


@pytest.mark.slow
def test_all_fast_tests_pass_with_what_the_pages_add(tmp_path):
    """In a checkout, where `make test` has written the stub."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    compiled = (str(path.relative_to(ROOT)) for path in (ROOT / "hf_blosan" / "kernels").glob("*.so"))
    for name in (*listed.split("\0")[:-1], *compiled):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for page in ADDITIONS:
        apply_page(page, tmp_path)
    subprocess.run([sys.executable, ".ci/encoders.py"], cwd=tmp_path, check=True)
    identity = ["-c", "user.name=reader", "-c", "user.email=reader@localhost"]
    for command in (["init"], ["add", "--all"], [*identity, "commit", "--message", "As the pages say"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    added_again = "tests/test_docs.py::test_an_encoder_and_a_task_are_added_as_the_pages_say"
    command = [sys.executable, "-m", "pytest", "-m", "not slow", "-p", "no:cacheprovider", "--deselect", added_again]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-4000:]


@pytest.mark.parametrize("page", PAGES)
def test_places_in_tables_exist(page):
    """A row `file` | `place` | ... names a text that occurs in the file."""
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", text_of(page), re.MULTILINE)
    tables = len(re.findall(r"^\| file \| place \|", text_of(page), re.MULTILINE))
    assert len(rows) >= tables
    for path, place in rows if tables else ():
        assert place.replace("\\|", "|") in (ROOT / path).read_text(encoding="utf-8"), f"{path}: {place}"


@pytest.mark.parametrize("page", PAGES)
def test_files_and_links(page):
    """Paths from the root in backticks are there, and so are the files and headings that links lead to."""
    made_by_the_reader = {path for page in ADDITIONS for path, _ in named_blocks(page, "python")}
    named = set(re.findall(r"`((?:hf_blosan|tests|benchmarks|docs|examples|results)/[\w./]*\w\.\w+)`", text_of(page)))
    missing = {path for path in named - made_by_the_reader if "NAME" not in path and not (ROOT / path).exists()}
    for link in links(page):
        url = urlsplit(link)
        if url.scheme:
            assert url.scheme == "https" and re.fullmatch(r"[\w-]+(\.[\w-]+)+", url.netloc), link
            assert url.netloc != "arxiv.org" or re.fullmatch(r"/abs/\d{4}\.\d{5}", url.path), link
            continue
        target = (ROOT / page).parent.joinpath(url.path).resolve() if url.path else ROOT / page
        if not target.exists() or not target.is_relative_to(ROOT):
            missing.add(link)
        elif url.fragment and url.fragment not in anchors(target.relative_to(ROOT).as_posix()):
            missing.add(link)
    assert not missing


def test_every_block_has_a_language():
    for page in PAGES:
        assert text_of(page).count("```") == 2 * len(blocks(page)), page
        for block in blocks(page):
            assert block.language in LANGUAGES, block


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


@pytest.mark.parametrize("page", ["docs/train.md", "docs/sentence_selection.md"])
def test_epochs_of_sentence_selection(page):
    epochs = TASKS["squad_sentences"].recipe("biblosan").for_rows(83_151).num_train_epochs
    assert f"trains {epochs} epochs of SQuAD" in " ".join(text_of(page).split())


def test_members_that_docstrings_refer_to_exist():
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "hf_blosan").rglob("*.py")]
    named = {name for text in texts for name in re.findall(r":\w+:`~?(?:\w+\.)*([A-Z]\w+\.\w+)`", text)}
    assert named
    for owner, _, member in (name.partition(".") for name in named):
        bodies = [text.split(f"\nclass {owner}")[1].split("\n\n\n")[0] for text in texts if f"\nclass {owner}" in text]
        assert any(re.search(rf"^    (?:def )?{member}\b", body, re.MULTILINE) for body in bodies), f"{owner}.{member}"


def test_the_reference_is_complete():
    """Everything that the package exports is described, and everything that is described is there."""
    reference = run_path(str(ROOT / ".ci" / "encoders.py"))["reference"]
    text = reference("\n".join((ROOT / page).read_text(encoding="utf-8") for page in API_PAGES))
    described = set(re.findall(r"^::: ([\w.]+)", text, re.MULTILINE))
    for name in described:
        module, _, member = name.rpartition(".")
        assert getattr(import_module(module), member).__doc__, name
    last_names = {name.rpartition(".")[2] for name in described} | set(re.findall(r"`(\w+)`", text))
    for module in ("functional", "training", "estimators", "data", "hub", "analysis"):
        assert set(import_module(f"hf_blosan.{module}").__all__) <= last_names, module
    assert set(hf_blosan.__all__) <= last_names


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("mkdocstrings"), reason="the site needs pip install hf_blosan[docs]")
def test_the_site_is_built_and_needs_no_other_host(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert {path.name for path in tmp_path.iterdir()} >= {"index.html", "getting_started", "api", "kernels"}
    shown = 0
    for path in tmp_path.rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?([^\"'\s>]+)", html)
        sheets = re.findall(r"<link\b[^>]*rel=[\"']?(?:stylesheet|preconnect|preload|icon)\b[^>]*>", html)
        loaded += [re.search(r"href=[\"']?([^\"'\s>]+)", sheet)[1] for sheet in sheets]
        assert not [url for url in loaded if re.match(r"(https?:)?//", url)], path
        assert ":func:" not in html and ":class:" not in html, path
        shown += html.count("<math ")
    assert shown == sum(len(blocks(page, "math")) for page in PAGES)
    for path in tmp_path.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", path.read_text(encoding="utf-8")), path
    options = (tmp_path / "command_line" / "index.html").read_text(encoding="utf-8")
    assert "--early_stopping_patience" in options and "hf-blosan push FOLDER" in options
