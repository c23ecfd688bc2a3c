"""A language model of the target language in translation: shallow fusion, reranking, and a comparison of weights.

With shallow fusion, the language model takes part in every step of the search; its vocabulary must be that of the
translator. With reranking, it scores the text of the final hypotheses, so its vocabulary may be any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.config import SearchSettings
from regard.data.pairs import Pair
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.penalties import LengthPenalty
from regard.errors import SettingsError
from regard.tasks.generation import BEAM
from regard.tasks.text_scores import TextScorer, open_scorer
from regard.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from regard.tasks.translate.translation import Translation

WEIGHTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
"""The weights that `compare_weights` tries."""


class TargetLanguageModel(TextScorer):
    """A language model of the target language. `open_language_model` opens one from a run folder."""

    def check(self, target: Tokenizer, settings: SearchSettings) -> None:
        """Raise an error if the model cannot be used with these settings; `target`: tokenizer of the translator."""
        check_language_model(self.name, self.tokenizer, target, settings)

    def rerank(
        self, found: Sequence[Sequence[Hypothesis]], target: Tokenizer, settings: SearchSettings
    ) -> list[list[Hypothesis]]:
        """Sort the hypotheses of each sentence by their scores with the language model.

        Its log-probability of the text, times `search.lm_weight`, is divided by the length penalty of the hypothesis
        and added to the score.
        """
        penalty = LengthPenalty(settings.length_penalty, settings.length_penalty_form)
        texts = [target.decode(one.tokens) for hypotheses in found for one in hypotheses]
        distinct = list(dict.fromkeys(texts))
        losses = dict(zip(distinct, self.score(distinct), strict=True))
        written = iter(texts)

        def with_model(one: Hypothesis) -> Hypothesis:
            loss = settings.lm_weight * losses[next(written)].negative_log_likelihood
            return replace(one, score=one.score - loss / float(penalty.divisor(len(one.log_probs))))

        return [sorted(map(with_model, hypotheses), key=lambda one: -one.score) for hypotheses in found]


def open_language_model(folder: str | Path) -> TargetLanguageModel:
    return TargetLanguageModel(**vars(open_scorer(folder)))


def check_language_model(
    name: str, own: Tokenizer, target: Tokenizer, settings: SearchSettings, translator: str = "the translator"
) -> None:
    """Raise an error if a language model cannot be used with the search `settings`.

    `own` is its tokenizer, `target` that of the translator. `name` and `translator` are their names in messages.
    """
    if settings.lm_use == "rerank" and (settings.sample or settings.beam_size == 1):
        raise SettingsError(
            f"search.lm_use = rerank sorts the hypotheses of a beam search: {BEAM}, or use search.lm_use = fusion"
        )
    if settings.lm_use == "fusion" and own.hash() != target.hash():
        trained = "" if translator == "the translator" else f" {translator}"
        raise SettingsError(
            f"{name}: its vocabulary differs from the target vocabulary of {translator}; train the language model with "
            f"--tokenizer-from{trained}, or use --lm-use rerank"
        )


def compare_weights(
    translate: Callable[..., list[Translation]], pairs: Sequence[Pair], weights: Sequence[float] = WEIGHTS
) -> list[dict[str, Any]]:
    """BLEU and chrF of translations of `pairs` with each weight of the language model.

    `translate(texts, lm_weight=W)` translates with one weight.
    """
    from regard.tasks.translate.evaluate import quick_scores
    from regard.tasks.translate.translation import texts_of

    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    return [
        {"lm_weight": weight, **quick_scores(texts_of(translate(sources, lm_weight=weight)), references)}
        for weight in weights
    ]
