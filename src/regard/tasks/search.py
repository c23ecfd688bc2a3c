"""From sentences as ids to hypotheses: the settings become a search, its constraints and its limits."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.config import Search
from regard.data.batch import make_sources
from regard.data.tokenizer import EOS, SOS, UNK, Tokenizer
from regard.decoding.beam import beam_search
from regard.decoding.constraints import Constraint, MinLength, NoRepeat, Prefix, RepetitionPenalty, Suppress
from regard.decoding.coverage import Coverage
from regard.decoding.diverse import diverse_beam_search
from regard.decoding.ensemble import Decodable, ensemble
from regard.decoding.force import force
from regard.decoding.greedy import greedy, likeliest
from regard.decoding.hypothesis import Hypothesis, Tokens
from regard.decoding.sample import Dice, Sample, drawing, sample
from regard.decoding.searchtree import Recorder
from regard.decoding.stream import stream
from regard.errors import SettingsError, nearest
from regard.models.base import Seq2Seq
from regard.tasks.gaze import Gaze

Method = Callable[..., list[list[Hypothesis]]]
"""A search: step, state, memory, limits and special tokens in, hypotheses out."""


@dataclass(frozen=True)
class Job:
    """One sentence to translate: its text, its ids, and how the output begins (or, when scored, all of it)."""

    text: str
    ids: list[int]
    target: tuple[int, ...] = ()


class Searcher:
    """Models with one vocabulary, and the settings by which they search."""

    def __init__(self, models: Sequence[Seq2Seq], source: Tokenizer, target: Tokenizer, settings: Search):
        self.models, self.settings = models, settings
        self.decoder: Decodable = models[0] if len(models) == 1 else ensemble(models, settings.mixing)
        self.device = models[0].output.weight.device
        self.source_pad, self.end = source.pad, EOS
        unknown = () if settings.replace_unknown else (UNK,)
        self.tokens = Tokens(SOS, EOS, never=(SOS, *unknown, target.pad))
        self.suppressed = tuple(_token_id(target, token) for token in settings.suppress)
        self.scoring: dict[str, Any] = {"penalty": settings.length_penalty, "form": settings.penalty_form}

    @torch.inference_mode()
    def search(self, jobs: Sequence[Job], nbest: int, recorder: Recorder | None = None) -> list[list[Hypothesis]]:
        """Hypotheses for each sentence, best first: greedily, by beam, or drawn."""
        settings = self.settings
        longest_B = self._longest(jobs)
        run = partial(self._method(jobs, nbest, recorder), constraints=self._constraints(jobs), **self.scoring)
        source = make_sources([job.ids for job in jobs], self.source_pad).to(self.device)
        memory = self.decoder.encode(source)
        if settings.groups > 1:
            return diverse_beam_search(
                self.decoder.step,
                lambda: self.decoder.start(memory),
                memory,
                longest_B,
                self.tokens,
                width=settings.beam,
                groups=settings.groups,
                strength=settings.diversity,
                stop=settings.stop,
                constraints=self._constraints(jobs),
                **self.scoring,
            )
        state = self.decoder.start(memory)
        if not settings.coverage_penalty:
            return run(self.decoder.step, state, memory, longest_B, self.tokens)
        with Gaze(self.models) as gaze:
            cover = Coverage(settings.coverage_penalty, gaze.take)
            state = cover.start(state, source.mask_BS)
            step = cover.watched(self.decoder.step)
            return run(step, state, memory, longest_B, self.tokens, bonus=cover.bonus)

    @torch.inference_mode()
    def force(self, jobs: Sequence[Job]) -> list[Hypothesis]:
        """The given targets as hypotheses."""
        settings, targets = self.settings, [job.target for job in jobs]
        source = make_sources([job.ids for job in jobs], self.source_pad).to(self.device)
        memory = self.decoder.encode(source)
        state = self.decoder.start(memory)
        changing = (RepetitionPenalty(settings.repetition_penalty),) if settings.repetition_penalty != 1 else ()
        run: Callable[..., list[Hypothesis]] = partial(force, device=self.device, constraints=changing, **self.scoring)
        if not settings.coverage_penalty:
            return run(self.decoder.step, state, memory, targets, self.tokens)
        with Gaze(self.models) as gaze:
            cover = Coverage(settings.coverage_penalty, gaze.take)
            state = cover.start(state, source.mask_BS)
            return run(cover.watched(self.decoder.step), state, memory, targets, self.tokens, bonus=cover.bonus)

    @torch.inference_mode()
    def stream(self, job: Job) -> Iterator[int]:
        """The tokens of one output while it is written: greedily, or drawn."""
        memory = self.decoder.encode(make_sources([job.ids], self.source_pad).to(self.device))
        pick = drawing(self._how(), self._dice([job])) if self.settings.sample else likeliest
        yield from stream(
            self.decoder.step,
            self.decoder.start(memory),
            memory,
            self._longest([job]),
            self.tokens,
            pick,
            self._constraints([job]),
        )

    def _method(self, jobs: Sequence[Job], nbest: int, recorder: Recorder | None) -> Method:
        settings = self.settings
        if settings.sample:
            return partial(sample, dice=self._dice(jobs), how=self._how(), paths=nbest)
        if settings.beam == 1:
            return greedy
        watch = recorder.see if recorder else None
        return partial(beam_search, width=settings.beam, stop=settings.stop, best=nbest, watch=watch)

    def _how(self) -> Sample:
        settings = self.settings
        return Sample(settings.temperature, settings.top_k, settings.top_p, settings.epsilon)

    def _dice(self, jobs: Sequence[Job]) -> Dice:
        return Dice(torch.tensor([_seed(job, self.settings.seed) for job in jobs], device=self.device))

    def _longest(self, jobs: Sequence[Job]) -> Tensor:
        """How many tokens an output may have: what it begins with is never cut."""
        ratio, extra = self.settings.max_ratio, self.settings.max_extra
        limits = [max(int(ratio * len(job.ids)) + extra, len(job.target) + max(extra, 1)) for job in jobs]
        return torch.tensor(limits, device=self.device)

    def _constraints(self, jobs: Sequence[Job]) -> tuple[Constraint, ...]:
        settings = self.settings
        chosen: list[Constraint] = []
        if settings.repetition_penalty != 1:
            chosen.append(RepetitionPenalty(settings.repetition_penalty))
        if self.suppressed:
            chosen.append(Suppress(self.suppressed))
        if settings.min_length:
            chosen.append(MinLength(settings.min_length, self.end))
        if settings.no_repeat:
            chosen.append(NoRepeat(settings.no_repeat))
        if any(job.target for job in jobs):
            return (Prefix.of([job.target for job in jobs], chosen, self.device),)
        return tuple(chosen)


def check_search(settings: Search, nbest: int, tree: bool) -> None:
    """Refuse what cannot be done together."""
    if nbest < 1:
        raise SettingsError(f"nbest must be at least 1, not {nbest}")
    if not settings.sample and nbest > settings.beam:
        raise SettingsError(f"{nbest} best translations need a search.beam of at least {nbest}, not {settings.beam}")
    by_beam = not settings.sample and settings.beam > 1
    if settings.coverage_penalty and not by_beam:
        raise SettingsError("search.coverage_penalty needs a beam: set search.beam above 1 and do not sample")
    if settings.groups > 1 and (settings.sample or settings.coverage_penalty or tree):
        raise SettingsError("search.groups goes with neither sampling, nor search.coverage_penalty, nor a tree")
    if tree and not by_beam:
        raise SettingsError("only a beam search has a tree: set search.beam above 1 and do not sample")


def _token_id(tokenizer: Tokenizer, token: str) -> int:
    if token not in tokenizer.tokens:
        raise SettingsError(f'search.suppress: the vocabulary has no "{token}"{nearest(token, tokenizer.tokens)}')
    return tokenizer.tokens.index(token)


def _seed(job: Job, seed: int) -> int:
    """A sentence's own seed: what is drawn for it depends on nothing beside it."""
    return (zlib.crc32(repr(job.ids).encode()) << 31) + seed % (1 << 31)
