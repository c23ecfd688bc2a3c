"""The plan: what someone who knows would choose for this much data on this machine, each choice with its reason.

The plan sees only numbers: how many pairs, how long they are, what the machine has. What the user has said is never
changed, and what follows from it follows: another architecture gets the settings that suit it. Naming a Transformer
decides its sizes; norm, positions and dropout stay the plan's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from regard.config import ModelSettings, Recipe, TrainSettings
from regard.models import build, settings_of
from regard.models.base import Network, count_parameters
from regard.models.transformer_settings import TransformerSettings
from regard.training.device import Machine
from regard.training.flops import count_cost, pair_amounts
from regard.training.schedule import ends_by_patience_only

CHARACTERS_PER_TOKEN = 4.0  # of European languages with a vocabulary of some thousand subwords
LONGEST_SENTENCES = 8  # of the longest kind, that a batch should hold
EPOCHS = 60  # of little data; half as many cost a point of BLEU (docs/log.md)
UPDATES_AT_LEAST = 6000  # however short an epoch is
BFLOAT16_PAYS = 1.5  # times as fast must products in bfloat16 be, since not all of an update is products


@dataclass(frozen=True)
class PlannedSetting:
    """One setting, its value, and why."""

    name: str
    value: Any
    reason: str


@dataclass(frozen=True)
class PairFacts:
    """What the plan knows of the training data."""

    pairs: int
    characters: float
    """Mean length of a sentence, both sides."""
    long: float = 0.0
    """Length that only one sentence in a hundred exceeds."""

    @property
    def tokens(self) -> float:
        """Target tokens of an epoch, roughly."""
        return self.pairs * (self.characters / CHARACTERS_PER_TOKEN + 1)

    def updates(self, batch_tokens: int) -> int:
        """Of an epoch, roughly: batches are not filled to the last token."""
        return max(round(self.tokens / (0.9 * batch_tokens)), 1)


def make_plan(corpus: PairFacts, machine: Machine, given: Mapping[str, Mapping[str, Any]]) -> list[PlannedSetting]:
    """Choose for this corpus on this machine whatever `given`, as tables of settings, leaves open."""
    model, said = given.get("model", {}), given.get("train", {})
    said_arch = model.get("arch")
    arch = said_arch or _choose_arch(corpus, machine)[0]
    preset = settings_of(arch)
    is_transformer = isinstance(preset, TransformerSettings)
    choices = [*_vocabulary(corpus, given.get("tokenizer", {}).get("kind", "bpe"))]
    if not said_arch:
        choices.append(PlannedSetting("model.arch", *_choose_arch(corpus, machine)))
    if isinstance(preset, TransformerSettings):
        choices += _transformer(corpus, preset, model)
    elif not {"width", "embedding"} & model.keys():
        choices += _sizes(corpus, preset)
    by_muon = is_transformer and said.get("optimizer") != "adam" and not said.get("fsdp")  # Muon needs whole matrices
    choices += _learning(corpus, by_muon)
    if is_transformer and model.get("norm", "before") == "before":
        choices.append(
            PlannedSetting(
                "train.zero_init_residual",
                True,
                "sub-layers add nothing at first: fewer updates, with norms before them",
            )
        )
    if is_transformer and machine.device == "cpu" and machine.bfloat16_speedup >= BFLOAT16_PAYS:
        faster = f"matrix products in it are {machine.bfloat16_speedup:.1f} times as fast here; weights stay in float32"
        choices.append(PlannedSetting("train.precision", "bfloat16", faster))
    choices += _batch(corpus, machine)
    batch = said.get("batch_tokens") or next(one.value for one in choices if one.name == "train.batch_tokens")
    epoch = corpus.updates(batch * said.get("gradient_accumulation", 1))
    choices += _validation(epoch)
    choices += _ending(corpus, epoch, minutes=said.get("max_minutes", 0))
    return [choice for choice in choices if not is_given(choice.name, given)]


def table(plan: Sequence[PlannedSetting]) -> list[str]:
    """The choices for people, one a line."""
    name = max((len(choice.name) for choice in plan), default=0)
    value = max((len(str(choice.value)) for choice in plan), default=0)
    return [f"  {choice.name:{name}}  {choice.value!s:{value}}  {choice.reason}" for choice in plan]


def merge(plan: list[PlannedSetting], given: Mapping[str, Any]) -> dict[str, Any]:
    """The plan below what the user has said: tables for a recipe."""
    merged: dict[str, Any] = {key: dict(table) for key, table in given.items()}
    for choice in plan:
        section, key = choice.name.split(".")
        merged.setdefault(section, {}).setdefault(key, choice.value)
    return merged


def is_given(name: str, given: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the user has set it."""
    section, key = name.split(".")
    return key in given.get(section, {})


