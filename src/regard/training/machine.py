"""The machine: how much memory and arithmetic it has."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass

import torch

from regard.system import free_memory, usable_cores


@dataclass(frozen=True)
class Machine:
    """What the plan knows of the machine."""

    device: str
    """"cpu" or the name of the GPU."""
    cores: int
    memory: float
    """Bytes that are free: of the GPU, or else of the machine."""
    peak: float
    """Operations a second of a large matrix product."""
    short_gain: float = 1.0
    """How many times as fast that is in bfloat16."""


def look_at_machine(device: str = "auto") -> Machine:
    """The machine that this runs on, as it is now; `device` as `train.device` says it."""
    if device != "cpu" and torch.cuda.is_available():
        free, _ = torch.cuda.mem_get_info()
        return Machine(torch.cuda.get_device_name(), usable_cores(), float(free), matmul_peak("cuda"))
    peak = matmul_peak()
    return Machine("cpu", usable_cores(), free_memory(), peak, matmul_peak(kind=torch.bfloat16) / peak)


@functools.cache
def matmul_peak(device: str = "cpu", kind: torch.dtype = torch.float32) -> float:
    """Multiplications and additions a second that a large matrix product reaches here, measured in 0.3 s."""
    size = 1024
    a, b = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
    best, until = float("inf"), time.perf_counter() + 0.3
    while time.perf_counter() < until:
        start = time.perf_counter()
        torch.mm(a, b)
        if device != "cpu":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
