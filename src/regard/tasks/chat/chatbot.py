"""Conversation: the turns so far in, a reply out, at once or while it is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regard.analysis.trace import Trace
from regard.config import DataSettings, SearchSettings
from regard.models.base import Seq2Seq
from regard.run import Run
from regard.tasks.chat import TURN, ChatSettings
from regard.tasks.chat.data import fit, join_turns
from regard.tasks.generation import Searcher, SearchInput, check_search
from regard.tasks.translate import translator as translate
from regard.tasks.translate.translation import Flag, Translation
from regard.tasks.translate.translator import Translator
from regard.text.tokenizer import Tokenizer
from regard.text.words import ShadedSentence, ShadedWord, word_texts

__all__ = ["Chatbot", "distinct", "load"]

FLAGS: tuple[Flag, ...] = ("empty", "loops", "cut off", "script", "retried")
"""What is suspicious in a reply. It may well be shorter than its context, or repeat some of it."""
UTTERANCES = "decoder.utterance"
"""The attention of a model that weighs turns itself."""


class Chatbot:
    """A trained model that replies. `regard.load` makes one from a run folder."""

    def __init__(
        self, translator: Translator, turns: int = ChatSettings.context_turns, most: int = DataSettings.max_length
    ):
        """`translator` reads contexts and writes replies; a context has at most so many turns, and so many tokens."""
        self.turns, self.most = turns, most
        self.translator = copy(translator)  # its own search, which never cuts a context; the given one keeps its own
        self.translator.search = replace(translator.search, max_source_tokens=most, max_joined_tokens=most)

    def __repr__(self) -> str:
        return f"<Chatter: {self.translator!r}, {self.turns} turns>"

    @property
    def search(self) -> SearchSettings:
        """How replies are searched for when nothing else is said."""
        return self.translator.search

    @property
    def model(self) -> Seq2Seq:
        """The (first) model."""
        return self.translator.model

    def reply(self, turns: Sequence[str], **search: Any) -> Translation:
        """What is said next, after the turns so far. Keywords override `search` settings, e.g. sample=True."""
        return self.reply_all([turns], **search)[0]

    def reply_all(self, conversations: Sequence[Sequence[str]], *, nbest: int = 1, **search: Any) -> list[Translation]:
        """The same for many conversations at once. The source of an answer is the context it was made from."""
        contexts = [self.context(turns) for turns in conversations]
        return [_plain(answer) for answer in self.translator.translate(contexts, nbest=nbest, **search)]

    def stream(self, turns: Sequence[str], **search: Any) -> Iterator[str]:
        """The reply in pieces which, joined, are its text: as they are written, greedily or drawn.

        Which words a beam search takes is known only at its end; then they come all at once.
        """
        settings = replace(self.search, **search)
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
        """What the model reads: the last turns, as far as they fit. Empty when there is nothing to reply to."""
        turns = [turns] if isinstance(turns, str) else turns
        if not turns or not turns[-1].strip():
            return ""
        return fit(join_turns(turns[-self.turns :]), lambda text: len(self.translator.source.encode(text)), self.most)

    def trace(self, turns: Sequence[str], reply: str | None = None) -> Trace:
        """Everything that passed in the model while it wrote `reply`, or its own."""
        return self.translator.trace(self.context(turns), reply)

    def explain(self, turns: Sequence[str], reply: str | None = None) -> list[ShadedSentence]:
        """The turns that were read, and how much the model looked at each of them and at its words while it replied.

        The mean over the tokens of the reply, over heads and layers. A model that weighs turns itself (HRAN) is taken
        at its word; for others, a turn has what its words have together.
        """
        return weigh_turns(self.trace(turns, reply))


def load(run: str | Path, *others: str | Path) -> Chatbot:
    """Open a run folder for conversation; several with one vocabulary become an ensemble."""
    opened = Run.open(run).require("chat")
    return Chatbot(translate.load(run, *others), opened.recipe.task.context_turns, opened.recipe.data.max_length)


def spell(ids: Iterable[int], tokenizer: Tokenizer) -> Iterator[str]:
    """The text of tokens as they come. The bytes of a character are held back until it is whole."""
    written: list[int] = []
    told = ""
    for id in ids:
        written.append(id)
        text = tokenizer.decode(written)
        if len(text) > len(told) and not text.endswith("\ufffd"):
            yield text[len(told) :]
            told = text
    if rest := tokenizer.decode(written)[len(told) :]:
        yield rest


def _plain(answer: Translation) -> Translation:
    """An answer with the flags that mean something in a conversation."""
    flags = tuple(flag for flag in answer.flags if flag in FLAGS)
    return replace(answer, flags=flags, alternatives=tuple(map(_plain, answer.alternatives)))


# ---------------------------------------------------------------------------------------------------------------------
# Measures


def distinct(texts: Iterable[str], size: int) -> float:
    """Distinct runs of `size` words as a share of all such runs (Li et al. 2016): low where replies are all alike."""
    runs: list[tuple[str, ...]] = []
    for text in texts:
        there = [word.casefold() for word in word_texts(text)]
        runs += zip(*(there[start:] for start in range(size)), strict=False)
    return len(set(runs)) / len(runs) if runs else 0.0


# ---------------------------------------------------------------------------------------------------------------------
# Seeing why


def weigh_turns(trace: Trace) -> list[ShadedSentence]:
    """The turns of a traced context, weighed by attention; so are the words of each."""
    maps = [weights_HTS.mean((0, 1)) for name, weights_HTS in trace.weights.items() if name.endswith("cross")]
    looked_S = torch.stack(maps).mean(0)
    own = trace.weights.get(UTTERANCES)
    turns, closing = _by_turn(trace)
    if own is None:
        heavy = [sum(looked_S[place].item() for places in turn for place in places) for turn in turns]
    else:
        heavy = [own.mean((0, 1))[place].item() for place in closing]
    total = sum(heavy) or 1.0
    return [
        _weigh(trace, places, looked_S.tolist(), weight / total) for places, weight in zip(turns, heavy, strict=True)
    ]


def _by_turn(trace: Trace) -> tuple[list[list[list[int]]], list[int]]:
    """Turns of words of places of tokens; and the place of the token that closes each turn."""
    turns: list[list[list[int]]] = [[]]
    closing: list[int] = []
    side, last = trace.source, len(trace.source.tokens) - 1
    for place, (token, word) in enumerate(zip(side.tokens, side.word_of, strict=True)):
        if token == TURN or place == last:
            closing.append(place)
            turns += [[]] if place < last else []
        elif turns[-1] and side.word_of[turns[-1][-1][-1]] == word:
            turns[-1][-1].append(place)
        else:
            turns[-1].append([place])
    return turns, closing


def _weigh(trace: Trace, places: list[list[int]], looked: Sequence[float], weight: float) -> ShadedSentence:
    """A turn with the shares of its words, which sum to one."""
    side = trace.source
    shares = [sum(looked[place] for place in word) for word in places]
    total = sum(shares) or 1.0
    start, end = (side.spans[places[0][0]][0], side.spans[places[-1][-1]][1]) if places else (0, 0)
    found = tuple(
        ShadedWord(side.words[side.word_of[word[0]]], share / total) for word, share in zip(places, shares, strict=True)
    )
    return ShadedSentence(side.text[start:end], weight, found)
