"""From sentences as ids to hypotheses: the settings become a search, its constraints and its limits."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from regard.config import SearchSettings
from regard.data.batches import make_sources
from regard.decoding.beam import beam_search
from regard.decoding.constraints import (
    Constraint,
    ForcedPrefix,
    MinLength,
    NoRepeatNgram,
    RepetitionPenalty,
    SuppressTokens,
)
from regard.decoding.diverse import diverse_beam_search
from regard.decoding.ensemble import Decodable, ensemble
from regard.decoding.forced_decoding import force
from regard.decoding.greedy import Sample, SeededSampler, drawing, greedy, likeliest, sample, stream
from regard.decoding.hypothesis import Hypothesis, Tokens
from regard.decoding.penalties import CoveragePenalty
from regard.decoding.search_tree import SearchTreeRecorder
from regard.errors import SettingsError, nearest
from regard.layers.hooks import AttentionRecord, match_taps, taps
from regard.models.base import Seq2Seq
from regard.text.tokenizer import EOS, SOS, UNK, Tokenizer

# Where models look in the source while they write: for coverage, and for words that the vocabulary does not have.


CROSS = "decoder*cross"


class CrossAttentionRecorder:
    """Listens to every attention between target and source, of all heads, layers and models, and averages it."""

    def __init__(self, models: Sequence[Seq2Seq]):
        if not all(any(name.endswith("cross") for name in taps(model)) for model in models):
            raise SettingsError("search.coverage_penalty and replace_unknown need a model with attention to the source")
        self.models = models
        self._seen: list[Tensor] = []
        self._stack = ExitStack()

    def __enter__(self) -> CrossAttentionRecorder:
        for model in self.models:
            for tap in match_taps(model, CROSS):
                self._stack.enter_context(tap.attached(recorder=self._see))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def take(self) -> Tensor:
        """Where they looked since the last time: [B, T, S], a row sums to 1."""
        looked_BTS = torch.stack(self._seen).mean(0)
        self._seen.clear()
        return looked_BTS

    def _see(self, seen: AttentionRecord) -> None:
        self._seen.append(seen.weights_BHTS.mean(1))


@torch.inference_mode()
def replace_unknown(
    models: Sequence[Seq2Seq],
    source: Tokenizer,
    target: Tokenizer,
    texts: Sequence[str],
    outputs: Sequence[Sequence[int]],
) -> list[str]:
    """The outputs as text, each unknown word replaced by the source word it looked at most (Zhou et al. 2016)."""
    device = models[0].output.weight.device
    pieces = [source.pieces(text) for text in texts]
    batch = make_sources([[piece.id for piece in row] for row in pieces], source.pad).to(device)
    longest = max(map(len, outputs))
    rows = [[SOS, *output, *[target.pad] * (longest - len(output))] for output in outputs]
    with CrossAttentionRecorder(models) as gaze:
        for model in models:
            model(batch, torch.tensor(rows, device=device))
    places_BT = gaze.take()[:, :, :-1].masked_fill(~batch.mask_BS[:, None, 1:], -1.0).argmax(-1).tolist()
    made = []
    for text, output, there, looked in zip(map(source.normalize, texts), outputs, pieces, places_BT, strict=True):
        written, end = target.decode(output), 0
        parts = []
        for piece, place in zip(target.pieces_of(output), looked, strict=False):
            if piece.id == UNK:
                parts += [written[end : piece.start], text[there[place].start : there[place].end]]
                end = piece.end
        made.append("".join([*parts, written[end:]]))
    return made


Method = Callable[..., list[list[Hypothesis]]]
"""A search: step, state, memory, limits and special tokens in, hypotheses out."""


@dataclass(frozen=True)
class SearchInput:
    """One sentence to translate: its text, its ids, and how the output begins (or, when scored, all of it)."""

    text: str
    ids: list[int]
    target: tuple[int, ...] = ()


class Searcher:
    """Models with one vocabulary, and the settings by which they search."""

    def __init__(self, models: Sequence[Seq2Seq], source: Tokenizer, target: Tokenizer, settings: SearchSettings):
        self.models, self.settings = models, settings
        self.decoder: Decodable = models[0] if len(models) == 1 else ensemble(models, settings.ensemble_average)
        self.device = models[0].output.weight.device
        self.source_pad, self.end = source.pad, EOS
        unknown = () if settings.replace_unknown else (UNK,)
        self.tokens = Tokens(SOS, EOS, never=(SOS, *unknown, target.pad))
        self.suppressed = tuple(_token_id(target, token) for token in settings.suppress_tokens)
        self.scoring: dict[str, Any] = {"penalty": settings.length_penalty, "form": settings.length_penalty_form}

    @torch.inference_mode()
    def search(
        self, jobs: Sequence[SearchInput], nbest: int, recorder: SearchTreeRecorder | None = None
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each sentence, best first: greedily, by beam, or drawn."""
        settings = self.settings
        longest_B = self._longest(jobs)
        run = partial(self._method(jobs, nbest, recorder), constraints=self._constraints(jobs), **self.scoring)
        source = make_sources([job.ids for job in jobs], self.source_pad).to(self.device)
        memory = self.decoder.encode(source)
        if settings.beam_groups > 1:
            return diverse_beam_search(
                self.decoder.step,
                lambda: self.decoder.start(memory),
                memory,
                longest_B,
                self.tokens,
                width=settings.beam_size,
                groups=settings.beam_groups,
                strength=settings.diversity_penalty,
                stop=settings.stop,
                constraints=self._constraints(jobs),
                **self.scoring,
            )
        state = self.decoder.start(memory)
        if not settings.coverage_penalty:
            return run(self.decoder.step, state, memory, longest_B, self.tokens)
        with CrossAttentionRecorder(self.models) as gaze:
            cover = CoveragePenalty(settings.coverage_penalty, gaze.take)
            state = cover.start(state, source.mask_BS)
            step = cover.watched(self.decoder.step)
            return run(step, state, memory, longest_B, self.tokens, bonus=cover.bonus)

    @torch.inference_mode()
    def force(self, jobs: Sequence[SearchInput]) -> list[Hypothesis]:
        """The given targets as hypotheses."""
        settings, targets = self.settings, [job.target for job in jobs]
        source = make_sources([job.ids for job in jobs], self.source_pad).to(self.device)
        memory = self.decoder.encode(source)
        state = self.decoder.start(memory)
        changing = (RepetitionPenalty(settings.repetition_penalty),) if settings.repetition_penalty != 1 else ()
        run: Callable[..., list[Hypothesis]] = partial(force, device=self.device, constraints=changing, **self.scoring)
        if not settings.coverage_penalty:
            return run(self.decoder.step, state, memory, targets, self.tokens)
        with CrossAttentionRecorder(self.models) as gaze:
            cover = CoveragePenalty(settings.coverage_penalty, gaze.take)
            state = cover.start(state, source.mask_BS)
            return run(cover.watched(self.decoder.step), state, memory, targets, self.tokens, bonus=cover.bonus)

    @torch.inference_mode()
    def stream(self, job: SearchInput) -> Iterator[int]:
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

    def _method(self, jobs: Sequence[SearchInput], nbest: int, recorder: SearchTreeRecorder | None) -> Method:
        settings = self.settings
        if settings.sample:
            return partial(sample, dice=self._dice(jobs), how=self._how(), paths=nbest)
        if settings.beam_size == 1:
            return greedy
        watch = recorder.see if recorder else None
        return partial(beam_search, width=settings.beam_size, stop=settings.stop, best=nbest, watch=watch)

    def _how(self) -> Sample:
        settings = self.settings
        return Sample(settings.temperature, settings.top_k, settings.top_p, settings.epsilon_cutoff)

    def _dice(self, jobs: Sequence[SearchInput]) -> SeededSampler:
        return SeededSampler(torch.tensor([_seed(job, self.settings.seed) for job in jobs], device=self.device))

    def _longest(self, jobs: Sequence[SearchInput]) -> Tensor:
        """How many tokens an output may have: what it begins with is never cut."""
        ratio, extra = self.settings.max_length_ratio, self.settings.max_length_extra
        limits = [max(int(ratio * len(job.ids)) + extra, len(job.target) + max(extra, 1)) for job in jobs]
        return torch.tensor(limits, device=self.device)

    def _constraints(self, jobs: Sequence[SearchInput]) -> tuple[Constraint, ...]:
        settings = self.settings
        chosen: list[Constraint] = []
        if settings.repetition_penalty != 1:
            chosen.append(RepetitionPenalty(settings.repetition_penalty))
        if self.suppressed:
            chosen.append(SuppressTokens(self.suppressed))
        if settings.min_length:
            chosen.append(MinLength(settings.min_length, self.end))
        if settings.no_repeat_ngram_size:
            chosen.append(NoRepeatNgram(settings.no_repeat_ngram_size))
        if any(job.target for job in jobs):
            return (ForcedPrefix.of([job.target for job in jobs], chosen, self.device),)
        return tuple(chosen)


