"""A process of benchmarks.compare: times the operators of the checkout that PYTHONPATH names, and prints JSON.

It runs as a script, `python benchmarks/one_side.py CHECKOUT JOB`, so that no other hf_blosan comes first on the path.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

import hf_blosan

if __name__ == "__main__":
    checkout, job = Path(sys.argv[1]).resolve(), json.loads(sys.argv[2])
    if not Path(hf_blosan.__file__).resolve().is_relative_to(checkout):
        sys.exit(f"hf_blosan is imported from {hf_blosan.__file__}, not from {checkout}")
    # From here on, `benchmarks` is the folder of this file, whichever version of the package it measures.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from benchmarks.measure import Case, Setting, times
    from benchmarks.operators import OPERATORS

    setting = Setting(**job["setting"])
    torch.set_num_threads(setting.threads)
    rows = []
    for pass_ in job["passes"]:
        calls = {name: Case(OPERATORS[name], *job["shape"], setting).call(pass_) for name in job["operators"]}
        for name, figures in times(calls, job["repeats"], setting.device).items():
            rows.append({"operator": name, "pass": pass_, **figures})
    print(json.dumps(rows))
