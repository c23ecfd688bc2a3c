"""The machine: how much memory and arithmetic it has, and settings of the process that make training faster."""

from __future__ import annotations

import ctypes
import functools
import os
import time
from dataclasses import dataclass

import torch

# Names and numbers of glibc's mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEEP_BELOW = 1 << 30


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
        return Machine(torch.cuda.get_device_name(), cores(), float(free), matmul_peak("cuda"))
    peak = matmul_peak()
    return Machine("cpu", cores(), free_memory(), peak, matmul_peak(kind=torch.bfloat16) / peak)


def free_memory() -> float:
    """Bytes that a new process could have; infinite where the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            known = dict(line.split(":") for line in file)
        return 1024.0 * int(known["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return float("inf")


@functools.cache
def keep_memory() -> bool:
    """Tell the allocator to keep freed memory instead of giving it back to the kernel after every step.

    A training step frees and takes the same large blocks again; each time, the kernel would clear every page anew.
    Worth a tenth of the throughput with glibc; elsewhere (musl, macOS) nothing happens and False comes back.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _KEEP_BELOW)) and bool(mallopt(_TRIM_THRESHOLD, _KEEP_BELOW))


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


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
