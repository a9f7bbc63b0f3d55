"""A process of benchmarks.compare: times operators of the checkout that PYTHONPATH names, a sample per line of input.

It runs as a script, `python benchmarks/one_side.py CHECKOUT JOB`, so that no other hf_blosan comes first on the path.
JOB is JSON: a shape and a setting. Each line that it reads is JSON, [operator, pass]; it answers with milliseconds.
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
    from benchmarks.measure import Case, Setting, calls_per_sample, clock
    from benchmarks.operators import OPERATORS

    compiled = getattr(sys.modules.get("hf_blosan.kernels.library"), "has_cpu_kernels", None)
    if compiled and not compiled():
        sys.exit(f"{checkout} has no compiled kernels; compile them there by `python setup.py build_ext --inplace`")
    setting = Setting(**job["setting"])
    torch.set_num_threads(setting.threads)
    known = {}
    for line in sys.stdin:
        operator, pass_ = key = tuple(json.loads(line))
        if key not in known:
            call = Case(OPERATORS[operator], *job["shape"], setting).call(pass_)
            known[key] = call, calls_per_sample(call, setting.device)
        call, number = known[key]
        call()  # the other process has just used the caches, and its threads wait a while for more work
        print(clock(call, number, setting.device), flush=True)
