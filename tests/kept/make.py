"""Writes one small run folder per task in the current format, and the answers that it gives.

    python -m tests.kept.make

Run it once per format, when the format is new. The folders of older formats are never written again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import regard
from regard.cli import main
from regard.config.recipe import FORMAT
from regard.registry import TASKS
from regard.tasks.seq2seq import Seq2SeqTrainUnit
from tests import (
    reviews,
    small_chats,
    small_knowledge,
    small_pictures,
    small_runs,
    small_texts,
    small_vectors,
    tagged,
)

KEPT = Path(__file__).parent
ANSWERS, INTERRUPTED = "answers.json", "interrupted"
SETTINGS = ("train.max_steps=40", "train.device=cpu", "train.precision=float32")

# Paths are relative: those of this machine must not be in a run that is kept.
ARGUMENTS = {
    "translate": lambda out: small_runs.train_arguments(Path(), out, *SETTINGS),
    "chat": lambda out: small_chats.chat_arguments(
        small_chats.write_dialogues(Path("talks.jsonl")), out, "transformer-tiny", *SETTINGS
    ),
    "classify": lambda out: reviews.train_arguments(reviews.write_reviews(Path("reviews.tsv")), out, *SETTINGS),
    "tag": lambda out: tagged.train_arguments(tagged.write_chunks(Path("chunks.conll")), out, *SETTINGS),
    "retrieve": lambda out: small_knowledge.train_arguments(
        small_knowledge.write_questions(Path("faq.tsv")), out, *SETTINGS
    ),
    "language-model": lambda out: small_texts.train_arguments(
        small_texts.write_texts(Path("texts.txt")), out, *SETTINGS
    ),
    "masked-language-model": lambda out: small_texts.train_arguments(
        small_texts.write_texts(Path("texts.txt")), out, *SETTINGS, arch="masked-lm"
    ),
    "caption": lambda out: small_pictures.train_arguments(Path(), out, *SETTINGS),
    "embed": lambda out: small_vectors.train_arguments(
        small_texts.write_texts(Path("texts.txt")), out, *SETTINGS, "embed.subsample=0"
    ),
}


def answers_of(task: str, run: Path) -> Any:
    """What a run of this task answers to fixed inputs, ready for JSON."""
    model = regard.load(run)
    if task == "translate":
        found = model.translate(["I am trendy.", "The old man sees the dog."], beam_size=2)
        return [[one.text, one.score] for one in found]
    if task == "chat":
        found = model.reply_all([["Hello."], ["Hello.", "Hello!", "Who are you?"]], beam_size=1)
        return [[one.text, one.score] for one in found]
    if task == "classify":
        return [[one.label, one.probability] for one in model.classify(["A lovely film.", "It was awful and dull."])]
    if task == "tag":
        return [list(one.tags) for one in model.tag(["the dog sees a cat .", "she reads ."])]
    if task == "retrieve":
        return [[[match.question, match.score] for match in found] for found in model.search(["open an account"])]
    if task == "language-model":
        scores = model.score(["The old man sees the dog.", "Who is it?"])
        return [[one.tokens, one.negative_log_likelihood] for one in scores] + [
            model.write("The", temperature=0.0)[0].text
        ]
    if task == "masked-language-model":
        [found] = model.fill("The old [MASK] sees the dog.")
        return [found.text, *map(list, found.blanks[0])]
    if task == "caption":
        found = model.caption([np.full((16, 16, 3), shade, np.uint8) for shade in (40, 220)], beam_size=2)
        return [[one.text, one.score] for one in found]
    if task == "embed":
        return [[one.word, one.similarity] for one in model.neighbours(model.words[10], 4)]
    raise KeyError(task)


def interrupt(run: Path) -> None:
    """Train a translator that is interrupted between two checkpoints."""
    batch = Seq2SeqTrainUnit.batch

    def stopping(unit: Seq2SeqTrainUnit, position: int) -> Any:
        if position == 8:
            raise KeyboardInterrupt
        return batch(unit, position)

    with mock.patch.object(Seq2SeqTrainUnit, "batch", stopping):
        small = ("model.width=8", "model.ffn_width=16")
        assert main([*ARGUMENTS["translate"](run), *(word for setting in small for word in ("--set", setting))]) == 130
    for file in (run / "checkpoints").glob("*"):
        if file.is_file() and "00000006" not in file.name:
            file.unlink()


def write_all() -> None:
    """Train, record the answers, and keep what opening a run needs."""
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        small_runs.write_corpus(Path())
        for task in TASKS:
            assert main(ARGUMENTS[task](Path(task))) == 0
            (Path(task) / ANSWERS).write_text(json.dumps(answers_of(task, Path(task)), indent=1, ensure_ascii=False))
            shutil.rmtree(Path(task, "checkpoints"))
            Path(task, "report.html").unlink()
        interrupt(Path(INTERRUPTED))
        for name in (*TASKS, INTERRUPTED):
            for lock in Path(name).rglob(".*"):
                lock.unlink()
            shutil.rmtree(KEPT / f"format-{FORMAT}" / name, ignore_errors=True)
            shutil.copytree(name, KEPT / f"format-{FORMAT}" / name)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    write_all()
