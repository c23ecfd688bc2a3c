"""The plan: what someone who knows would choose for this much data on this machine, each choice with its reason.

The plan sees only numbers: how many pairs, how long they are, what the machine has. What the user has said is never
changed, and what follows from it follows: another architecture gets the settings that suit it. Naming a Transformer
decides its sizes; norm, positions and dropout stay the plan's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.config import Recurrent, Transformer
from regard.recipe import find_preset
from regard.training.machine import Machine

CHARACTERS_PER_TOKEN = 4.0  # of European languages with a vocabulary of some thousand subwords
LONGEST_SENTENCES = 8  # of the longest kind, that a batch should hold
EPOCHS = 60  # of little data; half as many cost a point of BLEU (docs/log.md)
UPDATES_AT_LEAST = 6000  # however short an epoch is
SHORT_PAYS = 1.5  # times as fast must products in bfloat16 be, since not all of an update is products


@dataclass(frozen=True)
class Choice:
    """One setting, its value, and why."""

    name: str
    value: Any
    reason: str


@dataclass(frozen=True)
class Corpus:
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


def make_plan(corpus: Corpus, machine: Machine, given: Mapping[str, Mapping[str, Any]]) -> list[Choice]:
    """Choose for this corpus on this machine whatever `given`, as tables of settings, leaves open."""
    model, said = given.get("model", {}), given.get("train", {})
    said_arch = model.get("arch")
    arch = said_arch or _choose_arch(corpus, machine)[0]
    preset = find_preset(arch)
    is_transformer = isinstance(preset, Transformer)
    choices = [*_vocabulary(corpus, given.get("tokenizer", {}).get("kind", "bpe"))]
    if not said_arch:
        choices.append(Choice("model.arch", *_choose_arch(corpus, machine)))
    if isinstance(preset, Transformer):
        choices += _transformer(corpus, preset, model)
    elif isinstance(preset, Recurrent) and not {"width", "embedding"} & model.keys():
        choices += _recurrent_size(corpus, preset)
    by_muon = is_transformer and said.get("optimizer") != "adam" and not said.get("shard")  # Muon needs whole matrices
    choices += _learning(corpus, by_muon)
    if is_transformer and model.get("norm", "before") == "before":
        choices.append(
            Choice("train.quiet_start", True, "sub-layers add nothing at first: fewer updates, with norms before them")
        )
    if is_transformer and machine.device == "cpu" and machine.short_gain >= SHORT_PAYS:
        faster = f"matrix products in it are {machine.short_gain:.1f} times as fast here; weights stay in float32"
        choices.append(Choice("train.precision", "bfloat16", faster))
    choices += _batch(corpus, machine)
    batch = said.get("batch_tokens") or next(one.value for one in choices if one.name == "train.batch_tokens")
    epoch = corpus.updates(batch * said.get("accumulate", 1))
    choices += _validation(epoch)
    choices += _ending(corpus, epoch, minutes=said.get("minutes", 0))
    return [choice for choice in choices if not is_said(choice.name, given)]


def table(plan: Sequence[Choice]) -> list[str]:
    """The choices for people, one a line."""
    name = max((len(choice.name) for choice in plan), default=0)
    value = max((len(str(choice.value)) for choice in plan), default=0)
    return [f"  {choice.name:{name}}  {choice.value!s:{value}}  {choice.reason}" for choice in plan]


def merge(plan: list[Choice], given: Mapping[str, Any]) -> dict[str, Any]:
    """The plan below what the user has said: tables for a recipe."""
    merged: dict[str, Any] = {key: dict(table) for key, table in given.items()}
    for choice in plan:
        section, key = choice.name.split(".")
        merged.setdefault(section, {}).setdefault(key, choice.value)
    return merged


def is_said(name: str, given: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the user has set it."""
    section, key = name.split(".")
    return key in given.get(section, {})


