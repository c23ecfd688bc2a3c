"""Flags: what is suspicious about a translation."""

import pytest

from regard.tasks.translate.translation import find_flags, loops

LATIN = frozenset({"LATIN"})


@pytest.mark.parametrize(
    ("source", "text", "flags"),
    [
        ("A dog runs.", "Ein Hund rennt.", ()),
        ("A dog runs.", "", ("empty",)),
        ("A dog runs.", "Ein Hund, ein Hund, ein Hund, ein Hund", ("loops",)),
        ("A dog runs.", "Ein CCCCCCCCCCCCCCCCCCCCCCCC", ("loops",)),
        ("A dog runs over it.", "Ein orororororororororororor", ("loops",)),
        ("Very very very very good", "Sehr sehr sehr sehr gut", ()),  # so does the source
        ("Ha ha ha", "Ha ha ha", ()),
        ("The quick brown fox jumps.", "The quick brown fox jumps.", ("copies",)),
        ("The quick brown fox jumps.", "der the quick brown fox jumps.", ("copies",)),
        ("Angela Merkel", "Angela Merkel", ()),  # names are short
        ("Anna saw Rome and Paris in May", "Anna vide Roma e Parigi a maggio", ()),
        ("A dog runs.", "Собака бежит.", ("script",)),
        ("Hi.", "Hallo und guten Tag, wie geht es Ihnen denn heute?", ("length",)),
        ("A dog runs over the field and into the wood behind it.", "Ja.", ("length",)),
        ("Hi.", "Hallo!", ()),
    ],
)
def test_flags(source, text, flags):
    assert find_flags(source, text, True, LATIN) == flags


def test_cut_off_is_told():
    assert find_flags("A dog runs.", "Ein Hund", False, LATIN) == ("cut off",)


def test_scripts_that_are_not_known_are_not_judged():
    assert find_flags("A dog runs.", "Собака бежит.", True, None) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a a a", False), ("a a a a", True), ("a b a b", False), ("a b a b a b", True), ("x a b c a b c a b c y", True),
     ("a b c d e f g h i a b c d e f g h i a b c d e f g h i", False), ("", False)],
)  # fmt: skip
def test_loops(text, expected):
    assert loops(text.split()) is expected
