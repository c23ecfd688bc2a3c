"""Predicted and measured times of training and decoding steps, in one run: is the roofline model of Regard right?

The machine (peak, bandwidth by working set, time per operator call), then for each architecture a training step
(forward, backward, Adam) and decoding steps with beam 1 and 5 and batch 1 and 32. The prediction is computed from counts
on the meta device and from the measured machine; the measurement runs the same step on real tensors, the best time of
several rounds. Nothing is fitted to the steps.

    python benchmarks/roofline.py [--arch NAME ...] [--length 25] [--batch 64] [--rounds 5] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import torch

from regard.config import TrainSettings
from regard.models import build, settings_of, size_names
from regard.models.base import Seq2Seq
from regard.system import keep_memory
from regard.training.cost import DecodingRun, StepCost, count_phases, pair_batch, run_training
from regard.training.optimizer import make_optimizer
from regard.training.roofline import best_time, measure_roofs, predict

ARCHITECTURES = ["transformer-small", "bahdanau", "luong-dot"]
VOCABULARY = 8000
TOLERANCE = 1.5


def measure(model: Seq2Seq, cost: StepCost, length: int, seconds: float) -> float:
    """Return the best time of the step that `cost` counts, on real tensors."""
    if cost.kind == "training":
        return measure_training(model, cost, length, seconds)
    return measure_decoding(model, cost, length, seconds)


def measure_training(model: Seq2Seq, cost: StepCost, length: int, seconds: float) -> float:
    """Return the best time of a training step."""
    model.train()
    optimizer = make_optimizer(model, TrainSettings(optimizer="adam"))
    batch = pair_batch(model, cost.rows, length, length)

    def step() -> None:
        optimizer.zero_grad()
        run_training(model, *batch)
        optimizer.step()

    return best_time(step, seconds)


@torch.no_grad()
def measure_decoding(model: Seq2Seq, cost: StepCost, length: int, seconds: float) -> float:
    """Return the best time of the decoding step in the middle of a sentence, over several sentences."""
    model.eval()
    run = DecodingRun(model, pair_batch(model, cost.rows, length, 1)[0], cost.width)
    best, spent = math.inf, 0.0
    while spent < seconds:
        run.start()
        for _ in range(length // 2 - 2):
            run.step()
        times = [best_time(run.step, 0.0, warm=0) for _ in range(3)]  # positions around the one that was counted
        best, spent = min(best, sorted(times)[1]), spent + sum(times)
    return best


def main() -> None:
    """Measure, print the table, store it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", nargs="+", default=ARCHITECTURES, help="architectures (encoder-decoders)")
    parser.add_argument("--length", type=int, default=25, help="tokens per sentence")
    parser.add_argument("--batch", type=int, default=64, help="sentence pairs per training step")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of measuring per step")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads for PyTorch")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out" / "roofline.json", help="JSON file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_memory()
    machine = measure_roofs()
    levels = ", ".join(f"{speed / 1e9:.0f} GB/s at {size / 2**20:g} MB" for size, speed in machine.bandwidths)
    print(f"{machine.threads} threads: {machine.peak / 1e9:.0f} GFLOP/s; {levels}")
    print("products of n rows: " + ", ".join(f"{n}: {speed / 1e9:.0f}" for n, speed in machine.products) + " GFLOP/s")
    print(f"call of an operator: {machine.launch * 1e6:.1f} us, in training {machine.launch_with_gradients * 1e6:.1f} us")
    rows: list[dict[str, Any]] = []
    for arch in options.arch:
        settings = settings_of(arch)
        model = build(settings, **dict.fromkeys(size_names(settings), VOCABULARY))
        assert isinstance(model, Seq2Seq)
        for cost in count_phases(model, options.length, options.batch):
            if cost.kind == "sentence":
                continue
            predicted = predict(cost, machine)
            measured = measure(model, cost, options.length, options.seconds)
            ratio = predicted.seconds / measured
            rows.append(cost.as_dict() | {"arch": arch, "measured": measured, **predicted.as_dict(), "ratio": ratio})
            parts = f"compute {predicted.compute * 1e3:.2f} memory {predicted.memory * 1e3:.2f} calls {predicted.launch * 1e3:.2f}"
            print(
                f"{arch:18} {cost.name:34} predicted {predicted.seconds * 1e3:9.2f} ms ({parts})"
                f" measured {measured * 1e3:9.2f} ms ratio {ratio:.2f}{'' if 1 / TOLERANCE <= ratio <= TOLERANCE else ' *'}"
            )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": machine.as_dict(), "steps": rows}, indent=1) + "\n")
    inside = sum(1 / TOLERANCE <= row["ratio"] <= TOLERANCE for row in rows)
    print(f"{inside} of {len(rows)} predictions are within a factor of {TOLERANCE} of the measurement")


if __name__ == "__main__":
    main()
