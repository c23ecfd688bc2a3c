"""The grammar that writes the built-in corpus "shapes": drawings with captions in English and Italian.

`python -m tools.shapes` writes the packaged file again. A drawing has one group of things at a named place ("three
small stars at the top"), or two groups with a relation ("a big red circle above two blue squares"). No two drawings are
equal. Each drawing of the test part has a shape in a color that it has in no other part (`HELD_OUT`).
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from regard.data.builtin import PARTS
from regard.data.drawings import COLORS, PAPERS, SHAPES, Drawing
from regard.errors import SettingsError
from tools.shapes.captions import LANGUAGES, describe
from tools.shapes.scenes import Scene, arrange

HELD_OUT = dict(zip(SHAPES, COLORS, strict=True))
"""The color that each shape has only in drawings of the test part."""


def shapes(seed: int = 1, train: int = 8000, valid: int = 300, test: int = 500) -> dict[str, list[Drawing]]:
    """Generate the three parts, by name; a seed gives the same result on every machine."""
    counts = {"train": train, "valid": valid, "test": test}
    if min(counts.values()) < 0:
        raise SettingsError(f"shapes: the numbers of drawings must not be negative, but are {counts}")
    chance, seen = Random(seed), set()
    parts: dict[str, list[Drawing]] = {part: [] for part in PARTS}
    while any(len(parts[part]) < count for part, count in counts.items()):
        scene = arrange(chance)
        paper = chance.choice(list(PAPERS))
        if (paper, scene) in seen:
            continue
        seen.add((paper, scene))
        part = "test" if is_held_out(scene) else "train" if len(parts["train"]) < train else "valid"
        if len(parts[part]) < counts[part]:
            captions = {language: describe(scene, language) for language in LANGUAGES}
            parts[part].append(Drawing(paper, scene.things, captions))
    return parts


def is_held_out(scene: Scene) -> bool:
    """Whether the scene has a shape in a color that this shape has only in the test part."""
    return any(HELD_OUT[group.shape] == group.color for group in scene.groups)


def packaged_rows() -> Iterator[dict[str, Any]]:
    """The rows of the packaged file: the corpus of seed 1, part by part."""
    made = shapes()
    for part in PARTS:
        for drawing in made[part]:
            captions = {
                language: [
                    (text, "".join("-" if group is None else str(group) for group in groups)) for text, groups in texts
                ]
                for language, texts in drawing.captions.items()
            }
            yield {"part": part, "paper": drawing.paper, "things": drawing.things, "captions": captions}
