"""Probabilities of texts by a language model: perplexity per token, word and character, and bits per byte.

Language models are measured by them; translation ranks hypotheses by them, and corpora are cleaned by them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from regard.data.batches import in_batches, make_batch
from regard.errors import RunError, SettingsError
from regard.models.base import Seq2Seq, sentence_losses
from regard.run import Run
from regard.text.tokenizer import EOS, Tokenizer
from regard.training.loss import perplexity

BATCH_TOKENS = 4096
"""Number of tokens that are scored together."""


class TextScore(NamedTuple):
    """The negative log-likelihood (natural log) of a text, and its numbers of tokens, words, characters and bytes."""

    negative_log_likelihood: float
    tokens: int
    """Number of predicted tokens, including one EOS per window."""
    words: int
    """Number of words separated by spaces, plus one for the end of the text."""
    characters: int
    """Number of characters, plus one for the line end."""
    bytes: int
    """Number of bytes in UTF-8, plus one for the line end."""

    def as_dict(self) -> dict[str, float]:
        """Loss and perplexity per token, perplexity per word and per character, bits per byte; the four numbers."""
        loss = self.negative_log_likelihood
        return {
            "loss": loss / self.tokens,
            "perplexity": perplexity(loss / self.tokens),
            "word_perplexity": perplexity(loss / self.words),
            "character_perplexity": perplexity(loss / self.characters),
            "bits_per_byte": loss / math.log(2) / self.bytes,
            "tokens": self.tokens,
            "words": self.words,
            "characters": self.characters,
            "bytes": self.bytes,
        }


def sum_scores(scores: Sequence[TextScore]) -> TextScore:
    """Add up the log-likelihoods and the numbers of tokens, words, characters and bytes of several texts."""
    if not scores:
        raise SettingsError("there is no text to score; give at least one text")
    return TextScore(*map(sum, zip(*scores, strict=True)))


def windows(ids: Sequence[int], size: int) -> list[Sequence[int]]:
    """Divide the token ids of a text into consecutive windows of `size` tokens; the last one may be shorter."""
    return [ids[start : start + size] for start in range(0, len(ids), size)]


@torch.no_grad()
def score_texts(model: Seq2Seq, tokenizer: Tokenizer, texts: Sequence[str], max_length: int) -> list[TextScore]:
    """Compute the negative log-likelihood of each text. Windows of a long text are scored independently.

    `max_length` is the largest number of tokens in a window.
    """
    texts = [tokenizer.normalize(text) for text in texts]
    encoded = tokenizer.encode_many(list(texts))
    parts = [(place, part) for place, ids in enumerate(encoded) for part in windows(ids, max_length) or [()]]
    losses, tokens, pad = [0.0] * len(texts), [0] * len(texts), tokenizer.pad
    for index in in_batches([len(part) + 1 for _, part in parts], BATCH_TOKENS):
        batch = make_batch([([], list(parts[number][1])) for number in index], pad, pad)
        found = sentence_losses(model, batch.to(model.output.weight.device)).tolist()
        for (place, part), loss in zip((parts[number] for number in index), found, strict=True):
            losses[place] += loss
            tokens[place] += len(part) + 1
    return [
        TextScore(loss, count, len(text.split()) + 1, len(text) + 1, len(text.encode()) + 1)
        for text, loss, count in zip(texts, losses, tokens, strict=True)
    ]


@dataclass(frozen=True)
class TextScorer:
    """A language model that scores texts. `open_scorer` opens one from a run folder."""

    model: Seq2Seq
    tokenizer: Tokenizer
    max_length: int
    """Texts with more tokens are scored in windows of this length."""
    name: str

    def score(self, texts: Sequence[str]) -> list[TextScore]:
        return score_texts(self.model, self.tokenizer, texts, self.max_length)


def find_language_model(folder: str | Path) -> Run:
    """Open the run of a language model, without its weights."""
    run = Run.open(folder)
    if run.recipe.model.kind != "decoder":
        arch = run.recipe.model.arch
        raise RunError(f"{folder}: not a language model that predicts the next token ({arch}); give another run")
    run.require_weights()
    return run


def open_scorer(folder: str | Path) -> TextScorer:
    run = find_language_model(folder)
    model = run.load_network()
    assert isinstance(model, Seq2Seq)
    return TextScorer(model, run.tokenizers[0], run.recipe.data.max_length, str(folder))


def domain_differences(domain: TextScorer, general: TextScorer, texts: Sequence[str]) -> list[float]:
    """How unlike the texts of a domain each text is: the difference of its cross-entropies (Moore and Lewis 2010).

    The cross-entropy by the model of the domain minus that by the model of general texts, per character, so that the
    vocabularies of the two models may differ. Below 0, the text is more probable in the domain.
    """
    both = zip(domain.score(texts), general.score(texts), strict=True)
    return [(one.negative_log_likelihood - other.negative_log_likelihood) / one.characters for one, other in both]


class PredictedToken(NamedTuple):
    """A token of a text, and how a language model predicted it from the tokens before it."""

    id: int
    log_prob: float
    """Log-probability (natural log) of the token."""
    rank: int
    """1 if the model considered the token the most probable one."""
    best: tuple[tuple[int, float], ...]
    """The most probable tokens at this position, each with its log-probability."""


@torch.no_grad()
def predict_tokens(model: Seq2Seq, tokenizer: Tokenizer, text: str, max_length: int, best: int) -> list[PredictedToken]:
    """How the model predicts each token of `text`, and the EOS at its end, with the `best` most probable tokens.

    The windows of a long text, each with an EOS, are predicted independently.
    """
    found: list[PredictedToken] = []
    for part in windows(tokenizer.encode(text), max_length) or [()]:
        batch = make_batch([([], list(part))], tokenizer.pad, tokenizer.pad).to(model.output.weight.device)
        log_probs_TV = model(batch.source, batch.target_input_BT)[0].log_softmax(-1)
        found += _predicted(log_probs_TV, [*part, EOS], best)
    return found


def _predicted(log_probs_TV: torch.Tensor, ids: Sequence[int], best: int) -> Iterator[PredictedToken]:
    ids_T1 = torch.tensor(ids, device=log_probs_TV.device)[:, None]
    own_T1 = log_probs_TV.gather(1, ids_T1)
    ranks = (1 + (log_probs_TV > own_T1).sum(1)).tolist()
    values_TK, tokens_TK = log_probs_TV.topk(min(best, log_probs_TV.shape[1]), dim=1)
    rows = zip(ids, own_T1[:, 0].tolist(), ranks, tokens_TK.tolist(), values_TK.tolist(), strict=True)
    for id, own, rank, tokens, values in rows:
        yield PredictedToken(id, own, rank, tuple(zip(tokens, values, strict=True)))
