"""Finite sets that can be counted without listing them, iterated over and sampled: the grammar is built of them."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Choices(Protocol[T_co]):
    """A finite set."""

    @property
    def size(self) -> int:
        """How many different members there are."""

    def draw(self, rng: Random) -> T_co:
        """One of them, at random."""

    def __iter__(self) -> Iterator[T_co]: ...


class Of(Generic[T]):
    """A list of members, all equally likely."""

    def __init__(self, members: Sequence[T]):
        self.members = members
        self.size = len(members)

    def draw(self, rng: Random) -> T:
        # Only `random()` is promised to give the same numbers in every version of Python; `choice` is not.
        return self.members[int(rng.random() * self.size)]

    def __iter__(self) -> Iterator[T]:
        return iter(self.members)


class Either(Generic[T]):
    """The members of several sets that share none, each set drawn in proportion to its weight."""

    def __init__(self, *weighted: tuple[float, Choices[T]]):
        filled = [(weight, choices) for weight, choices in weighted if choices.size]
        self.parts = [choices for _, choices in filled]
        self.limits = list(itertools.accumulate(weight for weight, _ in filled))[:-1]  # what is above them is the last
        self.weight = sum(weight for weight, _ in filled)
        self.size = sum(choices.size for choices in self.parts)

    def draw(self, rng: Random) -> T:
        return self.parts[bisect.bisect_right(self.limits, rng.random() * self.weight)].draw(rng)

    def __iter__(self) -> Iterator[T]:
        return itertools.chain.from_iterable(self.parts)


class Each(Generic[T]):
    """One member for every combination of members of its parts, made from them by `make`, a one-to-one function."""

    def __init__(self, make: Callable[..., T], *parts: Choices[object]):
        self.make = make
        self.parts = parts
        self.size = math.prod(choices.size for choices in parts)

    def draw(self, rng: Random) -> T:
        return self.make(*[choices.draw(rng) for choices in self.parts])

    def __iter__(self) -> Iterator[T]:
        return itertools.starmap(self.make, itertools.product(*self.parts))


def only(member: T) -> Of[T]:
    """Return the set with one member."""
    return Of([member])


def evenly(parts: Sequence[Choices[T]]) -> Either[T]:
    """The union of sets that are equally likely."""
    return Either(*((1, choices) for choices in parts))
