"""What those who watch training write."""

import json

import pytest
import torch

from regard.config import TrainSettings
from regard.run import Run
from regard.training.checkpoint import TrainingProgress
from regard.training.metrics_log import (
    LiveBar,
    MetricsFile,
    PlainLog,
    SpeedMeter,
    format_scores,
    make_logs,
    share_done,
)
from regard.training.trainer import StepMetrics, Validation


def update(step: int) -> StepMetrics:
    return StepMetrics(step=step, loss=9.0, rate=0.001, norm=1.0, tokens=100, seconds=0.5, flops=1e9)


def test_metrics_forget_what_will_come_again(tmp_path):
    path = tmp_path / "metrics.jsonl"
    metrics = MetricsFile(path, every=2)
    metrics.on_start(TrainingProgress())
    for step, loss in enumerate([4.0, 2.0, 3.0, 1.0], 1):
        metrics.on_step(update(step), TrainingProgress(step=step, loss=loss))
    metrics.on_validation(Validation({"bleu": 10.0}, 10.0), TrainingProgress(step=4), best=True)
    metrics.on_message("hello", TrainingProgress(step=4))
    metrics.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["kind"], line["step"]) for line in lines] == [
        ("step", 2), ("step", 4), ("validation", 4), ("notice", 4),
    ]  # fmt: skip
    assert [line["loss"] for line in lines[:2]] == [2.0, 1.0]
    assert lines[0]["tokens_per_second"] == 200.0

    path.write_text(path.read_text() + '{"kind": "step", "st')  # cut off by a kill
    metrics.on_start(TrainingProgress(step=3))
    metrics.close()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [2]


def test_samples_may_hold_any_ends_of_lines(tmp_path):
    metrics = MetricsFile(tmp_path / "metrics.jsonl", every=1)
    metrics.on_start(TrainingProgress())
    sample = {"source": "one\u2028two\x85three", "output": "\u2029"}
    metrics.on_validation(Validation({"bleu": 10.0}, 10.0, [sample]), TrainingProgress(step=4), best=True)
    metrics.close()
    metrics.on_start(TrainingProgress(step=4))
    metrics.close()
    assert [line["samples"] for line in Run(tmp_path).metrics()] == [[sample]]


@pytest.mark.parametrize(
    "odd",
    [
        b'{"kind": "validation", "step": 1, "samples": [{"source": "a"}',  # torn, and ends like a whole line
        b'{"kind: "step", "step": 1}',
        b'{"kind": "step", "step": 1, "text": "\xff"}',
        b'{"kind": "step"}',
        b'{"step": 1}',
        b'{"kind": "step", "step": "1"}',
        b'["step"]',
        b"[" * 100_000,
        b"12",
        b"\x00",
    ],
)
def test_odd_lines_of_the_metrics_are_dropped(tmp_path, odd):
    path = tmp_path / "metrics.jsonl"
    good = b'{"kind": "step", "step": 1, "loss": 2.5}'
    path.write_bytes(odd + b"\n" + good + b"\n" + odd)
    assert Run(tmp_path).metrics() == [json.loads(good)]
    metrics = MetricsFile(path, every=1)
    metrics.on_start(TrainingProgress(step=1))
    metrics.close()
    assert path.read_bytes() == good + b"\n"


FORMATS = {"bleu": "BLEU {:.1f}", "loss": "loss {:.3f}"}


def test_plain_log_is_lines(monkeypatch, capsys):
    monkeypatch.setattr("regard.training.metrics_log.SECONDS_BETWEEN_LINES", 0.0)
    log = PlainLog(TrainSettings(max_steps=10), FORMATS)
    log.on_start(TrainingProgress(step=4))
    log.on_step(update(5), TrainingProgress(step=5, seconds=60.0, loss=2.0))
    log.on_validation(Validation({"bleu": 12.34, "loss": 1.5}, 12.34), TrainingProgress(step=5), best=True)
    log.on_message("something happened", TrainingProgress(step=5))
    log.close()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "continuing from step 4"
    assert lines[1].startswith("step 5  loss 2.00  200 tokens/s")
    assert lines[1].endswith("1:00 left at most")
    assert lines[2:] == ["step 5  validation: BLEU 12.3  loss 1.500  best so far", "something happened"]


def test_the_share_of_the_peak_is_that_of_the_precision(monkeypatch):
    peaks = {torch.float32: 4e9, torch.bfloat16: 10e9}
    monkeypatch.setattr("regard.training.metrics_log.matmul_peak", lambda device, kind: peaks[kind])
    for precision, share in (("float32", "50%"), ("bfloat16", "20%")):
        speed = SpeedMeter(TrainSettings(precision=precision))
        speed.add(update(1))
        assert str(speed) == f"200 tokens/s  {share} of peak"
    four = SpeedMeter(TrainSettings(precision="float32"), "words", processes=4)
    four.add(update(1))
    assert str(four) == "200 words/s  12% of peak"


def test_no_time_is_shown_if_only_patience_ends_training(monkeypatch, capsys):
    monkeypatch.setattr("regard.training.metrics_log.SECONDS_BETWEEN_LINES", 0.0)
    log = PlainLog(TrainSettings(), FORMATS)
    log.on_step(update(5), TrainingProgress(step=5, seconds=60.0, loss=2.0))
    log.on_step(update(6), TrainingProgress(step=6, seconds=60.0, loss=2.0, cooldown_from=4, cooldown_until=12))
    first, second = capsys.readouterr().err.splitlines()
    assert "left" not in first
    assert second.endswith("1:00 left at most")


def test_share_done_is_by_updates_minutes_or_flops():
    assert share_done(TrainingProgress(step=1, flops=9e14), TrainSettings(max_flops=1e15)) == 0.9
    assert share_done(TrainingProgress(step=25), TrainSettings(max_steps=100)) == 0.25
    assert share_done(TrainingProgress(step=25, seconds=30), TrainSettings(max_steps=100, max_minutes=1)) == 0.5


def test_scores_are_shown_in_the_order_of_their_formats():
    assert format_scores({"loss": 1.0, "other": 3.0, "bleu": 2.0}, FORMATS) == "BLEU 2.0  loss 1.000"


def test_tensorboard_has_scores_and_losses(tmp_path):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the packages that TensorBoard imports
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        board = make_logs(tmp_path / "metrics.jsonl", TrainSettings(tensorboard=True, log_every=1), FORMATS)[-1]
        board.on_start(TrainingProgress())
        board.on_step(update(1), TrainingProgress(step=1, loss=2.5))
        sample = {"source": "a", "output": "b", "reference": "c"}
        board.on_validation(Validation({"bleu": 12.0}, 12.0, [sample]), TrainingProgress(step=1), best=True)
        board.on_message("hello", TrainingProgress(step=1))
        board.close()
        events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(1, 2.5)]
    assert [event.value for event in events.Scalars("valid/bleu")] == [12.0]
    assert "sample 1/text_summary" in events.Tags()["tensors"]


def test_samples_may_have_any_names(capsys):
    bar = LiveBar(TrainSettings(), FORMATS)
    bar.on_validation(
        Validation({"loss": 1.0}, 1.0, [{"read": "one [b]", "said": "two"}]), TrainingProgress(step=4), best=True
    )
    shown = capsys.readouterr().err
    assert "one [b]\n" in shown
    assert "two\n" in shown
