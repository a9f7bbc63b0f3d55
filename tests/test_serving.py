"""`hf-blosan serve`: what is answered and refused, and that requests computed together do not affect each other."""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from small_data import pair_rows, question_rows
from transformers import pipeline

import hf_blosan
from hf_blosan.cli import main
from hf_blosan.models.pipeline import SentenceEmbeddingPipeline
from hf_blosan.serving.arguments import ServeArguments
from hf_blosan.tokenization import build_tokenizer

uvicorn = pytest.importorskip("uvicorn", reason="needs the extra hf_blosan[serve]")
from starlette.testclient import TestClient  # noqa: E402

from hf_blosan.serving.app import make_app  # noqa: E402
from hf_blosan.serving.command import bound_socket  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
SIZES = {"embedding_size": 6, "hidden_size": 8, "classifier_size": 8}
LABELS = {"id2label": dict(enumerate("abc")), "label2id": {label: i for i, label in enumerate("abc")}}
MODELS = {
    "labels": ("DiSANForSequenceClassification", LABELS),
    "pairs": ("MTSAForSequenceClassification", LABELS | {"num_sentences": 2}),
    "scores": ("BiBloSANForPairRegression", {"num_sentences": 2}),
    "vectors": ("DiSANModel", {}),
}
TEXTS = [row["text"] for row in question_rows(40)]
PAIRS = [{"text": row["sentence1"], "text_pair": row["sentence2"]} for row in pair_rows(40)]


@pytest.fixture(scope="module")
def models():
    """Models of random weights with their tokenizer, by name."""
    tokenizer = build_tokenizer([*TEXTS, *(text for pair in PAIRS for text in pair.values())], model_max_length=20)
    made = {}
    for name, (model_class, config) in MODELS.items():
        torch.manual_seed(0)
        model_class = getattr(hf_blosan, model_class)
        config = model_class.config_class(vocab_size=len(tokenizer), **SIZES, **config)
        made[name] = model_class(config).eval(), tokenizer
    return made


@pytest.fixture
def serve(models):
    """A function that starts the application around a model, and returns a client."""
    running = []

    def start(name, token=None, **limits):
        app = make_app(*models[name], ServeArguments(name, **limits), token=token)
        client = TestClient(app)
        running.append(client.__enter__())
        return client

    yield start
    for client in running:
        client.__exit__(None, None, None)


def post(client, inputs, **options):
    return client.post("/", json={"inputs": inputs, **options})


def error(answer, status):
    """The sentence of a refusal."""
    assert answer.status_code == status, answer.text
    content = answer.json()
    assert content.keys() == {"error"} and content["error"][0].islower()
    return content["error"]


def metric(client, name):
    lines = [line.split() for line in client.get("/metrics").text.splitlines()]
    return sum(float(words[-1]) for words in lines if words[0].partition("{")[0] == f"hf_blosan_{name}")


class Held:
    """A model that computes nothing until it is released."""

    def __init__(self, forward):
        self.forward, self.gate, self.sizes = forward, threading.Event(), []

    def __call__(self, **inputs):
        self.sizes.append(len(inputs["input_ids"]))
        assert self.gate.wait(30)
        return self.forward(**inputs)


