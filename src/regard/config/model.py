"""The settings of an architecture: their base class, and how a preset is found by name.

An architecture has one file in `models/`: its settings class, `PRESETS` (name to settings), its network. `registry.py`
maps every preset to that file, so nothing here imports an architecture before it is asked for.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import ClassVar

from regard import registry
from regard.config.ranges import CheckedSettings
from regard.errors import SettingsError, nearest

DEFAULT_ARCH = "transformer-small"
"""The architecture of a recipe that names none."""
ACTIVATIONS_PER_UNIT = 14
"""Numbers that training keeps for the backward pass per layer, token and unit of width, as measured."""


@dataclass(frozen=True)
class ModelSettings(CheckedSettings):
    """What the rest of Regard may know of an architecture."""

    section: ClassVar[str] = "model"
    kind: ClassVar[str] = ""
    """What the network is: "seq2seq", "classifier", "tagger", "text-encoder" or "language-model"."""
    network: ClassVar[str] = ""
    """Name of the network's class. It is in the module of the settings, unless the name has a module in front."""
    about: ClassVar[str] = ""
    """The paper, for `regard info --arch`."""

    arch: str = ""
    """Name of the preset that the settings below start from."""

    @property
    def needs_joint_vocabulary(self) -> bool:
        """Whether source and target must share one vocabulary."""
        return False

    @property
    def attends(self) -> bool:
        """Whether the output can be traced to words of the input by attention."""
        return True

    @property
    def document_window(self) -> int:
        """A classifier reads documents in windows of at most this many tokens; 0: sentence by sentence."""
        return 0

    def paper(self) -> str:
        """The paper of this preset."""
        return self.about

    def kept_per_token(self, length: float) -> float:
        """Numbers kept for the backward pass per token of sequences of `length` tokens; 0: not known."""
        return 0.0


def settings_of(arch: str, where: str = "--arch") -> ModelSettings:
    """The preset of this name."""
    if arch not in registry.ARCHITECTURES:
        guess = nearest(str(arch), registry.ARCHITECTURES) or f"; choose from {', '.join(registry.ARCHITECTURES)}"
        raise SettingsError(f'{where}: there is no architecture "{arch}"{guess}')
    preset: ModelSettings = importlib.import_module(registry.ARCHITECTURES[arch]).PRESETS[arch]
    return preset


def presets(kind: str = "") -> dict[str, ModelSettings]:
    """All presets by name, or those of one kind. Imports their modules, most of which import torch."""
    every = {name: settings_of(name) for name in registry.ARCHITECTURES}
    return {name: preset for name, preset in every.items() if kind in ("", preset.kind)}
