"""`hf-blosan serve` as a server that listens: what its clients get, how it ends, and what it does not start with."""

import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from serving_models import MODELS, TEXTS, error, make_model, metric, post, wait_until

from hf_blosan.cli import main
from hf_blosan.models.pipeline import SentenceEmbeddingPipeline
from hf_blosan.serving.arguments import ServeArguments

uvicorn = pytest.importorskip("uvicorn", reason="needs the extra hf_blosan[serve]")
from hf_blosan.serving.app import make_app  # noqa: E402
from hf_blosan.serving.command import bound_socket  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def listen():
    """A function that starts a server around a model in a thread, and returns its address."""
    running = []

    def start(name, token=None):
        app = make_app(*make_model(name), ServeArguments(name), token=token)
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

    def test_vectors(self, listen):
        address = listen("vectors", token="s3cret")
        vectors = InferenceClient(address, token="s3cret").feature_extraction(TEXTS, normalize=False, truncate=True)
        expected = SentenceEmbeddingPipeline(*make_model("vectors"))(TEXTS)
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
def process(tmp_path):
    """A function that runs the command around a model, and returns the process and its address."""
    running = []

    def start(name, *options):
        model, tokenizer = make_model(name)
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
