"""The roofline model (Williams et al. 2009): how long a step must take on this machine, and what limits it.

A machine computes at most `peak` FLOPs and moves at most `bandwidth` bytes per second. An operator of F FLOPs that
moves B bytes takes at least max(F / peak, B / bandwidth): below the intensity peak / bandwidth, memory is the limit
(the memory wall), above it, arithmetic. Three measurements make the prediction accurate for CPUs and small operators:

- thin matrix products do not reach the peak. Their speed is measured for several numbers of rows;
- bandwidth depends on where the data is. It is measured with arrays of several sizes, from cache to memory. A tensor
  whose last use was r bytes of traffic ago is read as fast as an array of r bytes that is read again and again;
- every call of an operator costs time, however small its tensors are (`launch`). It is measured with a tiny network.
  Recurrent models and decoding of one sentence consist of many small operators.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.system import free_memory
from regard.training.cost import StepCost
from regard.training.device import matmul_peak
from regard.training.operator_ledger import Touch, count_calls

SIZES = (2**19, 2**21, 2**23, 2**25, 2**27, 3 * 2**28)
"""Working sets, in bytes, for which bandwidth is measured. The last one is larger than caches."""
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Rows of the matrix products whose speed is measured."""
PRODUCT = 512  # width of the weight matrix of these products
FLOAT = 4
SECONDS = 0.15  # of measuring per quantity

Clock = Callable[[], float]
"""A function that returns seconds: of real time, or of the CPU time of this process."""


@dataclass(frozen=True)
class MachineRoofs:
    """The measured upper limits of a machine."""

    threads: int
    peak: float
    """FLOPs per second of a large matrix product in float32."""
    products: tuple[tuple[int, float], ...]
    """Pairs of a number of rows and the FLOPs per second of the product of so many rows with a weight matrix."""
    bandwidths: tuple[tuple[int, float], ...]
    """Pairs of a working set in bytes and the bandwidth in bytes per second, from small to large working sets."""
    launch: float
    """Seconds per call of an operator on tiny tensors, without gradients."""
    launch_with_gradients: float
    """The same in training, where autograd records the call."""

    @property
    def bandwidth(self) -> float:
        """Bytes per second from and to memory: the measurement with the largest arrays."""
        return self.bandwidths[-1][1]

    @property
    def cache_bandwidth(self) -> float:
        return max(speed for _, speed in self.bandwidths)

    @property
    def ridge(self) -> float:
        """The intensity, in FLOPs per byte, above which arithmetic and not memory is the limit."""
        return self.peak / self.bandwidth

    def bandwidth_at(self, distance: float) -> float:
        """Bytes per second of an access to data that was last touched `distance` bytes of traffic ago."""
        return interpolate(self.bandwidths, distance)

    def peak_at(self, rows: int) -> float:
        """FLOPs per second of a matrix product whose smallest size is `rows`."""
        return interpolate(self.products, rows)

    def as_dict(self) -> dict[str, Any]:
        derived = {"bandwidth": self.bandwidth, "cache_bandwidth": self.cache_bandwidth, "ridge": self.ridge}
        return asdict(self) | derived


def interpolate(points: Sequence[tuple[int, float]], at: float) -> float:
    """Interpolate on logarithmic axes between points that are sorted by their first number; constant outside."""
    above = bisect_left([x for x, _ in points], at)
    if above in (0, len(points)):
        return points[min(above, len(points) - 1)][1]
    (low, before), (high, after) = points[above - 1 : above + 1]
    share = math.log(at / low) / math.log(high / low)
    return math.exp((1 - share) * math.log(before) + share * math.log(after))


@dataclass(frozen=True)
class Prediction:
    """The predicted time of a step, in three parts, and the lower bound of the classical roofline model."""

    compute: float
    """Seconds of arithmetic."""
    memory: float
    """Seconds of moving data from and to memory or cache."""
    launch: float
    """Seconds of calling operators."""
    roofline: float
    """max(FLOPs / peak, bytes / memory bandwidth): no machine with these roofs and without a cache is faster."""

    @property
    def seconds(self) -> float:
        return self.compute + self.memory + self.launch

    @property
    def bound(self) -> str:
        """What takes most of the time: "compute", "memory" or "launch"."""
        return max(("compute", "memory", "launch"), key=lambda name: float(getattr(self, name)))

    def as_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds, **asdict(self), "bound": self.bound}


