"""`hf-blosan serve` as a server that listens: what its clients get, how it ends, and what it does not start with."""

import json
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
import transformers.pipelines  # noqa: F401 (registers ours; a module of it cannot be the first import)
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from serving_models import MODELS, TEXTS, error, make_model, metric, post, wait_until

from hf_blosan.cli.commands import main
from hf_blosan.models.pipeline import SentenceEmbeddingPipeline
from hf_blosan.serving.arguments import ServeArguments

uvicorn = pytest.importorskip("uvicorn", reason="needs the extra hf_blosan[serve]")
from hf_blosan.serving.app import make_app  # noqa: E402
from hf_blosan.serving.command import bound_socket, configure  # noqa: E402
from hf_blosan.serving.connections import BACKLOG, OTHER_FILES, SPARE, allow_files  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def listen():
    """A function that starts a server around a model in a thread, and returns its address."""
    running = []

    def start(name, token=None, app=None, **limits):
        arguments = ServeArguments(name, **limits)
        app = app or make_app(*make_model(name), arguments, token=token)
        config, listener = configure(app, arguments), bound_socket("127.0.0.1", 0)
        config.timeout_keep_alive = 1  # of uvicorn's 5 seconds
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        running.append((server, thread))
        wait_until(lambda: server.started)
        start.connections = server.server_state.connections
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

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


def connect(address, sent=b"", count=1):
    """Sockets that have sent something and do no more."""
    host, port = address.removeprefix("http://").split(":")
    sockets = [socket.create_connection((host, int(port)), timeout=30) for _ in range(count)]
    for one in sockets:
        one.sendall(sent)
    return sockets


def is_closed(one):
    """Whether the server has closed a connection."""
    try:
        return one.recv(1 << 16) == b""
    except ConnectionResetError:
        return True


def head(size):
    return f"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n".encode()


