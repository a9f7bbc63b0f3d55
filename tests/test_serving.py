"""`hf-blosan serve`: what is answered and refused, and that requests computed together do not affect each other."""

import asyncio
import copy
import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from serving_models import PAIRS, TEXTS, error, make_model, metric, post, wait_until
from tokenizers import processors
from transformers import pipeline

from hf_blosan.cli.commands import main
from hf_blosan.data.batching import characters
from hf_blosan.hub.finite import NotFinite
from hf_blosan.models.pipeline import SentenceEmbeddingPipeline
from hf_blosan.serving.arguments import ServeArguments
from hf_blosan.tasks.classification import tokenize_texts

pytest.importorskip("uvicorn", reason="needs the extra hf_blosan[serve]")
from starlette.testclient import TestClient  # noqa: E402

from hf_blosan.serving import queue  # noqa: E402
from hf_blosan.serving.app import make_app  # noqa: E402


@pytest.fixture
def serve():
    """A function that starts the application around a model, and returns a client."""
    running = []

    def start(name, token=None, **limits):
        app = make_app(*make_model(name), ServeArguments(name, **limits), token=token)
        client = TestClient(app)
        running.append(client.__enter__())
        return client

    yield start
    for client in running:
        client.__exit__(None, None, None)


class Held:
    """A model that computes nothing until it is released."""

    def __init__(self, forward):
        self.forward, self.gate, self.sizes = forward, threading.Event(), []

    def __call__(self, **inputs):
        self.sizes.append(len(inputs["input_ids"]))
        assert self.gate.wait(30)
        return self.forward(**inputs)


@pytest.fixture
def hold(monkeypatch):
    """A function that stops a model."""
    held = []

    def stop(name):
        held.append(Held(make_model(name)[0].forward))
        monkeypatch.setattr(make_model(name)[0], "forward", held[-1])
        return held[-1]

    yield stop
    for model in held:
        model.gate.set()


class TestAnswers:
    def test_labels_are_those_of_the_pipeline(self, serve):
        model, tokenizer = make_model("labels")
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
    def test_parameters(self, serve, function):
        model, tokenizer = make_model("labels")
        options = {"function_to_apply": function, "top_k": 2}
        (expected,) = pipeline("text-classification", model=model, tokenizer=tokenizer)([TEXTS[0]], **options)
        (labels,) = post(serve("labels"), TEXTS[0], parameters=options).json()
        assert len(labels) == 2 and [row["label"] for row in labels] == [row["label"] for row in expected]
        np.testing.assert_allclose(*([row["score"] for row in rows] for rows in (labels, expected)), atol=1e-6)

    def test_pairs(self, serve):
        model, tokenizer = make_model("pairs")
        classify = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
        for pair, labels in zip(PAIRS[:5], post(serve("pairs"), PAIRS[:5]).json(), strict=True):
            scores = {row["label"]: row["score"] for row in classify(pair)}
            assert {row["label"]: row["score"] for row in labels} == pytest.approx(scores, abs=1e-6)

    def test_scores(self, serve):
        model, tokenizer = make_model("scores")
        answers = post(serve("scores"), PAIRS).json()
        columns = [[pair[name] for pair in PAIRS] for name in ("text", "text_pair")]
        with torch.no_grad():
            expected = model(**tokenizer(*columns, padding=True, return_tensors="pt")).logits[:, 0].numpy()
        assert all([row["label"] for row in labels] == ["LABEL_0"] for labels in answers)
        np.testing.assert_allclose([labels[0]["score"] for labels in answers], expected, atol=1e-5)

    def test_vectors(self, serve):
        client = serve("vectors")
        expected = SentenceEmbeddingPipeline(*make_model("vectors"))(TEXTS)
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
    '{"input": {"text": "a cat", "text_pair": "a"}}': "the name input is unknown here; inputs is missing",
    '{"inputs": {"text": "a cat", "text_par": "a"}}': "the name text_par is unknown here; text_pair is missing",
    "{}": 'inputs must be {"text": ..., "text_pair": ...} or a list of one or more of these',
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
        assert "inputs must be a text or a list of one or more texts" in error(post(client, PAIRS), 422)
        assert "text 2 has no tokens" in error(post(client, ["a cat", "", "a dog"]), 422)

    def test_special_tokens_are_no_words(self, serve, monkeypatch):
        """A tokenizer such as BERT's gives an empty text [CLS] and [SEP]."""
        for name, inputs in (
            ("labels", ["a cat", "", "a dog"]),
            ("pairs", [PAIRS[0], {"text": "a", "text_pair": ""}]),
        ):
            tokenizer = make_model(name)[1]
            backend = copy.deepcopy(tokenizer.backend_tokenizer)
            pad = (tokenizer.pad_token, tokenizer.pad_token_id)
            backend.post_processor = processors.TemplateProcessing(
                single=f"{pad[0]} $A", pair=f"{pad[0]} $A {pad[0]}:1 $B:1", special_tokens=[pad]
            )
            monkeypatch.setattr(tokenizer, "_tokenizer", backend)
            assert "text 2 has no tokens" in error(post(serve(name), inputs), 422)
            assert post(serve(name), inputs[:1]).status_code == 200

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

    def test_texts_of_many_characters(self, serve):
        """They are refused before they are tokenized; where truncation is allowed, their beginning is."""
        client = serve("labels")
        long = "the cat " * 10_000
        sentence = error(post(client, ["a cat", long]), 413)
        assert sentence == "a text has 80000 characters, 12000 are allowed; shorten it, or set truncate"
        answer = post(client, [long, "the cat " * 10], parameters={"truncate": True}).json()
        np.testing.assert_allclose(*([row["score"] for row in labels] for labels in answer), atol=1e-6)

    def test_no_more_is_tokenized_than_a_batch_holds(self, serve, monkeypatch):
        given = []
        monkeypatch.setattr(
            queue, "tokenize_texts", lambda texts, *rest: given.extend(texts) or tokenize_texts(texts, *rest)
        )
        client = serve("labels", batch_tokens=15)
        assert post(client, "the cat " * 10_000, parameters={"truncate": True}).status_code == 200
        assert max(len(text) for row in given for text in row) == characters(15)

    def test_a_text_whose_output_is_not_finite(self, serve, hold, caplog):
        client, held = serve("labels"), hold("labels")
        forward = held.forward
        bad = make_model("labels")[1]("horse")["input_ids"][0]

        def compute(**inputs):
            if (inputs["input_ids"] == bad).any():
                raise NotFinite("secret", 0, 1, float("nan"))
            return forward(**inputs)

        held.forward = compute
        held.gate.set()
        sentence = error(post(client, ["a cat", "a horse"]), 500)
        assert sentence == "the model fails on text 2 of this request (its output is nan)"
        assert post(client, ["a cat"]).status_code == 200

    def test_a_failing_text_fails_alone(self, serve, hold, caplog):
        model, tokenizer = make_model("labels")
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
        assert "the model fails on text 1 of this request (RuntimeError)" in sentence and "secret" not in sentence
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
            assert ("anyone who can reach 0.0.0.0" in caplog.text) == warned
        caplog.clear()
        monkeypatch.setenv("HF_BLOSAN_TOKEN", "s3cret")
        assert main(["serve", "none", "--host", "0.0.0.0", "--port", "0"]) == 2 and "anyone" not in caplog.text
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
