"""The plan for training on sentence pairs: chooses settings by the number and length of the pairs, and the machine.

If the user names an architecture, its preset gives the sizes. The plan still chooses norm, positional encoding and
dropout, the kind of tokenizer that the architecture was made for, and Adam or Muon.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

from regard.config import Recipe, TokenizerSettings, TrainSettings
from regard.models import build, settings_of
from regard.models.base import count_parameters
from regard.models.transformer_settings import TransformerSettings
from regard.training.device import Machine
from regard.training.plan import (
    CHARACTERS_PER_TOKEN,
    COPIES,
    FLOAT,
    PROCESS,
    PlannedSetting,
    Tables,
    choose_learning_rate,
    choose_length,
    choose_precision,
    leave_given,
    steps_per_epoch,
)


class PairFacts(NamedTuple):
    """What the plan knows about the data: the number of training pairs, and the lengths of their sentences."""

    pairs: int
    characters: float
    """Mean length of a sentence in characters, over both sides."""
    long: float = 0.0
    """Length in characters that only 1 % of the sentences exceed."""
    per_token: float = CHARACTERS_PER_TOKEN
    """Estimated number of characters of a token."""

    def tokenized(self, kind: str) -> PairFacts:
        """The same facts for this kind of tokenizer (`tokenizer.kind`)."""
        return self._replace(per_token=1.0) if kind == "character" else self

    @property
    def length(self) -> float:
        """Estimated mean length of a sentence in tokens, including the end token."""
        return self.characters / self.per_token + 1

    def steps(self, batch_tokens: int) -> int:
        return steps_per_epoch(self.pairs * self.length, batch_tokens)


def make_plan(corpus: PairFacts, machine: Machine, given: Tables) -> list[PlannedSetting]:
    """Choose the settings that the user has not `given`, to fit the data and the machine."""
    model, train = given.get("model", {}), given.get("train", {})
    arch = _choose_arch(corpus, machine)
    preset = settings_of(model.get("arch") or arch.value)
    kind = given.get("tokenizer", {}).get("kind", preset.tokenizer_kind)
    corpus = corpus.tokenized(kind)
    choices = [*_vocabulary(corpus, kind), arch]
    if isinstance(preset, TransformerSettings):
        choices += _transformer(corpus, preset, model)
    elif not {"width", "embedding_width"} & model.keys():
        width, reason = 256 if corpus.pairs < 100_000 else 512, f"{corpus.pairs:,} pairs: a wider network overfits"
        wider = [name for name in ("width", "embedding_width") if getattr(preset, name, 0) > width]
        choices += [PlannedSetting(f"model.{name}", width, reason) for name in wider]
    choices += choose_precision(machine)
    sharded = train.get("fsdp") or train.get("expert_parallel")
    is_adam = train.get("optimizer") == "adam" or sharded  # Muon needs whole matrices
    muon = preset.suits_muon and not is_adam
    warmup = 30 if muon and corpus.pairs < 100_000 else 100
    choices += choose_learning_rate(3e-3 if muon else 1e-3, warmup, 0.3, muon=muon, muon_rate=preset.muon_rate)
    if corpus.pairs < 500_000:
        growing = "dropout and subword regularization grow: a model that has learned nothing cannot overfit"
        choices.append(PlannedSetting("train.regularization_warmup", 3000, growing))
    batch = _batch(corpus, machine)
    epoch = corpus.steps((train.get("batch_tokens") or batch.value) * train.get("gradient_accumulation", 1))
    limited = corpus.pairs < 100_000 and not train.get("max_minutes")
    most = max(60 * epoch, 6000) if limited else 0  # half as many epochs cost a point of BLEU (docs/log.md)
    every = min(max(epoch, 100), 2000)
    choices += [batch, *choose_length(epoch, validate_every=every, patience=10, max_steps=most)]
    return leave_given(choices, given)


def _vocabulary(corpus: PairFacts, kind: str) -> Iterator[PlannedSetting]:
    pairs = corpus.pairs
    if kind != TokenizerSettings.kind:
        yield PlannedSetting("tokenizer.kind", kind, "the architecture was made for such tokens")
    if kind == "word":
        size = 10_000 if pairs < 15_000 else 32_000
        yield PlannedSetting("tokenizer.vocab_size", size, f"{pairs:,} pairs: rarer words are not seen often enough")
        return
    size = 2000 if pairs < 5_000 else 4000 if pairs < 15_000 else 6000 if pairs < 100_000 else 16_000
    size = 32_000 if pairs >= 1_000_000 else size
    yield PlannedSetting("tokenizer.vocab_size", size, f"{pairs:,} pairs: few enough that each subword is seen often")
    if pairs < 500_000 and kind in ("bpe", "unigram"):
        reason = "words are split differently each time, until the cooldown: better with little data"
        yield PlannedSetting("tokenizer.subword_regularization", 0.1, reason)


def _choose_arch(corpus: PairFacts, machine: Machine) -> PlannedSetting:
    pairs = corpus.pairs
    if pairs < 100_000:
        arch, reason = "tiny" if pairs < 15_000 else "mini", f"{pairs:,} pairs: a larger one overfits"
    elif pairs < 1_000_000 or machine.device == "cpu":
        arch, reason = "small", f"{pairs:,} pairs on {machine.device}: small enough for several epochs"
    else:
        arch, reason = "base", f"{pairs:,} pairs: enough for the paper's base model"
    return PlannedSetting("model.arch", f"transformer-{arch}", reason)


def _transformer(corpus: PairFacts, preset: TransformerSettings, model: Mapping[str, Any]) -> Iterator[PlannedSetting]:
    dropout = 0.3 if corpus.pairs < 100_000 else 0.2 if corpus.pairs < 500_000 else 0.1
    yield PlannedSetting("model.dropout", dropout, "the less data, the more dropout")
    if preset.norm != "pre":
        yield PlannedSetting("model.norm", "pre", "trains without a long warm-up")
    if "position_mode" not in model:  # "add" or "concatenate"; rotary encodings do neither
        reason = "attention depends on the distance between words: learned from fewer sentences"
        yield PlannedSetting("model.positional_encoding", "rotary", reason)
    if model.get("norm", "pre") == "pre":
        reason = "sub-layers add nothing at first: needs fewer steps with pre-norm"
        yield PlannedSetting("train.zero_init_residual", True, reason)


def _batch(corpus: PairFacts, machine: Machine) -> PlannedSetting:
    wanted = 2048 if corpus.pairs < 100_000 else 4096 if machine.device == "cpu" else 16_384
    while wanted < 8 * corpus.long / corpus.per_token:  # eight long sentences fit into a batch
        wanted *= 2
    reason = "little data: many small steps" if wanted == 2048 else "large enough to keep the machine busy"
    return PlannedSetting("train.batch_tokens", wanted, reason)


def fit_memory(plan: list[PlannedSetting], recipe: Recipe, corpus: PairFacts, machine: Machine) -> list[PlannedSetting]:
    """Return the plan, with smaller batches and gradient accumulation if the planned batches need too much memory."""
    if not any(choice.name == "train.batch_tokens" for choice in plan):
        return plan
    train, size = recipe.train, recipe.tokenizer.vocab_size
    with torch.device("meta"):
        parameters = count_parameters(build(recipe.model, source_vocabulary=size, target_vocabulary=size))
    weights = PROCESS + COPIES * FLOAT * parameters  # bytes, with the optimizer's moments
    per_token = FLOAT * recipe.model.kept_per_token(corpus.length) * (2 if train.r_drop else 1)
    batch, times = train.batch_tokens, 1
    while weights + batch * per_token > machine.memory and batch > 256:
        batch, times = batch // 2, 2 * times
    if times == 1:
        return plan
    free = f"{machine.memory / 1e9:.1f} GB of memory are free"
    fitted = [PlannedSetting("train.batch_tokens", batch, free)]
    if train.gradient_accumulation == TrainSettings.gradient_accumulation:
        same = "so that a step has as many tokens as planned"
        fitted.append(PlannedSetting("train.gradient_accumulation", times * train.gradient_accumulation, same))
    return [choice for choice in plan if choice.name != "train.batch_tokens"] + fitted
