"""A Hub on 127.0.0.1: the requests that huggingface_hub makes to create, upload to and load model repositories.

Repositories are kept in memory. `fail` makes the next matching requests end with a server error or a broken
connection. Large files come through git LFS or Xet storage, as the client likes; all are downloaded as plain files.
"""

import base64
import hashlib
import json
import os
import re
import struct
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import yaml

TOKEN, USER = "hf_loopback", "me"
BAD_LICENSE = "license must be one of the Hub's identifiers"


@dataclass
class Repo:
    """A model repository; a commit is its message and all its files."""

    private: bool = False
    commits: list[tuple[str, dict[str, bytes]]] = field(default_factory=lambda: [("initial commit", {})])

    @property
    def files(self) -> dict[str, bytes]:
        return self.commits[-1][1]

    def text(self, path: str) -> str:
        return self.files[path].decode("utf-8")

    @property
    def messages(self) -> list[str]:
        return [message for message, _ in self.commits[1:]]

    def sha(self, number: int = -1) -> str:
        number %= len(self.commits)
        return hashlib.sha1(f"{id(self)} {number}".encode()).hexdigest()

    def at(self, revision: str) -> int | None:
        """Number of the commit of a revision."""
        if revision in ("main", "HEAD"):
            return len(self.commits) - 1
        return next((number for number in range(len(self.commits)) if self.sha(number) == revision), None)


