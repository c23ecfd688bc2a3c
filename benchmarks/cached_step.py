"""The cost of one step of a search, after a few tokens and after many, for each architecture of encoder-decoders.

The state of a convolution is its last inputs, so a step of ConvS2S and ByteNet costs the same at every length; a step
of the Transformer reads the keys and values of all tokens before it. The source is the same at both lengths. Each
measurement is the mean of a few steps; the two lengths take turns, so that both are measured under the same
conditions. The output is the median ratio of the times, and the ratio of the FLOPs that PyTorch counts.

    python benchmarks/cached_step.py [--lengths 20 400] [--turns 15] [--arch convs2s bytenet ...]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from multi30k import OUT, WORDS
from regard.decoding.hypothesis import follow_beams
from regard.models import build, settings_of
from regard.models.base import EncoderOutput, Seq2Seq, Tree

ARCHS = ("convs2s", "bytenet", "gnmt", "transformer-small")
ROWS, BEAMS, SOURCE = 8, 5, 20
STEPS = 5
"""Number of steps per measurement."""


def walk(model: Seq2Seq, memory: EncoderOutput, state: Tree, steps: int) -> Tree:
    """Decode `steps` tokens; their ids do not matter for the cost."""
    token_BW = torch.full((ROWS, BEAMS), 5)
    for _ in range(steps):
        _, state = model.step(token_BW, state, memory)
    return state


def begin(model: Seq2Seq, memory: EncoderOutput) -> Tree:
    """The state before the first token, of all hypotheses."""
    return follow_beams(model.start(memory), torch.zeros(ROWS, BEAMS, dtype=torch.long))


def measure(model: Seq2Seq, lengths: tuple[int, int], turns: int) -> dict[str, Any]:
    """Return the milliseconds per step and the FLOPs at both lengths, and the median of the ratios of each turn."""
    source = SimpleNamespace(
        ids_BS=torch.randint(3, WORDS, (ROWS, SOURCE)), mask_BS=torch.ones(ROWS, SOURCE, dtype=torch.bool)
    )
    memory = model.encode(source)
    times: list[tuple[float, float]] = []
    ahead = walk(model, memory, begin(model, memory), lengths[1] - STEPS)
    for _ in range(turns):
        behind = walk(model, memory, begin(model, memory), lengths[0] - STEPS)
        short, _ = clock(model, memory, behind)
        long, ahead = clock(model, memory, ahead)  # goes on from there: so many tokens are not decoded again each turn
        times.append((short, long))
    flops = [count(model, memory, length) for length in lengths]
    short, long = (1e3 * min(turn[side] for turn in times) for side in (0, 1))
    ratio = statistics.median(long / short for short, long in times)
    return {"short_ms": short, "long_ms": long, "time_ratio": ratio, "flops_ratio": flops[1] / flops[0]}


def clock(model: Seq2Seq, memory: EncoderOutput, state: Tree) -> tuple[float, Tree]:
    """Return the seconds per step of the next few steps, and the state after them."""
    began = time.perf_counter()
    state = walk(model, memory, state, STEPS)
    return (time.perf_counter() - began) / STEPS, state


def count(model: Seq2Seq, memory: EncoderOutput, length: int) -> float:
    """FLOPs of the step that reads token number `length`."""
    state = walk(model, memory, begin(model, memory), length - 1)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # a fused kernel is not counted
        walk(model, memory, state, 1)
    return float(counter.get_total_flops())


@torch.no_grad()
def main() -> None:
    """Measure, print, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs=2, default=[20, 400], metavar=("SHORT", "LONG"))
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--arch", nargs="+", default=list(ARCHS))
    options = parser.parse_args()
    short, long = options.lengths
    torch.manual_seed(1)
    rows = {}
    print(f"{ROWS} sentences, {BEAMS} hypotheses each; times: best of {options.turns} turns, median of their ratios")
    print(f"{'':20}{f'ms at {short}':>12}{f'ms at {long}':>12}{'time':>8}{'FLOPs':>8}   (ratio {long} / {short})")
    for arch in options.arch:
        model = build(settings_of(arch), source_vocabulary=WORDS, target_vocabulary=WORDS).eval().requires_grad_(False)
        rows[arch] = row = measure(model, (short, long), options.turns)
        print(
            f"{arch:20}{row['short_ms']:12.2f}{row['long_ms']:12.2f}{row['time_ratio']:8.2f}{row['flops_ratio']:8.2f}"
        )
    OUT.mkdir(exist_ok=True)
    (OUT / "cached_step.json").write_text(json.dumps({"lengths": options.lengths, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