def predict(cost: StepCost, machine: MachineRoofs) -> Prediction:
    """Predict the time of a step that is repeated again and again: at its start, weights were touched one step ago."""
    total = cost.bytes
    compute = sum(operator.flops / machine.peak_at(operator.rows) for operator in cost.operators if operator.flops)
    memory = sum(
        touch.bytes / machine.bandwidth_at(_distance(touch, total))
        for operator in cost.operators
        for touch in operator.touches
    )
    each = machine.launch_with_gradients if cost.kind == "training" else machine.launch
    lower = max(cost.flops / machine.peak, total / machine.bandwidth)
    return Prediction(compute, memory, each * len(cost.operators), lower)


def _distance(touch: Touch, total: int) -> int:
    if touch.fresh:
        return touch.bytes  # the allocator returns memory that was freed a moment ago
    return total if touch.distance is None else touch.distance


# ---------------------------------------------------------------------------------------------------------------------
# Measuring the machine


def measure_roofs(clock: Clock = time.perf_counter) -> MachineRoofs:
    """Measure the CPU with the number of threads that PyTorch uses; takes about three seconds."""
    limit = free_memory() / 4
    products = tuple((rows, measure_product(rows, clock)) for rows in ROWS)
    return MachineRoofs(
        threads=torch.get_num_threads(),
        peak=max(matmul_peak(), *(speed for _, speed in products)),
        products=products,
        bandwidths=tuple((size, measure_bandwidth(size, clock)) for size in SIZES if size < limit or size == SIZES[0]),
        launch=measure_launch(clock, gradients=False),
        launch_with_gradients=measure_launch(clock, gradients=True),
    )


def measure_bandwidth(size: int, clock: Clock = time.perf_counter) -> float:
    """Bytes per second of a = b + 2 c; the three arrays have `size` bytes together, and each call moves them all."""
    a, b, c = (torch.ones(size // (3 * FLOAT)) for _ in range(3))
    return size / best_time(partial(torch.add, b, c, alpha=2.0, out=a), clock=clock)


def measure_product(rows: int, clock: Clock = time.perf_counter) -> float:
    """FLOPs per second of a linear layer on `rows` rows; the weights are in the cache."""
    x, weight = torch.ones(rows, PRODUCT), torch.ones(PRODUCT, PRODUCT)
    return 2 * rows * weight.numel() / best_time(partial(F.linear, x, weight), clock=clock)


def measure_launch(clock: Clock = time.perf_counter, *, gradients: bool) -> float:
    """Mean seconds per operator of a deep network of width 8, whose arithmetic takes almost no time."""
    network = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(16)))
    x = torch.zeros(4, 8)

    def train() -> None:
        network.zero_grad(set_to_none=True)
        network(x).sum().backward()

    def infer() -> Tensor:
        with torch.no_grad():
            return network(x)

    run: Callable[[], object] = train if gradients else infer
    return best_time(run, clock=clock) / count_calls(network, run, gradients=gradients)


def best_time(
    run: Callable[[], object], seconds: float = SECONDS, warm: int = 2, clock: Clock = time.perf_counter
) -> float:
    """The time of the fastest call of `run` in about `seconds` seconds, after `warm` calls that are not measured."""
    for _ in range(warm):
        run()
    times: list[float] = []
    until = time.perf_counter() + seconds
    while not times or time.perf_counter() < until:
        start = clock()
        run()
        times.append(clock() - start)
    return min(times)


# ---------------------------------------------------------------------------------------------------------------------
# Results


def report_costs(costs: Sequence[StepCost], machine: MachineRoofs) -> dict[str, Any]:
    """The machine, and the cost and predicted time of each step, as data for the terminal, the page and JSON."""
    return {
        "machine": machine.as_dict(),
        "phases": [cost.as_dict() | {"prediction": predict(cost, machine).as_dict()} for cost in costs],
    }
