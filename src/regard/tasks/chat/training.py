"""How conversation is learnt: as translation is, but judged by perplexity, for many replies are right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from regard.config import Recipe
from regard.models.base import Seq2Seq
from regard.tasks.chat.chatbot import distinct
from regard.tasks.seq2seq import TranslateTrainUnit
from regard.tasks.translate.data import PreparedPairs
from regard.tasks.translate.evaluate import quick_scores
from regard.training.distributed import ProcessGroup
from regard.training.trainer import Validation

MOST_LOSS = 700.0
"""Beyond it, a perplexity is no number any more."""


class ChatTrainUnit(TranslateTrainUnit):
    """What the loop must know of conversation."""

    def __init__(self, recipe: Recipe, prepared: PreparedPairs, model: Seq2Seq, group: ProcessGroup | None = None):
        most = recipe.data.max_length
        whole = replace(
            recipe.search, max_source_tokens=most, max_joined_tokens=most
        )  # a context is not cut into sentences
        super().__init__(replace(recipe, search=whole), prepared, model, group)

    def validate(self, model: Seq2Seq) -> Validation:
        """Perplexity over all replies; BLEU and how diverse they are over the first of them, written greedily."""
        loss, texts = self.valid_loss(model), self.write(model)
        references = [pair.target for pair in self.translated]
        scores = {"loss": loss, "perplexity": perplexity(loss)} | quick_scores(texts, references) | diversity(texts)
        return self.judged(scores, texts)


def perplexity(loss: float) -> float:
    """From the mean negative log-likelihood of a token."""
    return math.exp(min(loss, MOST_LOSS))


def diversity(texts: Sequence[str]) -> dict[str, float]:
    """Distinct-1 and distinct-2."""
    return {"distinct_1": distinct(texts, 1), "distinct_2": distinct(texts, 2)}


def score_replies(texts: Sequence[str], references: Sequence[str], loss: float) -> dict[str, Any]:
    """All that is said of the replies to a held-out part; `loss` is that of the references.

    BLEU and chrF come with their signatures. Edits (TER) say nothing where any reply may be right.
    """
    from sacrebleu import BLEU, CHRF

    metrics = {"bleu": BLEU(), "chrf": CHRF()}
    return {
        "perplexity": perplexity(loss),
        **diversity(texts),
        **{name: metric.corpus_score(texts, [references]).score for name, metric in metrics.items()},
        "sentences": len(texts),
        "signatures": {name: str(metric.get_signature()) for name, metric in metrics.items()},
    }
