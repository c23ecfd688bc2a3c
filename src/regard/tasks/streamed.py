"""What every task has of its training data: an endless stream of batches that can be entered anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regard.config import Train
from regard.data.batch import BatchStream, Index, Mark, epoch_batches
from regard.data.store import Ids, Part
from regard.training.schedule import Stage


class Streamed:
    """The part of `training.loop.Task` that is the same for all."""

    stage = Stage()

    def __init__(self, settings: Train, lengths: tuple[Ids, Ids], weights: Sequence[Part] = ()):
        """`lengths` and `weights` as `BatchStream` takes them."""
        self._settings, self.lengths, self._weights = settings, lengths, weights
        self.enter(0, 0)

    def enter(self, epoch: int, start: int) -> None:
        """Make ready for positions from this epoch on."""
        settings, known = self._settings, Mark(epoch, start)
        self.stream = BatchStream(self.lengths, settings.batch_tokens, settings.seed, self._weights, known=known)

    def mark(self, position: int) -> tuple[int, int]:
        """The epoch that a position falls into, and the position of its first batch."""
        return self.stream.mark(position)

    def largest_of(self, size: Callable[[Index], int]) -> Index:
        """What the largest batch of the first epoch holds."""
        settings = self._settings
        return max(epoch_batches(self.lengths, settings.batch_tokens, settings.seed, 0, self._weights), key=size)
