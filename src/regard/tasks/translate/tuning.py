"""Search settings that are tuned on the validation part after training.

*Length penalty.* A model trained on little data writes short translations, because the end token is easy to guess. The
penalty that corrects this differs from run to run. One beam search gives all finished hypotheses, and each penalty only
reorders them, so trying twelve costs no more than trying one.

*Joining.* Sentences on one line are translated together only if the training data has such lines, up to their length.

Tuned values are stored in the recipe, and marked as tuned in the card: further training, or fine-tuning, tunes them
again, but does not change what the user has set.
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
"""With fewer sentences, differences between penalties are noise."""
MOST_PAIRS = 1000
WORTH_IT = 0.1
"""Gain in BLEU from which on another penalty replaces the default."""
USUAL_SHARE = 0.99
"""Share of the training sentences that have a usual length."""
SEEN_TOGETHER = 0.01
"""Share of lines with several sentences that is needed: a model that never saw two together may leave one out."""


def tune_search(run: Run, valid: Sequence[Pair], lengths: np.ndarray, log: Callable[[str], None]) -> dict[str, Any]:
    """Tune the settings that the user has left open, write them into the recipe, and return what the card says of them.

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
            log(f"length penalty {best.penalty:g}, tuned on the validation part: {change}")
    if search != run.recipe.search:
        run.write_recipe(dataclasses.replace(run.recipe, search=search))
    return found


def longest_join(valid: Sequence[Pair], lengths: np.ndarray) -> int:
    """Maximum tokens of joined sentences: the usual length of lines, or 1 (never join) if lines are sentences."""
    several = sum(len(split_sentences(pair.source)) > 1 for pair in valid)
    return int(np.quantile(lengths, USUAL_SHARE)) if several >= SEEN_TOGETHER * len(valid) else 1


def still_tuned(search: SearchSettings, card: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were tuned for the run of this card and have not been set by hand since."""
    found = {name: value for name, value in card.get("tuned", {}).items() if name.startswith("search.")}
    return {name: value for name, value in found.items() if getattr(search, name.removeprefix("search.")) == value}


def _defaults(card: Mapping[str, Any]) -> dict[str, Any]:
    """The default values of the settings that were tuned."""
    names = [name.removeprefix("search.") for name in card.get("tuned", {}) if name.startswith("search.")]
    return {name: getattr(SearchSettings(), name) for name in names}


@dataclass(frozen=True)
class TunedSearch:
    """The tuned penalty, and BLEU with it and with the default."""

    penalty: float
    bleu: float
    before: float


def tune_penalty(translator: Translator, pairs: Sequence[Pair]) -> TunedSearch | None:
    """Try the penalties on these pairs; None if the search does not use one, or if there are too few pairs."""
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
        or settings.max_source_tokens,  # texts joined from pieces have no alternatives
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
    """The best hypothesis with this penalty; the length includes the end token."""
    ended = [one for one in (answer, *answer.alternatives) if one.log_probs]
    return max(ended, key=lambda one: sum(one.log_probs) / len(one.log_probs) ** penalty).text if ended else answer.text
