"""Conversation as a kind of run: dialogues in, perplexity and a model that replies out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from regard.config import Recipe
from regard.data.pairs import Pair
from regard.errors import SettingsError
from regard.models.base import Network, Seq2Seq, count_parameters
from regard.run import Run
from regard.tasks.chat.chatbot import Chatbot, load
from regard.tasks.chat.data import TURN
from regard.tasks.chat.training import ChatTrainUnit, score_replies
from regard.tasks.contract import Log, Tables, require_writer
from regard.tasks.report import Sample, write_report
from regard.tasks.seq2seq import mean_loss
from regard.tasks.translate.data import PreparedPairs, TrainingPairs, read_pairs
from regard.tasks.translate.kind import HELD_OUT_PAIRS, TranslateTraining
from regard.training.checkpoint import TrainingProgress
from regard.training.distributed import ProcessGroup

METRICS = ("loss", "bleu", "chrf")


class ChatTraining(TranslateTraining):
    """From the turns so far to the next one."""

    defaults: ClassVar[Tables] = {
        "tokenizer": {"special_tokens": [TURN]},
        "train": {"metric": "loss", "label_smoothing": 0.0},  # smoothing costs perplexity
        "search": {
            "beam_size": 1,
            "max_length_ratio": 0.1,
            "max_length_extra": 60,
        },  # a reply is not the longer for a long context
    }
    lasting: ClassVar[tuple[str, ...]] = ("task", "source_language", "target_language", "turns", "max_length")

    def check(self, recipe: Recipe) -> None:
        """Turns must be parted, and replies can be measured by some metrics only."""
        if recipe.tokenizer.special_tokens[:1] != (TURN,):
            raise SettingsError(
                f'tokenizer.special_tokens must begin with "{TURN}", which parts the turns of a conversation'
            )
        require_writer(recipe)
        if recipe.train.metric not in METRICS:
            raise SettingsError(f'train.metric = "{recipe.train.metric}": of replies there are {", ".join(METRICS)}')

    def read(self, recipe: Recipe) -> TrainingPairs:
        """Count and measure the pairs of context and reply."""
        return read_pairs(recipe.data, recipe.train.seed)

    def task(
        self, recipe: Recipe, prepared: PreparedPairs, model: Network, group: ProcessGroup | None = None
    ) -> ChatTrainUnit:
        """Batches of pairs, judged by perplexity."""
        assert isinstance(model, Seq2Seq)
        return ChatTrainUnit(recipe, prepared, model, group)

    def finish(self, run: Run, prepared: PreparedPairs, progress: TrainingProgress, log: Log) -> None:
        """Reply to the held-out contexts, score, fill in the card, write the report, put the training data away."""
        chatter = load(run.folder)
        model = chatter.translator.model
        scores: dict[str, Any] = {}
        samples: list[Sample] = []
        for part, pairs in (("valid", prepared.valid), ("test", prepared.test)):
            if pairs:
                samples = reply_to(chatter, pairs)
                texts, references = [one.translation for one in samples], [one.reference for one in samples]
                most = run.recipe.data.max_length
                loss = mean_loss(model, prepared.source, prepared.target, pairs, max_length=most)
                scores[part] = score_replies(texts, references, loss)
        learnt = {"parameters": count_parameters(model), "scores": scores, "training": dataclasses.asdict(progress)}
        run.write_card(run.card | learnt)
        write_report(run, chatter.translator, samples, prepared.train.lengths)
        run.write_held_out((prepared.test or prepared.valid)[:HELD_OUT_PAIRS])
        prepared.train.close()
        run.put_store_away()

    def result(self, run: Run) -> list[str]:
        """Perplexity and diversity."""
        scores = [
            f"{part}: perplexity {found['perplexity']:.1f}  distinct-1 {found['distinct_1']:.3f}  "
            f"distinct-2 {found['distinct_2']:.3f}  on {found['sentences']:,} replies"
            for part, found in run.card.get("scores", {}).items()
        ]
        return [
            *scores,
            f'the run is in {run.folder}; look at {run.folder / "report.html"}, or "regard chat {run.folder}"',
        ]

    def notes(self, recipe: Recipe) -> Sequence[str]:
        """Nothing that is peculiar."""
        return ()

    def folder(self, recipe: Recipe) -> Path:
        """E.g. runs/hran: both sides are one language."""
        return Path("runs") / recipe.model.arch


def reply_to(chatter: Chatbot, pairs: Sequence[Pair]) -> list[Sample]:
    """Replies to contexts as they were prepared, beside those that people gave."""
    answers = chatter.translator.translate([pair.source for pair in pairs], retry_failures=False)
    return [
        Sample(pair.source, answer.text, pair.target, answer.score) for pair, answer in zip(pairs, answers, strict=True)
    ]
