"""Architectures: settings, presets and networks. `registry.ARCHITECTURES` names the file of every preset.

Importing this package does not import torch.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from regard.config import ModelSettings, presets, settings_of
from regard.errors import SettingsError

if TYPE_CHECKING:
    from regard.models.base import Network

__all__ = ["build", "presets", "settings_of", "size_names"]


def build(settings: ModelSettings, **sizes: int) -> Network:
    """Build a network with new weights. `sizes`: keyword arguments that `size_names` lists, e.g. vocabulary=8000.

    A network that reads frames or pictures has their sizes in place of the first vocabulary: frame_width=6, or
    picture_channels=3, picture_height=72, picture_width=72 and patch_size=8 (layers/inputs.py).
    """
    if size_names(settings)[0] not in sizes:
        return _build_for_vectors(settings, sizes)
    if settings.needs_joint_vocabulary and sizes["source_vocabulary"] != sizes["target_vocabulary"]:
        raise SettingsError(
            'model.tie_embeddings = "all" needs one vocabulary for source and target: set tokenizer.joint = true,'
            ' or set model.tie_embeddings to "target" or "none"'
        )
    built: Network = _network(settings)(settings, **sizes)
    return built


def size_names(settings: ModelSettings) -> list[str]:
    """Names of the keyword arguments that `build` needs in addition to the settings, e.g. "vocabulary" and "labels"."""
    return list(inspect.signature(_network(settings)).parameters)[1:]


def _build_for_vectors(settings: ModelSettings, sizes: Mapping[str, int]) -> Network:
    """Build a network that reads frames or pictures, whose description replaces its first argument."""
    from regard.layers.inputs import take_input

    source, others = take_input(sizes)
    first, network = size_names(settings)[0], _network(settings)
    if source is None:
        raise SettingsError(f"the size {first} is missing; take recipe.toml from a copy of the run")
    if not network.reads_vectors:
        raise SettingsError(f'model.arch = "{settings.arch}" reads only tokens, not frames or pictures; choose another')
    built: Network = network(settings, **{first: source}, **others)
    return built


def _network(settings: ModelSettings) -> Any:
    module, _, name = settings.network.rpartition(".")
    return getattr(importlib.import_module(module or type(settings).__module__), name)
