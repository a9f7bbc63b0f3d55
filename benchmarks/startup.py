"""What a fresh process waits for: `python -m benchmarks.startup --output benchmarks/reports/startup.json`.

Measured are the import of the package beside that of transformers, and the first forward and backward pass of a model
beside the second. Every sample is a process of its own, with empty folders in place of the caches that compilers keep.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hf_blosan.files import write_json

from .command import check_positive, choose, cpu_header, exit_code, make_parser

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


def first_calls(models: list[str], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Time the first and the second pass of the models, which take turns."""
    shape = (arguments.batch, arguments.length, arguments.threads, arguments.seed)
    runs: dict[str, list[dict[str, list[float]]]] = {model: [] for model in models}
    for _ in range(arguments.repeats):
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


def parse(argv: list[str]) -> argparse.Namespace:
    parser = make_parser("benchmarks.startup", __doc__, repeats=9)
    parser.add_argument("--models", default=",".join(MODELS), help=f"default: {','.join(MODELS)}")
    parser.add_argument("--batch", type=int, default=64, help="sentences; default: 64")
    parser.add_argument("--length", type=int, default=32, help="tokens of a sentence; default: 32")
    arguments = parser.parse_args(argv)
    check_positive(arguments, "batch", "length", "threads", "repeats")
    return arguments


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure and write the report.

    Raises:
        InputError: an option that cannot be used.
    """
    argv = sys.argv[1:] if argv is None else argv
    arguments = parse(argv)
    models = choose("--models", arguments.models, MODELS)
    head = cpu_header("benchmarks.startup", arguments, argv, ("batch", "length", "repeats"))
    report = {"header": head, "imports": imports(arguments.repeats), "first_calls": first_calls(models, arguments)}
    report["targets"] = targets(report)
    write_json(arguments.output, report)
    for row in report["targets"]:
        print(f"{row['target']}: {row['is']}, at most {row['at_most']}: {'met' if row['met'] else 'missed'}")
    return report


def main(argv: list[str] | None = None) -> int:
    """The command; bad input is one sentence on standard error and exit code 2."""
    return exit_code(run, argv)


if __name__ == "__main__":
    sys.exit(main())
