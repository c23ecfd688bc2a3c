"""The time of a mixture of experts, in units of a feed-forward network with the FLOPs of its active experts.

Both layers run forward and backward on the same tokens, with the balance losses, and take turns, so that both are
measured under the same conditions. The gate has random weights, so that the experts are about equally busy. The output
is the median over the turns of the ratio of the times, for training, and for evaluation without gradients. A ratio
below 1.3 is wanted for the sizes of the presets. For comparison, a computation of all experts would take E / k.

    python benchmarks/experts.py [--tokens 2048] [--turns 15]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from multi30k import OUT
from regard.layers.auxiliary import collect_auxiliary
from regard.layers.experts import MixtureOfExperts
from regard.models import settings_of
from regard.models.transformer import FeedForward
from regard.models.transformer_settings import TransformerSettings

SIZES = [(192, 384, 8, 2), (256, 1024, 8, 2), (512, 1024, 8, 2), (512, 1024, 32, 2), (512, 2048, 16, 4)]
"""Width, inner width of an expert, number of experts, active experts; the first is the preset transformer-moe."""
ROWS = 32


def train(layer: nn.Module, x: Tensor, gradient: Tensor) -> None:
    """A forward and a backward pass, with the losses that the layer adds."""
    with collect_auxiliary() as added:
        y = layer.train()(x)
    torch.autograd.backward([y, *added.losses], [gradient, *(torch.ones(()) for _ in added.losses)])
    layer.zero_grad()
    x.grad = None


@torch.no_grad()
def evaluate(layer: nn.Module, x: Tensor, _gradient: Tensor) -> None:
    """A forward pass as in a search."""
    layer.eval()(x)


def clock(run: Callable[..., None], layer: nn.Module, *inputs: Tensor) -> float:
    """Return the seconds of one call."""
    began = time.perf_counter()
    run(layer, *inputs)
    return time.perf_counter() - began


def measure(width: int, inner: int, experts: int, active: int, tokens: int, turns: int) -> dict[str, float]:
    """Return the ratio of the times and the milliseconds of the experts, for training and evaluation."""
    settings = settings_of("transformer-moe")
    assert isinstance(settings, TransformerSettings)
    mixture = MixtureOfExperts(
        replace(settings, experts=experts, active_experts=active), width, inner, "relu", "experts"
    )
    nn.init.normal_(mixture.gate.weight, std=width**-0.5)
    dense = FeedForward(width, active * inner, "relu")
    x = torch.randn(ROWS, tokens // ROWS, width, requires_grad=True)
    gradient, found = torch.randn_like(x), {}
    for name, run in (("train", train), ("evaluate", evaluate)):
        for layer in (dense, mixture):
            run(layer, x, gradient)
        times = [(clock(run, dense, x, gradient), clock(run, mixture, x, gradient)) for _ in range(turns)]
        found[f"{name}_ratio"] = statistics.median(other / one for one, other in times)
        found[f"{name}_ms"] = 1e3 * min(other for _, other in times)
    return found


def main() -> None:
    """Measure, print, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--turns", type=int, default=15)
    options = parser.parse_args()
    torch.manual_seed(1)
    rows = []
    print(
        f"{options.tokens} tokens; ratio to a feed-forward network of the active FLOPs, median of {options.turns} turns"
    )
    print(f"{'width':>6}{'inner':>7}{'E':>4}{'k':>3}{'train ms':>10}{'ratio':>7}{'eval ms':>9}{'ratio':>7}{'E/k':>6}")
    for width, inner, experts, active in SIZES:
        row = measure(width, inner, experts, active, options.tokens, options.turns)
        rows.append({"width": width, "inner": inner, "experts": experts, "active": active, **row})
        print(
            f"{width:6}{inner:7}{experts:4}{active:3}{row['train_ms']:10.1f}{row['train_ratio']:7.2f}"
            f"{row['evaluate_ms']:9.1f}{row['evaluate_ratio']:7.2f}{experts / active:6.1f}"
        )
    OUT.mkdir(exist_ok=True)
    (OUT / "experts.json").write_text(json.dumps({"tokens": options.tokens, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
