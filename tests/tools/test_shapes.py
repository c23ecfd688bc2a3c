"""The built-in drawings: the same everywhere, right captions, and new combinations in the test part."""

from itertools import chain
from random import Random

import pytest

from regard.data.builtin import PARTS, read_texts
from regard.data.drawings import CANVAS, Drawing, read_drawings
from regard.errors import SettingsError
from regard.registry import BUILTIN
from tools.packaged import FOLDER, pack
from tools.shapes import HELD_OUT, is_held_out, packaged_rows, shapes
from tools.shapes.captions import agree, describe, english_plural
from tools.shapes.scenes import GAP, Group, Scene, arrange

MOST_BYTES = 400_000


def pairs(drawings: tuple[Drawing, ...]) -> set[tuple[str, str]]:
    return {(thing.shape, thing.color) for drawing in drawings for thing in drawing.things}


def texts(scene: Scene, language: str) -> list[str]:
    return [caption.text for caption in describe(scene, language)]


def test_the_packaged_file_is_what_the_grammar_writes() -> None:
    packed = (FOLDER / BUILTIN["shapes"]).read_bytes()
    assert packed == pack(packaged_rows())
    assert len(packed) < MOST_BYTES


def test_no_picture_is_in_two_parts() -> None:
    pictures = [(one.paper, one.things) for part in PARTS for one in read_drawings(part)]
    assert len(set(pictures)) == len(pictures) == 8_800


def test_every_drawing_of_the_test_part_has_a_new_combination() -> None:
    new = set(HELD_OUT.items())
    assert not new & (pairs(read_drawings("train")) | pairs(read_drawings("valid")))
    assert all(new & pairs((drawing,)) for drawing in read_drawings("test"))
    known = set(chain.from_iterable(text.split() for text in read_texts("shapes")))
    assert set(chain.from_iterable(text.split() for text in read_texts("shapes:test"))) <= known
    assert {shape for shape, _ in new} | {color for _, color in new} <= known


def test_captions() -> None:
    two = Scene((Group(1, "big", "red", "star"), Group(2, "small", "blue", "square")), "above", ())
    assert texts(two, "en") == [
        "a big red star above two small blue squares",
        "two small blue squares below a big red star",
    ]
    assert texts(two, "it") == [
        "una grande stella rossa sopra due piccoli quadrati blu",
        "due piccoli quadrati blu sotto una grande stella rossa",
    ]
    side = Scene((Group(1, "", "orange", "circle"), Group(3, "", "green", "cross")), "left", ())
    assert texts(side, "en")[0] == "an orange circle to the left of three green crosses"
    assert texts(side, "it")[1] == "tre croci verdi a destra di un cerchio arancione"
    assert describe(side, "en")[0].groups == (0, 0, 0, None, None, None, None, 1, 1, 1)
    alone = Scene((Group(1, "small", "black", "moon"),), "top left", ())
    assert texts(alone, "it") == ["una piccola luna nera nell'angolo in alto a sinistra"]
    assert texts(alone, "en") == ["a small black moon in the top left corner"]


def test_forms() -> None:
    assert [english_plural(noun) for noun in ("ring", "cross")] == ["rings", "crosses"]
    forms = [(False, False), (True, False), (False, True), (True, True)]
    assert [agree("giallo", *form) for form in forms] == ["giallo", "gialla", "gialli", "gialle"]
    assert [agree("verde", *form) for form in forms] == ["verde", "verde", "verdi", "verdi"]
    assert {agree("viola", *form) for form in forms} == {"viola"}


def test_things_do_not_overlap_and_relations_hold() -> None:
    chance = Random(5)
    for _ in range(500):
        scene = arrange(chance)
        for number, one in enumerate(scene.things):
            assert one.radius + GAP <= min(one.x, one.y, CANVAS - one.x, CANVAS - one.y)
            for other in scene.things[:number]:
                apart = max(abs(one.x - other.x), abs(one.y - other.y))
                assert apart >= one.radius + other.radius
        if scene.relation == "above":
            assert max(one.y for one in scene.things if not one.group) < min(one.y for one in scene.things if one.group)
        if scene.relation == "left":
            assert max(one.x for one in scene.things if not one.group) < min(one.x for one in scene.things if one.group)


def test_a_seed_gives_one_corpus() -> None:
    small = shapes(seed=3, train=20, valid=2, test=4)
    assert {part: len(made) for part, made in small.items()} == {"train": 20, "valid": 2, "test": 4}
    assert shapes(seed=3, train=20, valid=2, test=4) == small
    assert shapes(seed=4, train=20, valid=2, test=4) != small
    assert shapes(train=0, valid=0, test=0) == {part: [] for part in PARTS}
    with pytest.raises(SettingsError, match="must not be negative"):
        shapes(valid=-1)
    assert is_held_out(Scene((Group(1, "", HELD_OUT["moon"], "moon"),), "top left", ()))