@pytest.fixture
def hold(models, monkeypatch):
    """A function that stops a model."""
    held = []

    def stop(name):
        held.append(Held(models[name][0].forward))
        monkeypatch.setattr(models[name][0], "forward", held[-1])
        return held[-1]

    yield stop
    for model in held:
        model.gate.set()


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class TestAnswers:
    def test_labels_are_those_of_the_pipeline(self, serve, models):
        model, tokenizer = models["labels"]
        expected = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)(TEXTS)
        answer = post(serve("labels"), TEXTS)
        assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
        for labels, others in zip(answer.json(), expected, strict=True):
            assert [row["label"] for row in labels] == [row["label"] for row in others]
            np.testing.assert_allclose(*([row["score"] for row in rows] for rows in (labels, others)), atol=1e-6)

    def test_one_text_is_a_list_of_one(self, serve):
        client = serve("labels")
        assert post(client, TEXTS[0]).json() == post(client, TEXTS[:1]).json()

    @pytest.mark.parametrize("function", ["sigmoid", "softmax", "none"])
    def test_parameters(self, serve, models, function):
        model, tokenizer = models["labels"]
        options = {"function_to_apply": function, "top_k": 2}
        (expected,) = pipeline("text-classification", model=model, tokenizer=tokenizer)([TEXTS[0]], **options)
        (labels,) = post(serve("labels"), TEXTS[0], parameters=options).json()
        assert len(labels) == 2 and [row["label"] for row in labels] == [row["label"] for row in expected]
        np.testing.assert_allclose(*([row["score"] for row in rows] for rows in (labels, expected)), atol=1e-6)

    def test_pairs(self, serve, models):
        model, tokenizer = models["pairs"]
        classify = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
        for pair, labels in zip(PAIRS[:5], post(serve("pairs"), PAIRS[:5]).json(), strict=True):
            scores = {row["label"]: row["score"] for row in classify(pair)}
            assert {row["label"]: row["score"] for row in labels} == pytest.approx(scores, abs=1e-6)

    def test_scores(self, serve, models):
        model, tokenizer = models["scores"]
        answers = post(serve("scores"), PAIRS).json()
        columns = [[pair[name] for pair in PAIRS] for name in ("text", "text_pair")]
        with torch.no_grad():
            expected = model(**tokenizer(*columns, padding=True, return_tensors="pt")).logits[:, 0].numpy()
        assert all([row["label"] for row in labels] == ["LABEL_0"] for labels in answers)
        np.testing.assert_allclose([labels[0]["score"] for labels in answers], expected, atol=1e-5)

    def test_vectors(self, serve, models):
        client = serve("vectors")
        expected = SentenceEmbeddingPipeline(models["vectors"][0], models["vectors"][1])(TEXTS)
        vectors = np.array(post(client, TEXTS).json())
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
        normalized = np.array(post(client, TEXTS, normalize=True).json())
        np.testing.assert_allclose(np.linalg.norm(normalized, axis=1), 1, atol=1e-6)
        np.testing.assert_allclose(normalized * np.linalg.norm(vectors, axis=1)[:, None], vectors, atol=1e-6)

    def test_requests_in_common_batches_get_the_numbers_of_single_ones(self, serve, hold):
        client = serve("vectors", batch_tokens=40)
        alone = [post(client, text).json() for text in TEXTS]
        held = hold("vectors")
        with ThreadPoolExecutor(len(TEXTS)) as threads:
            answers = [threads.submit(post, client, text) for text in TEXTS]
            wait_until(lambda: len(client.app.state.queue.waiting) + sum(held.sizes) == len(TEXTS))
            held.gate.set()
            together = [answer.result().json() for answer in answers]
        np.testing.assert_allclose(together, alone, atol=1e-6)
        assert len(held.sizes) < len(TEXTS) / 2 and max(held.sizes) <= 40

    def test_openapi_describes_the_model(self, serve):
        def inputs(name):
            schema = serve(name, max_texts=7).get("/openapi.json").json()
            request = schema["components"]["schemas"]["Request"]
            one, several = request["properties"]["inputs"]["anyOf"]
            assert several["items"] == one and several["maxItems"] == 7 and several["minItems"] == 1
            return one, request["properties"].keys(), schema["paths"]["/"]["post"]["responses"]

        one, names, responses = inputs("labels")
        assert one == {"type": "string"} and names == {"inputs", "parameters"}
        assert {"200", "401", "413", "422", "429", "504"} <= responses.keys()
        assert inputs("vectors")[1] == {"inputs", "normalize", "truncate"}
        assert inputs("scores")[0] == {"$ref": "#/components/schemas/Pair"}


