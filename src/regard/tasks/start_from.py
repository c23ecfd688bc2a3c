"""What a new run takes from another run: its tokenizer, or the weights of its encoder.

`tokenizer.copy_from` copies the tokenizer. `train.start_from` starts with the weights of the encoder, e.g. of a masked
language model (Devlin et al. 2019); the tokenizer, and the settings that determine the shape of the encoder, are then
those of that run, and the plan trains fewer steps. The weights have the same names in all networks with an encoder:
they begin with "encoder.".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from regard.config import DataSettings, Recipe, presets, settings_of
from regard.config.recipe import find_task, join_tables
from regard.errors import SettingsError
from regard.models.base import Network
from regard.run import Run
from regard.text.tokenizer import Tokenizer
from regard.training.plan import PlannedSetting

Tables = Mapping[str, Mapping[str, Any]]
ENCODER = ("encoder_layers", "width", "heads", "ffn_width", "norm", "activation", "positional_encoding")
PREFIX = "encoder."
DROPOUT = 0.1
"""Largest dropout that the plan chooses for a trained encoder."""


def with_origin(given: Tables) -> Tables:
    """Add the settings of the runs in `tokenizer.copy_from` and `train.start_from` to the settings `given` by the user.

    A setting that is given and differs from that of the run is an error.
    """
    start, copied = given.get("train", {}).get("start_from", ""), given.get("tokenizer", {}).get("copy_from", "")
    if start and copied:
        raise SettingsError("tokenizer.copy_from: the tokenizer comes from the run in train.start_from; leave it out")
    if not (start or copied):
        return given
    run, name = Run.open(start or copied), "train.start_from" if start else "tokenizer.copy_from"
    settings, tokenizer = run.recipe.tokenizer, run.tokenizers[1]
    found: dict[str, dict[str, Any]] = {"tokenizer": {"vocab_size": tokenizer.size}}
    found["tokenizer"] |= {"kind": settings.kind, "lowercase": settings.lowercase}
    found["tokenizer"]["special_tokens"] = list(settings.special_tokens)
    if find_task(given.get("data", {}).get("task", DataSettings.task)).model_kind == "seq2seq":
        found["tokenizer"]["joint"] = run.tokenizers[0] is tokenizer
    if start:
        found["model"] = _encoder_of(run, given)
    for section, values in found.items():
        for key, value in values.items():
            own = given.get(section, {}).get(key, value)
            if own != value:
                raise SettingsError(f"{section}.{key} = {own}: the run in {name} has {value}; leave the setting out")
    return join_tables(given, found)


def _encoder_of(run: Run, given: Tables) -> dict[str, Any]:
    """The settings of [model] that make an encoder like that of `run`: the architecture and the shape."""
    settings, task = run.recipe.model, find_task(given.get("data", {}).get("task", DataSettings.task))
    if not settings.has_encoder:
        raise SettingsError(
            f"train.start_from: {run.folder} has no encoder to start from (its architecture is {settings.arch}); "
            "give a run of a masked language model"
        )
    fitting = [name for name, preset in presets(task.model_kind).items() if preset.has_encoder]
    arch = given.get("model", {}).get("arch", fitting[0] if fitting else "")
    if not fitting:
        raise SettingsError(
            f'train.start_from: no architecture of data.task = "{task.name}" has an encoder of this kind; leave it out'
        )
    if not settings_of(arch, "model.arch").has_encoder:
        raise SettingsError(
            f'train.start_from: model.arch = "{arch}" has no encoder of this kind; choose from {", ".join(fitting)}'
        )
    return {"arch": arch, **{key: getattr(settings, key) for key in ENCODER}}


def adapt(plan: Sequence[PlannedSetting]) -> list[PlannedSetting]:
    """The plan of a run that starts from another encoder: at most half of the steps, and little dropout.

    The learning rates stay: the layers above the encoder are new, and with lower rates they learn too slowly.
    """
    changes: dict[str, tuple[Callable[[Any], Any], str]] = {
        "train.max_steps": (lambda steps: max(steps // 2, 1), "half of the usual number: the encoder is trained"),
        "model.dropout": (lambda share: min(share, DROPOUT), "as in the training of the encoder"),
    }
    adapted = []
    for choice in plan:
        change, reason = changes.get(choice.name, (lambda value: value, choice.reason))
        adapted.append(PlannedSetting(choice.name, change(choice.value), reason))
    return adapted


def copied_tokenizers(recipe: Recipe) -> tuple[Tokenizer, Tokenizer] | None:
    """The tokenizers of the run that `tokenizer.copy_from` or `train.start_from` names; None if they name no run."""
    name = recipe.tokenizer.copy_from or recipe.train.start_from
    return Run.open(name).tokenizers if name else None


@torch.no_grad()
def start_encoder(network: Network, recipe: Recipe) -> None:
    """Copy the weights of the encoder of the run in `train.start_from` into `network`, by name."""
    run = Run.open(recipe.train.start_from)
    stored = {name: weight for name, weight in run.load_network().named_parameters() if name.startswith(PREFIX)}
    own = {name: weight for name, weight in network.named_parameters() if name.startswith(PREFIX)}
    for name in sorted(stored.keys() ^ own.keys()):
        where = "is missing there" if name in own else "is not in this network"
        raise SettingsError(f"train.start_from: {run.folder} has another encoder: {name} {where}; choose another run")
    for name, weight in own.items():
        if weight.shape != stored[name].shape:
            shapes = f"{tuple(stored[name].shape)}, not {tuple(weight.shape)}"
            raise SettingsError(f"train.start_from: {run.folder} has another encoder: {name} has the shape {shapes}")
        weight.copy_(stored[name])
