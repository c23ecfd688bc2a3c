"""Conversation as a kind of run: dialogues in, perplexity and a model that replies out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regard.config import Recipe
from regard.data.pairs import Pair
from regard.errors import SettingsError
from regard.models.base import Network, Seq2Seq
from regard.run import Run
from regard.tasks.chat import TURN
from regard.tasks.chat.chatbot import Chatbot
from regard.tasks.chat.training import ChatTrainUnit, score_replies
from regard.tasks.seq2seq import mean_loss
from regard.tasks.training import Json, Log, Scored
from regard.tasks.translate.data import PreparedPairs, TrainingPairs, read_pairs
from regard.tasks.translate.kind import TranslateTraining
from regard.tasks.translate.report import Sample
from regard.training.distributed import ProcessGroup


class ChatTraining(TranslateTraining):
    """From the turns so far to the next one."""

    def check(self, recipe: Recipe) -> None:
        """Turns must be separated by their token."""
        super().check(recipe)
        if recipe.tokenizer.special_tokens[:1] != (TURN,):
            raise SettingsError(
                f'tokenizer.special_tokens must begin with "{TURN}", which separates the turns of a conversation'
            )

    def read(self, recipe: Recipe) -> TrainingPairs:
        """Count and measure the pairs of context and reply."""
        return read_pairs(recipe)

    def train_unit(
        self, recipe: Recipe, data: PreparedPairs, model: Network, group: ProcessGroup | None = None
    ) -> ChatTrainUnit:
        """Batches of pairs, judged by perplexity."""
        assert isinstance(model, Seq2Seq)
        return ChatTrainUnit(recipe, data, model, group)

    def tune(self, run: Run, data: PreparedPairs, log: Log) -> Json:
        """Nothing: many replies are right."""
        return {}

    def score(self, predictor: Chatbot, examples: Sequence[Pair]) -> Scored:
        """Perplexity of the right replies, diversity of the given ones."""
        samples = reply_to(predictor, examples)
        translator = predictor.translator
        loss = mean_loss(translator.model, translator.source, translator.target, examples, max_length=predictor.most)
        texts, references = [one.output for one in samples], [one.reference for one in samples]
        return Scored(score_replies(texts, references, loss), samples)

    def result_line(self, part: str, scores: Json) -> str:
        """Perplexity and diversity."""
        return (
            f"perplexity {scores['perplexity']:.1f}  distinct-1 {scores['distinct_1']:.3f}  "
            f"distinct-2 {scores['distinct_2']:.3f}  on {scores['sentences']:,} replies"
        )

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


TRAINING = ChatTraining()
