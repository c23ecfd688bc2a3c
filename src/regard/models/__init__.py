"""Architectures: settings, presets and networks. `registry.ARCHITECTURES` names the file of every preset.

Importing this package does not import torch.
"""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from regard.config import ModelSettings, presets, settings_of
from regard.errors import SettingsError

if TYPE_CHECKING:
    from regard.models.base import Network

__all__ = ["build", "presets", "settings_of", "size_names"]


def build(settings: ModelSettings, **sizes: int) -> Network:
    """Build a network with new weights. `sizes`: keyword arguments that `size_names` lists, e.g. vocabulary=8000."""
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


def _network(settings: ModelSettings) -> Any:
    module, _, name = settings.network.rpartition(".")
    return getattr(importlib.import_module(module or type(settings).__module__), name)
