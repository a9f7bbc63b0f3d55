"""The encoders in hf_blosan/pretrained: what they promise, and the figures on their cards and pages."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from huggingface_hub import ModelCard, parse_eval_result_entries
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

import hf_blosan
from benchmarks import order, similarity
from hf_blosan.registry import pretrained_names
from pretraining import card

ROOT = Path(__file__).resolve().parents[1]
NAMES = pretrained_names()


def test_there_are_two():
    assert NAMES == ["disan-mini-en", "disan-mini-en-similarity"]


@pytest.mark.parametrize("name", NAMES)
class TestEncoder:
    def test_it_is_small_and_complete(self, name):
        files = [path for path in Path(hf_blosan.pretrained(name)).rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) <= 16e6
        assert {"config.json", "model.safetensors", "tokenizer.json", "modules.json", "README.md"} <= {
            path.name for path in files
        }
        assert not [path.name for path in files if path.suffix == ".py"]  # `hf-blosan push` adds the package's code

    def test_transformers_and_sentence_transformers_agree(self, name):
        folder, texts = hf_blosan.pretrained(name), ["The lawyer rescues the pilot.", "It rains", ""]
        batch = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
        with torch.no_grad():
            expected = AutoModel.from_pretrained(folder)(**batch).pooler_output
        found = SentenceTransformer(folder, device="cpu").encode(texts, convert_to_tensor=True)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)

    def test_the_example_of_the_card(self, name):
        """The paraphrase is nearer than the third text: an exchange of roles, or something else."""
        model = SentenceTransformer(hf_blosan.pretrained(name), device="cpu")
        (block,) = re.findall(r"texts = \[(.*)\]", str(card.card(name)))
        texts = re.findall('"(.*?)"', block)
        similarities = model.similarity(*[model.encode(texts, convert_to_tensor=True)] * 2)
        assert similarities[0, 1] > similarities[0, 2]

    def test_the_card_has_the_figures_of_the_records(self, name):
        made, folder = str(card.card(name)), Path(hf_blosan.pretrained(name))
        for path in (folder / "README.md", ROOT / "model_cards" / f"{name}.md"):
            assert path.read_text(encoding="utf-8") == made
        data = ModelCard(made).data
        found = {result.dataset_name: result.metric_value for result in data.eval_results}
        row = card.figures(name)["similarity"]
        assert found == {title: row[key] for key, title in similarity.SETS.items()}
        assert {path.name for path in (folder / ".eval_results").iterdir()} == {
            f"{key}.yaml" for key in similarity.SETS
        }
        for file, content in card.hub_results(name).items():
            written = (folder / ".eval_results" / file).read_text(encoding="utf-8")
            assert written == content
            (entry,) = parse_eval_result_entries(yaml.safe_load(written))
            assert entry.value == row[Path(file).stem] and entry.dataset_id.startswith("mteb/")

    def test_the_suite_is_that_of_the_report(self, name):
        """A report of other sentences says nothing about these."""
        header = card.record("order", name)["header"]
        assert header["part"] == "test" and header["suite"] == order.suite(None)["suite"]


def test_figures_on_the_page():
    text = (ROOT / "docs" / "pretrained_encoders.md").read_text(encoding="utf-8")
    rows = {
        cells[0].strip(" *"): [cell.strip(" *") for cell in cells[1:]]
        for cells in (line.strip("|").split("|") for line in text.splitlines() if line.startswith("| "))
        if cells[0].strip(" *") not in ("model", "---")
    }
    names = ("disan-mini-en", card.TEACHER, "token vectors", "model2vec")
    for name, encoder in [*((name, "disan-mini-en") for name in names), ("disan-mini-en-similarity", None)]:
        cells = rows[name]
        found = card.figures(name, encoder)
        wanted = [f"{found['similarity'][key]:.1f}" for key in ("stsb", "sick", "mean")]
        wanted += [f"{found['order'][key]['percent']:.1f}" for key in order.COLUMNS]
        wanted += [f"{found['similarity'][similarity.BANKING]:.1f}", f"{found['similarity']['megabytes']:.1f}"]
        # The second was measured on another processor, where the first is as fast.
        wanted += [f"{found['similarity']['sentences_per_second']:,}" if encoder else "about the same"]
        assert cells == wanted, name

    forms = {"float32": "torch", "int8": 'torch, `layers_dtype="int8"`'}
    entries = {
        "batches": "batches of `hf-blosan encode`",
        "SentenceTransformer.encode": "`SentenceTransformer.encode`",
    }
    for row in json.loads((card.REPORTS / "roads.json").read_text())["rows"]:
        model = "disan-mini-en" if row["system"] == "encoder" else card.TEACHER
        place = f"| {model} in {forms.get(row['form'], row['form'])} | {entries.get(row['entry'])} |"
        if row["entry"] in entries:
            assert f"{place} {row['sentences_per_second']:,} | {row['stsb']:.1f} |" in text

    beside = card.record("similarity", "disan-mini-en-similarity")["rows"]
    speeds = [f"{row['sentences_per_second']:,}" for row in beside]
    said = (
        f"{speeds[0]} sentences a second there, `disan-mini-en-similarity` {speeds[1]} and {card.TEACHER} {speeds[2]}"
    )
    assert f"`disan-mini-en` encodes {said}" in " ".join(text.split())
    low, high = beside[1]["mean_less_first"]
    gain = beside[1]["mean"] - beside[0]["mean"]
    assert f"{gain:.1f} above that of `disan-mini-en` ({low:.1f} to {high:.1f}, paired bootstrap)" in " ".join(
        text.split()
    )
    assert f"with its first 96 features alone it is {beside[1]['mean_of_first']['96']:.1f}" in text

    methods = {"probe": "logistic regression", "classifier": "`SentenceClassifier`", "setfit": "SetFit"}
    for encoder in NAMES:
        names = {"encoder": encoder, "minilm": card.TEACHER}
        accuracies: dict[tuple, list[float]] = {}
        for row in card.record("few_shot", encoder)["rows"]:
            accuracies.setdefault((row["system"], row["task"], row["shots"]), []).append(row["accuracy"])
        for system in dict.fromkeys(system for system, *_ in accuracies):
            model, method = system.split(", ")
            cells = " | ".join(f"{np.mean(values):.1f}" for (name, *_), values in accuracies.items() if name == system)
            assert f"| {names[model]}, {methods[method]} | {cells} |" in text

    report = json.loads((card.REPORTS / "order_papers.json").read_text())
    assert report["header"]["suite"] == order.suite(None)["suite"]
    percents = {}
    for row in report["rows"]:
        percents.setdefault(row["model"], {})[row["kind"], row["setting"]] = row["percent"]
    last = text[text.index("The last 64 features") : text.index("Roles depend on chance")]
    shown = re.findall(r"\d+\.\d", last)
    assert shown[:-1] == [f"{percents['last 64 of disan-mini-en'][key]:.1f}" for key in order.COLUMNS]
    assert {shown[-1]} == {f"{percents[name]['roles', 'same_form']:.1f}" for name in ("DiSAN", "Bi-BloSAN", "MTSA")}

    seeds = card.seeds("disan-mini-en")
    said = (
        f"gives {seeds['same_form']} % in the same form, {seeds['paraphrase_form']} % in the paraphrase's; the mean of"
    )
    assert f"{said} similarity stays, at {seeds['mean']}" in " ".join(text.split())
    second = card.seeds("disan-mini-en-similarity")
    assert f"with two other seeds, the mean of similarity is {second['mean']} (" in " ".join(text.split())

    first = {row["model"]: row["first"] for row in json.loads((card.REPORTS / "retrieval.json").read_text())["rows"]}
    shown = re.findall(r"([\d.]+) %", text[text.index("As a search engine") :].split("report")[0])
    assert shown == [f"{first[name]:.1f}" for name in ("disan-mini-en", card.TEACHER, "BM25")]


def test_figures_of_the_readme():
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split("\n## ")[0].split())
    (own, order_rows), (teacher, its_rows) = (
        (found["similarity"], found["order"])
        for found in (card.figures(name, "disan-mini-en") for name in ("disan-mini-en", card.TEACHER))
    )

    def right(rows, kind, setting):
        return f"{rows[kind, setting]['percent']:.0f} %"

    faster = own["sentences_per_second"] / teacher["sentences_per_second"]
    assert f"is {own['megabytes']:.1f} MB and encodes {own['sentences_per_second']:,} sentences a second" in text
    assert f"{faster:.1f} times as many as {card.TEACHER}" in text
    roles = [right(rows, "roles", "same_form") for rows in (order_rows, its_rows)]
    others = " and ".join(
        right(card.figures(f"seed_{seed}", "disan-mini-en", "_seeds")["order"], "roles", "same_form")[:-2]
        for seed in (1, 2)
    )
    known = f"it is right in {roles[0]} of the items (other seeds of it in {others}), MiniLM in {roles[1]}"
    assert known in text
    bad = right(order_rows, "attributes", "same_form"), right(order_rows, "negation", "negation")
    assert f"attributes ({bad[0]}) and negation ({bad[1]})" in text
    second = card.figures("disan-mini-en-similarity")["similarity"]
    scores = f"scores {own['mean']:.1f}, MiniLM {teacher['mean']:.1f} and `disan-mini-en-similarity`"
    assert f"On five sets of similarity it {scores}, which ignores word order, {second['mean']:.1f}." in text
