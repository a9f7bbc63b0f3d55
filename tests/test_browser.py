"""The encoder that comes with the package in other programs: in transformers.js, in fastembed, and on the page of
examples/browser in Chromium, without any network. Programs that are missing are named."""

import json
import re
import shutil
import subprocess
from itertools import islice

import numpy as np
import pytest
import torch
import yaml
from filelock import FileLock
from reader import Reader
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

import hf_blosan
from benchmarks import browser as benchmark
from benchmarks.order_suite import texts
from hf_blosan.cli.commands import main
from hf_blosan.errors import InputError

NAME = "disan-mini-en"
EXAMPLE = benchmark.EXAMPLE
SIZE = 320
NODE = """
import {readFileSync} from 'node:fs';
import {AutoModel, AutoTokenizer, env} from '@huggingface/transformers';

const {models, name, texts} = JSON.parse(readFileSync(0));
env.localModelPath = models;
env.allowRemoteModels = false;
const tokenizer = await AutoTokenizer.from_pretrained(name);
const model = await AutoModel.from_pretrained(name, {dtype: 'fp32'});
const vectors = [];
for (let start = 0; start < texts.length; start += 20) {
  const inputs = await tokenizer(texts.slice(start, start + 20), {padding: true});
  vectors.push(...(await model(inputs)).sentence_embedding.tolist());
}
process.stdout.write(JSON.stringify(vectors));
"""


def encode(sentences):
    """Vectors of length 1, by torch."""
    folder = hf_blosan.pretrained(NAME)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        vectors = model(**tokenizer(sentences, padding=True, return_tensors="pt")).pooler_output
    return torch.nn.functional.normalize(vectors, dim=-1).numpy()


def cosines(vectors, sentences):
    vectors = np.asarray(vectors)
    return (vectors * encode(sentences)).sum(1) / np.linalg.norm(vectors, axis=1)


