"""Hugging Face's MarianMTModel in a plain PyTorch loop, as most people would write it.

Runs in the environment of the other programs and reads batches made by the benchmark, so that the data are the same,
token by token. At regular intervals of training it translates the test sources, which is not timed, and writes their
ids.

    python marian_loop.py BATCHES --pad 7999 --out FOLDER [--updates N] [--bfloat16] [--test IDS --every 150]
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import cycle
from pathlib import Path

import torch
from transformers import MarianConfig, MarianMTModel

EOS, START = 0, 2
RATE, WARMUP = 1.5e-3, 200


def build_model(words: int, pad: int) -> MarianMTModel:
    """Build a model of 3+3 layers, width 256, inner 1024, with tied embeddings and dropout 0.1."""
    settings = MarianConfig(
        vocab_size=words, d_model=256, encoder_layers=3, decoder_layers=3,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=1024, decoder_ffn_dim=1024,
        dropout=0.1, activation_function="relu", scale_embedding=True, max_position_embeddings=512,
        pad_token_id=pad, eos_token_id=EOS, decoder_start_token_id=START, forced_eos_token_id=EOS,
        share_encoder_decoder_embeddings=True, tie_word_embeddings=True,
    )  # fmt: skip
    return MarianMTModel(settings)


def pad_rows(rows: list[list[int]], pad: int) -> torch.Tensor:
    """Return rows of ids with the end token as one padded tensor."""
    length = max(map(len, rows)) + 1
    return torch.tensor([[*row, EOS] + [pad] * (length - len(row) - 1) for row in rows])


def train_step(model: MarianMTModel, rows: list[list[list[int]]], pad: int, short: bool) -> int:
    """Forward and backward on one batch; returns its target tokens."""
    source, output = pad_rows([row[0] for row in rows], pad), pad_rows([row[1] for row in rows], pad)
    start = torch.full((len(rows), 1), START)
    labels = output.masked_fill(output == pad, -100)
    with torch.autocast("cpu", torch.bfloat16, enabled=short):
        logits = model(
            input_ids=source,
            attention_mask=(source != pad).long(),
            decoder_input_ids=torch.cat([start, output[:, :-1]], 1),
        ).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=-100, label_smoothing=0.1
        )
    loss.backward()
    return int((output != pad).sum())


@torch.inference_mode()
def translate(model: MarianMTModel, sources: list[list[int]], pad: int) -> list[list[int]]:
    """Translate with beam 5, in batches of 32, with at most twice the length of the source."""
    model.eval()
    found: list[list[int]] = [[]] * len(sources)
    order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
    for first in range(0, len(order), 32):
        places = order[first : first + 32]
        ids = pad_rows([sources[place] for place in places], pad)
        longest = 2 * ids.shape[1] + 10
        made = model.generate(
            input_ids=ids, attention_mask=(ids != pad).long(), num_beams=5, max_new_tokens=longest, do_sample=False
        )
        for place, row in zip(places, made.tolist(), strict=True):
            found[place] = [token for token in row if token not in (EOS, START, pad)]
    model.train()
    return found


def main() -> None:
    """Train for the given number of updates, or until the process is stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("batches", type=Path)
    parser.add_argument("--words", type=int, default=8000)
    parser.add_argument("--pad", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=10**9)
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--test", type=Path)
    parser.add_argument("--every", type=float, default=150.0)
    options = parser.parse_args()
    torch.manual_seed(1)
    model = build_model(options.words, options.pad).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.98), eps=1e-9)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARMUP, (WARMUP / (step + 1)) ** 0.5)
    )
    batches = [json.loads(line) for line in options.batches.open()]
    sources = json.loads(options.test.read_text()) if options.test else []
    seconds, due = 0.0, options.every
    with (options.out / "log.jsonl").open("w") as log:
        for update, rows in enumerate(cycle(batches), 1):
            began = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            tokens = train_step(model, rows, options.pad, options.bfloat16)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            seconds += time.perf_counter() - began
            log.write(json.dumps({"update": update, "tokens": tokens, "seconds": seconds}) + "\n")
            log.flush()
            if sources and seconds >= due:
                due += options.every
                part = options.out / f"{update:06d}.part"
                part.write_text(json.dumps({"seconds": seconds, "ids": translate(model, sources, options.pad)}))
                part.rename(part.with_suffix(".json"))
            if update >= options.updates:
                break


if __name__ == "__main__":
    main()
