"""A training step (forward and backward) of the Transformer compared with Hugging Face's MarianMTModel.

Same sizes (3+3 layers, width 256, inner 1024, 4 heads, 8,000 words, tied embeddings, dropout 0.1, label smoothing 0.1),
same real batch of about 4,096 target tokens of Multi30k. Each side is a separate process, because the settings of the
memory allocator are part of the comparison; they take turns, one step each, under the same conditions.

    python benchmarks/step.py [--data DIR] [--turns 12]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from multi30k import BATCH_TOKENS, OUT, WORDS, Encoded, add_folder, check_folder

SMOOTHING = 0.1


def make_real_batch(folder: Path) -> dict[str, Any]:
    """Return a batch of about 4,096 target tokens, with sentences of typical length, as in training."""
    from regard.data.batches import make_batch

    encoded = Encoded(folder)
    typical = sum(map(len, encoded.target)) / len(encoded.target)

    def unlike(index: Any) -> float:
        lengths = [len(encoded.target[place]) for place in index]
        return abs(sum(lengths) / len(lengths) - typical) + 99 * (len(index) * typical < 0.85 * BATCH_TOKENS)

    chosen = min(map(encoded.stream.at, range(100)), key=unlike)
    pad = encoded.tokenizer.pad
    batch = make_batch([(encoded.source[place], encoded.target[place]) for place in chosen], pad, pad)
    return {
        "source": batch.source.ids_BS.numpy(),
        "source_mask": batch.source.mask_BS.numpy(),
        "input": batch.target_input_BT.numpy(),
        "output": batch.target_output_BT.numpy(),
        "mask": batch.target_mask_BT.numpy(),
        "pad": pad,
    }


def regard_step(batch: dict[str, Any], *, taps: bool = True) -> Any:
    """Return a function that runs a training step of Regard; without `taps`, the model has no hooks."""
    import torch

    from regard.models import build, settings_of
    from regard.system import keep_memory
    from regard.training.loss import smoothed_cross_entropy

    keep_memory()
    model = build(settings_of("transformer-small"), source_vocabulary=WORDS, target_vocabulary=WORDS).train()
    for module in model.modules():
        if not taps and hasattr(module, "tap"):
            module.tap = None
    tensors = {name: torch.from_numpy(array) for name, array in batch.items() if name != "pad"}
    source = SimpleNamespace(ids_BS=tensors["source"], mask_BS=tensors["source_mask"])

    def step() -> None:
        model.zero_grad(set_to_none=True)
        states = model.hidden(source, tensors["input"])
        loss = smoothed_cross_entropy(
            model.output, states[tensors["mask"]], tensors["output"][tensors["mask"]], SMOOTHING
        )
        (loss.smoothed / loss.tokens).backward()

    return step


def marian_step(batch: dict[str, Any], *, tuned: bool = False) -> Any:
    """Return a function that runs the same step of Hugging Face's Marian."""
    import torch

    from peers.marian_loop import build_model

    if tuned:
        from regard.system import keep_memory

        keep_memory()
    model = build_model(WORDS, batch["pad"]).train()
    tensors = {name: torch.from_numpy(array) for name, array in batch.items() if name != "pad"}
    labels = tensors["output"].masked_fill(~tensors["mask"], -100)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        logits = model(
            input_ids=tensors["source"],
            attention_mask=tensors["source_mask"].long(),
            decoder_input_ids=tensors["input"],
        ).logits
        torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=-100, label_smoothing=SMOOTHING
        ).backward()

    return step


def matmul(batch: dict[str, Any]) -> Any:
    """Return a function that computes a large matrix product, the peak of the machine."""
    import torch

    size = 2048
    a, b, c = (torch.randn(size, size) for _ in range(3))

    def step() -> None:
        for _ in range(8):
            torch.mm(a, b, out=c)

    return step


MATMUL_FLOPS = 8 * 2 * 2048**3
SIDES = {
    "Regard": regard_step,
    "the same, taps removed": lambda batch: regard_step(batch, taps=False),
    "Hugging Face MarianMTModel": marian_step,
    "the same, allocator tuned": lambda batch: marian_step(batch, tuned=True),
    "matrix product": matmul,
}


def serve(side: str, batch: dict[str, Any], wire: Connection) -> None:
    """Run the step of one side on request, and report its duration."""
    import torch

    torch.manual_seed(1)
    step = SIDES[side](batch)
    step()
    wire.send("ready")
    while wire.recv():
        start = time.perf_counter()
        step()
        wire.send(time.perf_counter() - start)


def measure(batch: dict[str, Any], turns: int) -> dict[str, list[float]]:
    """Return the seconds of the steps of each side; the sides take turns."""
    context = multiprocessing.get_context("spawn")
    wires, times = {}, {side: [] for side in SIDES}
    for side in SIDES:
        ours, theirs = context.Pipe()
        context.Process(target=serve, args=(side, batch, theirs), daemon=True).start()
        ours.recv()
        wires[side] = ours
    for _ in range(turns):
        for side, wire in wires.items():
            time.sleep(0.1)  # until the threads of the other side stop spinning
            wire.send(True)
            times[side].append(wire.recv())
    for wire in wires.values():
        wire.send(False)
    return times


def count_flops(batch: dict[str, Any]) -> float:
    """Return the FLOPs of one step, including padding, which both sides compute."""
    from regard.models import build, settings_of
    from regard.training.flops import count_cost, pair_amounts

    cost = count_cost(build(settings_of("transformer-small"), source_vocabulary=WORDS, target_vocabulary=WORDS))
    return cost.training(**pair_amounts(*batch["source"].shape, batch["input"].shape[1]))


def main() -> None:
    """Measure, print, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_folder(parser)
    parser.add_argument("--turns", type=int, default=12)
    options = parser.parse_args()
    check_folder(options.data)
    batch = make_real_batch(options.data)
    times = measure(batch, options.turns)
    peak = MATMUL_FLOPS / min(times.pop("matrix product"))
    tokens, flops = int(batch["mask"].sum()), count_flops(batch)
    base = min(times["Hugging Face MarianMTModel"])
    rows = {
        side: {
            "milliseconds": round(min(seconds) * 1e3, 1),
            "tokens_per_second": round(tokens / min(seconds)),
            "share_of_peak": round(flops / min(seconds) / peak, 3),
            "ratio": round(base / min(seconds), 2),
        }
        for side, seconds in times.items()
    }
    shape = f"{batch['source'].shape[0]} sentences, {tokens} target tokens"
    print(f"{shape}; best of {options.turns} turns; matmul peak {peak / 1e9:.0f} GFLOP/s")
    print(f"{'':28}{'ms':>8}{'tokens/s':>10}{'of peak':>9}{'ratio':>7}")
    for side, row in rows.items():
        print(
            f"{side:28}{row['milliseconds']:8.0f}{row['tokens_per_second']:10,}{row['share_of_peak']:9.1%}{row['ratio']:7.2f}"
        )
    OUT.mkdir(exist_ok=True)
    (OUT / "step.json").write_text(json.dumps({"peak": peak, "batch": shape, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