def _vocabulary(corpus: Corpus, kind: str) -> Iterator[Choice]:
    pairs = corpus.pairs
    if kind == "word":
        size = 10_000 if pairs < 15_000 else 32_000
        yield Choice("tokenizer.size", size, f"{pairs:,} pairs: rarer words are not seen often enough to be learnt")
        return
    size = 2000 if pairs < 5_000 else 4000 if pairs < 15_000 else 6000 if pairs < 100_000 else 16_000
    size = 32_000 if pairs >= 1_000_000 else size
    yield Choice("tokenizer.size", size, f"{pairs:,} pairs: few enough that each subword is seen often")
    if pairs < 500_000 and kind in ("bpe", "unigram"):
        yield Choice(
            "tokenizer.sampling", 0.1, "words are cut anew each time, until it cools down: little data goes further"
        )


def _choose_arch(corpus: Corpus, machine: Machine) -> tuple[str, str]:
    pairs = corpus.pairs
    if pairs < 100_000:
        arch = "transformer-tiny" if pairs < 15_000 else "transformer-mini"
        return arch, f"{pairs:,} pairs: a larger model would learn them by heart"
    if pairs < 1_000_000 or machine.device == "cpu":
        return "transformer-small", f"{pairs:,} pairs on {machine.device}: small enough to see each pair several times"
    return "transformer-base", f"{pairs:,} pairs: enough for the paper's base model"


def _transformer(corpus: Corpus, preset: Transformer, said: Mapping[str, Any]) -> Iterator[Choice]:
    dropout = 0.3 if corpus.pairs < 100_000 else 0.2 if corpus.pairs < 500_000 else 0.1
    yield Choice("model.dropout", dropout, "the less data, the more dropout")
    if preset.norm != "before":
        yield Choice("model.norm", "before", "learns at once, without a long warm-up")
    if "join" not in said:  # it says how positions join the embeddings, which rotary ones do not
        yield Choice(
            "model.positions", "rotary", "what counts is the distance between words: learnt from fewer sentences"
        )


def _recurrent_size(corpus: Corpus, preset: Recurrent) -> Iterator[Choice]:
    width = 256 if corpus.pairs < 100_000 else 512
    for name in ("width", "embedding"):
        if getattr(preset, name) > width:
            yield Choice(
                f"model.{name}", width, f"{corpus.pairs:,} pairs: read several times rather than learnt by heart"
            )


def _learning(corpus: Corpus, by_muon: bool) -> Iterator[Choice]:
    if by_muon:
        yield Choice("train.optimizer", "muon", "about half the updates that Adam needs")
        yield Choice("train.matrix_rate", 0.02, "of Muon's matrices")
        yield Choice("train.learning_rate", 3e-3, "of embeddings, norms and biases, which stay with Adam")
    else:
        yield Choice("train.learning_rate", 1e-3, "what every architecture bears")
    short = by_muon and corpus.pairs < 100_000
    yield Choice("train.warmup", 30 if short else 100, "a short climb is enough where gradients are clipped")
    yield Choice("train.schedule", "constant", "as long as the end is not near; then the rate falls")
    yield Choice("train.cooldown", 0.3, "the last part, whatever ends it: minutes, updates, or no better validation")
    if corpus.pairs < 500_000:
        yield Choice("train.ease_in", 3000, "dropout and sampling grow: what knows nothing cannot learn by heart")


def _batch(corpus: Corpus, machine: Machine) -> Iterator[Choice]:
    wanted = 2048 if corpus.pairs < 100_000 else 4096 if machine.device == "cpu" else 16_384
    longest = LONGEST_SENTENCES * corpus.long / CHARACTERS_PER_TOKEN
    while wanted < longest:
        wanted *= 2
    reason = "little data: many small updates" if wanted == 2048 else "large enough to keep the machine busy"
    yield Choice("train.batch_tokens", wanted, reason)


def _validation(epoch: int) -> Iterator[Choice]:
    every = min(max(epoch, 100), 2000)
    often = "about once an epoch" if every == epoch else f"an epoch is about {epoch:,} updates"
    yield Choice("train.validate_every", every, often)
    yield Choice("train.state_every", min(every, 500), "so little is lost when it is killed")


def _ending(corpus: Corpus, epoch: int, minutes: float) -> Iterator[Choice]:
    yield Choice("train.patience", 10, "validations without a better score or loss; then it cools down and stops")
    if corpus.pairs < 100_000 and not minutes:
        updates = max(EPOCHS * epoch, UPDATES_AT_LEAST)
        yield Choice("train.max_steps", updates, f"{updates / epoch:.0f} epochs, if nothing ends it before")
