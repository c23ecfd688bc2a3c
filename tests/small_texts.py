"""Small language models, for tests."""

from __future__ import annotations

from pathlib import Path

from regard.data.builtin import read_texts

SETTINGS = [
    "tokenizer.vocab_size=300", "model.width=32", "train.batch_tokens=512", "train.warmup_steps=5",
    "train.learning_rate=0.005", "train.log_every=2", "train.validate_every=6", "train.checkpoint_every=5",
    "train.precision=float32",
]  # fmt: skip


def write_texts(path: Path, count: int = 300) -> Path:
    """English sentences of the phrasebook, one per line."""
    texts = [text for text, _ in zip(read_texts("phrasebook"), range(count), strict=False)]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


WRITES = ("model.layers=2", "search.max_length_extra=20")
SIZES = {
    "transformer-lm": (*WRITES, "model.heads=2", "model.ffn_width=64"),
    "lstm-lm": (*WRITES, "train.optimizer=adam"),
    "masked-lm": ("model.encoder_layers=2", "model.heads=2", "model.ffn_width=64"),
}
"""Settings of the small model of each architecture."""


def train_arguments(texts: Path, out: Path, *settings: str, arch: str = "transformer-lm") -> list[str]:
    """Arguments of `regard train` for such a run."""
    task = "masked-language-model" if arch == "masked-lm" else "language-model"
    arguments = ["train", "--task", task, str(texts), "--arch", arch, "--out", str(out)]
    return arguments + [word for setting in (*SETTINGS, *SIZES[arch], *settings) for word in ("--set", setting)]
