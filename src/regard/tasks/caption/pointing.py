"""The pointing game: is the largest attention weight of a word on the thing that the word names?

Only the built-in drawings have gold places: each word of their captions is known to refer to some of the things, and
these to some of the pixels. The measure is that of Zhang et al. 2016 ("Top-down neural attention by excitation
backprop"), with the patches of the model in place of pixels. The captions are given, so that all models are measured on
the same words.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.data.drawings import Drawing, read_drawings
from regard.errors import SettingsError

if TYPE_CHECKING:
    from regard.tasks.caption.captioner import CaptionAttention, Captioner

FINE = 8
"""Pixels per patch and direction, or more, by which it is decided which patches a thing touches."""


@dataclass(frozen=True)
class Pointing:
    """Shares of the words whose largest weight is on a patch with the thing that they name."""

    drawings: int
    words: int
    hits: float
    """For the mean over all layers and heads."""
    chance: float
    """For a random patch."""
    right: float
    """Of the largest weights that are on one of two groups of things, the share on the right one."""
    by_layer: dict[str, float]
    """`hits` for the mean over the heads of each layer."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        layers = ", ".join(f"{name} {share:.1%}" for name, share in self.by_layer.items())
        return (
            f"In {self.drawings} drawings, the largest weight of a word is on the thing that it names for "
            f"{self.hits:.1%} of {self.words:,} words (a random patch: {self.chance:.1%}).\n"
            f"Of two groups of things, it is on the right one for {self.right:.1%}. By layer: {layers}."
        )


def measure_pointing(captioner: Captioner, count: int, part: str = "test") -> Pointing:
    """Play the pointing game with the first right captions of so many drawings, in the first language of the run."""
    language = captioner.language("") or "en"
    drawings = read_drawings(part)[:count]
    if language not in drawings[0].captions:
        raise SettingsError(f'the built-in drawings have no captions in the language "{language}"; use another run')
    hits: dict[str, list[bool]] = defaultdict(list)
    chances: list[float] = []
    right: list[bool] = []
    for drawing in drawings:
        text, groups = drawing.captions[language][0]
        pixels = np.ascontiguousarray(drawing.draw().transpose(1, 2, 0))
        seen = captioner.look(pixels, text, captioner.language(""))
        maps = {"": seen.maps} | {name: heads.mean(0) for name, heads in seen.layers.items()}
        first, second = (_patches(drawing, group, *seen.maps.shape[1:]) for group in (0, 1))
        for group, tokens in _named(seen, groups):
            named, other = (second, first) if group else (first, second)
            chances.append(float(named.mean()))
            for name, weights in maps.items():
                place = int(weights[tokens].mean(0).argmax())
                hits[name].append(bool(named[place]))
                if not name and second.any() and named[place] != other[place]:
                    right.append(bool(named[place]))
    shares = {name: sum(found) / len(found) for name, found in hits.items()}
    chance, sure = (sum(found) / max(len(found), 1) for found in (chances, right))
    return Pointing(len(drawings), len(chances), shares.pop(""), chance, sure, shares)


def _named(seen: CaptionAttention, groups: tuple[int | None, ...]) -> Iterator[tuple[int, list[int]]]:
    """For each word between spaces that names things: its group of things, and the indices of its tokens."""
    for word, group in zip(re.finditer(r"\S+", seen.text), groups, strict=True):
        tokens = seen.tokens_in(*word.span())
        if group is not None and tokens:
            yield group, tokens


def _patches(drawing: Drawing, group: int, rows: int, columns: int) -> NDArray[np.bool_]:
    """Which patches, numbered row by row, a group of things touches. The drawing fills the picture of the model."""
    side = FINE * math.lcm(rows, columns)
    mask = drawing.place(group, side).reshape(rows, side // rows, columns, side // columns)
    return np.asarray(mask.any(axis=(1, 3)).ravel(), np.bool_)
