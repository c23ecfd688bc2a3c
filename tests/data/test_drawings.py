"""Drawings of the built-in corpus "shapes": the same pixels everywhere, and things where the description says."""

import hashlib

import numpy as np
import pytest

from regard.config import PictureSettings
from regard.data.builtin import PARTS, caption_rows
from regard.data.drawings import CANVAS, COLORS, PAPERS, SHAPES, Drawing, Thing, read_drawings
from regard.data.pictures import PictureSource
from regard.errors import CorpusError


def drawn(shape: str, color: str = "red", radius: int = 30) -> Drawing:
    return Drawing("white", (Thing(shape, color, CANVAS // 2, CANVAS // 2, radius, 0),), {})


def test_the_pixels_are_the_same_on_every_machine() -> None:
    digest = hashlib.sha256()
    for drawing in read_drawings("test")[:60]:
        digest.update(drawing.draw().tobytes())
    assert digest.hexdigest() == "b9c9ce3ad1b9a8b98b425cee71e5205fb5bab962e97cfa5f44214acc51055eb4"


def test_sizes_and_captions() -> None:
    assert [len(read_drawings(part)) for part in PARTS] == [8_000, 300, 500]
    first = read_drawings()[0]
    assert first.draw().shape == (3, 48, 48)
    assert first.draw(20).shape == (3, 20, 20)
    for drawing in read_drawings("valid"):
        for captions in drawing.captions.values():
            for text, groups in captions:
                assert len(text.split()) == len(groups)
                assert {group for group in groups if group is not None} == {thing.group for thing in drawing.things}


def test_a_circle_and_a_square_cover_their_area() -> None:
    for shape, area in (("circle", np.pi * 30**2), ("square", (0.86 * 60) ** 2)):
        pixels = drawn(shape, "black").draw(96).astype(float)
        white, black = PAPERS["white"][0], COLORS["black"][0]
        assert (white - pixels[0]).sum() / (white - black) == pytest.approx(area, rel=0.01)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_place_is_where_the_color_is(shape: str) -> None:
    drawing = drawn(shape)
    pixels, place = drawing.draw().astype(int), drawing.place(0)
    is_red = abs(pixels - np.reshape(COLORS["red"], (3, 1, 1))).sum(0) < 3
    assert is_red.sum() > 50
    assert not (is_red & ~place).any()  # every pixel of this color is in the place
    assert is_red[place].mean() > 0.7  # the others are at the edge
    rows, columns = np.nonzero(place)
    assert abs(rows - 23.5).max() <= 16
    assert abs(columns - 23.5).max() <= 16  # the radius is 15 pixels, and no shape reaches much farther
    assert not drawing.place(1).any()


def test_shapes_differ() -> None:
    masks = {shape: drawn(shape).place(0) for shape in SHAPES}
    for one, mask in masks.items():
        for other in masks.keys() - {one}:
            assert (mask != masks[other]).sum() > 40


def test_drawings_are_a_source_of_pictures() -> None:
    settings = PictureSettings(size=(48, 48), patch_size=8)
    with PictureSource.open("shapes") as source:
        name = source.find("test/7.png", "list.tsv:1")
        assert (source.read(name, "", settings) == read_drawings("test")[7].draw()).all()
        assert source.size(name, "") == (48, 48)
        assert len(source.names()) == 8_800
        with pytest.raises(CorpusError, match=r'^list.tsv:2: there is no picture "cat.png" in .* write \./shapes'):
            source.find("cat.png", "list.tsv:2")
    with pytest.raises(CorpusError, match='phrasebook has no pictures; the built-in corpus with pictures is "shapes"'):
        PictureSource.open("phrasebook")


def test_each_right_caption_is_a_row() -> None:
    rows = list(caption_rows("shapes:test"))
    drawings = read_drawings("test")
    assert len(rows) == sum(len(one.captions["en"]) for one in drawings)
    name, cells = rows[0]
    assert name == "test/0.png"
    assert cells == {language: texts[0].text for language, texts in drawings[0].captions.items()}
    with pytest.raises(CorpusError, match="smalltalk has no pictures"):
        next(caption_rows("smalltalk"))
