"""How well a masked language model predicts hidden tokens: each token is hidden once, together with distant ones.

In training, only one share of the tokens is hidden, which is faster.

The probability of all tokens, each given the others, is not the probability of the text; its perplexity is called
pseudo-perplexity (Salazar et al. 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from regard.data.batches import in_batches, make_sources
from regard.errors import SettingsError
from regard.models.masked_language_model import MaskedLanguageModel
from regard.tasks.masked_language_model.masking import MASK, every_nth
from regard.tasks.text_scores import windows
from regard.text.tokenizer import Tokenizer
from regard.training.loss import perplexity

BATCH_TOKENS = 8192
"""Number of tokens that are computed together."""


class HiddenWindow(NamedTuple):
    """A window of a text, and the positions of the tokens that are hidden and predicted."""

    ids: Sequence[int]
    hidden: Sequence[int]


class MaskedScore(NamedTuple):
    """The predictions of hidden tokens: sum of negative log-likelihoods, number of correct ones, number of tokens."""

    negative_log_likelihood: float
    correct: int
    tokens: int

    def as_dict(self) -> dict[str, float]:
        loss = self.negative_log_likelihood / max(self.tokens, 1)
        return {
            "loss": loss,
            "perplexity": perplexity(loss),
            "accuracy": self.correct / max(self.tokens, 1),
            "tokens": self.tokens,
        }


def add(scores: Iterable[MaskedScore]) -> MaskedScore:
    """Add up the predictions of several windows or texts."""
    loss, correct, tokens = 0.0, 0, 0
    for one in scores:
        loss, correct, tokens = loss + one.negative_log_likelihood, correct + one.correct, tokens + one.tokens
    return MaskedScore(loss, correct, tokens)


def sum_scores(scores: Iterable[MaskedScore]) -> MaskedScore:
    """Add up the predictions of texts; it is an error if no token was predicted."""
    found = add(scores)
    if not found.tokens:
        raise SettingsError("there is no known token to predict in the texts; give other texts")
    return found


def hide_all(ids: Sequence[int], share: float) -> list[HiddenWindow]:
    """Copies of a window: each token is hidden in exactly one of them, and in each about the `share` of all tokens.

    With `share` 0, only one token per copy. The hidden tokens of a copy are evenly spaced.
    """
    every = round(1 / share) if share else len(ids)
    found = (HiddenWindow(ids, every_nth(ids, first, every)) for first in range(min(every, len(ids))))
    return [one for one in found if one.hidden]


def hide_some(ids: Sequence[int], share: float) -> list[HiddenWindow]:
    """One of the copies of `hide_all`, chosen by the content of the window; none if no token is known."""
    copies = hide_all(ids, share)
    return [copies[sum(map(int, ids)) % len(copies)]] if copies else []


@torch.no_grad()
def score_windows(model: MaskedLanguageModel, inputs: Sequence[HiddenWindow], pad: int) -> list[MaskedScore]:
    """Predict the hidden tokens of each window."""
    scores = [MaskedScore(0.0, 0, 0)] * len(inputs)
    for index in in_batches([len(one.ids) + 1 for one in inputs], BATCH_TOKENS):
        source = make_sources([list(inputs[place].ids) for place in index], pad)
        chosen_BS = torch.zeros_like(source.mask_BS)
        rows = np.repeat(np.arange(len(index)), [len(inputs[place].hidden) for place in index])
        columns = np.concatenate([inputs[place].hidden for place in index])
        chosen_BS[torch.from_numpy(rows), torch.from_numpy(columns)] = True
        target_N = source.ids_BS[chosen_BS]
        source.ids_BS[chosen_BS] = MASK
        device = model.output.weight.device
        logits_NV = model(source.to(device), chosen_BS.to(device)).float().cpu()
        loss_N = F.cross_entropy(logits_NV, target_N, reduction="none").double()
        right_N = logits_NV.argmax(1) == target_N
        losses, rights = (np.bincount(rows, values.numpy(), len(index)) for values in (loss_N, right_N))
        counts = np.bincount(rows, minlength=len(index))
        for place, *found in zip(index, losses.tolist(), rights.tolist(), counts.tolist(), strict=True):
            scores[place] = MaskedScore(found[0], round(found[1]), found[2])
    return scores


def score_texts(
    model: MaskedLanguageModel,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    max_length: int,
    hide: Callable[[Sequence[int]], list[HiddenWindow]],
) -> list[MaskedScore]:
    """Score each text in windows, which are independent. `hide` says which tokens of a window are predicted."""
    copies = [
        [copy for window in windows(ids, max_length) for copy in hide(window)]
        for ids in tokenizer.encode_many(list(texts))
    ]
    scores = iter(score_windows(model, [one for found in copies for one in found], tokenizer.pad))
    return [add(islice(scores, len(found))) for found in copies]
