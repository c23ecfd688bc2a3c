"""Killed and resumed equals never killed, bit for bit."""

import errno
import json
import os
import random
import shutil
import signal
import time

import pytest

from regard.cli import main
from tests import (
    reviews,
    small_knowledge,
    small_marks,
    small_pictures,
    small_series,
    small_texts,
    small_vectors,
    tagged,
)
from tests.processes import start
from tests.small_chats import chat_arguments, write_dialogues
from tests.small_runs import SIZES, train_arguments, write_corpus

STEPS, FEW = "train.max_steps=48", "train.max_steps=16"
SLOW = ("chat, hierarchical", "translate, bytenet", "translate, deep-att")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never interrupted, and its data."""
    folder = tmp_path_factory.mktemp("whole")
    write_corpus(folder)
    assert main(train_arguments(folder, folder / "run", STEPS)) == 0
    return folder


def weights(run):
    return (run / "weights.safetensors").read_bytes()


def last_state(run):
    return sorted((run / "checkpoints").glob("*.safetensors"))[-1].read_bytes()


def scores(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: line[key] for key in line if key not in ("seconds", "tokens_per_second")} for line in lines]


def assert_same(run, reference):
    assert last_state(run) == last_state(reference)
    assert weights(run) == weights(reference)
    assert scores(run) == scores(reference)


def wait_for(path, process, seconds=60):
    until = time.monotonic() + seconds
    while not path.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGKILL, -signal.SIGKILL),
        (signal.SIGHUP, 143),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
    ],
)
def test_a_signal_in_the_middle_changes_nothing(whole, tmp_path, number, code):
    run = tmp_path / "run"
    process = start(*train_arguments(whole, run, STEPS))
    wait_for(run / "checkpoints" / "00000006.json", process)
    process.send_signal(number)
    assert process.wait(timeout=60) == code
    assert main(["resume", str(run)]) == 0
    assert_same(run, whole / "run")


def test_a_truncated_newest_state_falls_back(whole, tmp_path, capsys):
    run = tmp_path / "run"
    process = start(*train_arguments(whole, run, STEPS))
    wait_for(run / "checkpoints" / "00000009.json", process)
    process.kill()
    process.wait(timeout=60)
    newest = sorted((run / "checkpoints").glob("*.safetensors"))[-1]
    newest.write_bytes(newest.read_bytes()[:1000])
    assert main(["resume", str(run)]) == 0
    assert "is damaged" in capsys.readouterr().err
    assert_same(run, whole / "run")


def test_resuming_a_finished_run_with_a_later_end_goes_on(whole, tmp_path):
    run, longer = tmp_path / "run", tmp_path / "longer"
    steady = "train.cooldown=0"  # what had cooled down would have another past
    assert main(train_arguments(whole, run, "train.max_steps=6", steady)) == 0
    assert main(["resume", str(run), "--set", "train.max_steps=12"]) == 0
    assert main(train_arguments(whole, longer, "train.max_steps=12", steady)) == 0
    assert last_state(run) == last_state(longer)


def test_a_second_process_is_refused_and_the_recipe_stays(whole, tmp_path, capsys):
    run = tmp_path / "run"
    process = start(*train_arguments(whole, run, "train.max_steps=5000"))
    wait_for(run / "checkpoints" / "00000003.json", process)
    try:
        recipe = (run / "recipe.toml").read_bytes()
        assert main(["resume", str(run), "--set", "train.max_steps=7"]) == 2
        assert "another process is training in this folder" in capsys.readouterr().err
        assert (run / "recipe.toml").read_bytes() == recipe
    finally:
        process.terminate()
        process.wait(timeout=60)


def fail_at(monkeypatch, step, change):
    """Let `change` happen when the checkpoint of this step is about to be written."""
    from regard.training import checkpoint

    save = checkpoint.save_checkpoint

    def changed(folder, tensors, progress, kept):
        if progress.step == step:
            change()
        save(folder, tensors, progress, kept)

    monkeypatch.setattr(checkpoint, "save_checkpoint", changed)


def test_a_full_disk_is_one_line_and_the_run_goes_on_when_there_is_room(whole, tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fail_at(monkeypatch, 9, lambda: monkeypatch.setattr(os, "fsync", full))
    assert main(train_arguments(whole, run, STEPS)) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("regard: ")]
    assert "No space left on device" in line
    assert sorted(path.stem for path in (run / "checkpoints").glob("*.json")) == ["00000003", "00000006"]
    monkeypatch.undo()
    assert main(["resume", str(run)]) == 0
    assert_same(run, whole / "run")


def test_a_folder_that_vanishes_is_one_line(whole, tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"
    fail_at(monkeypatch, 9, lambda: shutil.rmtree(run))
    assert main(train_arguments(whole, run, STEPS)) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("regard: ")]
    assert "check that the run folder still exists" in line
    assert not run.exists()


def dialogues(folder, out, arch):
    return chat_arguments(write_dialogues(folder / "talks.jsonl"), out, arch, FEW)


def texts(folder, out, arch):
    return small_texts.train_arguments(small_texts.write_texts(folder / "texts.txt"), out, FEW, arch=arch)


def pairs(folder, out, arch):
    write_corpus(folder)
    return train_arguments(folder, out, FEW, "train.checkpoint_every=5", *SIZES[arch], arch=arch)


def rewards(folder, out, *settings):
    base = folder / "base"
    if not base.exists():
        write_corpus(folder)
        assert main(train_arguments(folder, base, FEW)) == 0
    few = (FEW, "train.checkpoint_every=5", "train.validate_every=6", "train.batch_tokens=256", "train.log_every=2")
    said = [word for setting in (*few, *settings) for word in ("--set", setting)]
    return ["finetune", str(base), "--objective", "reward", "--out", str(out), *said]


def frozen_vectors(folder, out):
    """The embeddings start from a file of vectors, and their rows are frozen."""
    (folder / "words.vec").write_text("".join(f"{word} {'0.5 -1.5 ' * 16}\n" for word in ("the", "is", "old")))
    settings = (f"train.embeddings={folder / 'words.vec'}", "train.freeze_embeddings=true", "train.weight_decay=0.1")
    written = small_texts.write_texts(folder / "texts.txt")
    return small_texts.train_arguments(written, out, FEW, "tokenizer.kind=word", *settings, arch="lstm-lm")


OTHERS = {
    "language-model, frozen vectors": frozen_vectors,
    "translate, convs2s": lambda folder, out: pairs(folder, out, "convs2s"),
    "translate, experts": lambda folder, out: pairs(folder, out, "transformer-moe"),
    "translate, bytenet": lambda folder, out: pairs(folder, out, "bytenet"),
    "translate, reward": lambda folder, out: rewards(folder, out, "translate.method=self-critical"),
    "translate, deep-att": lambda folder, out: pairs(folder, out, "deep-att"),
    "chat": lambda folder, out: dialogues(folder, out, "transformer-tiny"),
    "chat, hierarchical": lambda folder, out: dialogues(folder, out, "hran"),
    "classify": lambda folder, out: reviews.train_arguments(
        reviews.write_reviews(folder / "reviews.tsv"), out, FEW, "classify.word_dropout=0.2"
    ),
    "classify, pictures": lambda folder, out: small_marks.train_arguments(
        small_marks.write_folder(folder / "marks", 60), out, FEW
    ),
    "tag": lambda folder, out: tagged.train_arguments(tagged.write_chunks(folder / "chunks.conll"), out, FEW),
    "tag, frames": lambda folder, out: small_series.train_arguments(
        small_series.write_series(folder / "series.npz"), out, FEW, "tag.max_frames=24"
    ),
    "retrieve": lambda folder, out: small_knowledge.train_arguments(
        small_knowledge.write_questions(folder / "faq.tsv"), out, FEW, "retrieve.word_dropout=0.2"
    ),
    "language-model": lambda folder, out: texts(folder, out, "transformer-lm"),
    "caption": lambda folder, out: small_pictures.train_arguments(
        folder, out, FEW, 'caption.languages=["en", "de"]', "tokenizer.subword_regularization=0.1", "pictures.color=0.1"
    ),
    "caption, attending LSTM": lambda folder, out: small_pictures.train_arguments(
        folder, out, FEW, arch="show-attend-tell"
    ),
    "language-model, lstm": lambda folder, out: texts(folder, out, "lstm-lm"),
    "masked-language-model": lambda folder, out: texts(folder, out, "masked-lm"),
    "embed": lambda folder, out: small_vectors.train_arguments(small_texts.write_texts(folder / "texts.txt"), out, FEW),
}
"""Arguments that train other architectures, and a model for each of the tasks beside translation."""


@pytest.mark.parametrize(
    "task",
    [pytest.param(task, marks=pytest.mark.slow if task in SLOW else ()) for task in OTHERS],
)
def test_every_task_goes_on_as_if_it_had_never_stopped(task, tmp_path, monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    whole, run = tmp_path / "whole", tmp_path / "run"
    assert main(OTHERS[task](tmp_path, whole)) == 0
    fail_at(monkeypatch, 10, interrupt)
    assert main(OTHERS[task](tmp_path, run)) == 130
    monkeypatch.undo()
    assert sorted(path.stem for path in (run / "checkpoints").glob("*.json"))[-1] == "00000005"
    assert main(["resume", str(run)]) == 0
    assert_same(run, whole)


@pytest.mark.slow
def test_killed_twenty_times_at_random_moments(whole, tmp_path):
    run = tmp_path / "run"
    chance = random.Random(1)
    arguments = train_arguments(whole, run, STEPS, "train.checkpoint_every=1")
    kills, step = 0, 0
    process = start(*arguments)
    wait_for(run / "checkpoints" / "00000000.json", process)
    while kills < 20:
        step += chance.randrange(5)  # 0: in start-up or preparation; else in updates, validations and writes
        while process.poll() is None and not any(int(path.stem) >= step for path in run.glob("checkpoints/*.json")):
            time.sleep(0.001)
        time.sleep(chance.uniform(0.0, 0.05))
        if process.poll() is not None:
            break
        process.kill()
        process.wait()
        kills += 1
        process = start("resume", run)
    if process.wait():
        assert main(["resume", str(run)]) == 0
    assert kills >= 8
    assert last_state(run) == last_state(whole / "run")
    assert weights(run) == weights(whole / "run")
