"""The table "complexity per layer" of the lectures, measured: time and memory of one layer by sentence length n.

Self-attention (with explicit weights, and with the fused kernel), restricted self-attention (r = 64), a recurrent layer
and two convolutions, all of width 256, on one sentence of 64 to 4,096 tokens. Layers take turns, and the best of
several rounds counts. The exponents of n are fitted to the longest sizes.

    python benchmarks/layers.py [--backward] [--rounds 7] [--threads 2] [--out benchmarks/out]

Writes layers.json and layers.png. Memory is the peak of PyTorch's allocator, without input and weights.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise the profiler writes to stderr

import torch
from torch import Tensor, nn

from regard.analysis.complexity import exponent
from regard.layers.attention import SelfAttention
from regard.layers.hooks import trace
from regard.layers.rnn_cells import RecurrentLayer as Recurrent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEADS, WINDOW = 256, 4, 64
SIZES = [64, 128, 256, 512, 1024, 2048, 4096]
FITTED = 3  # sizes at the long end that the exponents are fitted to


@dataclass
class Curve:
    """One kind of layer: its theoretical complexity, and time and memory measured at each size."""

    name: str
    theory: str
    colour: str
    seconds: list[float] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)

    @property
    def time_exponent(self) -> float:
        """The exponent of n in the growth of the time, for the longest sentences."""
        return growth(self.seconds)

    @property
    def memory_exponent(self) -> float:
        """The exponent of n in the growth of the memory, for the longest sentences."""
        return growth(self.bytes)


def growth(values: list[float] | list[int]) -> float:
    """Return the exponent of n for the longest sentences."""
    return exponent(SIZES[-FITTED:], values[-FITTED:])


# ---------------------------------------------------------------------------------------------------------------------
# The layers: each maps [1, n, 256] to [1, n, 256]


def layers() -> dict[str, Callable[[Tensor], Tensor]]:
    """Return the layer of each curve, by name."""
    full = SelfAttention(WIDTH, HEADS, WIDTH // HEADS, "full")
    near = SelfAttention(WIDTH, HEADS, WIDTH // HEADS, "near", window=WINDOW)
    recurrent = Recurrent("lstm", WIDTH, WIDTH, (False,))
    narrow, wide = (nn.Conv1d(WIDTH, WIDTH, kernel, padding="same") for kernel in (3, 7))

    def in_the_open(x: Tensor) -> Tensor:
        with trace(full):
            return full(x)

    return {
        "self-attention, weights in the open": in_the_open,
        "self-attention, fused kernel": full,
        f"restricted self-attention, r = {WINDOW}": near,
        "recurrent (LSTM)": lambda x: recurrent(x.transpose(0, 1), None)[0].transpose(0, 1),
        "convolution, k = 7": lambda x: wide(x.transpose(1, 2)).transpose(1, 2),
        "convolution, k = 3": lambda x: narrow(x.transpose(1, 2)).transpose(1, 2),
    }


def curves() -> list[Curve]:
    """Return the curves, with colors that color-blind readers can distinguish."""
    theory = ["O(n² d)", "O(n² d)", "O(r n d)", "O(n d²)", "O(k n d²)", "O(k n d²)"]
    colours = ["#d55e00", "#b97900", "#0072b2", "#b0568c", "#00694e", "#3fa088"]
    return [Curve(*row) for row in zip(layers(), theory, colours, strict=True)]


# ---------------------------------------------------------------------------------------------------------------------
# Measuring


def measure(rounds: int, backward: bool) -> list[Curve]:
    """Measure time and memory of every layer at every size."""
    measured, runs = curves(), layers()
    for size in SIZES:
        x = torch.randn(1, size, WIDTH, requires_grad=backward)
        work = [task(runs[curve.name], x, backward) for curve in measured]
        for curve, run in zip(measured, work, strict=True):
            run()
            curve.bytes.append(peak_bytes(run))
        best = [math.inf] * len(work)
        for _ in range(rounds):
            best = [min(known, seconds(run)) for known, run in zip(best, work, strict=True)]
        for curve, value in zip(measured, best, strict=True):
            curve.seconds.append(value)
    return measured


def task(layer: Callable[[Tensor], Tensor], x: Tensor, backward: bool) -> Callable[[], None]:
    """Return a function that runs the layer forward, as in translation, or also backward, as in training."""

    def forward_only() -> None:
        with torch.no_grad():
            layer(x)

    return (lambda: layer(x).sum().backward()) if backward else forward_only


def seconds(run: Callable[[], None]) -> float:
    """Return the mean time of one call, over so many calls that they take a few milliseconds."""
    calls, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < 0.005 or not calls:
        run()
        calls += 1
    return passed / calls


def peak_bytes(run: Callable[[], None]) -> int:
    """Return the peak of the allocated memory during `run`, from the profiler's log of the allocator."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    allocations = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event["name"] == "[memory]")
    return max(itertools.accumulate(size for _, size in allocations))


# ---------------------------------------------------------------------------------------------------------------------
# Showing