BAD_JSON = {
    "": "not a JSON object with the header Content-Type: application/json",
    "[]": "not a JSON object with the header",
    "{": "not valid JSON (Expecting property name",
    "\xff": "not JSON in UTF-8",
    "[" * 100_000: "not JSON in UTF-8",
    "{}": 'inputs must be {"text": ..., "text_pair": ...} or a list of these',
    '{"inputs": "a cat"}': "inputs must be",
    '{"inputs": []}': "inputs must be",
    '{"inputs": [{"text": "a cat"}]}': "inputs must be",
    '{"inputs": {"text": "a cat", "text_pair": null}}': "inputs must be",
    '{"inputs": {"text": "a cat", "text_pair": "\\ud800"}}': "inputs must be",
    '{"inputs": {"text": "a cat", "text_pair": "a", "more": "dog"}}': "more is unknown here",
    '{"inputs": {"text": "a cat", "text_pair": " "}}': "text 1 has no tokens; give a text with words",
    '{"inputs": {"text": "a cat", "text_pair": "a"}, "parameters": {"top_k": 0}}': "parameters.top_k: input should",
    '{"inputs": {"text": "a cat", "text_pair": "a"}, "parameters": {"top_k": NaN}}': "parameters.top_k: input",
    '{"inputs": {"text": "a cat", "text_pair": "a"}, "normalize": true}': "the name normalize is unknown here",
    '{"inputs": {"text": "a cat", "text_pair": "a"}, "parameters": []}': "parameters: input should be",
    '{"inputs": {"text": "a cat", "text_pair": "a"}, "\\ud800": 1}': r"\ud800 is unknown here; leave it out",
}