@pytest.fixture(scope="module")
def models(tmp_path_factory, worker_id):
    """A folder with the exported encoder, which takes ten seconds or more: made once for all processes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "exported"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            assert main(["export", NAME, str(folder / NAME)]) == 0
    return folder


@pytest.fixture(scope="module")
def sentences():
    """200 sentences from all over the suite."""
    found = list(islice(texts(), 0, 20_000, 100))
    assert len(set(found)) == 200
    return found


@pytest.fixture
def built(tmp_path):
    """The page, without an encoder."""
    try:
        benchmark.build(tmp_path / "site")
    except InputError as error:
        pytest.skip(str(error))
    return tmp_path / "site"


@pytest.mark.slow
def test_transformers_js_computes_what_torch_computes(models, sentences):
    try:
        benchmark.require_node()
    except InputError as error:
        pytest.skip(str(error))
    asked = json.dumps({"models": f"{models}/", "name": NAME, "texts": sentences})
    command = ["node", "--input-type=module", "--eval", NODE]
    run = subprocess.run(command, cwd=EXAMPLE, input=asked, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert cosines(json.loads(run.stdout), sentences).min() >= 0.9999


@pytest.mark.slow
def test_fastembed_computes_what_torch_computes(models, sentences):
    pytest.importorskip("fastembed", reason="needs fastembed; make .venv/.fastembed")
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    TextEmbedding.add_custom_model(
        NAME,
        pooling=PoolingType.DISABLED,
        normalization=True,
        sources=ModelSource(hf=NAME),
        dim=SIZE,
        model_file="onnx/model.onnx",
    )
    model = TextEmbedding(NAME, specific_model_path=str(models / NAME))
    assert cosines(list(model.embed(sentences)), sentences).min() >= 0.9999


class PageReader(Reader):
    """What a reader sees of this page and does with it."""

    def type(self, name, text):
        (box,) = self.find(f"#{name}")
        box.clear()
        box.send_keys(text)

    def ranking(self):
        """Sentences and cosines, from the top; in one script, because the page may change in between."""
        script = (
            "return [...document.querySelectorAll('#ranking li')].map((x) => [...x.children].map((y) => y.innerText))"
        )
        return [(sentence, cosine.replace("−", "-")) for sentence, cosine in self.driver.execute_script(script)]

    def values(self, *names):
        return [self.find(f"#{name}")[0].get_property("value") for name in names]


def by_torch(query, sentences):
    """The ranking that the page should show."""
    first, *others = encode([query, *sentences])
    return sorted(zip(sentences, (float(first @ other) for other in others), strict=True), key=lambda x: -x[1])


def same_ranking(found, expected):
    """The same sentences, in the same order where printed cosines differ."""
    cosines = dict(expected)
    return (
        sorted(name for name, _ in found) == sorted(cosines)
        and found[0][0] == expected[0][0]
        and all(abs(float(cosine) - cosines[name]) < 0.006 for name, cosine in found)
        and [cosine for _, cosine in found] == sorted((cosine for _, cosine in found), key=float, reverse=True)
    )


@pytest.mark.slow
def test_the_page_shows_what_torch_computes(models, built, driver):
    shutil.copytree(models, built / "models")
    with benchmark.served(built) as address:
        driver.get(address)
        page = PageReader(driver)
        page.wait(lambda: page.text("#status").startswith("Ready"))
        encoder, runtime = map(float, re.findall(r"([\d.]+) MB", page.text("#status")))
        assert 12 < encoder <= 16 and 10 < runtime < 15

        (lines,) = page.values("sentences")
        sentences = lines.strip().splitlines()
        assert len(sentences) == 12
        assert same_ranking(page.ranking(), by_torch(*page.values("query"), sentences))
        page.type("query", "The stock market dropped.")
        expected = by_torch("The stock market dropped.", sentences)
        page.wait(lambda: page.ranking()[0][0] == expected[0][0])
        page.wait(lambda: same_ranking(page.ranking(), expected))
        assert expected[0][0] == "Shares fell after the bank cut its forecast."

        page.find("summary")[0].click()
        page.type("sentences", "Prices went down.\nA cat sleeps.")
        changed = by_torch("The stock market dropped.", ["Prices went down.", "A cat sleeps."])
        page.wait(lambda: len(page.ranking()) == 2 and same_ranking(page.ranking(), changed))
        page.type("query", " ")
        page.wait(lambda: page.text("#ranking") == "Type a sentence here, and others below.")

        assert check_order(page)
        page.type("text", "The bank sued the company.")
        page.type("paraphrase", "The bank was sued by the company.")
        page.type("exchanged", "The company was sued by the bank.")
        page.wait(lambda: "was sued" in page.text("#verdict q"))
        page.wait(lambda: check_order(page))
        page.type("exchanged", " ")
        page.wait(lambda: page.text("#verdict") == "Type three sentences.")

        asked = page.requests()
        assert len(asked) > 8 and all(url.startswith(address) for url in asked)

        page.resize(400)
        assert page.width() <= 400


def check_order(page):
    """Whether the panel of word order shows torch's cosines and draws the conclusions from them."""
    shown = page.values("text", "paraphrase", "exchanged")
    whole = encode(shown)
    order = whole[:, -64:] / np.linalg.norm(whole[:, -64:], axis=1, keepdims=True)
    expected = [[float(vectors[0] @ other) for other in vectors[1:]] for vectors in (whole, order)]
    rows = [
        [float(cell.text.replace("−", "-")) for cell in row.find_elements("css selector", "td")]
        for row in page.find("#cosines tr")
    ]
    if np.abs(np.subtract(rows, expected)).max() > 0.006:
        return False
    nearer = [int(cosines[1] > cosines[0]) for cosines in expected]
    strong = [float(x.text) for x in page.find("#cosines strong")]
    assert strong == [row[column] for row, column in zip(rows, nearer, strict=True)]
    assert page.text("#verdict q") == shown[1:][nearer[0]]
    assert ("disagree" in page.text("#verdict")) == (nearer[0] != nearer[1])
    return True


