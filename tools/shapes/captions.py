"""Captions of drawings in English and Italian, and the group of things that each word refers to."""

from __future__ import annotations

from typing import NamedTuple

from regard.data.drawings import Caption
from tools.phrasebook.italian_words import indefinite
from tools.shapes.scenes import Group, Scene

LANGUAGES = ("en", "it")

NUMBERS = {"en": ("", "a", "two", "three"), "it": ("", "", "due", "tre")}


class _Noun(NamedTuple):
    """An Italian noun: its singular, its plural, and whether it is feminine."""

    singular: str
    plural: str
    feminine: bool = False


NOUNS = {
    "circle": _Noun("cerchio", "cerchi"),
    "square": _Noun("quadrato", "quadrati"),
    "triangle": _Noun("triangolo", "triangoli"),
    "star": _Noun("stella", "stelle", True),
    "ring": _Noun("anello", "anelli"),
    "cross": _Noun("croce", "croci", True),
    "heart": _Noun("cuore", "cuori"),
    "moon": _Noun("luna", "lune", True),
}
ADJECTIVES = {
    "small": "piccolo",
    "big": "grande",
    "red": "rosso",
    "blue": "blu",
    "green": "verde",
    "yellow": "giallo",
    "orange": "arancione",
    "purple": "viola",
    "pink": "rosa",
    "black": "nero",
}
INVARIABLE = ("blu", "viola", "rosa")

RELATIONS = {
    "above": {"en": ("above", "below"), "it": ("sopra", "sotto")},
    "left": {"en": ("to the left of", "to the right of"), "it": ("a sinistra di", "a destra di")},
}
"""For each relation, the words between the first group and the second, and between the second and the first."""
PLACES = {
    "top left": ("in the top left corner", "nell'angolo in alto a sinistra"),
    "top middle": ("at the top", "in alto"),
    "top right": ("in the top right corner", "nell'angolo in alto a destra"),
    "middle left": ("on the left", "a sinistra"),
    "middle middle": ("in the middle", "al centro"),
    "middle right": ("on the right", "a destra"),
    "bottom left": ("in the bottom left corner", "nell'angolo in basso a sinistra"),
    "bottom middle": ("at the bottom", "in basso"),
    "bottom right": ("in the bottom right corner", "nell'angolo in basso a destra"),
}
"""The words for the place of one group, in each of `LANGUAGES`."""


def describe(scene: Scene, language: str) -> tuple[Caption, ...]:
    """All captions of a scene: one of a single group; of two groups, one that begins with each of them."""
    names = [_name(group, language).split() for group in scene.groups]
    if len(names) == 1:
        place = PLACES[scene.relation][LANGUAGES.index(language)].split()
        return (_caption((names[0], 0), (place, None)),)
    forward, backward = (words.split() for words in RELATIONS[scene.relation][language])
    return (
        _caption((names[0], 0), (forward, None), (names[1], 1)),
        _caption((names[1], 1), (backward, None), (names[0], 0)),
    )


def _caption(*parts: tuple[list[str], int | None]) -> Caption:
    words = [(word, group) for words, group in parts for word in words]
    return Caption(" ".join(word for word, _ in words), tuple(group for _, group in words))


def _name(group: Group, language: str) -> str:
    """The words for a group: "two small red stars", "due piccole stelle rosse"."""
    if language == "en":
        article = "an" if group.number == 1 and not group.size and group.color[0] in "aeiou" else ""
        number = article or NUMBERS["en"][group.number]
        name = group.shape if group.number == 1 else english_plural(group.shape)
        return " ".join(filter(None, (number, group.size, group.color, name)))
    noun = NOUNS[group.shape]
    size = agree(ADJECTIVES[group.size], noun.feminine, group.number > 1) if group.size else ""
    color = agree(ADJECTIVES[group.color], noun.feminine, group.number > 1)
    name = noun.singular if group.number == 1 else noun.plural
    number = NUMBERS["it"][group.number] or indefinite(size or name, noun.feminine)
    return " ".join(filter(None, (number, size, name, color)))


def english_plural(noun: str) -> str:
    return noun + ("es" if noun.endswith("s") else "s")


def agree(adjective: str, feminine: bool, plural: bool) -> str:
    """The form of an Italian adjective: piccolo, piccola, piccoli, piccole; verde, verdi; blu does not change."""
    if adjective in INVARIABLE:
        return adjective
    if adjective.endswith("e"):
        return adjective[:-1] + "i" if plural else adjective
    return adjective[:-1] + (("e" if plural else "a") if feminine else ("i" if plural else "o"))