class TestRefusals:
    def test_wrong_requests_get_one_sentence(self, serve):
        client = serve("pairs")
        for body, message in BAD_JSON.items():
            answer = client.post("/", content=body.encode("latin-1"), headers={"Content-Type": "application/json"})
            assert message in error(answer, 400 if "UTF-8" in message else 422), body
        plain = client.post("/", content='{"inputs": "a cat"}', headers={"Content-Type": "text/plain"})
        assert "Content-Type: application/json" in error(plain, 422)
        assert "predictions are at /" in error(client.get("/models"), 404)
        assert "POST /" in error(client.get("/"), 405)
        assert post(client, PAIRS).status_code == 200

    def test_a_text_for_a_model_of_texts(self, serve):
        client = serve("labels")
        assert "inputs must be a text or a list of texts" in error(post(client, PAIRS), 422)
        assert "text 2 has no tokens" in error(post(client, ["a cat", "", "a dog"]), 422)

    def test_limits(self, serve):
        client = serve("labels", max_texts=2, max_request_bytes=300, batch_tokens=15)
        assert "has 3 texts, 2 are allowed" in error(post(client, ["a"] * 3), 413)
        assert "has more than 300 bytes" in error(post(client, "a" * 300), 413)
        chunks = (b" " * 100 for _ in range(1000))
        assert "has more than 300 bytes" in error(client.post("/", content=chunks), 413)
        long = ["a", "cat " * 16]
        assert "text 2 has 16 tokens, 15 are allowed; shorten it, or set truncate" in error(post(client, long), 413)
        shortened = post(client, long[1], parameters={"truncate": True}).json()
        assert shortened == post(client, "cat " * 15).json()
        too_long = error(post(serve("vectors"), "cat " * 21), 413)
        assert "has 21 tokens, 20 are allowed" in too_long  # the tokenizer's limit

    def test_a_full_queue(self, serve, hold):
        client = serve("labels", queue_size=4, max_texts=4)
        held = hold("labels")
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(post, client, TEXTS[:3])
            wait_until(lambda: held.sizes)
            refused = post(client, TEXTS[:2])
            assert "the queue is full: 3 texts wait, 4 may; send this request again later" in error(refused, 429)
            assert int(refused.headers["Retry-After"]) >= 1
            assert metric(client, "waiting_texts") == 3
            held.gate.set()
            assert len(answer.result().json()) == 3
        assert post(client, TEXTS[:4]).status_code == 200

    def test_time_out(self, serve, hold):
        client = serve("labels", timeout=0.05)
        held = hold("labels")
        assert "no answer within 0.05 seconds" in error(post(client, TEXTS[0]), 504)
        wait_until(lambda: client.get("/health").status_code == 503)
        assert "a batch has been computed for more than" in error(client.get("/health"), 503)
        assert "no answer within" in error(post(client, TEXTS[1]), 504)
        held.gate.set()
        wait_until(lambda: client.get("/health").status_code == 200)
        assert held.sizes == [1]  # the second one was not computed in vain

    def test_a_request_that_does_not_arrive(self, serve):
        app, sent = serve("labels", timeout=0.05).app, []

        async def receive():
            await asyncio.sleep(0.02)
            return {"type": "http.request", "body": b" ", "more_body": True}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b""}
        asyncio.run(app(scope, receive, send))
        assert sent[0]["status"] == 408 and b"did not arrive within 0.05 seconds" in sent[1]["body"]

    def test_a_failing_text_fails_alone(self, serve, models, hold, caplog):
        model, tokenizer = models["labels"]
        client, forward = serve("labels"), model.forward
        expected = [post(client, text).json() for text in TEXTS[:6]]
        bad = tokenizer("horse")["input_ids"][0]
        texts = [*TEXTS[:3], "a horse", *TEXTS[3:6]]
        texts = [text.replace("horse", "cow") if text != "a horse" else text for text in texts]

        def fail(**inputs):
            if (inputs["input_ids"] == bad).any():
                raise RuntimeError("secret")
            return forward(**inputs)

        held = hold("labels")
        held.forward = fail
        with ThreadPoolExecutor(len(texts)) as threads:
            answers = [threads.submit(post, client, text) for text in texts]
            wait_until(lambda: len(client.app.state.queue.waiting) + sum(held.sizes) == len(texts))
            held.gate.set()
            answers = [answer.result() for answer in answers]
        sentence = error(answers.pop(3), 500)
        assert "the model fails on a text of this request (RuntimeError)" in sentence and "secret" not in sentence
        for answer, text, other in zip(answers, texts[:3] + texts[4:], TEXTS, strict=False):
            assert answer.status_code == 200
            if text == other:
                np.testing.assert_allclose(*scores_of(answer.json(), expected[TEXTS.index(other)]), atol=1e-6)
        assert "a text of 2 tokens cannot be computed" in caplog.text

    def test_a_client_that_does_not_wait(self, serve, hold):
        client, held = serve("labels"), hold("labels")
        queue = client.app.state.queue
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(post, client, TEXTS[0])
            wait_until(lambda: held.sizes)
            messages = [{"type": "http.request", "body": json.dumps({"inputs": TEXTS[1:4]}).encode()}]
            gone, sent = threading.Event(), []

            async def receive():
                while not messages and not gone.is_set():
                    await asyncio.sleep(0.005)
                return messages.pop() if messages else {"type": "http.disconnect"}

            async def send(message):
                sent.append(message)

            headers = [(b"content-type", b"application/json")]
            scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "query_string": b""}
            request = client.portal.start_task_soon(client.app, scope, receive, send)
            wait_until(lambda: len(queue.waiting) == 3)
            gone.set()
            request.result(30)
            assert sent[0]["status"] == 499 and queue.accepted == 1
            held.gate.set()
            assert answer.result().status_code == 200
        assert post(client, TEXTS[0]).status_code == 200 and held.sizes == [1, 1]


def scores_of(*answers):
    return [[row["score"] for labels in answer for row in labels] for answer in answers]


