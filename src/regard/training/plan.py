"""What the plans of all tasks share: batches, learning rate, validation, checkpoints, end of training; estimates.

A plan chooses settings from the amount of data and the machine, each with its reason. The choices that depend on the
task are in its folder (`Training.plan`; tasks/translate/plan.py). Settings that the user has given never change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from regard.config import settings_of

if TYPE_CHECKING:
    from regard.training.device import Machine

CHARACTERS_PER_TOKEN = 4.0  # in European languages, with a vocabulary of some thousand subwords
BFLOAT16_PAYS = 1.5  # bfloat16 is used if it makes matrix products at least this many times as fast

SHARE_OF_PEAK = 0.5  # speed of small models as a share of the peak speed of matrix products in float32
SHARE_OF_SHORT_PEAK = 0.35  # the same in bfloat16, in which other operations are not faster
FLOAT = 4  # bytes per number
PROCESS = 400e6  # bytes of Python, torch and the data
COPIES = 5  # tensors per weight: the weight, its gradient, two moments, its average

Tables = Mapping[str, Mapping[str, Any]]
"""Settings by section and name, e.g. {"train": {"batch_tokens": 4096}}."""


@dataclass(frozen=True)
class PlannedSetting:
    """A setting that the plan chose: its full name, e.g. "train.patience", its value, and the reason as text."""

    name: str
    value: Any
    reason: str


def leave_given(choices: Iterable[PlannedSetting], given: Tables) -> list[PlannedSetting]:
    """Remove from `choices` the settings that the user has given and those that the architecture does not have."""
    names = {f"{section}.{key}" for section, table in given.items() for key in table}
    left = [choice for choice in choices if choice.name not in names]
    if arch := given.get("model", {}).get("arch"):
        known = {f"model.{field.name}" for field in fields(settings_of(arch))}
        left = [choice for choice in left if choice.name in known or not choice.name.startswith("model.")]
    return left


def merge(plan: Sequence[PlannedSetting], given: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe as {section: {setting: value}}: the settings that the user has given, and the plan for all others."""
    merged: dict[str, Any] = {key: dict(table) for key, table in given.items()}
    for choice in plan:
        section, key = choice.name.split(".")
        merged.setdefault(section, {}).setdefault(key, choice.value)
    return merged


def table(plan: Sequence[PlannedSetting]) -> list[str]:
    """The plan as lines of text: name, value and reason of each setting."""
    name = max((len(choice.name) for choice in plan), default=0)
    value = max((len(str(choice.value)) for choice in plan), default=0)
    return [f"  {choice.name:{name}}  {choice.value!s:{value}}  {choice.reason}" for choice in plan]


# ---------------------------------------------------------------------------------------------------------------------
# Choices that all tasks share


def choose_learning_rate(
    learning_rate: float, warmup_steps: int, cooldown: float, *, muon: bool = False, muon_rate: float = 0.02
) -> Iterator[PlannedSetting]:
    """Settings of optimizer and learning rate: a short warm-up, a constant rate, and a cooldown at the end.

    `cooldown`: the share of the cooldown in all steps; `muon`: whether Muon trains the matrices, with
    the rate `muon_rate`.
    """
    reason = "a rate at which networks of this kind train stably"
    if muon:
        yield PlannedSetting("train.optimizer", "muon", "needs about half as many steps as Adam")
        yield PlannedSetting("train.muon_learning_rate", muon_rate, "for the matrices that Muon trains")
        reason = "for embeddings, norms and biases, which Adam trains"
    yield PlannedSetting("train.learning_rate", learning_rate, reason)
    yield PlannedSetting("train.warmup_steps", warmup_steps, "a short warm-up is enough because gradients are clipped")
    yield PlannedSetting("train.schedule", "constant", "until the end of training is near; then the cooldown")
    ends = "whatever ends training: minutes, steps, or validations without improvement"
    yield PlannedSetting("train.cooldown", cooldown, f"share of the steps at the end, {ends}")


