"""Ranges of settings, written as types: `width: Annotated[int, Range(1, 65_536)]`.

`CheckedSettings` compares every value with the range of its type. A settings class itself checks only conditions
that involve several settings. Every floating-point number must be finite, with or without a range.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, get_args, get_type_hints

from regard.errors import SettingsError


@dataclass(frozen=True)
class Range:
    """Allowed values of a number, or of each number in a tuple: low <= value <= high, above < value < below."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    even: bool = False

    def __contains__(self, value: float) -> bool:
        return (
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
            and not (self.even and value % 2)
        )

    def __str__(self) -> str:
        limits = {"at least": self.low, "above": self.above, "at most": self.high, "below": self.below}
        words = [f"{name} {limit:,}" for name, limit in limits.items() if limit is not None]
        return ", ".join((["even"] if self.even else []) + [" and ".join(words)])


Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, below=1)]  # e.g. a dropout rate
Count = Annotated[int, Range(1)]
CountOrZero = Annotated[int, Range(0)]
Width = Annotated[int, Range(1, 65_536)]
EvenWidth = Annotated[int, Range(2, 65_536, even=True)]  # of layers with two halves: sines and cosines, directions
Layers = Annotated[int, Range(1, 256)]


class CheckedSettings:
    """Base class of all settings dataclasses: when one is made, checks the ranges of all values and calls `check`."""

    section: ClassVar[str] = ""
    """Name of the section in a recipe, for error messages."""

    def __post_init__(self) -> None:
        settings: type = type(self)
        for name, allowed in _ranges(settings).items():
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, float) and not math.isfinite(number):
                    raise SettingsError(f"{self.section}.{name} must be a finite number, not {number}")
                if allowed is not None and number is not None and number not in allowed:
                    raise SettingsError(f"{self.section}.{name} must be {allowed}, not {number}")
        self.check()

    def check(self) -> None:
        """Raise a `SettingsError` if settings contradict each other; does nothing here, subclasses override it."""


def require(condition: bool, message: str) -> None:
    """Raise a `SettingsError` with this message unless the condition is true."""
    if not condition:
        raise SettingsError(message)


@functools.cache
def _ranges(settings: type) -> dict[str, Range | None]:
    """The range of each field of a settings class, by name; None for a field without a range."""
    hints, found = get_type_hints(settings, include_extras=True), {}
    for field in fields(settings):
        kinds = (hints[field.name], *get_args(hints[field.name]))  # the type, and the members of `Share | None`
        extras = (extra for kind in kinds for extra in getattr(kind, "__metadata__", ()))
        found[field.name] = next((extra for extra in extras if isinstance(extra, Range)), None)
    return found