class TestToken:
    def test_needed_by_all_but_health(self, serve, caplog):
        with caplog.at_level(logging.DEBUG):
            client = serve("labels", token="s3cret")
            for headers in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "Basic s3cret"}):
                answer = client.post("/", json={"inputs": "a"}, headers=headers)
                assert "send Authorization: Bearer TOKEN" in error(answer, 401)
                assert answer.headers["WWW-Authenticate"] == "Bearer"
                error(client.get("/metrics", headers=headers), 401)
            assert client.get("/health").status_code == 200
            for word in ("Bearer", "bearer"):
                headers = {"Authorization": f"{word} s3cret"}
                assert client.post("/", json={"inputs": "a"}, headers=headers).status_code == 200
            assert client.get("/openapi.json", headers=headers).json()["components"]["securitySchemes"]
            assert 'requests_total{status="401"} 6' in client.get("/metrics", headers=headers).text
        assert "s3cret" not in caplog.text

    @pytest.mark.parametrize("content", ["", "\n", "two words", "é"])
    def test_that_cannot_be_used(self, content, tmp_path, capsys):
        (tmp_path / "token").write_text(content, encoding="utf-8")
        assert main(["serve", "none", "--token_file", str(tmp_path / "token")]) == 2
        assert "is empty or has spaces or special characters" in capsys.readouterr().err

    def test_warning_for_other_hosts(self, caplog, capsys, monkeypatch):
        for host, warned in (("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)):
            caplog.clear()
            assert main(["serve", "none", "--host", host, "--port", "0"]) == 2
            assert ("everybody who can reach 0.0.0.0" in caplog.text) == warned
        caplog.clear()
        monkeypatch.setenv("HF_BLOSAN_TOKEN", "s3cret")
        assert main(["serve", "none", "--host", "0.0.0.0", "--port", "0"]) == 2 and not caplog.text
        assert "no saved model at 'none'" in capsys.readouterr().err


class TestMetrics:
    def test_what_was_computed(self, serve):
        client = serve("labels")
        post(client, ["a cat", "a cat and a dog"])
        post(client, 7)
        assert metric(client, "tokens_total") == 7 and metric(client, "padding_tokens_total") == 3
        assert metric(client, "batch_texts_count") == 1 and metric(client, "batch_texts_sum") == 2
        assert metric(client, "request_seconds_count") == metric(client, "requests_total") == 2
        text = client.get("/metrics").text
        assert 'requests_total{status="200"} 1.0' in text and 'requests_total{status="422"} 1.0' in text
        assert "process_resident_memory_bytes" in text


@pytest.fixture
def listen(models):
    """A function that starts a server around a model in a thread, and returns its address."""
    running = []

    def start(name, token=None):
        app = make_app(*models[name], ServeArguments(name), token=token)
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None))
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        wait_until(lambda: server.started)
        return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join(30)


