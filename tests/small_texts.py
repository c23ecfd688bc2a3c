"""Small language models, for tests."""

from __future__ import annotations

from pathlib import Path

from regard.data.builtin import read_texts

SETTINGS = [
    "tokenizer.vocab_size=300", "model.layers=2", "model.width=32", "train.batch_tokens=512", "train.warmup_steps=5",
    "train.learning_rate=0.005", "train.log_every=2", "train.validate_every=6", "train.checkpoint_every=5",
    "train.precision=float32", "search.max_length_extra=20",
]  # fmt: skip


def write_texts(path: Path, count: int = 300) -> Path:
    """English sentences of the phrasebook, one per line."""
    texts = [text for text, _ in zip(read_texts("phrasebook"), range(count), strict=False)]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


SIZES = {"transformer-lm": ("model.heads=2", "model.ffn_width=64"), "lstm-lm": ("train.optimizer=adam",)}
"""Settings of the small model of each architecture."""


def train_arguments(texts: Path, out: Path, *settings: str, arch: str = "transformer-lm") -> list[str]:
    """Arguments of `regard train` for such a run."""
    arguments = ["train", "--task", "language-model", str(texts), "--arch", arch, "--out", str(out)]
    return arguments + [word for setting in (*SETTINGS, *SIZES[arch], *settings) for word in ("--set", setting)]
