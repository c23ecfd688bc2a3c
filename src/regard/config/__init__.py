"""Settings: frozen dataclasses that are the only home of a default, by section.

The text under a field is its help, in `--help` and in the documentation. `recipe.py` reads TOML into these.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from regard.config.model import DEFAULT_ARCH, ModelSettings, settings_of
from regard.config.sections import (
    ClassifySettings,
    Corpus,
    DataSettings,
    RetrieveSettings,
    SearchSettings,
    TagSettings,
    TokenizerSettings,
    TrainSettings,
)

__all__ = [
    "DEFAULT_ARCH",
    "ClassifySettings",
    "Corpus",
    "DataSettings",
    "ModelSettings",
    "Recipe",
    "RetrieveSettings",
    "SearchSettings",
    "TagSettings",
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
    """How to translate."""
    classify: ClassifySettings = field(default_factory=ClassifySettings)
    """How documents are read and labelled."""
    retrieve: RetrieveSettings = field(default_factory=RetrieveSettings)
    """How questions are answered from a knowledge base."""
    tag: TagSettings = field(default_factory=TagSettings)
    """How words are read and labelled."""
