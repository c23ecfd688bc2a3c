"""`TextGenerator` writes texts with a trained language model, and computes the probability of given texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.config import DataSettings, SearchSettings
from regard.decoding.hypothesis import Hypothesis
from regard.errors import RunError, SettingsError
from regard.files import chunks
from regard.models.base import Seq2Seq, count_parameters
from regard.run import Run
from regard.tasks.generation import Searcher, SearchInput, check_search, spell
from regard.tasks.text_scores import PredictedToken, TextScore, predict_tokens, score_texts
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
    continuation: str
    """The part of `text` that the model has written, after the beginning."""
    finished: bool
    """True if the model ended the text with EOS; False if the limit of tokens cut the text off."""
    alternatives: tuple[GeneratedText, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON data. If there are alternatives, they have no `beginning` and no `tokens`."""
        found: dict[str, Any] = {"text": self.text, "continuation": self.continuation}
        found |= {"score": round(self.score, 4), "finished": self.finished}
        if self.alternatives:
            found["alternatives"] = [one.as_dict() for one in self.alternatives]
            for one in found["alternatives"]:
                del one["beginning"], one["tokens"]
        return found | {"beginning": self.beginning, "tokens": list(self.tokens)}


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

    def stream(self, beginning: str = "", *, with_beginning: bool = True, **search: Any) -> Iterator[str]:
        """Yield a text in parts while greedy search or sampling writes it.

        The first parts are `beginning`; without `with_beginning`, they are left out. Keywords override settings of
        [search]; beam search is refused.
        """
        settings = self._settings(search)
        check_search(settings, 1, False)
        if settings.beam_size > 1 and not settings.sample:
            raise SettingsError("beam search cannot stream its text; set search.beam_size = 1 or search.sample = true")
        searcher = Searcher([self.model], self.tokenizer, self.tokenizer, settings)
        parts = spell(searcher.stream(self._input(beginning)), self.tokenizer)
        return parts if with_beginning else self._without(beginning, parts)

    def _without(self, beginning: str, parts: Iterable[str]) -> Iterator[str]:
        """Yield the parts of a text without its beginning and, if that ends in a space, without a space after it."""
        left, is_first = len(self.tokenizer.decode(self.tokenizer.encode(beginning))), True
        for part in parts:
            new, left = part[left:], max(left - len(part), 0)
            if new and is_first and beginning[-1:].isspace():
                new = new.removeprefix(" ")
            if new:
                yield new
                is_first = False

    def score(self, texts: Sequence[str]) -> list[TextScore]:
        """Compute the negative log-likelihood of each text. Windows of a long text are scored independently."""
        return score_texts(self.model, self.tokenizer, texts, self.max_length)

    def predict_tokens(self, text: str, best: int = 0) -> list[PredictedToken]:
        """How the model predicts each token of `text`, and its end; with the `best` most probable tokens."""
        return predict_tokens(self.model, self.tokenizer, text, self.max_length, best)

    def _settings(self, search: dict[str, Any]) -> SearchSettings:
        """The settings `self.search`, overridden by `search`. A `beam_size` above 1 in `search` turns sampling off."""
        if search.get("beam_size", 1) > 1:
            search = {"sample": False} | search
        return replace(self.search, **search)

    def _input(self, beginning: str) -> SearchInput:
        return SearchInput(beginning, [], tuple(self.tokenizer.encode(beginning)))

    def _text(self, beginning: str, found: Hypothesis) -> GeneratedText:
        tokens, text = tuple(map(self.tokenizer.token, found.tokens)), self.tokenizer.decode(found.tokens)
        continuation = "".join(self._without(beginning, [text]))
        return GeneratedText(beginning, text, found.score, tokens, continuation, found.ended)


def load(run: str | Path | Run, *others: str | Path) -> TextGenerator:
    opened = Run.open(run).require("language-model")
    if others:
        raise RunError(f"{others[0]}: several language models cannot be combined to an ensemble; give only one run")
    model, recipe = opened.load_network(), opened.recipe
    assert isinstance(model, Seq2Seq)
    return TextGenerator(model, opened.tokenizers[0], recipe.search, recipe.data.max_length)
