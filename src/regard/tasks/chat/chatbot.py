"""`Chatbot` replies in conversations, at once or as a stream, and shows the turns that its replies attend to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard.config import DataSettings
from regard.models.base import Seq2Seq
from regard.run import Run
from regard.tasks.chat import TURN
from regard.tasks.chat.data import fit, join_turns
from regard.tasks.chat.settings import ChatSettings
from regard.tasks.generation import Searcher, SearchInput, check_search, spell
from regard.tasks.translate import translator as translate
from regard.tasks.translate.translation import Flag, Translation
from regard.tasks.translate.translator import Translator
from regard.text.words import ShadedSentence, ShadedWord

if TYPE_CHECKING:
    from regard.analysis.trace import Trace, TraceSide

FLAGS: tuple[Flag, ...] = ("empty", "loops", "cut off", "script", "retried")
"""Flags of translations that also apply to replies. Unlike a translation, a reply may be short or repeat its source."""


class Chatbot:
    """A trained model that replies in a conversation. `regard.load` makes one from a run folder."""

    def __init__(
        self,
        translator: Translator,
        context_turns: int = ChatSettings.context_turns,
        max_length: int = DataSettings.max_length,
    ):
        """`translator` generates replies; it reads at most the last `context_turns` turns and `max_length` tokens."""
        self.turns, self.max_length = context_turns, max_length
        self.translator = copy(translator)  # the given translator keeps its settings; a context must not be cut
        self.translator.search = replace(translator.search, max_source_tokens=max_length, max_joined_tokens=max_length)

    def __repr__(self) -> str:
        return f"<Chatbot: {self.translator!r}, {self.turns} turns>"

    @property
    def model(self) -> Seq2Seq:
        """The network that generates replies. For an ensemble, the first of its networks."""
        return self.translator.model

    def reply(self, turns: Sequence[str], **search: Any) -> Translation:
        """Generate the reply to `turns` (oldest first). Keywords override settings of [search], e.g. sample=True."""
        return self.reply_all([turns], **search)[0]

    def reply_all(self, conversations: Sequence[Sequence[str]], *, nbest: int = 1, **search: Any) -> list[Translation]:
        """Generate one reply per conversation (a list of turns), each with `nbest` - 1 alternatives.

        The `source` of a reply is the context that the model read. Keywords override settings of [search].
        """
        contexts = [self.context(turns) for turns in conversations]
        return [_reply(found) for found in self.translator.translate(contexts, nbest=nbest, **search)]

    def stream(self, turns: Sequence[str], **search: Any) -> Iterator[str]:
        """Yield the reply in parts while greedy search or sampling generates it; beam search yields it as a whole."""
        settings = replace(self.translator.search, **search)
        check_search(settings, 1, False)
        context = self.context(turns)
        if not context:
            return iter(())
        if settings.beam_size > 1 and not settings.sample:
            return iter([self.reply(turns, **search).text])
        source, target = self.translator.source, self.translator.target
        searcher = Searcher(self.translator.models, source, target, settings)
        return spell(searcher.stream(SearchInput(context, source.encode(context))), target)

    def context(self, turns: Sequence[str]) -> str:
        """Join the last turns to the text that the model reads, within its limits; "" if the last turn is empty."""
        turns = [turns] if isinstance(turns, str) else turns
        if not turns or not turns[-1].strip():
            return ""
        source = self.translator.source
        return fit(join_turns(turns[-self.turns :]), lambda text: len(source.encode(text)), self.max_length)

    def trace(self, turns: Sequence[str], reply: str | None = None) -> Trace:
        """Record attention and hidden states while the model reads `turns` and predicts `reply` (None: its own)."""
        return self.translator.trace(self.context(turns), reply)

    def explain(self, turns: Sequence[str], reply: str | None = None) -> list[ShadedSentence]:
        """The turns of the context, with the attention that `reply` (None: the model's own reply) pays to each word.

        Cross-attention is averaged over the tokens of the reply, heads and layers. The weight of a turn is the sum over
        its words or, in a HRAN model, the model's attention to the turn. The weights of turns are scaled to sum to 1,
        and so are the weights of the words in a turn.
        """
        trace = self.trace(turns, reply)
        side = trace.source
        maps = [weights_HTS.mean((0, 1)) for name, weights_HTS in trace.weights.items() if name.endswith("cross")]
        attended = torch.stack(maps).mean(0).tolist()
        found, closing = _by_turn(side)
        own = trace.weights.get("decoder.utterance")  # of HRAN
        if own is None:
            heavy = [sum(attended[place] for word in words for place in word) for words in found]
        else:
            heavy = own.mean((0, 1))[closing].tolist()
        explained = []
        for words, weight in zip(found, heavy, strict=True):
            shares = [sum(attended[place] for place in word) for word in words]
            total = sum(shares) or 1.0
            start, end = (side.spans[words[0][0]][0], side.spans[words[-1][-1]][1]) if words else (0, 0)
            shaded = (
                ShadedWord(side.words[side.word_of[word[0]]], share / total)
                for word, share in zip(words, shares, strict=True)
            )
            explained.append(ShadedSentence(side.text[start:end], weight / (sum(heavy) or 1.0), tuple(shaded)))
        return explained


def load(run: str | Path | Run, *others: str | Path) -> Chatbot:
    """Load the chat model of a run folder. With `others` (runs with the same vocabulary), all form an ensemble."""
    opened = Run.open(run).require("chat")
    return Chatbot(translate.load(opened, *others), opened.recipe.task.context_turns, opened.recipe.data.max_length)


def _reply(found: Translation) -> Translation:
    flags = tuple(flag for flag in found.flags if flag in FLAGS)
    return replace(found, flags=flags, alternatives=tuple(map(_reply, found.alternatives)))


def _by_turn(side: TraceSide) -> tuple[list[list[list[int]]], list[int]]:
    """Divide a traced context into turns. Returns two lists with one entry per turn.

    First: the words of the turn, each as a list of token positions. Second: the position of the token that ends it.
    """
    closing = [place for place, token in enumerate(side.tokens) if token == TURN or place == len(side.tokens) - 1]
    turns = [
        [list(word) for _, word in groupby(range(before + 1, end), key=side.word_of.__getitem__)]
        for before, end in pairwise([-1, *closing])
    ]
    return turns, closing
