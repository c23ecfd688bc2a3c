"""The length penalty that serves a trained model best, found on its validation part.

A model that has seen little writes short: the end of a sentence is the one word that it can always guess. How much that
must be made up for differs from run to run. One search gives all hypotheses that ended; each penalty is then only
another order of them, so trying a dozen costs no more than trying one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.config import Search
from regard.data.formats import Pair
from regard.tasks.answer import Answer
from regard.tasks.translate import Translator

PENALTIES = tuple(tenths / 10 for tenths in range(4, 27, 2))
ENOUGH_PAIRS = 100
"""Fewer sentences than this cannot tell one penalty from another."""
MOST_PAIRS = 1000
WORTH_IT = 0.1
"""BLEU that another penalty must bring before the usual one is given up."""


@dataclass(frozen=True)
class Tuned:
    """The penalty found, and BLEU with it and with the usual one."""

    penalty: float
    bleu: float
    before: float


def tune_penalty(translator: Translator, pairs: Sequence[Pair]) -> Tuned | None:
    """Try the penalties on these pairs; None where the search has no use for one or the pairs are too few."""
    settings = translator.search
    if settings.beam == 1 or settings.sample or settings.penalty_form != "plain" or len(pairs) < ENOUGH_PAIRS:
        return None
    pairs = pairs[:MOST_PAIRS]
    usual = Search().length_penalty
    answers = translator.translate(
        [pair.source for pair in pairs], nbest=settings.beam, retry=False, length_penalty=usual
    )
    from sacrebleu import BLEU

    references = [[pair.target for pair in pairs]]
    bleu = {
        penalty: BLEU().corpus_score([choose(answer, penalty) for answer in answers], references).score
        for penalty in PENALTIES
    }
    best = max(bleu, key=lambda penalty: (bleu[penalty], -abs(penalty - usual)))
    if bleu[best] < bleu[usual] + WORTH_IT:
        best = usual
    return Tuned(best, bleu[best], bleu[usual])


def choose(answer: Answer, penalty: float) -> str:
    """The hypothesis that this penalty puts first; the end token counts as length."""
    ended = [one for one in (answer, *answer.alternatives) if one.log_probs]
    return max(ended, key=lambda one: sum(one.log_probs) / len(one.log_probs) ** penalty).text if ended else answer.text
