"""What a fresh process waits for: `python -m benchmarks.startup --output benchmarks/reports/startup.json`.

Measured are the import of the package beside that of transformers, and the first forward and backward pass of a model
beside the second. Every sample is a process of its own, with empty folders in place of the caches that compilers keep.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_blosan.cli.options import option

from .command import Options, choose, command
from .report import page, table

IMPORTS = {
    "transformers": "from transformers import PreTrainedModel, AutoModel",
    "hf_blosan": "import hf_blosan; from transformers import PreTrainedModel, AutoModel",
}
MODELS = ("disan", "biblosan", "mtsa")
PASSES = ("forward", "backward")

IMPORT_RATIO = 1.2
"""The target: two classes of transformers are imported in at most that many times as long after `import hf_blosan`."""
FIRST_CALL_SECONDS = 0.3
"""The target: a first pass takes at most that much longer than a second."""

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME", "HF_HOME")

TIME_IMPORT = """
import json, sys, time
statement = compile(sys.argv[1], "statement", "exec")
start = time.perf_counter()
exec(statement)
print(json.dumps(time.perf_counter() - start))
"""

# In training mode, on random tokens, the last half of the last sentence padding.
TIME_PASSES = """
import json, sys, time
import torch, hf_blosan
from transformers import AutoConfig, AutoModel
model_type, batch, length, threads, seed = sys.argv[1], *map(int, sys.argv[2:])
torch.set_num_threads(threads)
torch.manual_seed(seed)
model = AutoModel.from_config(AutoConfig.for_model(model_type, vocab_size=1000)).train()
ids = torch.randint(1, 1000, (batch, length))
mask = torch.ones_like(ids)
mask[-1, length - length // 2:] = 0
seconds = {"forward": [], "backward": []}
for _ in range(2):
    model.zero_grad()
    start = time.perf_counter()
    output = model(ids * mask, attention_mask=mask).pooler_output.square().sum()
    middle = time.perf_counter()
    output.backward()
    seconds["forward"].append(middle - start)
    seconds["backward"].append(time.perf_counter() - middle)
print(json.dumps(seconds))
"""


def fresh_process(code: str, *arguments: object) -> Any:
    """What a Python of its own, with empty caches, prints in its last line.

    Raises:
        RuntimeError: it fails.
    """
    with tempfile.TemporaryDirectory() as empty:
        caches = {name: str(Path(empty, name.lower())) for name in CACHES}
        command = [sys.executable, "-c", code, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **caches})
    if done.returncode:
        raise RuntimeError(f"a process that was to be timed fails:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def figures(samples: list[float]) -> dict[str, Any]:
    return {
        "median_s": round(statistics.median(samples), 4),
        "min_s": round(min(samples), 4),
        "max_s": round(max(samples), 4),
        "samples": len(samples),
    }


def imports(repeats: int) -> list[dict[str, Any]]:
    """Time both imports in turn, the first of a round being the second of the next."""
    samples: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for statement in IMPORTS.values():
        fresh_process(TIME_IMPORT, statement)  # brings the files into memory
    for turn in range(repeats):
        for name in list(IMPORTS)[:: 1 if turn % 2 else -1]:
            samples[name].append(fresh_process(TIME_IMPORT, IMPORTS[name]))
    return [{"import": name, "statement": IMPORTS[name], **figures(samples[name])} for name in IMPORTS]


def first_calls(models: list[str], options: StartupOptions) -> list[dict[str, Any]]:
    """Time the first and the second pass of the models, which take turns."""
    shape = (options.batch, options.length, options.threads, options.seed)
    runs: dict[str, list[dict[str, list[float]]]] = {model: [] for model in models}
    for _ in range(options.repeats):
        for model in models:
            runs[model].append(fresh_process(TIME_PASSES, model, *shape))
    return [
        {"model": model, "pass": pass_, "call": call, **figures([run[pass_][place] for run in runs[model]])}
        for model in models
        for pass_ in PASSES
        for place, call in enumerate(("first", "second"))
    ]


def targets(report: dict[str, Any]) -> list[dict[str, Any]]:
    """What is aimed at, and what was measured."""
    base, package = (row["median_s"] for row in report["imports"])
    rows = [{"target": "import hf_blosan / import transformers", "at_most": IMPORT_RATIO, "is": package / base}]
    calls = {(row["model"], row["pass"], row["call"]): row["median_s"] for row in report["first_calls"]}
    for model, pass_, call in calls:
        if call == "first":
            more = calls[model, pass_, "first"] - calls[model, pass_, "second"]
            name = f"{model}, first {pass_} - second, seconds"
            rows.append({"target": name, "at_most": FIRST_CALL_SECONDS, "is": more})
    return [{**row, "is": round(row["is"], 3), "met": row["is"] <= row["at_most"]} for row in rows]


def markdown(report: dict[str, Any]) -> str:
    """The targets as a table."""
    rows = ([row["target"], row["is"], row["at_most"], "yes" if row["met"] else "no"] for row in report["targets"])
    return page(
        "What a fresh process waits for", report["header"], [], table(["target", "is", "at most", "met"], rows)
    )


@dataclass(kw_only=True)
class StartupOptions(Options):
    """Options of ``python -m benchmarks.startup``."""

    models: str = option("Encoders.", ",".join(MODELS))
    batch: int = option("Sentences.", 64)
    length: int = option("Tokens of a sentence.", 32)
    repeats: int = option("Samples of each figure.", 9)


def measure(options: StartupOptions, report: dict[str, Any]) -> None:
    models = choose("--models", options.models, MODELS)
    del report["rows"]
    report |= {"imports": imports(options.repeats), "first_calls": first_calls(models, options)}
    report["targets"] = targets(report)


main = command("benchmarks.startup", StartupOptions, measure, recorded=("batch", "length", "repeats"))

if __name__ == "__main__":
    sys.exit(main())
