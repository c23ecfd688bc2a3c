"""What all tasks share between files of examples and training: the stream of batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regard.config import TrainSettings
from regard.data.batches import BatchPosition, BatchStream, Index, epoch_batches
from regard.data.store import Ids, StorePart
from regard.training.schedule import ScheduleStage


class StreamTrainUnit:
    """The part of a `TrainUnit` that is the same for all tasks: an endless stream of batches."""

    stage = ScheduleStage()

    def __init__(self, settings: TrainSettings, lengths: tuple[Ids, Ids], weights: Sequence[StorePart] = ()):
        """`lengths` and `weights` as `BatchStream` takes them."""
        self._settings, self.lengths, self._weights = settings, lengths, weights
        self.enter(0, 0)

    def enter(self, epoch: int, start: int) -> None:
        """Prepare for positions from this epoch on; `start` is the position of its first batch."""
        settings, known = self._settings, BatchPosition(epoch, start)
        self.stream = BatchStream(self.lengths, settings.batch_tokens, settings.seed, self._weights, known=known)

    def mark(self, position: int) -> tuple[int, int]:
        """The epoch of a position, and the position of the first batch of that epoch."""
        return self.stream.mark(position)

    def largest_of(self, size: Callable[[Index], int]) -> Index:
        """The numbers of the items of the largest batch of the first epoch."""
        settings = self._settings
        return max(epoch_batches(self.lengths, settings.batch_tokens, settings.seed, 0, self._weights), key=size)
