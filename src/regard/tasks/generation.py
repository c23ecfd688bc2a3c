"""Text generation for all tasks: runs the search that the settings describe; replaces unknown words by attention.

`Searcher` adds constraints and length limits. `record_cross_attention` records cross-attention weights during
decoding, for the coverage penalty and for replacing unknown words.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.config import Recipe, SearchSettings
from regard.data.batches import TokenSource, make_sources
from regard.decoding.beam import BeamState, beam_search
from regard.decoding.constraints import (
    Constraint,
    ForcedPrefix,
    MinLength,
    NoRepeatNgram,
    RepetitionPenalty,
    SuppressTokens,
)
from regard.decoding.diverse import diverse_beam_search
from regard.decoding.ensemble import Decodable, Ensemble, ShallowFusion
from regard.decoding.forced_decoding import force
from regard.decoding.greedy import Choose, Sample, extend_paths, most_likely, sampling, stream
from regard.decoding.hypothesis import Hypothesis, Tokens
from regard.decoding.penalties import CoveragePenalty, LengthPenalty
from regard.errors import ModelError, SettingsError, nearest
from regard.layers.hooks import attention_hooks, match_hooks
from regard.models.base import Seq2Seq
from regard.text.tokenizer import EOS, SOS, UNK, Tokenizer

BEAM = "set search.beam_size above 1 and search.sample = false"
NEEDS_CROSS_ATTENTION = (
    "search.coverage_penalty and search.replace_unknown need a model with cross-attention; leave them out"
)
NEEDS_WORDS = "search.replace_unknown needs a word vocabulary (tokenizer.kind = word); set it to false for this run"


@contextmanager
def record_cross_attention(models: Sequence[Seq2Seq]) -> Iterator[Callable[[], Tensor]]:
    """Record cross-attention weights while the models run, inside a `with` block.

    Yields a function that returns the weights [B, T, S] since its last call, averaged over heads, layers and models.
    """
    if not all(any(name.endswith("cross") for name in attention_hooks(model)) for model in models):
        raise SettingsError(NEEDS_CROSS_ATTENTION)
    recorded: list[Tensor] = []

    def take() -> Tensor:
        weights_BTS = torch.stack(recorded).mean(0)
        recorded.clear()
        return weights_BTS

    with ExitStack() as stack:
        for model in models:
            for hook in match_hooks(model, "decoder*cross"):
                recorder = hook.attached(recorder=lambda found: recorded.append(found.weights_BHTS.mean(1)))
                stack.enter_context(recorder)
        yield take


@torch.inference_mode()
def replace_unknown(
    models: Sequence[Seq2Seq],
    source: Tokenizer,
    target: Tokenizer,
    texts: Sequence[str],
    outputs: Sequence[Sequence[int]],
    dictionary: Mapping[str, str],
) -> list[str]:
    """Decode the token ids `outputs` of the translations of `texts`, without unknown tokens (Luong et al. 2015).

    Each unknown token is replaced by the translation, in `dictionary`, of the source word with the highest
    cross-attention weight at its position; a word that is not in the dictionary is copied (Zhou et al. 2016).
    """
    device = models[0].output.weight.device
    pieces = [source.pieces(text) for text in texts]
    batch = make_sources([[piece.id for piece in row] for row in pieces], source.pad).to(device)
    longest = max(map(len, outputs))
    rows = [[SOS, *output, *[target.pad] * (longest - len(output))] for output in outputs]
    with record_cross_attention(models) as take:
        for model in models:
            model(batch, torch.tensor(rows, device=device))
    attended_BT = take()[:, :, :-1].masked_fill(~batch.mask_BS[:, None, 1:], -1.0).argmax(-1).tolist()
    replaced = []
    for text, output, source_pieces, attended in zip(
        map(source.normalize, texts), outputs, pieces, attended_BT, strict=True
    ):
        written, end = target.decode(output), 0
        parts = []
        for piece, place in zip(target.pieces_of(output), attended, strict=False):
            if piece.id == UNK:
                word = text[source_pieces[place].start : source_pieces[place].end]
                parts += [written[end : piece.start], dictionary.get(word, word)]
                end = piece.end
        replaced.append("".join([*parts, written[end:]]))
    return replaced


@dataclass(frozen=True)
class SearchInput:
    """A source text and its token ids. `target`: a forced prefix of the output or, for `Searcher.force`, all of it."""

    text: str
    ids: list[int]
    target: tuple[int, ...] = ()


class Searcher:
    """Generates outputs with one model, or with an ensemble of models that share a vocabulary."""

    def __init__(
        self,
        models: Sequence[Seq2Seq],
        source: Tokenizer,
        target: Tokenizer,
        settings: SearchSettings,
        language_model: Seq2Seq | None = None,
        *,
        start: int = SOS,
    ):
        """`language_model`: takes part in every step (shallow fusion); its vocabulary must be that of `target`.

        `start`: the token that the decoder reads first.
        """
        self.models, self.settings = models, settings
        self.decoder: Decodable = models[0] if len(models) == 1 else Ensemble(models, settings.ensemble_average)
        self.device = models[0].output.weight.device
        self.source_pad = source.pad
        unknown = () if settings.replace_unknown else (UNK,)
        self.tokens = Tokens(start, EOS, never=(SOS, *unknown, target.pad), normalize=language_model is None)
        if language_model is not None:
            self.decoder = ShallowFusion(self.decoder, language_model, settings.lm_weight)
        for token in settings.suppress_tokens:
            if token not in target.tokens:
                known = nearest(token, target.tokens)
                raise SettingsError(f'search.suppress_tokens: the target vocabulary has no token "{token}"{known}')
        self.suppressed = tuple(map(target.tokens.index, settings.suppress_tokens))
        self.penalty = LengthPenalty(settings.length_penalty, settings.length_penalty_form)

    def search(
        self, inputs: Sequence[SearchInput], nbest: int, watch: Callable[[BeamState], None] | None = None
    ) -> list[list[Hypothesis]]:
        """Find hypotheses for each text, best first, by greedy search, beam search or sampling.

        A beam search may return more than `nbest`. Without groups, it calls `watch` with its state at each step. A
        model that computes scores which are not numbers is an error.
        """
        found = self._search(inputs, nbest, watch)
        if not all(hypotheses and math.isfinite(hypotheses[0].score) for hypotheses in found):
            raise ModelError("the model computes values that are not finite numbers; take the run from an earlier copy")
        return found

    @torch.inference_mode()
    def _search(
        self, inputs: Sequence[SearchInput], nbest: int, watch: Callable[[BeamState], None] | None
    ) -> list[list[Hypothesis]]:
        settings, constraints, longest_B = self.settings, self._constraints(inputs), self._longest(inputs)
        source = self._source(inputs)
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
                penalty=self.penalty,
                stop=settings.stop,
                constraints=constraints,
            )
        if settings.sample or settings.beam_size == 1:
            method: Any = partial(extend_paths, choose=self._choose(inputs), paths=nbest if settings.sample else 1)
        else:
            method = partial(beam_search, width=settings.beam_size, stop=settings.stop, best=nbest, watch=watch)
        with self._start_search(source, memory) as (step, state, options):
            return method(
                step, state, memory, longest_B, self.tokens, penalty=self.penalty, constraints=constraints, **options
            )

    @torch.inference_mode()
    def force(self, inputs: Sequence[SearchInput]) -> list[Hypothesis]:
        """Forced decoding: for each input, return a hypothesis with the tokens `input.target`, scored by the model."""
        penalty = self.settings.repetition_penalty
        constraints = (RepetitionPenalty(penalty),) if penalty != 1 else ()
        source = self._source(inputs)
        memory = self.decoder.encode(source)
        with self._start_search(source, memory) as (step, state, options):
            return force(
                step,
                state,
                memory,
                [one.target for one in inputs],
                self.tokens,
                device=self.device,
                penalty=self.penalty,
                constraints=constraints,
                **options,
            )

    @torch.inference_mode()
    def stream(self, given: SearchInput) -> Iterator[int]:
        """Yield the tokens of one output as they are generated by greedy search or sampling."""
        memory = self.decoder.encode(self._source([given]))
        yield from stream(
            self.decoder.step,
            self.decoder.start(memory),
            memory,
            self._longest([given]),
            self.tokens,
            self._choose([given]),
            self._constraints([given]),
        )

    def _source(self, inputs: Sequence[SearchInput]) -> TokenSource:
        return make_sources([one.ids for one in inputs], self.source_pad).to(self.device)

    @contextmanager
    def _start_search(self, source: TokenSource, memory: Any) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
        """Yield the decoder's step function, its first state, and further arguments of the search functions.

        If `search.coverage_penalty` is set, the arguments and the step function apply this penalty.
        """
        state = self.decoder.start(memory)
        if not self.settings.coverage_penalty:
            yield self.decoder.step, state, {}
            return
        with record_cross_attention(self.models) as take:
            coverage = CoveragePenalty(self.settings.coverage_penalty, take)
            state = coverage.start(state, source.mask_BS)
            yield coverage.wrap(self.decoder.step), state, {"state_penalty": coverage.penalty}

    def _choose(self, inputs: Sequence[SearchInput]) -> Choose:
        """Return the function that chooses the next token: the most probable one or, if `search.sample`, a random one.

        Each input has its own random seed, so that its samples do not depend on the other inputs of the batch.
        """
        settings = self.settings
        if not settings.sample:
            return most_likely
        limits = Sample(settings.temperature, settings.top_k, settings.top_p, settings.epsilon_cutoff)
        hashes = (zlib.crc32(repr([*one.ids, *one.target]).encode()) for one in inputs)
        seeds = [(hash << 31) + settings.seed % (1 << 31) for hash in hashes]
        return sampling(limits, torch.tensor(seeds, device=self.device))

    def _longest(self, inputs: Sequence[SearchInput]) -> Tensor:
        """Return the maximum number of tokens of each output [B]; always more than the length of its forced prefix."""
        ratio, extra = self.settings.max_length_ratio, self.settings.max_length_extra
        limits = [max(int(ratio * len(one.ids)) + extra, len(one.target) + max(extra, 1)) for one in inputs]
        return torch.tensor(limits, device=self.device)

    def _constraints(self, inputs: Sequence[SearchInput]) -> tuple[Constraint, ...]:
        settings = self.settings
        chosen: list[Constraint] = []
        if settings.repetition_penalty != 1:
            chosen.append(RepetitionPenalty(settings.repetition_penalty))
        if self.suppressed:
            chosen.append(SuppressTokens(self.suppressed))
        if settings.min_length:
            chosen.append(MinLength(settings.min_length, EOS))
        if settings.no_repeat_ngram_size:
            chosen.append(NoRepeatNgram(settings.no_repeat_ngram_size))
        if any(one.target for one in inputs):
            return (ForcedPrefix.of([one.target for one in inputs], chosen, self.device),)
        return tuple(chosen)


def spell(ids: Iterable[int], tokenizer: Tokenizer) -> Iterator[str]:
    """Decode a stream of token ids: yield the new text after each token, a character when its last byte is there."""
    written: list[int] = []
    given = ""
    for id in ids:
        written.append(id)
        text = tokenizer.decode(written)
        if len(text) > len(given) and not text.endswith("\ufffd"):
            yield text[len(given) :]
            given = text
    if rest := tokenizer.decode(written)[len(given) :]:
        yield rest


def check_recipe(recipe: Recipe) -> None:
    """Raise an error if the search settings contradict each other, the model or the vocabulary; called before training.

    Otherwise the mistake would be found by the first translation, after hours of training.
    """
    search = recipe.search
    check_search(search, 1, False)
    if (search.coverage_penalty or search.replace_unknown) and not recipe.model.attends:
        raise SettingsError(NEEDS_CROSS_ATTENTION)
    if search.replace_unknown and recipe.tokenizer.kind != "word":
        raise SettingsError(NEEDS_WORDS)


def check_search(settings: SearchSettings, nbest: int, tree: bool) -> None:
    """Raise an error if settings contradict each other, or exclude `nbest` outputs or (if `tree`) a search tree."""
    if nbest < 1:
        raise SettingsError(f"nbest must be at least 1, not {nbest}")
    if not settings.sample and nbest > settings.beam_size:
        raise SettingsError(f"nbest = {nbest} needs search.beam_size of at least {nbest}, not {settings.beam_size}")
    by_beam = not settings.sample and settings.beam_size > 1
    if settings.coverage_penalty and not by_beam:
        raise SettingsError(f"search.coverage_penalty needs a beam search: {BEAM}")
    if settings.beam_groups > 1 and (settings.sample or settings.coverage_penalty or tree):
        raise SettingsError(
            "search.beam_groups cannot be combined with search.sample, search.coverage_penalty or a search tree; "
            "set search.beam_groups = 1"
        )
    if tree and not by_beam:
        raise SettingsError(f"only a beam search has a search tree: {BEAM}")
