"""Logs of training: metrics.jsonl, a progress bar (on a terminal) or plain lines (elsewhere), and TensorBoard."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from regard.config import TrainSettings
from regard.errors import RunError, SettingsError
from regard.files import write_atomically
from regard.layers.auxiliary import Statistics
from regard.run import read_metrics
from regard.training.checkpoint import TrainingProgress
from regard.training.device import choose_device, matmul_peak, product_type
from regard.training.plan import amount
from regard.training.schedule import ends_by_patience_only
from regard.training.trainer import StepMetrics, TrainingLog, Validation

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from torch.utils.tensorboard.writer import SummaryWriter

SECONDS_BETWEEN_LINES = 20.0


class MetricsFile(TrainingLog):
    """Writes JSON lines {"kind": "step", "step": 20, ...} for every `every`-th step, for validations and notices."""

    def __init__(self, path: Path, every: int):
        self.path, self.every = path, every
        self._file: TextIO | None = None
        self._tokens, self._seconds = 0, 0.0

    def on_start(self, progress: TrainingProgress) -> None:
        """Open the file. After a resume, remove the lines of steps that will be repeated."""
        is_first = not progress.step and progress.best_score is None  # nothing that was logged is in a checkpoint
        kept = [line for line in read_metrics(self.path) if line["step"] <= progress.step and not is_first]
        lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept)
        try:
            write_atomically(self.path, lines.encode(errors="replace"))
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise RunError(f"{self.path}: cannot write ({error.strerror}); check permissions and disk space") from None

    def on_step(self, metrics: StepMetrics, progress: TrainingProgress) -> None:
        self._tokens += metrics.tokens
        self._seconds += metrics.seconds
        if metrics.step % self.every == 0:
            speed = round(self._tokens / max(self._seconds, 1e-9), 1)
            values = {"loss": progress.loss, "rate": metrics.rate, "norm": metrics.norm, "tokens_per_second": speed}
            layers = {"layers": metrics.layers} if metrics.layers else {}
            self._write("step", progress, **values, **progress.measures, **layers)
            self._tokens, self._seconds = 0, 0.0

    def on_validation(self, validation: Validation, progress: TrainingProgress, *, best: bool) -> None:
        self._write("validation", progress, **validation.scores, best=best, samples=list(validation.samples))

    def on_message(self, message: str, progress: TrainingProgress) -> None:
        self._write("notice", progress, message=message)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, kind: str, progress: TrainingProgress, **values: Any) -> None:
        if self._file is None:
            return
        line = {"kind": kind, "step": progress.step, "seconds": round(progress.seconds, 2)}
        line |= {"tokens": progress.tokens, "flops": progress.flops, **values}
        try:
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._file.flush()
        except OSError as error:
            raise RunError(f"{self.path}: cannot write ({error.strerror}); check permissions and disk space") from None


def mean_statistics(metrics: Iterable[Mapping[str, Any]], last: int = 20) -> dict[str, Statistics]:
    """Means of the numbers of each layer, such as the load of experts, over the last lines of the metrics file."""
    lines = [line["layers"] for line in metrics if "layers" in line][-last:]

    def mean(values: Sequence[Any]) -> list[float] | float:
        if isinstance(values[0], list):
            return [round(sum(column) / len(values), 4) for column in zip(*values, strict=True)]
        return round(sum(values) / len(values), 4)

    return {
        layer: {name: mean([line[layer][name] for line in lines]) for name in names}
        for layer, names in (lines[-1] if lines else {}).items()
    }


class PlainLog(TrainingLog):
    """Prints plain lines to standard error. `formats`: a format string for each score, e.g. {"bleu": "BLEU {:.1f}"}."""

    def __init__(self, settings: TrainSettings, formats: Mapping[str, str], speed: SpeedMeter | None = None):
        self.settings, self.formats = settings, formats
        self._speed = speed or SpeedMeter(settings)
        self._last = 0.0

    def on_start(self, progress: TrainingProgress) -> None:
        self._last = time.monotonic()
        if progress.step:
            self._print(f"continuing from step {progress.step:,}")

    def on_step(self, metrics: StepMetrics, progress: TrainingProgress) -> None:
        self._speed.add(metrics)
        if time.monotonic() - self._last < SECONDS_BETWEEN_LINES and metrics.step != 1:
            return
        self._last = time.monotonic()
        left = _time_left(progress, self.settings)
        spent = f"{amount(progress.flops)}FLOP"
        self._print(f"step {metrics.step:,}  {_averages(progress)}  {self._speed}  {spent}  {left}".rstrip())

    def on_validation(self, validation: Validation, progress: TrainingProgress, *, best: bool) -> None:
        mark = "  best so far" if best else ""
        self._print(f"step {progress.step:,}  validation: {format_scores(validation.scores, self.formats)}{mark}")

    def on_message(self, message: str, progress: TrainingProgress) -> None:
        self._print(message)

    def _print(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class LiveBar(TrainingLog):
    """Shows a progress bar on a terminal; above it, the scores of each validation and a sample output.

    `formats`: a format string for each score, e.g. {"bleu": "BLEU {:.1f}"}; the bar shows the first score.
    """

    def __init__(self, settings: TrainSettings, formats: Mapping[str, str], speed: SpeedMeter | None = None):
        from rich.console import Console

        self.settings, self.formats = settings, formats
        self.console = Console(stderr=True, highlight=False)
        self._bar: Bar | None = None
        self._speed = speed or SpeedMeter(settings)
        self._score = ""

    def on_start(self, progress: TrainingProgress) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        if progress.step:
            self.console.print(f"  [dim]continuing from step {progress.step:,}[/]")
        self._bar = Progress(
            TextColumn("  [bold]{task.fields[what]}[/]"),
            BarColumn(bar_width=24, complete_style="cyan", finished_style="cyan"),
            TextColumn("{task.fields[numbers]}"),
            console=self.console,
            transient=True,
        )
        self._bar.add_task("", total=1.0, what="training", numbers="")
        self._bar.start()

    def on_step(self, metrics: StepMetrics, progress: TrainingProgress) -> None:
        self._speed.add(metrics)
        if self._bar is not None:
            spent, left = f"{amount(progress.flops)}FLOP", _time_left(progress, self.settings)
            parts = [_averages(progress), self._score, str(self._speed), spent, left]
            numbers, done = "  ".join(part for part in parts if part), share_done(progress, self.settings)
            self._bar.update(self._bar.task_ids[0], completed=done, numbers=numbers)

    def on_validation(self, validation: Validation, progress: TrainingProgress, *, best: bool) -> None:
        from rich.markup import escape

        shown = format_scores(validation.scores, self.formats)
        self._score = f"[bold]{shown.split('  ')[0]}[/]"
        star = "[green]*[/]" if best else " "
        self.console.print(f" {star}[dim]{progress.step:>7,}[/]  {shown}")
        for sample in validation.samples[:1]:
            for style, text in zip(("dim", "cyan"), sample.values(), strict=False):
                self.console.print(f"           [{style}]{escape(text)}[/]")

    def on_message(self, message: str, progress: TrainingProgress) -> None:
        from rich.markup import escape

        self.console.print(f"  [yellow]{escape(message)}[/]")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


class TensorBoard(TrainingLog):
    """Writes TensorBoard events to `folder`, for every `every`-th step and for all validations."""

    def __init__(self, folder: Path, every: int):
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError:
            raise SettingsError('train.tensorboard needs TensorBoard: pip install "regard[tensorboard]"') from None
        self._make, self._folder, self._every = SummaryWriter, folder, every
        self._writer: SummaryWriter | None = None

    def on_start(self, progress: TrainingProgress) -> None:
        """Open the event file. After a resume, `purge_step` makes TensorBoard discard the events of repeated steps."""
        self._writer = self._make(str(self._folder), purge_step=progress.step + 1)

    def on_step(self, metrics: StepMetrics, progress: TrainingProgress) -> None:
        if self._writer is not None and metrics.step % self._every == 0:
            speed = metrics.tokens / max(metrics.seconds, 1e-9)
            values = {"loss": progress.loss, "rate": metrics.rate, "norm": metrics.norm, "tokens_per_second": speed}
            for name, value in (values | progress.measures).items():
                self._writer.add_scalar(f"train/{name}", value, metrics.step)

    def on_validation(self, validation: Validation, progress: TrainingProgress, *, best: bool) -> None:
        if self._writer is not None:
            for name, score in validation.scores.items():
                self._writer.add_scalar(f"valid/{name}", score, progress.step)
            for number, sample in enumerate(validation.samples, 1):
                text = "\n".join(f"    {value}" for value in sample.values())
                self._writer.add_text(f"sample {number}", text, progress.step)

    def on_message(self, message: str, progress: TrainingProgress) -> None:
        if self._writer is not None:
            self._writer.add_text("notice", message, progress.step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class SpeedMeter:
    """Moving average of the training speed: tokens per second (shown as `unit`/s), and the share of the peak FLOP/s.

    The peak is the speed of a large matrix product on this machine times `processes`, the number of processes.
    """

    def __init__(self, settings: TrainSettings, unit: str = "tokens", processes: int = 1):
        self._settings, self._unit, self._processes = settings, unit, processes
        self._tokens, self._flops = 0.0, 0.0

    def add(self, metrics: StepMetrics) -> None:
        share = 0.1 if self._tokens else 1.0
        seconds = max(metrics.seconds, 1e-9)
        self._tokens += share * (metrics.tokens / seconds - self._tokens)
        self._flops += share * (metrics.flops / seconds - self._flops)

    def __str__(self) -> str:
        text = f"{self._tokens:,.0f} {self._unit}/s"
        if not self._flops:
            return text
        device = choose_device(self._settings, 0)
        peak = self._processes * matmul_peak(device.type, product_type(self._settings, device))
        return f"{text}  {self._flops / peak:.0%} of peak"


def share_done(progress: TrainingProgress, settings: TrainSettings) -> float:
    """Share of training that is done, from 0 to 1: of the steps, minutes or FLOPs, whichever is largest."""
    limits = ((progress.seconds, 60 * settings.max_minutes), (progress.flops, settings.max_flops))
    by_steps = progress.step / (progress.cooldown_until or settings.max_steps)
    return max(by_steps, *(done / most if most else 0.0 for done, most in limits))


def _averages(progress: TrainingProgress) -> str:
    """The loss and, in reward fine-tuning, the mean reward, as text; both are moving averages."""
    reward = progress.measures.get("reward")
    return f"loss {progress.loss:.2f}" + ("" if reward is None else f"  reward {reward:.3f}")


def _time_left(progress: TrainingProgress, settings: TrainSettings) -> str:
    """The longest time that training can still take, as text; empty if unknown, e.g. if only patience ends training."""
    share = share_done(progress, settings)
    endless = ends_by_patience_only(settings) and not progress.cooldown_until
    if share <= 0 or progress.seconds <= 0 or endless:
        return ""
    minutes, seconds = divmod(int(progress.seconds * max(1 - share, 0) / share), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d} left at most" if hours else f"{minutes}:{seconds:02d} left at most"


def format_scores(scores: Mapping[str, float], formats: Mapping[str, str]) -> str:
    """Scores as one line of text, e.g. BLEU 34.1  chrF 60.2  loss 1.93.

    `formats`: a format string for each score to show, in this order, e.g. {"bleu": "BLEU {:.1f}"}.
    """
    return "  ".join(text.format(scores[name]) for name, text in formats.items() if name in scores)


def make_logs(
    path: Path, settings: TrainSettings, formats: Mapping[str, str], unit: str = "tokens", processes: int = 1
) -> list[TrainingLog]:
    """Build the logs: the metrics file, a bar on a terminal or plain lines elsewhere, and TensorBoard.

    `path`: the metrics file; `formats`: a format string for each score; `unit`: what the speed counts;
    `processes`: number of processes. TensorBoard is used if `train.tensorboard` is true.
    """
    speed = SpeedMeter(settings, unit, processes)
    shown = LiveBar(settings, formats, speed) if sys.stderr.isatty() else PlainLog(settings, formats, speed)
    logs: list[TrainingLog] = [MetricsFile(path, settings.log_every), shown]
    return [*logs, TensorBoard(path.parent / "tensorboard", settings.log_every)] if settings.tensorboard else logs
