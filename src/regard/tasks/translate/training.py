"""Search settings that only a trained model and its data can tell.

*Length penalty.* A model that has seen little writes short: the end of a sentence is the one word that it can always
guess. How much that must be made up for differs from run to run. One search gives all hypotheses that ended; each
penalty is then only another order of them, so trying a dozen costs no more than trying one.

*Joining.* Sentences on one line are translated together only if the model has seen such lines, and only as long ones.

What was found stands in the recipe, and in the card as found: training on, or on other data, finds it anew, while what
the user has set stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.config import SearchSettings
from regard.data.pairs import Pair
from regard.run import Run
from regard.tasks.translate.translation import Translation
from regard.tasks.translate.translator import Translator, load
from regard.text.words import split_sentences

PENALTIES = tuple(tenths / 10 for tenths in range(4, 27, 2))
ENOUGH_PAIRS = 100
"""Fewer sentences than this cannot tell one penalty from another."""
MOST_PAIRS = 1000
WORTH_IT = 0.1
"""BLEU that another penalty must bring before the usual one is given up."""


USUAL_SHARE = 0.99
"""Of the training sentences, that are as long as usual."""
SEEN_TOGETHER = 0.01
"""Of the lines, that must hold several sentences: a model that has never seen two together may leave one out."""


def tune_search(run: Run, valid: Sequence[Pair], lengths: np.ndarray, log: Callable[[str], None]) -> dict[str, Any]:
    """Find the settings that the user has left open, put them into the recipe, and give what the card says of them.

    `lengths` are those of the training sources, in tokens.
    """
    found: dict[str, Any] = {}
    usual = dataclasses.replace(run.recipe.search, **_defaults(run.card))
    search = usual
    if usual.max_joined_tokens == SearchSettings().max_joined_tokens:
        found["search.max_joined_tokens"] = longest_join(valid, lengths)
        search = dataclasses.replace(search, max_joined_tokens=found["search.max_joined_tokens"])
    if usual.length_penalty == SearchSettings().length_penalty and (best := tune_penalty(load(run.folder), valid)):
        found |= {"search.length_penalty": best.penalty, "bleu": best.bleu, "bleu_before": best.before}
        search = dataclasses.replace(search, length_penalty=best.penalty)
        if best.penalty != usual.length_penalty:
            change = f"BLEU {best.bleu:.1f} instead of {best.before:.1f}"
            log(f"length penalty {best.penalty:g}, found on the validation part: {change}")
    if search != run.recipe.search:
        run.write_recipe(dataclasses.replace(run.recipe, search=search))
    return found


def longest_join(valid: Sequence[Pair], lengths: np.ndarray) -> int:
    """Up to how many tokens sentences are joined: as long as usual lines are, or 1 (never) where each is a sentence."""
    several = sum(len(split_sentences(pair.source)) > 1 for pair in valid)
    return int(np.quantile(lengths, USUAL_SHARE)) if several >= SEEN_TOGETHER * len(valid) else 1


def still_tuned(search: SearchSettings, card: Mapping[str, Any]) -> dict[str, Any]:
    """What was found for the run of this card and has not been set by hand since."""
    found = {name: value for name, value in card.get("tuned", {}).items() if name.startswith("search.")}
    return {name: value for name, value in found.items() if getattr(search, name.removeprefix("search.")) == value}


def _defaults(card: Mapping[str, Any]) -> dict[str, Any]:
    """The usual values of the search settings that were found, and not set by the user."""
    names = [name.removeprefix("search.") for name in card.get("tuned", {}) if name.startswith("search.")]
    return {name: getattr(SearchSettings(), name) for name in names}


@dataclass(frozen=True)
class TunedSearch:
    """The penalty found, and BLEU with it and with the usual one."""

    penalty: float
    bleu: float
    before: float


def tune_penalty(translator: Translator, pairs: Sequence[Pair]) -> TunedSearch | None:
    """Try the penalties on these pairs; None where the search has no use for one or the pairs are too few."""
    settings = translator.search
    if (
        settings.beam_size == 1
        or settings.sample
        or settings.length_penalty_form != "plain"
        or len(pairs) < ENOUGH_PAIRS
    ):
        return None
    pairs = pairs[:MOST_PAIRS]
    usual = SearchSettings().length_penalty
    answers = translator.translate(
        [pair.source for pair in pairs],
        nbest=settings.beam_size,
        retry_failures=False,
        length_penalty=usual,
        max_joined_tokens=settings.max_joined_tokens
        or settings.max_source_tokens,  # what is joined of pieces has no other hypotheses
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
    return TunedSearch(best, bleu[best], bleu[usual])


def choose(answer: Translation, penalty: float) -> str:
    """The hypothesis that this penalty puts first; the end token counts as length."""
    ended = [one for one in (answer, *answer.alternatives) if one.log_probs]
    return max(ended, key=lambda one: sum(one.log_probs) / len(one.log_probs) ** penalty).text if ended else answer.text
