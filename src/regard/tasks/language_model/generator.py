"""`TextGenerator` writes texts with a trained language model, and computes the probability of given texts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.config import DataSettings, SearchSettings
from regard.data.batches import in_batches, make_batch
from regard.decoding.hypothesis import Hypothesis
from regard.errors import RunError, SettingsError
from regard.files import chunks
from regard.models.base import Seq2Seq, count_parameters, sentence_losses
from regard.run import Run
from regard.tasks.generation import Searcher, SearchInput, check_search, spell
from regard.tasks.language_model.data import windows
from regard.tasks.seq2seq import perplexity
from regard.text.tokenizer import Tokenizer

BATCH_TEXTS = 64
"""Number of texts that are written together."""


@dataclass(frozen=True)
class GeneratedText:
    """A text that the model has written; it starts with `beginning`, the words that the user gave."""

    beginning: str
    text: str
    score: float
    """Log-probability of the text, divided by its length penalty."""
    tokens: tuple[str, ...]
    finished: bool
    """True if the model ended the text with EOS; False if the limit of tokens cut the text off."""
    alternatives: tuple[GeneratedText, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON data. If there are alternatives, each has only `text` and `score`."""
        found: dict[str, Any] = {"text": self.text, "score": round(self.score, 4), "finished": self.finished}
        found["beginning"], found["tokens"] = self.beginning, list(self.tokens)
        if self.alternatives:
            found["alternatives"] = [{"text": one.text, "score": round(one.score, 4)} for one in self.alternatives]
        return found


class TextScore(NamedTuple):
    """The negative log-likelihood (natural log) of a text, and its numbers of tokens, words and bytes."""

    negative_log_likelihood: float
    tokens: int
    """Number of predicted tokens, including one EOS per window."""
    words: int
    """Number of words separated by spaces, plus one for the end of the text."""
    bytes: int
    """Number of bytes in UTF-8, plus one for the line end."""

    def as_dict(self) -> dict[str, float]:
        """Loss and perplexity per token, perplexity per word, bits per byte, and numbers of tokens, words and bytes."""
        loss = self.negative_log_likelihood
        return {
            "loss": loss / self.tokens,
            "perplexity": perplexity(loss / self.tokens),
            "word_perplexity": perplexity(loss / self.words),
            "bits_per_byte": loss / math.log(2) / self.bytes,
            "tokens": self.tokens,
            "words": self.words,
            "bytes": self.bytes,
        }


def sum_scores(scores: Sequence[TextScore]) -> TextScore:
    """Add up the log-likelihoods and the numbers of tokens, words and bytes of several texts."""
    if not scores:
        raise SettingsError("there is no text to score; give at least one text")
    return TextScore(*map(sum, zip(*scores, strict=True)))


class TextGenerator:
    """Writes and scores texts with a trained language model. `regard.load` makes a generator from a run folder."""

    def __init__(
        self,
        model: Seq2Seq,
        tokenizer: Tokenizer,
        search: SearchSettings | None = None,
        max_length: int = DataSettings.max_length,
    ):
        """`search`: how to write texts (None: by sampling). `max_length`: tokens per window when texts are scored."""
        self.model, self.tokenizer, self.max_length = model, tokenizer, max_length
        self.search = search or SearchSettings(sample=True)

    def __repr__(self) -> str:
        size = count_parameters(self.model)
        return f"<TextGenerator: {type(self.model).__name__}, {size:,} parameters, {self.tokenizer.size:,} tokens>"

    def write(self, beginnings: str | Sequence[str] = "", *, nbest: int = 1, **search: Any) -> list[GeneratedText]:
        """Write one text per beginning ("": a new text), each with `nbest` - 1 alternatives.

        Keywords override settings of [search], e.g. top_k=10.
        """
        beginnings = [beginnings] if isinstance(beginnings, str) else list(beginnings)
        settings = self._settings(search)
        check_search(settings, nbest, False)
        searcher = Searcher([self.model], self.tokenizer, self.tokenizer, settings)
        written: list[GeneratedText] = []
        for inputs in chunks(map(self._input, beginnings), BATCH_TEXTS):
            for given, found in zip(inputs, searcher.search(inputs, nbest), strict=True):
                best, *others = (self._text(given.text, hypothesis) for hypothesis in found[:nbest])
                written.append(replace(best, alternatives=tuple(others)))
        return written

    def stream(self, beginning: str = "", **search: Any) -> Iterator[str]:
        """Yield a text in parts (the first is `beginning`) while greedy search or sampling writes it.

        Keywords override settings of [search]; beam search is refused.
        """
        settings = self._settings(search)
        check_search(settings, 1, False)
        if settings.beam_size > 1 and not settings.sample:
            raise SettingsError("beam search cannot stream its text; set search.beam_size = 1 or search.sample = true")
        searcher = Searcher([self.model], self.tokenizer, self.tokenizer, settings)
        return spell(searcher.stream(self._input(beginning)), self.tokenizer)

    @torch.no_grad()
    def score(self, texts: Sequence[str]) -> list[TextScore]:
        """Compute the negative log-likelihood of each text. Windows of a long text are scored independently."""
        texts = [self.tokenizer.normalize(text) for text in texts]
        encoded = self.tokenizer.encode_many(list(texts))
        parts = [(place, part) for place, ids in enumerate(encoded) for part in windows(ids, self.max_length) or [()]]
        losses, tokens, pad = [0.0] * len(texts), [0] * len(texts), self.tokenizer.pad
        for index in in_batches([len(part) + 1 for _, part in parts], 4096):
            batch = make_batch([([], list(parts[number][1])) for number in index], pad, pad)
            found = sentence_losses(self.model, batch.to(self.model.output.weight.device)).tolist()
            for (place, part), loss in zip((parts[number] for number in index), found, strict=True):
                losses[place] += loss
                tokens[place] += len(part) + 1
        return [
            TextScore(loss, count, len(text.split()) + 1, len(text.encode()) + 1)
            for text, loss, count in zip(texts, losses, tokens, strict=True)
        ]

    def _settings(self, search: dict[str, Any]) -> SearchSettings:
        """The settings `self.search`, overridden by `search`. A `beam_size` above 1 in `search` turns sampling off."""
        if search.get("beam_size", 1) > 1:
            search = {"sample": False} | search
        return replace(self.search, **search)

    def _input(self, beginning: str) -> SearchInput:
        return SearchInput(beginning, [], tuple(self.tokenizer.encode(beginning)))

    def _text(self, beginning: str, found: Hypothesis) -> GeneratedText:
        tokens = tuple(map(self.tokenizer.token, found.tokens))
        return GeneratedText(beginning, self.tokenizer.decode(found.tokens), found.score, tokens, found.ended)


def load(run: str | Path, *others: str | Path) -> TextGenerator:
    opened = Run.open(run).require("language-model")
    if others:
        raise RunError(f"{others[0]}: several language models cannot be combined to an ensemble; give only one run")
    model, recipe = opened.load_network(), opened.recipe
    assert isinstance(model, Seq2Seq)
    return TextGenerator(model, opened.tokenizers[0], recipe.search, recipe.data.max_length)
