"""The page of `hf-blosan demo`: its functions, and the whole of it in a browser, without any network."""

import base64
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from reader import Reader
from small_data import pair_rows, question_rows
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

import hf_blosan
from hf_blosan.analysis.page import EXAMPLES, PAIRS, Shown, examples_for, import_gradio, make_page, what_it_shows
from hf_blosan.cli.commands import main
from hf_blosan.errors import InputError, install
from hf_blosan.tasks import TASKS
from hf_blosan.text.tokenization import build_tokenizer

ROOT = Path(__file__).resolve().parents[1]
SPACE = ROOT / "examples" / "space"
LABELS = {"id2label": {0: "animal", 1: "colour"}, "label2id": {"animal": 0, "colour": 1}}
SIZES = {"embedding_size": 6, "hidden_size": 8, "classifier_size": 8}
MODELS = {
    "questions": ("DiSANForSequenceClassification", LABELS | {"finetuning_task": "trec"}),
    "recurrent": ("BiRNNForSequenceClassification", LABELS),
    "scores": ("MTSAForPairRegression", {"num_sentences": 2}),
    "recurrent encoder": ("BiRNNModel", {"finetuning_task": "demo", "num_sentences": 2}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with models of random weights."""
    folder = tmp_path_factory.mktemp("models")
    texts = [text for row in pair_rows(60) + question_rows(60) for text in row.values() if isinstance(text, str)]
    tokenizer = build_tokenizer(texts)
    for name, (model_class, config) in MODELS.items():
        torch.manual_seed(0)
        model_class = getattr(hf_blosan, model_class)
        config = model_class.config_class(vocab_size=len(tokenizer), **SIZES, **config)
        model_class(config).save_pretrained(folder / name, include_code=False)
        tokenizer.save_pretrained(folder / name)
    return folder


@pytest.fixture
def shown(folder):
    """A function that loads a model of the page."""

    def load(name):
        auto_class = AutoModel if "encoder" in name else AutoModelForSequenceClassification
        return Shown(name, auto_class.from_pretrained(folder / name), AutoTokenizer.from_pretrained(folder / name))

    return load


class TestFunctions:
    def test_answers(self, shown):
        label, content = shown("questions").answer(["a red <dog>"])
        assert label.keys() == {"animal", "colour"} and sum(label.values()) == pytest.approx(1)
        images = re.findall(r'<img alt="(\w+) of sentence 1" src="data:image/svg\+xml;base64,([^"]+)">', content)
        assert [kind for kind, _ in images] == ["attention", "gate", "pooling"]
        assert all(b"<svg" in base64.b64decode(image) for _, image in images)
        label, content = shown("scores").answer(["a red <dog>", "one cat"])
        assert 1 <= float(label) <= 5 and "<h4>a red &lt;dog&gt;</h4>" in content and "<h4>one cat</h4>" in content
        assert content.count("<img") == 6
        label, content = shown("recurrent encoder").answer(["a cat"])
        assert label == "" and content.count("<img") == 1 and "has no attention between tokens" in content
        with pytest.raises(InputError, match="the text is empty"):
            shown("questions").answer([""])

    def test_examples_suit_the_model(self, shown):
        for name, count in (("questions", 1), ("recurrent", 1), ("scores", 2), ("recurrent encoder", 1)):
            rows = examples_for(shown(name).model)
            assert len(rows) >= 3 and all(len(row) == count for row in rows)
        assert examples_for(shown("questions").model)[0] == ["Who wrote Hamlet ?"]
        for task, rows in EXAMPLES.items():
            assert all(isinstance(row, str) == (TASKS[task].num_sentences == 1) for row in rows)

    def test_it_says_what_one_sees(self, shown):
        assert what_it_shows([shown("questions")]).startswith("Type a sentence, and see the prediction, which")
        pairs = what_it_shows([shown("scores"), shown("scores")])
        assert pairs.startswith("Type two sentences, and see the prediction, which") and "*Neutral*" not in pairs
        assert "prediction" not in what_it_shows([shown("recurrent encoder")])
        inference = shown("scores")
        inference.model.config.id2label = dict(enumerate(("entailment", "neutral", "contradiction")))
        assert "*Neutral*: it may be either" in what_it_shows([inference])

    def test_models_of_different_kinds(self, shown):
        with pytest.raises(InputError, match="questions takes one sentence and scores compares two; give two"):
            make_page([shown("questions"), shown("scores")])

    def test_gradio_is_an_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "gradio", None)
        with pytest.raises(InputError, match=re.escape(f"the page needs gradio; {install('demo')}")):
            import_gradio()

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ([], "the following arguments are required: MODEL"),
            (["none"], "no saved model at 'none'"),
            (["none", "--port", "70000"], "--port is 70000; it must be more than 0 and below 65,536"),
        ],
    )
    def test_mistakes(self, words, message, capsys):
        assert main(["demo", *words]) == 2
        assert message in capsys.readouterr().err

    def test_space(self):
        """The header of its README has the fields of a Gradio Space, for the versions that are tested."""
        header = yaml.safe_load((SPACE / "README.md").read_text(encoding="utf-8").split("---")[1])
        assert header["sdk"] == "gradio" and (SPACE / header["app_file"]).is_file()
        assert f"\ngradio=={header['sdk_version']}\n" in (ROOT / "constraints.txt").read_text()
        assert len(header["short_description"]) <= 60 and header["python_version"] == "3.11"
        assert "hf_blosan[demo]" in (SPACE / "requirements.txt").read_text().splitlines()


@pytest.fixture
def serve(folder, tmp_path):
    """A function that starts a command on a free port and returns the page's address."""
    running = []

    def start(*command, **environment):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRADIO_SERVER_PORT": str(port), **environment}
        command = [sys.executable, *[str(word).replace("PORT", str(port)) for word in command]]
        with (tmp_path / "log").open("w") as log:
            running.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log))
        deadline, url = time.monotonic() + 300, f"http://127.0.0.1:{port}/"
        while url not in (tmp_path / "log").read_text():
            assert running[-1].poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.2)
        return url

    yield start
    for process in running:
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture
def browser(driver):
    return PageReader(driver)