class TestConnections:
    def test_more_than_the_limit_are_refused(self, listen):
        """Probes are answered all the same, and requests again as soon as there is room."""
        address = listen("labels", max_connections=4)
        with httpx.Client(base_url=address, timeout=30) as first:
            assert post(first, TEXTS[0]).status_code == 200
            held = connect(address, count=4)
            wait_until(lambda: httpx.post(address, json={"inputs": TEXTS[0]}).status_code == 503)
            answer = httpx.post(address, json={"inputs": TEXTS[0]})
            assert error(answer, 503) == "the server has too many connections; send this request again later"
            assert answer.headers["connection"] == "close" and answer.headers["retry-after"] == "1"
            assert httpx.get(f"{address}/health").json() == {"status": "ok"}
            assert 'hf_blosan_requests_total{status="503"}' in httpx.get(f"{address}/metrics").text
            assert post(first, TEXTS[0]).status_code == 200  # it was there before
        for one in held:
            one.close()
        wait_until(lambda: httpx.post(address, json={"inputs": TEXTS[0]}).status_code == 200)

    def test_many_more_than_the_limit_are_closed(self, listen):
        address = listen("labels", max_connections=4)
        held = connect(address, count=4 + SPARE)
        wait_until(lambda: all(map(is_closed, connect(address, count=3))))
        for one in held:
            one.settimeout(0.01)
            with pytest.raises(TimeoutError):
                one.recv(1)
            one.close()
        wait_until(lambda: httpx.get(address).status_code == 405)

    @pytest.mark.parametrize("sent", [b"", b"POST / HT", head(40)[:-2], head(40), head(40) + b'{"inputs": '])
    def test_clients_that_send_nothing_more_are_closed(self, sent, listen):
        address = listen("labels", timeout=0.3)
        (one,) = connect(address, sent)
        began = time.monotonic()
        while not is_closed(one):
            pass
        assert 0.2 < time.monotonic() - began < 10

    def test_clients_that_send_a_byte_at_a_time_are_closed(self, listen):
        """Also after the refusal of a request that did not arrive in time, the rest of which they send."""
        for sent in (b"POST / HTTP/1.1\r\nX: ", head(10_000)):
            address = listen("labels", timeout=0.3)
            (one,) = connect(address, sent)
            one.settimeout(0.01)
            began = time.monotonic()
            with pytest.raises(OSError, match="reset|[Bb]roken pipe|aborted"):
                while time.monotonic() - began < 20:
                    one.sendall(b"a")
                    time.sleep(0.02)
            assert 0.2 < time.monotonic() - began < 15

    def test_clients_that_do_not_read_are_closed(self, listen):
        async def app(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"a" * 50_000_000})

        address = listen("none", app=app, timeout=0.3)
        (one,) = connect(address, head(0))
        wait_until(lambda: listen.connections)
        wait_until(lambda: not listen.connections)
        one.close()

    def test_a_slow_client_in_time_is_answered(self, listen):
        """One connection for several requests, the parts of which arrive one after the other."""
        address = listen("labels", timeout=2)
        body = json.dumps({"inputs": TEXTS[0]}).encode()
        (one,) = connect(address)
        for _ in range(2):
            for part in (head(len(body))[:20], head(len(body))[20:], body[:5], body[5:]):
                time.sleep(0.3)
                one.sendall(part)
            received = one.recv(1 << 16)
            while not received.endswith(b"]]"):  # head and body may arrive apart
                part = one.recv(1 << 16)
                assert part, received
                received += part
            assert received.startswith(b"HTTP/1.1 200 OK")
        one.sendall((head(len(body)) + body) * 2)  # at once
        received = b""
        while received.count(b"HTTP/1.1 200 OK") < 2:
            received += one.recv(1 << 16)

    def test_the_system_must_allow_so_many(self, monkeypatch, capsys):
        resource = pytest.importorskip("resource", reason="Windows has no limit on open files")
        now, asked = [256, 1000], []
        monkeypatch.setattr(resource, "getrlimit", lambda which: tuple(now))
        monkeypatch.setattr(resource, "setrlimit", lambda which, limits: asked.append(limits))
        allow_files(100)
        assert asked == [(100 + SPARE + BACKLOG + OTHER_FILES, 1000)]
        assert main(["serve", "none", "--max_connections", "900"]) == 2
        message = (
            "--max_connections is 900, for which 1348 files must be open at once, but the system allows 1000; lower"
        )
        assert message in capsys.readouterr().err and len(asked) == 1


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
        assert "(Ctrl-C to stop)" in line, (tmp_path / "errors").read_text()
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
        assert "cannot listen on" in capsys.readouterr().err


def test_answers_are_sent_at_once():
    """What asyncio looks at before it sets TCP_NODELAY."""
    with bound_socket("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none"], "no saved model at 'none'"),
        (["none", "--timeout", "0"], "--timeout is 0.0; it must be more than 0"),
        *(
            (["none", "--timeout", value], f"--timeout is {float(value)}; it must be more than 0 and at most 86,400.")
            for value in ("1e308", "nan", "inf", "-1")
        ),
        *(
            (["none", f"--{name}", value], f"--{name} is {value}; it must be more than 0 and at most 2,147,483,647.")
            for name in ("max_connections", "max_request_bytes", "max_texts", "max_length", "queue_size", "batch_size")
            for value in ("0", "-1", "99999999999999999999")
        ),
        (["none", "--port", "70000"], "--port is 70000; it must be 0 or more and below 65,536"),
        (["none", "--max_texts", "2000"], "--queue_size is 1024; it must be at least --max_texts, 2000"),
        (["none", "--max_length", "20000"], "--max_length is 20000; it must be at most --batch_tokens, 16384"),
        (["none", "--token_file", "nowhere"], "--token_file nowhere cannot be read"),
        (["none", "--host", "300.1.1.1"], "cannot listen on 300.1.1.1:8000"),
    ],
)
def test_mistakes(words, message, capsys):
    assert main(["serve", *words]) == 2
    assert message in capsys.readouterr().err


def test_the_server_is_an_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", "none"]) == 2
    assert "the server needs uvicorn; pip install" in capsys.readouterr().err