class LoopbackHub:
    """Runs in a `with` block; `repos` and `requests` show what clients have done."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.blobs: dict[str, bytes] = {}
        self.xorbs: dict[str, list[bytes]] = {}
        self.requests: list[str] = []
        self.failures: list[list] = []
        self.lock = threading.RLock()

    def __enter__(self) -> "LoopbackHub":
        handler = type("Handler", (HubHandler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()

    def environment(self, home) -> dict[str, str]:
        """Environment variables of a process that uses this Hub, with a cache and a token of its own."""
        others = {name: value for name, value in os.environ.items() if name not in ("HF_HUB_OFFLINE", "HF_TOKEN")}
        own = {"HF_ENDPOINT": self.url, "HF_TOKEN": TOKEN, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
        return others | own | {"NO_PROXY": "127.0.0.1", "HF_HUB_DISABLE_TELEMETRY": "1"}

    def use_here(self, monkeypatch, home) -> None:
        """Let this process use the Hub, although huggingface_hub read its environment long ago."""
        from huggingface_hub import constants
        from transformers.utils import hub

        for name, value in {
            "ENDPOINT": self.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": self.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_OFFLINE": False,
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_CACHE": str(home),
        }.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setattr(hub, "_hf_api", None)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)  # between attempts

    def fail(self, pattern: str, *, times: int = 1, with_status: int | None = 500) -> None:
        """Let the next requests "METHOD /path" that match fail; without a status the connection breaks."""
        self.failures.append([re.compile(pattern), times, with_status])

    def failure(self, request: str) -> tuple[int | None] | None:
        with self.lock:
            self.requests.append(request)
            for failure in self.failures:
                if failure[1] and failure[0].search(request):
                    failure[1] -= 1
                    return (failure[2],)
        return None

    def seen(self, pattern: str) -> list[str]:
        return [request for request in self.requests if re.search(pattern, request)]


def problems(content: str) -> list[str]:
    """What the Hub's check of a card's metadata would report, for the fields that cards here have."""
    match = re.match(r"\s*---\r?\n(.*?)\r?\n---", content, re.DOTALL)
    if not match:
        return []
    try:
        data = yaml.safe_load(match[1])
    except yaml.YAMLError as error:
        return [f"invalid YAML: {error}"]
    found = []

    def check(condition, message):
        if not condition:
            found.append(message)

    def strings(value):
        return isinstance(value, str) or isinstance(value, list) and all(isinstance(item, str) for item in value)

    for name in ("language", "license", "datasets", "metrics", "tags"):
        check(name not in data or strings(data[name]), f'"{name}" must be a string or a list of strings')
    for name in ("library_name", "pipeline_tag"):
        check(name not in data or isinstance(data[name], str), f'"{name}" must be a string')
    check(data.get("license", "other") in ("apache-2.0", "mit", "other"), BAD_LICENSE)
    datasets = data.get("datasets", [])
    for dataset in [datasets] if isinstance(datasets, str) else datasets:
        check(
            re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(dataset)), f'"datasets": {dataset!r} is not the id of a data set'
        )
    for example in data.get("widget", []):
        known = isinstance(example, dict) and set(example) <= {"text", "text_pair", "example_title", "output"}
        check(known and isinstance(example.get("text"), str), f'"widget": {example!r} has no text')
    for model in data.get("model-index", []):
        check(isinstance(model.get("name"), str), '"model-index[0].name" is required')
        check(isinstance(model.get("results"), list), '"model-index[0].results" must be a list')
        for result in model.get("results") or []:
            check(isinstance(result.get("task", {}).get("type"), str), '"task.type" is required')
            dataset = result.get("dataset", {})
            check(isinstance(dataset.get("name"), str), '"dataset.name" is required')
            check(re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(dataset.get("type", " "))), '"dataset.type" must be an id')
            for metric in result.get("metrics") or [{}]:
                check(isinstance(metric.get("type"), str), '"metrics[].type" is required')
                check(isinstance(metric.get("value"), (int, float, str)), '"metrics[].value" is required')
    return found


class HubHandler(BaseHTTPRequestHandler):
    """One connection."""

    hub: LoopbackHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_) -> None:
        """Standard error is what the tests look at."""

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:  # the client is gone
            self.close_connection = True

    def answer(self, status: int, content=b"", **headers) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status: int, code: str, message: str) -> None:
        self.answer(status, {"error": message}, X_Error_Code=code, X_Error_Message=message)

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def dispatch(self) -> None:
        self.content = self.body()
        path = unquote(urlsplit(self.path).path)
        failure = self.hub.failure(f"{self.command} {path}")
        if failure == (None,):
            self.close_connection = True
            self.connection.close()
            return None
        if failure:
            return self.refuse(failure[0], "InternalError", "the server has a bad day")
        self.allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        for pattern, method in ROUTES:
            if match := re.fullmatch(pattern, f"{self.command} {path}"):
                with self.hub.lock:
                    return getattr(self, method)(*match.groups())
        return self.refuse(404, "EntryNotFound", f"no such page: {path}")

    do_GET = do_HEAD = do_POST = do_PUT = dispatch

    def create(self) -> None:
        if not self.allowed:
            return self.refuse(401, "", "Invalid username or password.")
        wanted = json.loads(self.content)
        name = f"{wanted.get('organization') or USER}/{wanted['name']}"
        if not name.startswith(f"{USER}/"):
            return self.refuse(403, "", f'You don\'t have the rights to create a model under the namespace "{name}"')
        address = {"url": f"{self.hub.url}/{name}", "name": name}
        if name in self.hub.repos:
            return self.answer(409, address | {"error": "You already created this model repo"})
        self.hub.repos[name] = Repo(private=wanted.get("visibility") == "private")
        return self.answer(200, address)

    def repo(self, name: str, *, write: bool = False) -> Repo | None:
        repo = self.hub.repos.get(name)
        if repo is None or (repo.private and not self.allowed):
            return self.refuse(404 if self.allowed else 401, "RepoNotFound", "Repository not found")
        if write and not self.allowed:
            return self.refuse(403, "", "You need write access to this repository")
        return repo

    def validate(self) -> None:
        found = problems(json.loads(self.content)["content"])
        self.answer(400 if found else 200, {"errors": [{"message": line} for line in found], "warnings": []})

    def info(self, name: str, revision: str | None = None) -> None:
        repo = self.repo(name)
        if repo is None:
            return
        number = repo.at(revision or "main")
        if number is None:
            return self.refuse(404, "RevisionNotFound", f"no revision {revision}")
        files = repo.commits[number][1]
        siblings = [{"rfilename": path} for path in sorted(files)]
        entries = {"id": name, "modelId": name, "private": repo.private, "siblings": siblings, "tags": []}
        self.answer(200, entries | {"sha": repo.sha(number)})

    def tree(self, name: str, revision: str, folder: str | None = None) -> None:
        repo = self.repo(name)
        if repo is None:
            return
        number = repo.at(revision)
        if number is None:
            return self.refuse(404, "RevisionNotFound", f"no revision {revision}")
        inside = f"{folder}/" if folder else ""
        recursive = parse_qs(urlsplit(self.path).query).get("recursive", ["false"])[0].lower() == "true"
        entries = [
            {"type": "file", "path": path, "size": len(content), "oid": blob_id(content)}
            for path, content in sorted(repo.commits[number][1].items())
            if path.startswith(inside) and (recursive or "/" not in path.removeprefix(inside))
        ]
        if folder and not entries:
            return self.refuse(404, "EntryNotFound", f"no folder {folder}")
        self.answer(200, entries)

    def resolve(self, name: str, revision: str, path: str) -> None:
        repo = self.repo(name)
        if repo is None:
            return
        number = repo.at(revision)
        if number is None:
            return self.refuse(404, "RevisionNotFound", f"no revision {revision}")
        headers = {"X_Repo_Commit": repo.sha(number)}
        content = repo.commits[number][1].get(path)
        if content is None:
            return self.answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound", **headers)
        self.answer(200, content, ETag=f'"{blob_id(content)}"', **headers)

    def preupload(self, name: str, revision: str) -> None:
        repo = self.repo(name, write=True)
        if repo is None:
            return
        answers = []
        for file in json.loads(self.content)["files"]:
            path = file["path"]
            mode = "lfs" if path.endswith(".safetensors") or file["size"] > 10_000_000 else "regular"
            answers.append({"path": path, "uploadMode": mode, "shouldIgnore": False})
            if path in repo.files:
                old = repo.files[path]
                answers[-1]["oid"] = hashlib.sha256(old).hexdigest() if mode == "lfs" else blob_id(old)
        self.answer(200, {"files": answers})

    def batch(self, name: str) -> None:
        if self.repo(name, write=True) is None:
            return
        objects = json.loads(self.content)["objects"]
        for entry in objects:
            if entry["oid"] not in self.hub.blobs:
                upload = {"href": f"{self.hub.url}/lfs/{entry['oid']}", "header": {}}
                entry["actions"] = {"upload": upload, "verify": {"href": f"{self.hub.url}/lfs-verify", "header": {}}}
        self.answer(200, {"transfer": "basic", "objects": objects})

    def put(self, oid: str) -> None:
        if hashlib.sha256(self.content).hexdigest() != oid:
            return self.refuse(400, "", "the content has another hash")
        self.hub.blobs[oid] = self.content
        self.answer(200)

    def verify(self) -> None:
        entry = json.loads(self.content)
        complete = len(self.hub.blobs.get(entry["oid"], b"")) == entry["size"]
        self.answer(200 if complete else 404, {})

    def xet_token(self, name: str, revision: str) -> None:
        if self.repo(name, write=True) is not None:
            self.answer(200, {"accessToken": "xet", "exp": 4102444800, "casUrl": self.hub.url})

    def put_xorb(self, oid: str) -> None:
        self.hub.xorbs[oid] = chunks_of_xorb(self.content)
        self.answer(200, {"was_inserted": True})

    def put_shard(self) -> None:
        for content in files_of_shard(self.content, self.hub.xorbs):
            self.hub.blobs[hashlib.sha256(content).hexdigest()] = content
        self.answer(200, {"result": 1})

    def commit(self, name: str, revision: str) -> None:
        repo = self.repo(name, write=True)
        if repo is None:
            return
        message, files = "", dict(repo.files)
        for line in self.content.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                message = value["summary"]
            elif entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                if value["oid"] not in self.hub.blobs:
                    return self.refuse(400, "", f"the content of {value['path']} was never uploaded")
                files[value["path"]] = self.hub.blobs[value["oid"]]
            elif entry["key"] == "deletedFile":
                del files[value["path"]]
        if found := problems(files.get("README.md", b"").decode("utf-8")):
            return self.refuse(400, "", found[0])
        repo.commits.append((message, files))
        oid = repo.sha()
        self.answer(200, {"success": True, "commitOid": oid, "commitUrl": f"{self.hub.url}/{name}/commit/{oid}"})


def blob_id(content: bytes) -> str:
    """The id that git gives the content of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def chunks_of_xorb(content: bytes) -> list[bytes]:
    """The chunks of data in an object of Xet storage: header (version, size, compression, real size) and data each."""
    chunks, position = [], 0
    while position < len(content):
        size, scheme = int.from_bytes(content[position + 1 : position + 4], "little"), content[position + 4]
        real_size = int.from_bytes(content[position + 5 : position + 8], "little")
        data = content[position + 8 : position + 8 + size]
        if scheme:
            data = pa.decompress(data, decompressed_size=real_size, codec="lz4", asbytes=True)
        if scheme == 2:  # first every fourth byte, then those after them, ...
            grouped, data = data, bytearray(real_size)
            for first in range(4):
                part = len(data[first::4])
                data[first::4], grouped = grouped[:part], grouped[part:]
        chunks.append(bytes(data))
        position += 8 + size
    return chunks


