"""Drawings: the pictures of the built-in corpus "shapes", drawn from a description of what is in them.

The packaged file lists the things in every drawing and its captions; `draw` makes the pixels. So the file is small, a
drawing can have any size, and the pixels of every thing are known: these are the gold places against which the
attention of a caption model is measured. Only comparisons and the four operations are used, so every machine draws the
same pixels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.builtin import PARTS, corpus_of, read_rows
from regard.data.pictures import PictureSource, Pixels, to_png
from regard.errors import CorpusError, nearest

Mask = NDArray[np.bool_]
Points = NDArray[np.float64]

CANVAS = 96
"""Height and width of a drawing in the units of its description."""
SIZE = 48
"""Height and width in pixels of the drawings of the corpus."""
SAMPLES = 4
"""A pixel is the mean of so many times so many points."""

COLORS = {
    "red": (214, 39, 40),
    "blue": (38, 88, 200),
    "green": (36, 140, 62),
    "yellow": (246, 206, 22),
    "orange": (248, 130, 12),
    "purple": (126, 54, 160),
    "pink": (244, 130, 180),
    "black": (28, 28, 32),
}
PAPERS = {
    "white": (255, 255, 255),
    "cream": (250, 243, 226),
    "sky": (226, 240, 250),
    "mint": (228, 246, 232),
}
"""Colours of the background, which no caption mentions."""

_STAR = (
    (0.0, -1.0), (0.25, -0.31), (0.95, -0.31), (0.4, 0.12), (0.59, 0.81),
    (0.0, 0.4), (-0.59, 0.81), (-0.4, 0.12), (-0.95, -0.31), (-0.25, -0.31),
)  # fmt: skip
"""Corners of a star; y grows downwards."""


def _inside(corners: tuple[tuple[float, float], ...], x: Points, y: Points) -> Mask:
    """Which points are inside a polygon: a line to the right of the point crosses its sides an odd number of times."""
    inside = np.zeros(x.shape, np.bool_)
    for (x0, y0), (x1, y1) in zip(corners, (*corners[1:], corners[0]), strict=True):
        if y0 != y1:
            inside ^= ((y < y0) != (y < y1)) & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
    return inside


def _heart(x: Points, y: Points) -> Mask:
    across, up = 1.2 * x, 0.12 - 1.15 * y
    round_ = across * across + up * up - 1
    return round_ * round_ * round_ - across * across * up * up * up <= 0


SHAPES: dict[str, Callable[[Points, Points], Mask]] = {
    "circle": lambda x, y: x * x + y * y <= 1,
    "square": lambda x, y: (abs(x) <= 0.86) & (abs(y) <= 0.86),
    "triangle": lambda x, y: _inside(((0.0, -0.95), (1.0, 0.8), (-1.0, 0.8)), x, y),
    "star": lambda x, y: _inside(_STAR, 0.92 * x, 0.92 * y),
    "ring": lambda x, y: (x * x + y * y <= 1) & (x * x + y * y >= 0.3),
    "cross": lambda x, y: ((abs(x) <= 0.32) & (abs(y) <= 1)) | ((abs(y) <= 0.32) & (abs(x) <= 1)),
    "heart": _heart,
    "moon": lambda x, y: (x * x + y * y <= 1) & ((x - 0.55) * (x - 0.55) + y * y > 0.72),
}
"""For each shape, which points (x, y) are inside it, if its center is (0, 0) and its radius 1."""


class Thing(NamedTuple):
    """One thing in a drawing. Its place and radius are in units, of which a drawing has 96 x 96."""

    shape: str
    color: str
    x: int
    y: int
    radius: int
    group: int
    """Things of one group are named together in a caption: "two blue squares"."""


class Caption(NamedTuple):
    """A right caption of a drawing."""

    text: str
    groups: tuple[int | None, ...]
    """For each word between spaces, the group of things that it refers to: in "a star above two rings", those of
    "above" is None."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing of the corpus: what is in it, and its captions in each language."""

    paper: str
    things: tuple[Thing, ...]
    captions: dict[str, tuple[Caption, ...]]
    """By language code, all right captions; the first one is that to learn."""

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Drawing:
        """Read a row of the packaged file."""
        captions = {
            language: tuple(
                Caption(text, tuple(None if mark == "-" else int(mark) for mark in marks)) for text, marks in texts
            )
            for language, texts in row["captions"].items()
        }
        return cls(row["paper"], tuple(Thing(*thing) for thing in row["things"]), captions)

    def draw(self, size: int = SIZE) -> Pixels:
        """The pixels of the drawing, [3, size, size]."""
        pixels = np.empty((3, size, size))
        pixels[:] = np.reshape(PAPERS[self.paper], (3, 1, 1))
        for thing, mask in zip(self.things, self._cover(size * SAMPLES), strict=True):
            share = mask.reshape(size, SAMPLES, size, SAMPLES).mean((1, 3))  # of each pixel that the thing covers
            pixels += share * (np.reshape(COLORS[thing.color], (3, 1, 1)) - pixels)
        return (pixels + 0.5).astype(np.uint8)

    def place(self, group: int, size: int = SIZE) -> Mask:
        """The pixels whose center is in a thing of the group, [size, size]."""
        covered = [mask for thing, mask in zip(self.things, self._cover(size), strict=True) if thing.group == group]
        return np.any(covered, axis=0) if covered else np.zeros((size, size), np.bool_)

    def _cover(self, size: int) -> list[Mask]:
        """For each thing, which points of a grid of size x size are inside it."""
        centers = (np.arange(size) + 0.5) * CANVAS / size
        masks = []
        for shape, _, x, y, radius, _ in self.things:
            across, down = ((centers - middle) / radius for middle in (x, y))
            near_x, near_y = (np.flatnonzero(abs(one) <= 1.1) for one in (across, down))  # no shape reaches farther
            mask = np.zeros((size, size), np.bool_)
            box = np.ix_(near_y, near_x)
            mask[box] = SHAPES[shape](*np.meshgrid(across[near_x], down[near_y]))
            masks.append(mask)
        return masks


@functools.cache
def read_drawings(part: str = "train") -> tuple[Drawing, ...]:
    """Drawings with captions of the corpus "shapes": 8,000 in "train", 300 in "valid", 500 in "test".

    No two drawings are equal. Each drawing of the test part has a shape in a color that it has in no other part.
    """
    return tuple(map(Drawing.from_row, read_rows("shapes", part)))


class DrawingSource(PictureSource):
    """The drawings of a built-in corpus by name, e.g. "train/17.png", as files of 48 x 48 pixels."""

    def __init__(self, name: str):
        """`name`: that of the corpus, or of one of its parts; all parts can be read."""
        self.path, self._archive = Path(corpus_of(name)), None
        if str(self.path) != "shapes":
            raise CorpusError(name, f'{self.path} has no pictures; the built-in corpus with pictures is "shapes"')

    def find(self, name: str, where: str) -> str:
        if name not in self._drawings:
            hint = nearest(name, self._drawings) or "; for a folder of this name, write ./shapes"
            raise CorpusError(where, f'there is no picture "{name}" in the built-in corpus {self.path}{hint}')
        return name

    def names(self) -> list[str]:
        return list(self._drawings)

    @functools.cached_property
    def _drawings(self) -> dict[str, Drawing]:
        return {f"{part}/{number}.png": one for part in PARTS for number, one in enumerate(read_drawings(part))}

    def _content(self, name: str, where: str) -> bytes:
        return to_png(self._drawings[name].draw())