def _vocabulary(corpus: PairFacts, kind: str) -> Iterator[PlannedSetting]:
    pairs = corpus.pairs
    if kind == "word":
        size = 10_000 if pairs < 15_000 else 32_000
        yield PlannedSetting(
            "tokenizer.vocab_size", size, f"{pairs:,} pairs: rarer words are not seen often enough to be learnt"
        )
        return
    size = 2000 if pairs < 5_000 else 4000 if pairs < 15_000 else 6000 if pairs < 100_000 else 16_000
    size = 32_000 if pairs >= 1_000_000 else size
    yield PlannedSetting("tokenizer.vocab_size", size, f"{pairs:,} pairs: few enough that each subword is seen often")
    if pairs < 500_000 and kind in ("bpe", "unigram"):
        yield PlannedSetting(
            "tokenizer.subword_regularization",
            0.1,
            "words are cut anew each time, until it cools down: little data goes further",
        )


def _choose_arch(corpus: PairFacts, machine: Machine) -> tuple[str, str]:
    pairs = corpus.pairs
    if pairs < 100_000:
        arch = "transformer-tiny" if pairs < 15_000 else "transformer-mini"
        return arch, f"{pairs:,} pairs: a larger model would learn them by heart"
    if pairs < 1_000_000 or machine.device == "cpu":
        return "transformer-small", f"{pairs:,} pairs on {machine.device}: small enough to see each pair several times"
    return "transformer-base", f"{pairs:,} pairs: enough for the paper's base model"


def _transformer(corpus: PairFacts, preset: TransformerSettings, said: Mapping[str, Any]) -> Iterator[PlannedSetting]:
    dropout = 0.3 if corpus.pairs < 100_000 else 0.2 if corpus.pairs < 500_000 else 0.1
    yield PlannedSetting("model.dropout", dropout, "the less data, the more dropout")
    if preset.norm != "before":
        yield PlannedSetting("model.norm", "before", "learns at once, without a long warm-up")
    if "join" not in said:  # it says how positions join the embeddings, which rotary ones do not
        yield PlannedSetting(
            "model.positions", "rotary", "what counts is the distance between words: learnt from fewer sentences"
        )


def _sizes(corpus: PairFacts, preset: ModelSettings) -> Iterator[PlannedSetting]:
    width = 256 if corpus.pairs < 100_000 else 512
    for name in ("width", "embedding"):
        if getattr(preset, name, 0) > width:
            yield PlannedSetting(
                f"model.{name}", width, f"{corpus.pairs:,} pairs: read several times rather than learnt by heart"
            )


def _learning(corpus: PairFacts, by_muon: bool) -> Iterator[PlannedSetting]:
    if by_muon:
        yield PlannedSetting("train.optimizer", "muon", "about half the updates that Adam needs")
        yield PlannedSetting("train.muon_learning_rate", 0.02, "of Muon's matrices")
        yield PlannedSetting("train.learning_rate", 3e-3, "of embeddings, norms and biases, which stay with Adam")
    else:
        yield PlannedSetting("train.learning_rate", 1e-3, "what every architecture bears")
    short = by_muon and corpus.pairs < 100_000
    yield PlannedSetting(
        "train.warmup_steps", 30 if short else 100, "a short climb is enough where gradients are clipped"
    )
    yield PlannedSetting("train.schedule", "constant", "as long as the end is not near; then the rate falls")
    yield PlannedSetting(
        "train.cooldown", 0.3, "the last part, whatever ends it: minutes, updates, or no better validation"
    )
    if corpus.pairs < 500_000:
        yield PlannedSetting(
            "train.regularization_warmup", 3000, "dropout and sampling grow: what knows nothing cannot learn by heart"
        )


def _batch(corpus: PairFacts, machine: Machine) -> Iterator[PlannedSetting]:
    wanted = 2048 if corpus.pairs < 100_000 else 4096 if machine.device == "cpu" else 16_384
    longest = LONGEST_SENTENCES * corpus.long / CHARACTERS_PER_TOKEN
    while wanted < longest:
        wanted *= 2
    reason = "little data: many small updates" if wanted == 2048 else "large enough to keep the machine busy"
    yield PlannedSetting("train.batch_tokens", wanted, reason)


def _validation(epoch: int) -> Iterator[PlannedSetting]:
    every = min(max(epoch, 100), 2000)
    often = "about once an epoch" if every == epoch else f"an epoch is about {epoch:,} updates"
    yield PlannedSetting("train.validate_every", every, often)
    yield PlannedSetting("train.checkpoint_every", min(every, 500), "so little is lost when it is killed")


def _ending(corpus: PairFacts, epoch: int, minutes: float) -> Iterator[PlannedSetting]:
    yield PlannedSetting(
        "train.patience", 10, "validations without a better score or loss; then it cools down and stops"
    )
    if corpus.pairs < 100_000 and not minutes:
        updates = max(EPOCHS * epoch, UPDATES_AT_LEAST)
        yield PlannedSetting("train.max_steps", updates, f"{updates / epoch:.0f} epochs, if nothing ends it before")