@pytest.mark.slow
def test_a_page_without_an_encoder_says_so(built, driver):
    with benchmark.served(built) as address:
        driver.get(address)
        page = PageReader(driver)
        page.wait(lambda: page.text("#status").startswith("The encoder could not be loaded; export it"))


def test_examples_on_the_page_are_read_rightly():
    """By the whole vectors and by the features that read order."""
    text = (EXAMPLE / "index.html").read_text(encoding="utf-8")
    shown = [re.search(rf'id="{name}" value="([^"]+)"', text)[1] for name in ("text", "paraphrase", "exchanged")]
    assert sorted(shown[0].lower().split()) != sorted(shown[1].lower().split())
    words = [sorted(re.findall(r"\w+", sentence.lower())) for sentence in shown]
    assert words[0] == words[2]
    vectors = encode(shown)
    for part in (vectors, vectors[:, -64:]):
        first, *others = part / np.linalg.norm(part, axis=1, keepdims=True)
        assert first @ others[0] > first @ others[1] + 0.05


def test_the_page_needs_nothing_from_other_hosts():
    files = [EXAMPLE / name for name in ("index.html", "style.css", "page.js", "encoder.js", "build.js")]
    for file in files:
        assert not re.search(r"https?:|url\(|src=\"/", file.read_text(encoding="utf-8")), file
    assert "allowRemoteModels = false" in (EXAMPLE / "encoder.js").read_text(encoding="utf-8")
    locked = json.loads((EXAMPLE / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert not [name for name, package in locked.items() if "resolved" in package]
    wanted = json.loads((EXAMPLE / "package.json").read_text(encoding="utf-8"))["dependencies"]
    assert wanted == {name: locked[f"node_modules/{name}"]["version"] for name in wanted}
    header = yaml.safe_load((EXAMPLE / "README.md").read_text(encoding="utf-8").split("---")[1])
    assert header["sdk"] == "static" and (EXAMPLE / header["app_file"]).is_file()
    assert len(header["short_description"]) <= 60


@pytest.mark.slow
@pytest.mark.usefixtures("built", "driver")  # where they are not skipped, the benchmark can do the same
def test_the_benchmark_from_command_to_table(tiny_en, folder_of_encoders, tmp_path):
    peer, path = tmp_path / "peer", tmp_path / "browser.json"
    tokenizer = AutoTokenizer.from_pretrained(folder_of_encoders / tiny_en)
    tokenizer.save_pretrained(peer)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(peer)
    options = ["--task", "demo", "--sentences", "10", "--batch_size", "4", "--repeats", "1", "--model", tiny_en]
    assert benchmark.main([*options, "--peer", str(peer), "--output", str(path)]) == 0
    report = json.loads(path.read_text())
    assert report["header"]["browser"]["threads"] == 1 and report["header"]["browser"]["chromium"]
    systems = [(tiny_en, "float32"), (tiny_en, "int8"), ("peer", "int8")]
    rows = report["rows"]
    assert [(row["batch"], row["system"], row["graph"]) for row in rows] == [(n, *x) for n in (1, 4) for x in systems]
    assert all(row["sentences_per_second"] > 0 and row["megabytes"] > 0 for row in rows)
    assert [row["speed"] for row in rows if row["system"] == "peer"] == [1, 1]
    assert "| tiny-en | int8 | 4 | " in path.with_suffix(".md").read_text()


def test_bad_input_is_one_sentence(tmp_path, monkeypatch, capsys):
    options = ["--peer", str(tmp_path), "--output", str(tmp_path / "browser.json")]
    assert benchmark.main(options) == 2
    assert "there is no saved model; give the folder of one" in capsys.readouterr().err
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(InputError, match="the page needs Node.js with npm; apt install nodejs npm"):
        benchmark.build(tmp_path / "site")
    with pytest.raises(InputError, match="needs chromium and chromedriver; apt install chromium chromium-driver"):
        with benchmark.chromium():
            pass
