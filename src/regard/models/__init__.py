"""Architectures, one per file, each written top to bottom as in its paper: settings, presets, network.

`registry.ARCHITECTURES` names the file of every preset. Importing this package does not import torch.
"""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from regard.config import ModelSettings, presets, settings_of

if TYPE_CHECKING:
    from regard.models.base import Network

__all__ = ["build", "presets", "settings_of", "size_names"]


def build(settings: ModelSettings, **sizes: int) -> Network:
    """A newly initialised network with these settings. `sizes`: the sizes of vocabularies and labels (`size_names`)."""
    built: Network = _network(settings)(settings, **sizes)
    return built


def size_names(settings: ModelSettings) -> list[str]:
    """Names of the sizes that a network's constructor needs in addition to settings, e.g. `source_vocabulary`."""
    return list(inspect.signature(_network(settings)).parameters)[1:]


def _network(settings: ModelSettings) -> Any:
    module, _, name = settings.network.rpartition(".")
    return getattr(importlib.import_module(module or type(settings).__module__), name)