def files_of_shard(content: bytes, xorbs: dict[str, list[bytes]]) -> list[bytes]:
    """The files that a list of Xet storage describes as ranges of chunks: 48 bytes for the list and for each entry."""
    files, position = [], 48
    while content[position : position + 32] != b"\xff" * 32:
        flags, count = struct.unpack_from("<II", content, position + 32)
        entries = [struct.unpack_from("<4Q4I", content, position + 48 * number) for number in range(1, count + 1)]
        parts = [xorbs["".join(f"{word:016x}" for word in entry[:4])][entry[6] : entry[7]] for entry in entries]
        files.append(b"".join(chunk for part in parts for chunk in part))
        position += 48 * (1 + count + (count if flags >> 31 else 0) + (flags >> 30 & 1))
    return files


NAME = r"([\w.-]+/[\w.-]+)"
ROUTES = [
    ("POST /api/repos/create", "create"),
    ("POST /api/validate-yaml", "validate"),
    (f"GET /api/models/{NAME}", "info"),
    (f"GET /api/models/{NAME}/revision/(.+)", "info"),
    (rf"GET /api/models/{NAME}/tree/(\w+)", "tree"),
    (rf"GET /api/models/{NAME}/tree/(\w+)/(.+)", "tree"),
    (rf"POST /api/models/{NAME}/preupload/(\w+)", "preupload"),
    (rf"POST /api/models/{NAME}/commit/(\w+)", "commit"),
    (f"POST /{NAME}.git/info/lfs/objects/batch", "batch"),
    (r"PUT /lfs/(\w+)", "put"),
    ("POST /lfs-verify", "verify"),
    (rf"GET /api/models/{NAME}/xet-write-token/(\w+)", "xet_token"),
    (r"POST /v1/xorbs/default/(\w+)", "put_xorb"),
    ("POST /v1/shards", "put_shard"),
    (rf"(?:GET|HEAD) /{NAME}/resolve/(\w+)/(.+)", "resolve"),
]