class TestClientOfTheHub:
    """``huggingface_hub.InferenceClient`` takes the address in place of a model's name."""

    @pytest.fixture(autouse=True)
    def online(self, monkeypatch):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)

    def test_labels(self, listen):
        client = InferenceClient(listen("labels"))
        labels = client.text_classification(TEXTS[0])
        assert {row.label for row in labels} == set("abc") and sum(row.score for row in labels) == pytest.approx(1)
        assert client.text_classification(TEXTS[0], top_k=1, function_to_apply="none")[0].label == labels[0].label
        with pytest.raises(HfHubHTTPError, match="text 1 has no tokens; give a text with words"):
            client.text_classification("")

    def test_vectors(self, listen, models):
        address = listen("vectors", token="s3cret")
        vectors = InferenceClient(address, token="s3cret").feature_extraction(TEXTS, normalize=False, truncate=True)
        expected = SentenceEmbeddingPipeline(models["vectors"][0], models["vectors"][1])(TEXTS)
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
        with pytest.raises(HfHubHTTPError, match="the token is missing or wrong"):
            InferenceClient(address, token="other").feature_extraction(TEXTS[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
def test_no_request_is_a_server_error(name, mode, listen):
    """Requests that the description allows, and others, made by schemathesis."""
    schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis; pip install hf_blosan[test]")
    from hypothesis import HealthCheck, given, settings
    from schemathesis.checks import negative_data_rejection, positive_data_acceptance

    schema = schemathesis.openapi.from_url(f"{listen(name)}/openapi.json")
    statuses = set()
    for result in schema.get_all_operations():
        operation = result.ok()
        if mode == "NEGATIVE" and not operation.body:
            continue  # nothing to get wrong

        @settings(max_examples=200, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode[mode]))
        def check(case):
            response = case.call()
            # That a text has tokens cannot be described; 413 rejects too.
            excluded = [positive_data_acceptance, *([negative_data_rejection] if response.status_code == 413 else [])]
            case.validate_response(response, excluded_checks=excluded)
            statuses.add(response.status_code)

        check()
    assert statuses >= ({200, 422} if mode == "POSITIVE" else {422}) and max(statuses) < 500


@pytest.fixture
def process(models, tmp_path):
    """A function that runs the command around a model, and returns the process and its address."""
    running = []

    def start(name, *options):
        model, tokenizer = models[name]
        model.save_pretrained(tmp_path / name, include_code=False)
        tokenizer.save_pretrained(tmp_path / name)
        command = [sys.executable, "-m", "hf_blosan", "serve", str(tmp_path / name), "--port", "0", "--cpu", *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with (tmp_path / "errors").open("w") as errors:
            running.append(
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
            )
        line = running[-1].stdout.readline()
        assert "(Ctrl-C ends it)" in line, (tmp_path / "errors").read_text()
        return running[-1], line.split()[0]

    yield start
    for one in running:
        one.kill()
        one.wait(30)
        one.stdout.close()


@pytest.mark.slow
class TestProcess:
    @pytest.mark.parametrize(("sent", "status"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)])
    def test_what_is_accepted_is_answered_before_the_end(self, process, sent, status, tmp_path):
        server, address = process("vectors", "--batch_size", "1", "--queue_size", "10000")
        texts = TEXTS * 3
        with httpx.Client(base_url=address, timeout=60) as client, ThreadPoolExecutor(8) as threads:
            answers = [threads.submit(post, client, texts) for _ in range(8)]
            wait_until(lambda: metric(client, "waiting_texts") > 7 * len(texts))
            server.send_signal(sent)
            assert not any(answer.done() for answer in answers)
            answers = [answer.result() for answer in answers]
        assert all(answer.status_code == 200 and len(answer.json()) == len(texts) for answer in answers)
        assert server.wait(30) == status
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{address}/health")
        assert "Traceback" not in (tmp_path / "errors").read_text()

    def test_a_token_of_the_environment_and_a_port_in_use(self, process, monkeypatch, capsys):
        monkeypatch.setenv("HF_BLOSAN_TOKEN", "s3cret")
        server, address = process("labels", "--task", "feature-extraction")
        command = Path(f"/proc/{server.pid}/cmdline")
        assert not command.exists() or b"s3cret" not in command.read_bytes()
        with httpx.Client(base_url=address) as client:
            error(post(client, TEXTS), 401)
            client.headers["Authorization"] = "Bearer s3cret"
            assert np.array(post(client, TEXTS).json()).shape == (len(TEXTS), 8)
        assert main(["serve", "none", "--port", address.rpartition(":")[2]]) == 2
        assert "cannot be listened on" in capsys.readouterr().err


def test_answers_are_sent_at_once():
    """What asyncio looks at before it sets TCP_NODELAY."""
    with bound_socket("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none"], "no saved model at 'none'"),
        (["none", "--timeout", "0"], "--timeout is 0.0; it must be more than 0"),
        (["none", "--port", "70000"], "--port is 70000; it must be from 0 to 65535"),
        (["none", "--max_texts", "2000"], "--queue_size is 1024; it must be at least --max_texts, 2000"),
        (["none", "--max_length", "20000"], "--max_length is 20000; it must be at most --batch_tokens, 16384"),
        (["none", "--token_file", "nowhere"], "--token_file nowhere cannot be read"),
        (["none", "--host", "300.1.1.1"], "300.1.1.1:8000 cannot be listened on"),
    ],
)
def test_mistakes(words, message, capsys):
    assert main(["serve", *words]) == 2
    assert message in capsys.readouterr().err


def test_the_server_is_an_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", "none"]) == 2
    assert "the server needs more packages" in capsys.readouterr().err
