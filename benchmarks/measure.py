"""Time and peak memory of one operator at one shape."""

from __future__ import annotations

import ctypes
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import Tensor
from torch.profiler import DeviceType, ProfilerActivity, profile

from .operators import OPERATORS, SIZE, Operator

SAMPLE_MS = 40.0
"""A sample is the mean over as many calls as take at least this long."""


@dataclass(frozen=True)
class Setting:
    """What is the same for all measurements of a run. ``dtype`` bfloat16 means autocast."""

    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 2
    seed: int = 42


class Case:
    """An operator at a shape, with its input and the fixed random tensor that its output is multiplied by.

    Args:
        operator: what to build; operators with the same parameters get the same weights and inputs.
        batch, length: the shape of the input.
        setting: device, dtype and seed.
        size: features per direction.
        built_for: the sentence length to build for; by default that of the input.
    """

    def __init__(
        self,
        operator: Operator,
        batch: int,
        length: int,
        setting: Setting,
        *,
        size: int = SIZE,
        built_for: int | None = None,
    ):
        torch.manual_seed(setting.seed)
        self.setting = setting
        self.module = operator.build(built_for or length, size).to(setting.device)
        generator = torch.Generator().manual_seed(setting.seed)
        self.hidden = torch.randn(batch, length, operator.width * size, generator=generator)
        self.hidden = self.hidden.to(setting.device).requires_grad_()
        self.mask = torch.ones(batch, length, dtype=torch.bool, device=setting.device)
        shape = self.forward().shape
        self.direction = torch.randn(shape, generator=generator).to(setting.device)

    def run(self) -> Tensor:
        """The output, in the precision of the setting."""
        lower = self.setting.dtype != "float32"
        with torch.autocast(self.setting.device, getattr(torch, self.setting.dtype) if lower else None, enabled=lower):
            return self.module(self.hidden, self.mask)

    def forward(self) -> Tensor:
        """The output alone."""
        self.module.eval()
        with torch.no_grad():
            return self.run()

    def gradients(self) -> list[Tensor]:
        """The output, and the gradients of sum(output * direction) for the input and every weight."""
        self.module.train()  # no layer has dropout; cuDNN's recurrent layers need this mode for a backward pass
        output = self.run()
        leaves = [self.hidden, *self.module.parameters()]
        return [output.detach(), *torch.autograd.grad(output, leaves, self.direction.to(output.dtype))]

    def call(self, pass_: str) -> Callable:
        """The function to measure."""
        return self.forward if pass_ == "forward" else self.gradients


def clock(call: Callable, number: int, device: str) -> float:
    """Milliseconds per call, the mean over several."""
    if device == "cuda":
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(number):
            call()
        stop.record()
        torch.cuda.synchronize()
        return start.elapsed_time(stop) / number
    begin = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - begin) * 1e3 / number


def calls_per_sample(call: Callable, device: str) -> int:
    """How many calls make a sample."""
    call()  # compiles whatever is compiled on first use
    return max(1, math.ceil(SAMPLE_MS / min(clock(call, 1, device) for _ in range(3))))


def times(calls: dict[str, Callable], repeats: int, device: str) -> dict[str, dict[str, float]]:
    """Times in milliseconds. All calls take turns, so that a busy moment of the machine affects all of them."""
    numbers = {name: calls_per_sample(call, device) for name, call in calls.items()}
    samples = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            samples[name].append(clock(call, numbers[name], device))
    return {name: summary(values) | {"calls": repeats * numbers[name]} for name, values in samples.items()}


def summary(samples: Iterable[float]) -> dict[str, float]:
    """Median, minimum and quartiles."""
    samples = sorted(samples)
    quartiles = statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else samples * 3
    names = ("min_ms", "lower_quartile_ms", "median_ms", "upper_quartile_ms")
    return {name: round(value, 4) for name, value in zip(names, (samples[0], *quartiles), strict=True)}


def kernels(call: Callable) -> dict[str, float]:
    """How many kernels a call starts on a GPU, and what they take together: without the gaps between them."""
    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        call()
        torch.cuda.synchronize()
    took = [event.device_time for event in recorded.events() if event.device_type == DeviceType.CUDA]
    return {"kernels": len(took), "kernels_ms": round(sum(took) / 1e3, 4)}


def peak_mib(name: str, batch: int, length: int, pass_: str, setting: Setting) -> float | None:
    """Peak memory of a call in MiB, beyond what is allocated before it; None if the machine has too little.

    On the CPU each measurement runs in its own process, so that it cannot reuse memory of an earlier one. These
    processes are forked from one that has only imported torch and the operators, because the import takes seconds.
    """
    if setting.device == "cuda":
        case = Case(OPERATORS[name], batch, length, setting)
        return cuda_peak(case.call(pass_))
    processes = get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(1, mp_context=processes) as executor:
        try:
            return executor.submit(resident_peak, name, batch, length, pass_, setting).result()
        except BrokenProcessPool:
            return None


def cuda_peak(call: Callable) -> float:
    """The part of :func:`peak_mib` on a GPU: memory as torch allocates it."""
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return round((torch.cuda.max_memory_allocated() - before) / 2**20, 1)


def resident_peak(name: str, batch: int, length: int, pass_: str, setting: Setting) -> float:
    """The part of :func:`peak_mib` on the CPU, run in a process of its own: resident memory as Linux counts it."""
    torch.set_num_threads(setting.threads)
    call = Case(OPERATORS[name], batch, length, setting).call(pass_)
    call()
    gc.collect()
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)  # memory that the first call freed would stay resident and be reused
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    call()
    return round((resident("VmHWM") - before) / 1024, 1)


def resident(field: str) -> int:
    """A size in KiB from /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
