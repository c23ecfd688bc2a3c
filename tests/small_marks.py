"""Labeled pictures for tests: a bar across, a bar down, or a dot, on 8 x 8 pixels; and a run that learns them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

MARKS = ("across", "dot", "down")

SMALL = [
    "model.arch=transformer-classifier",
    "model.width=16",
    "model.ffn_width=32",
    "model.encoder_layers=2",
    "model.heads=2",
    "train.batch_tokens=512",
    "train.validate_every=20",
    "train.checkpoint_every=5",
    "train.log_every=10",
]
"""Settings of a run that learns them in seconds."""


def draw(mark: str, chance: random.Random) -> Image.Image:
    """A gray picture with a white mark on dark noise."""
    shades = np.array([[chance.randrange(60) for _ in range(8)] for _ in range(8)], np.uint8)
    row, column = chance.randrange(1, 6), chance.randrange(1, 6)
    if mark == "across":
        shades[row, 1:7] = 230
    elif mark == "down":
        shades[1:7, column] = 230
    else:
        shades[row : row + 2, column : column + 2] = 230
    return Image.fromarray(shades)


def write_folder(folder: Path, count: int = 240, seed: int = 1) -> Path:
    """Write pictures into a folder with a subfolder per label."""
    chance = random.Random(seed)
    for number in range(count):
        mark = MARKS[number % len(MARKS)]
        (folder / mark).mkdir(parents=True, exist_ok=True)
        draw(mark, chance).save(folder / mark / f"{number:03}.png")
    return folder


def rows(folder: Path) -> Iterator[tuple[str, str]]:
    """Label and name of each picture in such a folder."""
    for path in sorted(folder.rglob("*.png")):
        yield path.parent.name, path.relative_to(folder).as_posix()


def write_list(path: Path, folder: Path) -> Path:
    """Write a list of the pictures in such a folder."""
    path.write_text("label\tpicture\n" + "".join(f"{label}\t{name}\n" for label, name in rows(folder)))
    return path


def train_arguments(data: Path, out: Path, *settings: str) -> list[str]:
    """Arguments of `regard train` for such a run."""
    arguments = ["train", "--task", "classify", str(data), "--out", str(out)]
    for setting in (*SMALL, *settings):
        arguments += ["--set", setting]
    return arguments
