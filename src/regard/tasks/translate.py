"""Translation: raw text in, answers out. How many sentences are run at once is this module's business."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from regard.analysis.trace import Side, Trace, make_side, record_trace
from regard.config import Search
from regard.data.batch import Source, make_sources
from regard.data.tokenizer import EOS, SOS, UNK, Tokenizer
from regard.data.words import words
from regard.decoding.beam import Hypothesis, Tokens, beam_search
from regard.decoding.greedy import greedy
from regard.models.base import Seq2Seq
from regard.run import Run


@dataclass(frozen=True)
class Answer:
    """A translation and what is known about it. It becomes JSON once, and everything that shows it draws that."""

    source: str
    text: str
    score: float
    """Log-probability divided by length ** search.length_penalty."""
    tokens: tuple[str, ...]
    log_probs: tuple[float, ...]
    """Of each token, and last of the end token."""
    ended: bool
    """False when the length limit cut it off."""
    alternatives: tuple[Answer, ...] = ()
    """Other hypotheses, best first, when they were asked for."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Translator:
    """A trained model with its tokenizers. `regard.load` makes one from a run folder."""

    def __init__(self, model: Seq2Seq, source: Tokenizer, target: Tokenizer, search: Search | None = None):
        self.model, self.source, self.target = model, source, target
        self.search = search or Search()
        self.specials = Tokens(SOS, EOS, never=(SOS, UNK, target.pad))

    def __repr__(self) -> str:
        size = sum(parameter.numel() for parameter in self.model.parameters())
        return f"<Translator: {type(self.model).__name__}, {size:,} parameters, {self.target.size:,} target tokens>"

    def translate(self, texts: str | Sequence[str], *, nbest: int = 1, **search: Any) -> list[Answer]:
        """Translate one text or many, given back in order. Keywords override `search` settings, e.g. beam=1."""
        texts = [texts] if isinstance(texts, str) else texts
        settings = replace(self.search, **search)
        encoded = self.source.encode_many(list(texts))
        answers: list[Answer | None] = [None] * len(texts)
        for places in _batches_by_length(encoded, settings.batch_tokens):
            found = self._decode([encoded[place] for place in places], settings)
            for place, hypotheses in zip(places, found, strict=True):
                answers[place] = self._answer(texts[place], hypotheses, nbest)
        return [answer or Answer(text, "", 0.0, (), (), True) for text, answer in zip(texts, answers, strict=True)]

    def trace(self, text: str, target: str | None = None) -> Trace:
        """Everything attention did while writing `target`, or the model's own translation."""
        if target is None:
            [answer] = self.translate([text])
            target = answer.text
        source_ids, target_ids = self.source.encode(text), self.target.encode(target)
        return record_trace(
            self.model,
            self._sources([source_ids]),
            torch.tensor([[SOS, *target_ids]]),
            _side(self.source, source_ids),
            _side(self.target, target_ids),
        )

    @torch.inference_mode()
    def _decode(self, ids: list[list[int]], settings: Search) -> list[list[Hypothesis]]:
        memory = self.model.encode(self._sources(ids))
        state = self.model.start(memory)
        longest_B = torch.tensor([int(settings.max_ratio * len(row)) + settings.max_extra for row in ids])
        search = greedy if settings.beam == 1 else partial(beam_search, width=settings.beam)
        return search(self.model.step, state, memory, longest_B, self.specials, penalty=settings.length_penalty)

    def _sources(self, ids: list[list[int]]) -> Source:
        return make_sources(ids, self.source.pad)

    def _answer(self, text: str, hypotheses: list[Hypothesis], nbest: int) -> Answer:
        made = [
            Answer(
                text,
                self.target.decode(found.tokens),
                found.score,
                tuple(self.target.token(id) for id in found.tokens),
                found.log_probs,
                found.ended,
            )
            for found in hypotheses[:nbest]
        ]
        return replace(made[0], alternatives=tuple(made[1:]))


def load(run: str | Path) -> Translator:
    """Open a run folder for translating and looking inside."""
    folder = Run.open(run)
    source, target = folder.tokenizers
    return Translator(folder.load_model(), source, target, folder.recipe.search)


def _batches_by_length(encoded: Sequence[Sequence[int]], budget: int) -> Iterator[list[int]]:
    """Places of the non-empty sentences, longest first, cut so that padded batches stay within the budget."""
    order = sorted((place for place, ids in enumerate(encoded) if ids), key=lambda place: -len(encoded[place]))
    batch: list[int] = []
    for place in order:
        if batch and (len(batch) + 1) * len(encoded[batch[0]]) > budget:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _side(tokenizer: Tokenizer, ids: list[int]) -> Side:
    """The tokens of a text with their words, and the end token."""
    pieces, text = tokenizer.pieces_of(ids), tokenizer.decode(ids)
    end = len(text) + 1  # beyond the last word
    tokens = [*(piece.text for piece in pieces), tokenizer.token(EOS)]
    spans = [*((piece.start, piece.end) for piece in pieces), (end, end)]
    return make_side(tokens, spans, [(word.text, word.start, word.end) for word in words(text)])


def texts_of(answers: Iterable[Answer]) -> list[str]:
    """The translations alone."""
    return [answer.text for answer in answers]
