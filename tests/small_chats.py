"""Small runs on conversations, for tests."""

from __future__ import annotations

import json
from pathlib import Path

from regard.data.builtin import read_conversations

SIZES = {
    "transformer-tiny": ["width=32", "heads=2", "ffn_width=64", "encoder_layers=1", "decoder_layers=1"],
    "hran": ["width=32", "embedding_width=32"],
}
SETTINGS = [
    "tokenizer.vocab_size=400",
    "train.precision=float32",
    "train.batch_tokens=512",
    "train.warmup_steps=10",
    "train.learning_rate=0.005",
    "train.log_every=2",
    "train.validate_every=6",
    "train.checkpoint_every=5",
    "train.validation_sentences=5",
]


def write_dialogues(path: Path, count: int = 80) -> Path:
    """Small talk as JSON lines."""
    lines = [json.dumps({"turns": turns}) + "\n" for turns in read_conversations()[:count]]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def chat_arguments(dialogues: Path, out: Path, arch: str, *settings: str) -> list[str]:
    """Arguments of `regard train` for such a run."""
    arguments = ["train", "--task", "chat", str(dialogues), "--arch", arch, "--out", str(out)]
    sizes = [f"model.{size}" for size in SIZES[arch]]
    return arguments + [word for setting in (*SETTINGS, *sizes, *settings) for word in ("--set", setting)]