def choose_length(epoch: int, *, validate_every: int, patience: int, max_steps: int = 0) -> Iterator[PlannedSetting]:
    """Settings that say when to validate, save and stop. `epoch`: number of steps per epoch.

    With `max_steps` 0, `train.max_steps` is not set.
    """
    often = "about once per epoch" if validate_every == epoch else f"one epoch is about {epoch:,} steps"
    yield PlannedSetting("train.validate_every", validate_every, often)
    yield PlannedSetting("train.checkpoint_every", min(validate_every, 500), "few steps are lost if training is killed")
    if max_steps:
        yield PlannedSetting("train.max_steps", max_steps, f"at most {round(max_steps / epoch)} epochs")
    yield PlannedSetting("train.patience", patience, "validations without improvement; then the cooldown, then the end")


def choose_batch(
    given: Tables, wanted: float, *, least: int, examples: int, length: float, unit: str, filled: float = 0.9
) -> tuple[PlannedSetting, int]:
    """Choose `train.batch_tokens`: the value in `given`, else the power of two nearest to `wanted`, at least `least`.

    Return the setting and the number of batches per epoch. `examples`: number of examples; `length`: mean number of
    tokens of an example; `unit`: plural name of the examples; `filled`: share of a batch that is not padding.
    """
    batch = given.get("train", {}).get("batch_tokens") or max(1 << round(math.log2(wanted)), least)  # a power of two
    chosen = PlannedSetting("train.batch_tokens", batch, f"about {max(round(batch / length), 1)} {unit}")
    return chosen, steps_per_epoch(examples * length, batch, filled)


def choose_precision(machine: Machine) -> Iterator[PlannedSetting]:
    """Set `train.precision` to bfloat16 on a CPU if matrix products are then much faster; else yield nothing."""
    if machine.device == "cpu" and machine.bfloat16_speedup >= BFLOAT16_PAYS:
        faster = f"matrix products are {machine.bfloat16_speedup:.1f} times as fast here; weights stay in float32"
        yield PlannedSetting("train.precision", "bfloat16", faster)


def steps_per_epoch(tokens: float, batch_tokens: float, filled: float = 0.9) -> int:
    """Approximate number of steps per epoch of `tokens` tokens; `filled`: share of a batch that is not padding."""
    return max(round(tokens / (filled * batch_tokens)), 1)


@dataclass(frozen=True)
class Estimate:
    """Estimated cost of training: number of parameters, memory, FLOPs and seconds per epoch, number of epochs."""

    parameters: int
    memory: float
    """Upper limit of the memory that training needs, in bytes."""
    epoch_flops: float
    epoch_seconds: float
    epochs: float = 0.0
    """Number of epochs in `train.max_steps`; 0 if it is not known."""

    def describe(self, minutes: float = 0.0) -> str:
        """The estimate as one line of text; `minutes`: the time limit of the training, 0 if there is none."""
        epoch = f"an epoch is {amount(self.epoch_flops)}FLOP, about {duration(self.epoch_seconds)} on this machine"
        line = f"{self.parameters / 1e6:.1f} million parameters, {self.memory / 1e9:.1f} GB of memory; {epoch}"
        if minutes:
            return f"{line}; {minutes:g} minutes are about {60 * minutes / self.epoch_seconds:.1f} epochs"
        epochs = f"{self.epochs:.0f}" if self.epochs >= 10 else f"{self.epochs:.2g}"
        most = f"; all {epochs} epochs about {duration(self.epochs * self.epoch_seconds)}"
        return line + most if self.epochs else line


def amount(value: float) -> str:
    """A number as text, e.g. "1.6 M", "29 T" or "300 "; a unit such as "FLOP" can be appended without a space."""
    for power, letter in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.{0 if value >= 10 ** (power + 1) else 1}f} {letter}"
    return f"{value:.0f} "


def duration(seconds: float) -> str:
    """A number of seconds as text, e.g. 40 s, 3.5 min, 12 min or 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 600:
        return f"{seconds / 60:.1f} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
