"""Series of frames for tests: two numbers per frame, and three activities that last for some frames each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CENTERS = {"rest": (0.0, 0.0), "walk": (3.0, 0.0), "jump": (0.0, -3.0)}
OFFSET, SCALE = 1000.0, 50.0
"""The numbers are far from mean 0 and deviation 1."""

SMALL = [
    "model.embedding_width=8",
    "model.width=12",
    "model.layers=1",
    "model.dropout=0.1",
    "tag.max_frames=40",
    "train.batch_tokens=256",
    "train.learning_rate=0.03",
    "train.warmup_steps=3",
    "train.ema_decay=0.9",
    "train.log_every=2",
    "train.validate_every=20",
    "train.checkpoint_every=5",
]
"""Settings of a run that learns them in seconds."""


def series(frames: int, seed: int = 1) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """One series [T, 2] with its labels: activities of 5 to 15 frames, with noise."""
    chance = np.random.default_rng(seed)
    labels: list[str] = []
    while len(labels) < frames:
        labels += [str(chance.choice(list(CENTERS)))] * int(chance.integers(5, 16))
    centers = np.array([CENTERS[label] for label in labels[:frames]])
    return OFFSET + SCALE * (centers + chance.normal(size=centers.shape)), np.array(labels[:frames])


def write_series(path: Path, lengths: tuple[int, ...] = (60,) * 24, seed: int = 1) -> Path:
    """Write several series one after another into a .npz file."""
    found = [series(length, seed + 100 * place) for place, length in enumerate(lengths)]
    frames, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
    np.savez(path, frames=frames, labels=labels, lengths=np.array(lengths))
    return path


def train_arguments(data: Path, out: Path, *settings: str) -> list[str]:
    """Arguments of `regard train` for such a run."""
    arguments = ["train", "--task", "tag", str(data), "--out", str(out)]
    for setting in (*SMALL, *settings):
        arguments += ["--set", setting]
    return arguments
