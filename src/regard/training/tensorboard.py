"""TensorBoard events beside the metrics file, for those who watch many runs there: `--set train.tensorboard=true`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import SettingsError

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

    from regard.training.loop import Update, Validation
    from regard.training.state import Progress


class TensorBoard:
    """Loss, rate, gradient norm and speed of updates; scores and samples of validations."""

    def __init__(self, folder: Path, every: int):
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError:
            raise SettingsError('train.tensorboard needs the extra: pip install "regard[tensorboard]"') from None
        self._make, self._folder, self._every = SummaryWriter, folder, every
        self._writer: SummaryWriter | None = None

    def began(self, progress: Progress) -> None:
        """Open the events; what was logged after the state that training goes on from is hidden."""
        self._writer = self._make(str(self._folder), purge_step=progress.step + 1)

    def updated(self, update: Update, progress: Progress) -> None:
        """Log every so many updates."""
        if update.step % self._every == 0:
            self._add("train/loss", progress.loss, update.step)
            self._add("train/rate", update.rate, update.step)
            self._add("train/norm", update.norm, update.step)
            self._add("train/tokens_per_second", update.tokens / max(update.seconds, 1e-9), update.step)

    def validated(self, validation: Validation, progress: Progress, *, best: bool) -> None:
        """Log the scores and the samples."""
        for name, score in validation.scores.items():
            self._add(f"valid/{name}", score, progress.step)
        for number, sample in enumerate(validation.samples):
            text = "\n".join(f"    {value}" for value in sample.values())
            if self._writer is not None:
                self._writer.add_text(f"sample {number + 1}", text, progress.step)

    def noticed(self, message: str, progress: Progress) -> None:
        """Log what happened."""
        if self._writer is not None:
            self._writer.add_text("notice", message, progress.step)

    def close(self) -> None:
        """Flush and close."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _add(self, name: str, value: float, step: int) -> None:
        if self._writer is not None:
            self._writer.add_scalar(name, value, step)
