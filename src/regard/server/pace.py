"""How fast work is done: so that who is refused can be told when to come again."""

from __future__ import annotations

MEMORY = 0.95
"""What was measured before counts so much, each time that a batch ends."""
FIRST_GUESS = 1.0
"""Seconds to wait where nothing was measured yet."""


class Pace:
    """Weight worked off a second, while there was something to do; batches may overlap."""

    def __init__(self) -> None:
        self._weight, self._seconds = 0.0, 0.0
        self._running, self._since = 0, 0.0

    def begin(self, now: float) -> None:
        """A batch begins."""
        if not self._running:
            self._since = now
        self._running += 1

    def end(self, weight: float, now: float) -> None:
        """A batch of this weight ends."""
        self._running -= 1
        self._weight = MEMORY * self._weight + weight
        self._seconds = MEMORY * self._seconds + now - self._since
        self._since = now

    def rate(self) -> float | None:
        """Weight a second, of late; None where nothing was measured."""
        return self._weight / self._seconds if self._weight and self._seconds else None

    def seconds(self, weight: float) -> float:
        """How long so much will take."""
        rate = self.rate()
        return weight / rate if rate else FIRST_GUESS
