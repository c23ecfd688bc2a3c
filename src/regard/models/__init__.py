"""Architectures, one per file, each written top to bottom as in its paper: settings, presets, network.

`registry.ARCHITECTURES` names the file of every preset. Importing this package does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from regard.config import ModelSettings, presets, settings_of

if TYPE_CHECKING:
    from regard.models.base import Network

__all__ = ["build", "presets", "settings_of"]


def build(settings: ModelSettings, **sizes: int) -> Network:
    """The network of these settings, freshly initialised.

    `sizes` are what the data decides: `source_vocabulary` and `target_vocabulary` of an encoder-decoder, `vocabulary`
    and `labels` of a classifier or a tagger, `vocabulary` of a text encoder.
    """
    module, _, name = settings.network.rpartition(".")
    network = getattr(importlib.import_module(module or type(settings).__module__), name)
    built: Network = network(settings, **sizes)
    return built
