"""Predicted and measured times of training and decoding steps, in one run: is the roofline model of Regard right?

The machine (peak, bandwidth by working set, time per operator call), then for each architecture a training step
(forward, backward, Adam) and, with --decoding, decoding steps with beam 1 and 5 and batch 1 and 32. The prediction is
computed from counts on the meta device and from the measured machine; the measurement runs the same step on real
tensors. Nothing is fitted to the steps. Architectures take turns, and the best time of all rounds counts. With one
thread, time is CPU time, so that other programs on the machine disturb less.

    python benchmarks/roofline.py [--arch NAME ...] [--decoding] [--length 25] [--batch 32] [--threads 1] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from regard.config import TrainSettings
from regard.models import build, presets, settings_of, size_names
from regard.models.base import Seq2Seq
from regard.system import keep_memory
from regard.training.cost import DecodingRun, StepCost, count_phases, count_training, pair_batch, run_training
from regard.training.optimizer import make_optimizer
from regard.training.roofline import MachineRoofs, best_time, measure_roofs, predict

VOCABULARY = 8000
TOLERANCE = 1.5
LARGE = ("transformer-base", "transformer-big", "gnmt")  # more than a minute per step on a small machine


def measure_training(model: Seq2Seq, cost: StepCost, length: int, clock: Callable[[], float]) -> float:
    """Return the time of a training step, the best of three or more."""
    model.train()
    optimizer = make_optimizer(model, TrainSettings(optimizer="adam"))
    batch = pair_batch(model, cost.rows, length, length)

    def step() -> None:
        optimizer.zero_grad()
        run_training(model, *batch)
        optimizer.step()

    return min(best_time(step, 0.5, warm=warm, clock=clock) for warm in (1, 0, 0))


@torch.no_grad()
def measure_decoding(model: Seq2Seq, cost: StepCost, length: int, clock: Callable[[], float]) -> float:
    """Return the best time of the decoding step in the middle of a sentence, over several sentences."""
    model.eval()
    run = DecodingRun(model, pair_batch(model, cost.rows, length, 1)[0], cost.width)
    best, spent = math.inf, 0.0
    while spent < 0.2:
        run.start()
        for _ in range(length // 2 - 2):
            run.step()
        times = [best_time(run.step, 0.0, warm=0, clock=clock) for _ in range(3)]  # around the position that is counted
        best, spent = min(best, sorted(times)[1]), spent + sum(times)
    return best


def measure(arch: str, costs: list[StepCost], length: int, clock: Callable[[], float]) -> list[float]:
    """Return the time of each step, measured once, on a new model."""
    model = make(arch)
    measures = {"training": measure_training, "decoding": measure_decoding}
    return [measures[cost.kind](model, cost, length, clock) for cost in costs]


def make(arch: str) -> Seq2Seq:
    settings = settings_of(arch)
    model = build(settings, **dict.fromkeys(size_names(settings), VOCABULARY))
    assert isinstance(model, Seq2Seq)
    return model


def count(arch: str, options: argparse.Namespace) -> list[StepCost]:
    """Count the steps of an architecture, without weights."""
    with torch.device("meta"):
        model = make(arch)
    if not options.decoding:
        return [count_training(model, options.batch, options.length, options.length)]
    return [cost for cost in count_phases(model, options.length, options.batch) if cost.kind != "sentence"]


def show_machine(machine: MachineRoofs) -> None:
    levels = ", ".join(f"{speed / 1e9:.0f} GB/s at {size / 2**20:g} MB" for size, speed in machine.bandwidths)
    print(f"{machine.threads} threads: {machine.peak / 1e9:.0f} GFLOP/s; {levels}")
    print("products of n rows: " + ", ".join(f"{n}: {speed / 1e9:.0f}" for n, speed in machine.products) + " GFLOP/s")
    with_gradients = f"in training {machine.launch_with_gradients * 1e6:.1f} us"
    print(f"call of an operator: {machine.launch * 1e6:.1f} us, {with_gradients}", flush=True)


def compare(arch: str, cost: StepCost, machine: MachineRoofs, measured: float) -> dict[str, Any]:
    """Print prediction and measurement of a step, and return them."""
    found = predict(cost, machine)
    ratio = found.seconds / measured
    parts = ", ".join(f"{name} {getattr(found, name) * 1e3:.2f}" for name in ("compute", "memory", "launch"))
    inside = 1 / TOLERANCE <= ratio <= TOLERANCE
    print(
        f"{arch:18} {cost.name:33} predicted {found.seconds * 1e3:8.2f} ms ({parts}) measured {measured * 1e3:8.2f} ms"
        f" ratio {ratio:.2f}{'' if inside else ' *'}"
    )
    return {"arch": arch, "measured": measured, "ratio": ratio, "inside": inside} | cost.as_dict() | found.as_dict()


def main() -> None:
    """Measure, print the table, store it."""
    names = [arch for arch in presets("seq2seq") if arch not in LARGE]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", nargs="+", default=names, help="encoder-decoders (default: all but the largest)")
    parser.add_argument("--decoding", action="store_true", help="also decoding steps")
    parser.add_argument("--length", type=int, default=25, help="tokens per sentence")
    parser.add_argument("--batch", type=int, default=32, help="sentence pairs per training step")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds; the best counts")
    parser.add_argument("--threads", type=int, default=1, help="threads for PyTorch")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out" / "roofline.json", help="JSON file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_memory()
    clock = time.process_time if options.threads == 1 else time.perf_counter
    counted = {arch: count(arch, options) for arch in options.arch}
    machine = measure_roofs(clock)
    show_machine(machine)
    best = {arch: [math.inf] * len(costs) for arch, costs in counted.items()}
    for _ in range(options.rounds):
        for arch, costs in counted.items():
            best[arch] = list(map(min, best[arch], measure(arch, costs, options.length, clock)))
    rows = [
        compare(arch, cost, machine, measured)
        for arch, costs in counted.items()
        for cost, measured in zip(costs, best[arch], strict=True)
    ]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": machine.as_dict(), "steps": rows}, indent=1) + "\n")
    inside = sum(row["inside"] for row in rows)
    print(f"{inside} of {len(rows)} predictions are within a factor of {TOLERANCE} of the measurement")


if __name__ == "__main__":
    main()