class PageReader(Reader):
    """What a reader does with this page."""

    def open(self, url):
        self.driver.get(url)
        self.wait(lambda: self.find("#show"))

    def type(self, *texts):
        for number, text in enumerate(texts, 1):
            (box,) = self.find(f"#text{number} textarea, #text{number} input")
            box.clear()
            box.send_keys(text)

    def boxes(self):
        return self.find("textarea, input[type=text]")

    def values(self):
        return [box.get_attribute("value") for box in self.boxes()]

    def images(self, number=1):
        """The alternative texts of a model's images that are drawn."""
        width = "return arguments[0].complete && arguments[0].naturalWidth"
        images = self.find(f"#figures{number} img")
        return [image.get_attribute("alt") for image in images if self.driver.execute_script(width, image) > 100]

    def sources(self, number=1):
        return [image.get_attribute("src") for image in self.find(f"#figures{number} img")]


ALL = ["attention of sentence 1", "gate of sentence 1", "pooling of sentence 1"]


@pytest.mark.slow
class TestInABrowser:
    def test_two_models(self, serve, browser):
        url = serve("-m", "hf_blosan", "demo", "questions", "recurrent", "--port", "PORT", "--cpu")
        browser.open(url)
        assert "questions (DiSAN) and recurrent (Bi-RNN)" in browser.text("h2")
        assert "see what the models predict and how they read it" in browser.text("#explanation")
        assert len(browser.find("textarea")) == 1  # no place for a pair
        browser.wait(lambda: browser.images(1) == ALL and browser.images(2) == ALL[2:])
        assert browser.values() == ["Who wrote Hamlet ?"]
        first = browser.sources()
        browser.type("an old cat on the grey")
        browser.find("#show")[0].click()
        browser.wait(lambda: browser.images(1) == ALL and browser.images(2) == ALL[2:])
        for number in (1, 2):
            assert re.search(r"(animal|colour)(.|\n)*\d+%", browser.text(f"#prediction{number}"))
        assert "has no attention between tokens" in browser.text("#figures2")

        browser.wait(lambda: not set(browser.sources()) & set(first))
        first = browser.sources()
        browser.type("one red horse")
        from selenium.webdriver.common.keys import Keys

        browser.find("#text1 textarea, #text1 input")[0].send_keys(Keys.ENTER)
        browser.wait(lambda: browser.images(1) == ALL and not set(browser.sources()) & set(first))

        browser.type("   ")
        browser.find("#show")[0].click()
        browser.wait(lambda: "the text is empty; give some words" in browser.text("#message"))
        assert not browser.images(1) and not browser.images(2)

        browser.type("cat " * 200)
        browser.find("#show")[0].click()
        browser.wait(lambda: "has 200 tokens, 128 are allowed" in browser.text("#message"))

        (example,) = [row for row in browser.find("button, td") if row.text.strip() == "Who wrote Hamlet ?"][:1]
        example.click()
        browser.wait(lambda: browser.images(1) == ALL and not browser.text("#message"))
        assert browser.values() == ["Who wrote Hamlet ?"]

        asked = browser.requests()
        assert asked and not [address for address in asked if not address.startswith(url)]

    def test_pairs_in_a_space(self, serve, browser):
        url = serve(SPACE / "app.py", MODEL="scores", MODEL2="")
        second = [name.replace("1", "2") for name in ALL]
        browser.open(url)
        browser.wait(lambda: browser.images() == [*ALL, *second])
        assert browser.values() == PAIRS[0]
        assert [heading.text for heading in browser.find("#figures1 h4")] == PAIRS[0]
        first, right = (box.rect for box in browser.boxes())
        assert first["y"] == right["y"] and first["x"] + first["width"] <= right["x"]

        browser.resize(400)
        first, below = (box.rect for box in browser.boxes())
        assert first["x"] == below["x"] and first["y"] + first["height"] <= below["y"]
        everything = [*browser.boxes(), *browser.find("#show, #figures1 img, #prediction1, #explanation")]
        assert all(0 <= item.rect["x"] and item.rect["x"] + item.rect["width"] <= 400 for item in everything)
        assert browser.width() <= 400

        browser.type("a red cat", "one grey dog in the blue")
        browser.find("#show")[0].click()
        browser.wait(lambda: browser.text("#figures1 h4") == "a red cat one grey dog in the blue")
        browser.wait(lambda: browser.images() == [*ALL, *second])
        assert re.search(r"\d\.\d\d", browser.text("#prediction1"))
        assert [heading.text for heading in browser.find("#figures1 h4")] == ["a red cat", "one grey dog in the blue"]

    def test_port_in_use(self, folder, capsys):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            assert main(["demo", str(folder / "recurrent"), "--port", str(port), "--cpu"]) == 2
        assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err

    def test_a_space_without_a_model(self):
        environment = {name: value for name, value in os.environ.items() if name != "MODEL"}
        run = subprocess.run(
            [sys.executable, SPACE / "app.py"],
            env={**environment, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        sentence = "set the Space's variable MODEL to the name of a model on the Hub"
        assert run.returncode == 1 and run.stderr.splitlines()[-1] == sentence
