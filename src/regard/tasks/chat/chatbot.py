"""Chatbots: from the turns of a conversation to a reply, complete or streamed, and which turns it attended to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from regard.config import DataSettings
from regard.models.base import Seq2Seq
from regard.run import Run
from regard.tasks.chat import TURN, ChatSettings
from regard.tasks.chat.data import fit, join_turns
from regard.tasks.generation import Searcher, SearchInput, check_search, spell
from regard.tasks.translate import translator as translate
from regard.tasks.translate.translation import Flag, Translation
from regard.tasks.translate.translator import Translator
from regard.text.words import ShadedSentence, ShadedWord

if TYPE_CHECKING:
    from regard.analysis.trace import Trace, TraceSide

__all__ = ["Chatbot", "load"]

FLAGS: tuple[Flag, ...] = ("empty", "loops", "cut off", "script", "retried")
"""Flags that apply to replies. A reply may be shorter than its context, or repeat some of it."""
UTTERANCES = "decoder.utterance"
"""Name of the attention over turns of a model that has one (HRAN)."""


class Chatbot:
    """A trained model that replies in a conversation. `regard.load` makes one from a run folder."""

    def __init__(
        self,
        translator: Translator,
        context_turns: int = ChatSettings.context_turns,
        max_length: int = DataSettings.max_length,
    ):
        """A context has at most `context_turns` turns and `max_length` tokens; `translator` generates the replies."""
        self.turns, self.max_length = context_turns, max_length
        self.translator = copy(translator)  # the given one keeps its search settings; a context is never cut
        self.translator.search = replace(translator.search, max_source_tokens=max_length, max_joined_tokens=max_length)

    def __repr__(self) -> str:
        return f"<Chatbot: {self.translator!r}, {self.turns} turns>"

    @property
    def model(self) -> Seq2Seq:
        """The (first) model; `regard.trace` takes it."""
        return self.translator.model

    def reply(self, turns: Sequence[str], **search: Any) -> Translation:
        """The reply to the turns so far. Keywords override `search` settings, e.g. sample=True."""
        return self.reply_all([turns], **search)[0]

    def reply_all(self, conversations: Sequence[Sequence[str]], *, nbest: int = 1, **search: Any) -> list[Translation]:
        """The same for many conversations. The source of a reply is the context that the model read."""
        contexts = [self.context(turns) for turns in conversations]
        return [_reply(found) for found in self.translator.translate(contexts, nbest=nbest, **search)]

    def stream(self, turns: Sequence[str], **search: Any) -> Iterator[str]:
        """The reply in pieces as it is generated, by greedy search or sampling. Joined, they are its text.

        A beam search knows its result only at the end: then there is one piece.
        """
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
        """What the model reads: the last turns that fit. Empty if there is nothing to reply to."""
        turns = [turns] if isinstance(turns, str) else turns
        if not turns or not turns[-1].strip():
            return ""
        source = self.translator.source
        return fit(join_turns(turns[-self.turns :]), lambda text: len(source.encode(text)), self.max_length)

    def trace(self, turns: Sequence[str], reply: str | None = None) -> Trace:
        """Attention and hidden states of the model while it generates `reply`, or its own."""
        return self.translator.trace(self.context(turns), reply)

    def explain(self, turns: Sequence[str], reply: str | None = None) -> list[ShadedSentence]:
        """The turns of the context, with the attention that each turn and each of its words received.

        Cross-attention is averaged over the tokens of the reply, over heads and layers. A model with attention over
        turns (HRAN) gives the weights of turns itself; for others, a turn has the sum of its words.
        """
        trace = self.trace(turns, reply)
        side = trace.source
        maps = [weights_HTS.mean((0, 1)) for name, weights_HTS in trace.weights.items() if name.endswith("cross")]
        attended = torch.stack(maps).mean(0).tolist()
        found, closing = _by_turn(side)
        own = trace.weights.get(UTTERANCES)
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


def load(run: str | Path, *others: str | Path) -> Chatbot:
    """Open a run folder for chat; several runs with one vocabulary become an ensemble."""
    opened = Run.open(run).require("chat")
    return Chatbot(translate.load(run, *others), opened.recipe.task.context_turns, opened.recipe.data.max_length)


def _reply(found: Translation) -> Translation:
    flags = tuple(flag for flag in found.flags if flag in FLAGS)
    return replace(found, flags=flags, alternatives=tuple(map(_reply, found.alternatives)))


def _by_turn(side: TraceSide) -> tuple[list[list[list[int]]], list[int]]:
    """For each turn the words, as lists of token positions; and the position of the token that ends each turn."""
    turns: list[list[list[int]]] = [[]]
    closing: list[int] = []
    last = len(side.tokens) - 1
    for place, (token, word) in enumerate(zip(side.tokens, side.word_of, strict=True)):
        if token == TURN or place == last:
            closing.append(place)
            turns += [[]] if place < last else []
        elif turns[-1] and side.word_of[turns[-1][-1][-1]] == word:
            turns[-1][-1].append(place)
        else:
            turns[-1].append([place])
    return turns, closing