def check_search(settings: SearchSettings, nbest: int, tree: bool) -> None:
    """Refuse what cannot be done together."""
    if nbest < 1:
        raise SettingsError(f"nbest must be at least 1, not {nbest}")
    if not settings.sample and nbest > settings.beam_size:
        raise SettingsError(
            f"{nbest} best translations need a search.beam_size of at least {nbest}, not {settings.beam_size}"
        )
    by_beam = not settings.sample and settings.beam_size > 1
    if settings.coverage_penalty and not by_beam:
        raise SettingsError("search.coverage_penalty needs a beam: set search.beam_size above 1 and do not sample")
    if settings.beam_groups > 1 and (settings.sample or settings.coverage_penalty or tree):
        raise SettingsError("search.beam_groups goes with neither sampling, nor search.coverage_penalty, nor a tree")
    if tree and not by_beam:
        raise SettingsError("only a beam search has a tree: set search.beam_size above 1 and do not sample")


def _token_id(tokenizer: Tokenizer, token: str) -> int:
    if token not in tokenizer.tokens:
        raise SettingsError(
            f'search.suppress_tokens: the vocabulary has no "{token}"{nearest(token, tokenizer.tokens)}'
        )
    return tokenizer.tokens.index(token)


def _seed(job: SearchInput, seed: int) -> int:
    """A sentence's own seed: what is drawn for it depends on nothing beside it."""
    return (zlib.crc32(repr(job.ids).encode()) << 31) + seed % (1 << 31)
