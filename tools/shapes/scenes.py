"""What is in a drawing, and where: one group of equal things at a named place, or two groups with a relation."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from regard.data.drawings import CANVAS, COLORS, SHAPES, Thing

RADII = {"small": (6, 7), "": (10, 11), "big": (16, 19)}
"""For each size, the smallest and the largest radius; things without a named size are between small and big."""
GAP = 3
"""Smallest distance between two things, and between a thing and the edge."""
COUNTS = (1, 1, 1, 2, 3)
"""Numbers of things in a group; some are more frequent than others."""
STEEPEST = 0.6
"""Of two groups with a relation, the largest distance in the other direction, as a share of that in its direction: a
thing that is above another one and as far to its left has no clear relation."""
ONE_GROUP = 0.3
"""Share of drawings with one group."""
ROWS, COLUMNS = ("top", "middle", "bottom"), ("left", "middle", "right")


class Group(NamedTuple):
    """Equal things, which are named together."""

    number: int
    size: str
    color: str
    shape: str


class Scene(NamedTuple):
    """The content of a drawing. Of two groups, the first one is above the second, or to the left of it."""

    groups: tuple[Group, ...]
    relation: str
    """Of two groups: "above" or "left". Of one group: its row and its column, e.g. "top left"."""
    things: tuple[Thing, ...]


def arrange(chance: Random) -> Scene:
    """Choose what is in a drawing, and its place."""
    return _alone(chance) if chance.random() < ONE_GROUP else _related(chance)


def _choose(chance: Random) -> Group:
    count = chance.choice(COUNTS)
    size = chance.choice(list(RADII) if count == 1 else ["small", ""])  # two big things need too much room
    return Group(count, size, chance.choice(list(COLORS)), chance.choice(list(SHAPES)))


def _alone(chance: Random) -> Scene:
    """One group in one of nine places. Several things are in a row, or one below the other at the left and right."""
    group = _choose(chance)
    row, column = chance.choice(ROWS), chance.choice(COLUMNS)
    if group.number > 1 and row != "middle":
        column = "middle"  # a row of things has no corner
    is_column = group.number > 1 and column != "middle"
    third = CANVAS // 3
    box = [ROWS.index(row) * third, COLUMNS.index(column) * third, third, third]
    if is_column or row == column == "middle":
        box[0], box[2] = 0, CANVAS
    if not is_column and (group.number > 1 or row == column == "middle"):
        box[1], box[3] = 0, CANVAS
    if row == column == "middle":  # near the center, whatever the size
        box = [
            third // 2,
            third // 2 if group.number == 1 else 0,
            2 * third,
            2 * third if group.number == 1 else CANVAS,
        ]
    return Scene((group,), f"{row} {column}", _put(group, 0, box, is_column, chance))


def _related(chance: Random) -> Scene:
    """Two groups that differ in shape or color, one above the other or side by side, each in its half."""
    first = _choose(chance)
    second = _choose(chance)
    while (first.shape, first.color) == (second.shape, second.color):
        second = _choose(chance)
    relation = chance.choice(("above", "left"))
    half = CANVAS // 2
    boxes = [[start, 0, half, CANVAS] if relation == "above" else [0, start, CANVAS, half] for start in (0, half)]
    while True:
        parts = [
            _put(group, index, box, relation == "left", chance)
            for index, (group, box) in enumerate(zip((first, second), boxes, strict=True))
        ]
        (x0, y0), (x1, y1) = map(_center, parts)
        across, down = abs(x1 - x0), abs(y1 - y0)
        if (across < STEEPEST * down) if relation == "above" else (down < STEEPEST * across):
            return Scene((first, second), relation, parts[0] + parts[1])


def _center(things: tuple[Thing, ...]) -> tuple[float, float]:
    return sum(thing.x for thing in things) / len(things), sum(thing.y for thing in things) / len(things)


def _put(group: Group, index: int, box: list[int], is_column: bool, chance: Random) -> tuple[Thing, ...]:
    """The things of a group inside the box (top, left, height, width), in a row or a column."""
    top, left, height, width = box
    radius = chance.randint(*RADII[group.size])
    along = height if is_column else width
    room = along - group.number * (2 * radius + GAP) - GAP  # what remains is divided at random
    across = (width if is_column else height) - 2 * (radius + GAP)
    before = chance.randint(0, max(0, room))
    step = 2 * radius + GAP + (chance.randint(0, max(0, room - before) // group.number) if group.number > 1 else 0)
    offset = chance.randint(0, max(0, across)) + min(0, across) // 2
    things = []
    for place in range(group.number):
        first, second = before + min(0, room) // 2 + GAP + radius + place * step, offset + GAP + radius
        x, y = (second, first) if is_column else (first, second)
        x, y = (_within(center, radius) for center in (left + x, top + y))
        things.append(Thing(group.shape, group.color, x, y, radius, index))
    return tuple(things)


def _within(center: int, radius: int) -> int:
    """The nearest place at which a thing is not cut off by an edge."""
    return min(max(center, radius + GAP), CANVAS - radius - GAP)