# Large numbers and times, for people.


def amount(value: float) -> str:
    """E.g. 1.6 M, 29 T; a unit may follow at once."""
    for power, letter in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.{0 if value >= 10 ** (power + 1) else 1}f} {letter}"
    return f"{value:.0f} "


def duration(seconds: float) -> str:
    """For people: 40 s, 3.5 min, 12 min, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 600:
        return f"{seconds / 60:.1f} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


# What training will take: parameters, memory, arithmetic and time, before the first update.


SHARE_OF_PEAK = 0.5  # of the matmul peak, that small models reach
SHARE_OF_SHORT_PEAK = 0.35  # of that in bfloat16: what is no product takes as long as ever
FLOAT = 4
SMALLEST_BATCH = 256
PROCESS = 400e6  # Python, torch and the data, in bytes
COPIES = 5  # of each weight: itself, its gradient, two moments, its average


@dataclass(frozen=True)
class Estimate:
    """What a run will take."""

    parameters: int
    memory: float
    """Bytes, at most."""
    epoch_flops: float
    epoch_seconds: float
    epochs: float = 0.0
    """At most, by `train.max_steps`; 0: not known."""

    def describe(self, minutes: float = 0.0) -> str:
        """In a line, for people."""
        epoch = f"an epoch is {amount(self.epoch_flops)}FLOP, about {duration(self.epoch_seconds)} on this machine"
        line = f"{self.parameters / 1e6:.1f} million parameters, {self.memory / 1e9:.1f} GB of memory; {epoch}"
        if not minutes:
            epochs = f"{self.epochs:.0f}" if self.epochs >= 10 else f"{self.epochs:.2g}"
            most = f"; all {epochs} epochs about {duration(self.epochs * self.epoch_seconds)}"
            return line + most if self.epochs else line
        return f"{line}; {minutes:g} minutes are about {60 * minutes / self.epoch_seconds:.1f} epochs"


def estimate(recipe: Recipe, corpus: PairFacts, machine: Machine) -> Estimate:
    """Of a recipe whose settings are all decided."""
    model = _build(recipe)
    length = _length(corpus)
    train, passes = recipe.train, 2 if recipe.train.r_drop else 1
    flops = passes * corpus.pairs * count_cost(model).training(**pair_amounts(1, round(length), round(length)))
    parameters = count_parameters(model)
    short = train.precision == "bfloat16"
    speed = machine.peak * (machine.bfloat16_speedup * SHARE_OF_SHORT_PEAK if short else SHARE_OF_PEAK)
    most = train.max_steps * train.gradient_accumulation / corpus.updates(train.batch_tokens)
    epochs = 0.0 if ends_by_patience_only(train) else most
    return Estimate(parameters, _memory(recipe, parameters, length), flops, flops / speed, epochs)


def _build(recipe: Recipe) -> Network:
    """The model, without memory for its weights."""
    size = recipe.tokenizer.vocab_size
    with torch.device("meta"):
        return build(recipe.model, source_vocabulary=size, target_vocabulary=size)


def _length(corpus: PairFacts) -> float:
    return corpus.characters / CHARACTERS_PER_TOKEN + 1


def _memory(recipe: Recipe, parameters: int, length: float) -> float:
    """Bytes for the process, the weights with what the optimizer keeps of them, and the largest batch."""
    tokens = recipe.train.batch_tokens * (2 if recipe.train.r_drop else 1)
    return PROCESS + COPIES * FLOAT * parameters + tokens * FLOAT * recipe.model.kept_per_token(length)


def fit_memory(plan: list[PlannedSetting], recipe: Recipe, corpus: PairFacts, machine: Machine) -> list[PlannedSetting]:
    """The plan with smaller batches, more of them an update, where the free memory would not do for what it chose."""
    planned = {choice.name for choice in plan}
    train = wanted = recipe.train
    accumulate_said = wanted.gradient_accumulation != TrainSettings.gradient_accumulation
    parameters, length = count_parameters(_build(recipe)), _length(corpus)
    while (
        _memory(recipe, parameters, length) > machine.memory
        and "train.batch_tokens" in planned
        and train.batch_tokens > SMALLEST_BATCH
    ):
        train = replace(
            train, batch_tokens=train.batch_tokens // 2, gradient_accumulation=2 * train.gradient_accumulation
        )
        recipe = replace(recipe, train=train)
    if train == wanted:
        return plan
    reason = f"{machine.memory / 1e9:.1f} GB of memory are free"
    fitted = [PlannedSetting("train.batch_tokens", train.batch_tokens, reason)]
    if not accumulate_said:
        fitted.append(
            PlannedSetting(
                "train.gradient_accumulation",
                train.gradient_accumulation,
                "so that an update sees as much as it should",
            )
        )
    return [choice for choice in plan if choice.name != "train.batch_tokens"] + fitted
