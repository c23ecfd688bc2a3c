"""Small word vectors, for tests."""

from __future__ import annotations

from pathlib import Path

SETTINGS = [
    "model.width=16", "train.batch_tokens=256", "train.log_every=2", "train.validate_every=6",
    "train.checkpoint_every=5",
]  # fmt: skip


def train_arguments(texts: Path, out: Path, *settings: str) -> list[str]:
    """Arguments of `regard train` for such a run."""
    arguments = ["train", "--task", "embed", str(texts), "--out", str(out)]
    return arguments + [word for setting in (*SETTINGS, *settings) for word in ("--set", setting)]
