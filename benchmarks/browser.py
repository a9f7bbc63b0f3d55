"""An encoder's graphs in a browser: `python -m benchmarks.browser --peer FOLDER --output NAME.json`.

Graphs run in headless Chromium by the code of `examples/browser`, which is transformers.js with onnxruntime-web on one
thread: an encoder of the package in float32 and int8, and a model of sentence-transformers in int8, quantised in the
same way. All take turns, from texts to vectors of length 1.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

from hf_blosan.cli.options import option
from hf_blosan.errors import InputError, require
from hf_blosan.export import OPSET, export, quantize
from hf_blosan.registry import pretrained_names
from hf_blosan.tasks import get_task, load_task
from hf_blosan.tasks.kinds import find_kind

from .command import DATA_DIR, Options, command
from .encode import mean_pooled
from .measure import times
from .report import page, table

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "browser"
PACKAGES = ("@huggingface/transformers", "onnxruntime-web")
GRAPHS = {"fp32": "model.onnx", "q8": "model_quantized.onnx"}
"""The files of a graph by what transformers.js calls them."""
DTYPES = {"fp32": "float32", "q8": "int8"}
PEER = "peer"

LOAD = """
const [name, dtype, done] = arguments;
import('./encoder.js').then(({loadEncoder}) => loadEncoder(name, dtype)).then((encode) => {
  window.encoders = {...window.encoders, [name + dtype]: encode};
  done();
}, (error) => done(String(error)));
"""
ENCODE = """
const [name, size, done] = arguments;
(async () => {
  for (let start = 0; start < window.texts.length; start += size) {
    await window.encoders[name](window.texts.slice(start, start + size));
  }
})().then(() => done(), (error) => done(String(error)));
"""
THREADS = "import('@huggingface/transformers').then(({env}) => arguments[0](env.backends.onnx.wasm.numThreads))"


def require_node() -> None:
    """Raises InputError if Node or the page's packages are missing."""
    if shutil.which("node") is None:
        raise InputError("the page needs Node.js with npm; apt install nodejs npm")
    if not all((EXAMPLE / "node_modules" / package).is_dir() for package in PACKAGES):
        raise InputError(f"the page needs its packages; npm ci --prefix {EXAMPLE}")


def build(site: Path) -> None:
    """The page of ``examples/browser`` with its runtime, without an encoder."""
    require_node()
    subprocess.run(["node", "build.js", str(site)], cwd=EXAMPLE, check=True)


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The address of a folder on this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@contextmanager
def chromium() -> Iterator[Any]:
    """A Chromium without a window, which can reach nothing but this machine and remembers what it asked for.

    Raises:
        InputError: it, its driver or selenium is missing.
    """
    require("a browser needs", "benchmark", "selenium")
    paths = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in paths:
        raise InputError("a browser needs chromium and chromedriver; apt install chromium chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = paths[0]
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1300,1500"):
        options.add_argument(word)
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(paths[1]))
    try:
        yield driver
    finally:
        driver.quit()


