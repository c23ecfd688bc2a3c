"""Settings: frozen dataclasses that are the only home of a default, by section.

The text under a field is its help, in `--help` and in the documentation. `recipe.py` reads TOML into these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from regard.config.model import DEFAULT_ARCH, ModelSettings, settings_of
from regard.config.sections import (
    Corpus,
    DataSettings,
    SearchSettings,
    TokenizerSettings,
    TrainSettings,
)

__all__ = [
    "DEFAULT_ARCH",
    "Corpus",
    "DataSettings",
    "ModelSettings",
    "Recipe",
    "SearchSettings",
    "TokenizerSettings",
    "TrainSettings",
    "settings_of",
]


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run."""

    data: DataSettings = field(default_factory=DataSettings)
    """What to learn from."""
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    """How text becomes tokens."""
    model: ModelSettings = field(default_factory=lambda: settings_of(DEFAULT_ARCH))
    """The architecture and its sizes."""
    train: TrainSettings = field(default_factory=TrainSettings)
    """How to learn."""
    search: SearchSettings = field(default_factory=SearchSettings)
    """How models that write text search for it; other tasks do not use it."""
    task: Any = None
    """Settings of the run's own task, e.g. `TagSettings`; None for a task that has none. In TOML it is [tag]."""