def show(measured: list[Curve]) -> None:
    """Print a table, and the two speed ratios of restricted attention."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"one layer, width {WIDTH}, one sentence of n tokens; best times", title_justify="left")
    table.add_column("layer", no_wrap=True)
    table.add_column("theory", no_wrap=True)
    for heading in ("time", "memory", f"ms, n = {SIZES[-FITTED]:,}", f"n = {SIZES[-1]:,}", f"MB, n = {SIZES[-1]:,}"):
        table.add_column(heading, justify="right")
    for curve in measured:
        table.add_row(
            *(curve.name, curve.theory, f"n^{curve.time_exponent:.2f}", f"n^{curve.memory_exponent:.2f}"),
            *(f"{curve.seconds[-FITTED] * 1e3:.1f}", f"{curve.seconds[-1] * 1e3:.1f}", f"{curve.bytes[-1] / 1e6:,.1f}"),
        )
    Console(width=120).print(table)
    open_way, fused, near = (curve.seconds[-1] for curve in measured[:3])
    print(
        f"restricted attention at n = {SIZES[-1]:,}: {open_way / near:.1f} times as fast as full attention with "
        f"weights, {fused / near:.1f} times as fast as the fused kernel"
    )


def store(measured: list[Curve], path: Path, **conditions: object) -> None:
    """Write all measurements as JSON."""
    rows = [
        asdict(curve) | {"time_exponent": curve.time_exponent, "memory_exponent": curve.memory_exponent}
        for curve in measured
    ]
    answer = {"sizes": SIZES, "width": WIDTH, "heads": HEADS, "torch": torch.__version__, **conditions, "layers": rows}
    path.write_text(json.dumps(answer, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def draw(measured: list[Curve], path: Path, backward: bool) -> None:
    """Draw time and memory side by side, with a label at the end of each line."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    passes = "forward and backward" if backward else "forward"
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5.6), layout="constrained")
    figure.suptitle(
        f"Complexity per layer, measured: one sentence of n tokens, width {WIDTH}, {passes}", x=0.01, ha="left", size=13
    )
    panels = [
        (left, "time, ms", [[value * 1e3 for value in curve.seconds] for curve in measured]),
        (right, "peak memory, MB", [[value / 1e6 for value in curve.bytes] for curve in measured]),
    ]
    for axes, title, values in panels:
        axes.set(xscale="log", yscale="log", xticks=SIZES, xlim=(SIZES[0] * 0.9, SIZES[-1] * 1.1))
        axes.set_xticks([], minor=True)
        axes.set_xticklabels([f"{size:,}" for size in SIZES])
        axes.set_title(title, loc="left", size=11)
        axes.set_xlabel("n, tokens")
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.grid(axis="y", color="#e6e6e6", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(length=0, which="both")
        for curve, line in zip(measured, values, strict=True):
            axes.plot(SIZES, line, color=curve.colour, linewidth=2, marker="o", markersize=3.5)
        label_ends(axes, measured, values)
    figure.savefig(path, dpi=150)


def label_ends(axes: Axes, measured: list[Curve], values: list[list[float]]) -> None:
    """Write name and exponent at the end of each line."""
    low, high = (math.log(limit) for limit in axes.get_ylim())
    places = spread([math.log(line[-1]) for line in values], gap=(high - low) / 19)
    for curve, line, place in zip(measured, values, places, strict=True):
        axes.annotate(
            f"{curve.name}   $n^{{{growth(line):.2f}}}$",
            (SIZES[-1] * 1.25, math.exp(place)),
            color=curve.colour,
            va="center",
            size=9.5,
            annotation_clip=False,
        )


def spread(wanted: list[float], gap: float) -> list[float]:
    """Return positions near the wanted ones that are at least `gap` apart."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    groups: list[list[int]] = []
    for index in order:
        groups.append([index])
        while (
            len(groups) > 1
            and bottom(groups[-1], wanted, gap) < bottom(groups[-2], wanted, gap) + len(groups[-2]) * gap
        ):
            groups[-2:] = [groups[-2] + groups[-1]]
    places = [0.0] * len(wanted)
    for group in groups:
        for rank, index in enumerate(group):
            places[index] = bottom(group, wanted, gap) + rank * gap
    return places


def bottom(group: list[int], wanted: list[float], gap: float) -> float:
    """Return the position of the lowest member of a group that is centered on its wanted positions."""
    return sum(wanted[index] for index in group) / len(group) - (len(group) - 1) * gap / 2


def main() -> None:
    """Measure, show, store, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backward", action="store_true", help="measure forward and backward, not forward alone")
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds; the best counts")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads for PyTorch")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", help="folder for JSON and picture")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    measured = measure(options.rounds, options.backward)
    show(measured)
    options.out.mkdir(parents=True, exist_ok=True)
    name = "layers-backward" if options.backward else "layers"
    store(measured, options.out / f"{name}.json", backward=options.backward, threads=options.threads)
    draw(measured, options.out / f"{name}.png", options.backward)
    print(f"written: {options.out / name}.json and .png")


if __name__ == "__main__":
    main()