class SentenceEmbedding(nn.Module):
    """A model of sentence-transformers with mean pooling, with the output that this package's graphs have."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        return mean_pooled(self.model(input_ids, attention_mask, **types), attention_mask)


def export_peer(source: str, folder: Path) -> None:
    """Write a model of sentence-transformers into a folder of the layout of ``hf-blosan export``."""
    tokenizer, model = AutoTokenizer.from_pretrained(source), AutoModel.from_pretrained(source).eval()
    inputs = dict(tokenizer(["one sentence", "another, longer sentence"], padding=True, return_tensors="pt"))
    path = folder / "onnx" / "model.onnx"
    path.parent.mkdir(parents=True)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's, about names of axes
        program = torch.onnx.export(
            SentenceEmbedding(model),
            kwargs=inputs,
            dynamic_shapes={name: {0: "batch", 1: "length"} for name in inputs},
            output_names=["sentence_embedding"],
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    program.save(path)
    quantize(path)
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def texts_of(options: BrowserOptions) -> list[str]:
    """Test sentences, sorted by length: a batch has little padding."""
    task = get_task(options.task)
    data = load_task(task, data_dir=options.data_dir, seed=options.seed)
    return sorted(list(find_kind(task).texts(data["test"]))[: options.sentences], key=len)


def run_script(driver: Any, script: str, *arguments: Any) -> Any:
    """What a script gives to its last argument.

    Raises:
        RuntimeError: it is an error.
    """
    answer = driver.execute_async_script(script, *arguments)
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return answer


def measure(options: BrowserOptions, report: dict[str, Any]) -> None:
    """A row for each graph and batch size."""
    texts, model = texts_of(options), options.model
    report["header"]["sentences"] = len(texts)
    systems = [(model, "fp32"), (model, "q8"), (PEER, "q8")]
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder)
        build(site)
        export(model, site / "models" / model)
        export_peer(options.peer, site / "models" / PEER)
        with served(site) as address, chromium() as driver:
            driver.set_script_timeout(600)
            driver.get(address)
            for system in systems:
                run_script(driver, LOAD, *system)
            driver.execute_script("window.texts = arguments[0]", texts)
            report["header"]["browser"] = browser(driver)
            for size in options.batch_sizes:
                calls = {system: partial(run_script, driver, ENCODE, "".join(system), size) for system in systems}
                found = times(calls, options.repeats, "cpu")
                report["rows"] += [
                    {
                        "system": name,
                        "graph": DTYPES[dtype],
                        "batch": size,
                        "megabytes": megabytes(site / "models" / name, dtype),
                        "sentences_per_second": round(1e3 * len(texts) / time["median_ms"], 1),
                        "speed": round(found[PEER, "q8"]["median_ms"] / time["median_ms"], 2),
                        **time,
                    }
                    for (name, dtype), time in found.items()
                ]


def browser(driver: Any) -> dict[str, Any]:
    """What the graphs run in."""
    packages = (EXAMPLE / "node_modules" / name / "package.json" for name in PACKAGES)
    versions = {name: json.loads(path.read_text())["version"] for name, path in zip(PACKAGES, packages, strict=True)}
    threads = driver.execute_async_script(THREADS)
    return {"chromium": driver.capabilities["browserVersion"], **versions, "threads": threads}


def megabytes(folder: Path, dtype: str) -> float:
    """The size of what a page loads of an exported model."""
    files = ("config.json", "tokenizer.json", "tokenizer_config.json", f"onnx/{GRAPHS[dtype]}")
    return round(sum((folder / name).stat().st_size for name in files) / 1e6, 1)


def markdown(report: dict[str, Any]) -> str:
    """Sizes and speeds as a table."""
    header, rows = report["header"], report["rows"]
    columns = {"MB": "megabytes", "sentences / s": "sentences_per_second", "speed": "speed"}
    columns = {name: name for name in ("system", "graph", "batch")} | columns
    lines = [[row[column] for column in columns.values()] for row in rows]
    browser = ", ".join(f"{name} {value}" for name, value in header["browser"].items() if name != "threads")
    return page(
        "Graphs in a browser",
        header,
        [
            f"Browser: {browser}; threads: {header['browser']['threads']}",
            f"Sentences: {header['sentences']} of {header['task']}, sorted by length; samples: {header['repeats']}",
        ],
        "Sentences a second from text to vector in headless Chromium, the median of samples that all systems take in "
        "turn; speed in units of the peer's graph in int8. MB: what is loaded of a model, tokenizer included; the "
        "runtime comes on top.",
        table(columns, lines, left=2),
    )


@dataclass(kw_only=True)
class BrowserOptions(Options):
    """Options of ``python -m benchmarks.browser``."""

    peer: str = option("Folder of a sentence-transformers model with mean pooling, to compare with.", MISSING)
    model: str = option("An encoder that comes with the package.", "disan-mini-en")
    task: str = option("Task of the sentences.", "sick_relatedness")
    data_dir: str | None = option(DATA_DIR)
    sentences: int = option("How many, of the test split.", 320)
    batch_size: int = option("Sentences of a batch; batches of one are measured, too.", 64)
    repeats: int = option("Samples of each figure.", 7)
    threads: int = option("Threads of torch, which only exports; a page has one.", 1)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((1, self.batch_size)))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not Path(self.peer, "config.json").is_file():
            raise InputError(f"--peer {self.peer}: there is no saved model; give the folder of one")
        if self.model not in pretrained_names():
            raise InputError(f"--model {self.model}: give one of {', '.join(pretrained_names())}")


RECORDED = ("model", "task", "sentences", "batch_size", "repeats")
main = command("benchmarks.browser", BrowserOptions, measure, recorded=RECORDED)

if __name__ == "__main__":
    sys.exit(main())
