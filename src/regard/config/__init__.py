"""Settings: frozen dataclasses that are the only home of a default, by section.

The text under a field is its help, in `--help` and in the documentation. `recipe.py` reads TOML into these.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from regard.config.answering import Classify, Retrieve, Search, Tag
from regard.config.architectures import (
    ARCHITECTURES,
    CLASSIFIERS,
    HRAN,
    PRESETS,
    RETRIEVERS,
    TAGGERS,
    Dense,
    Encoder,
    EncoderTagger,
    Hierarchical,
    Model,
    Recurrent,
    RecurrentTagger,
    Transformer,
)
from regard.config.data import Corpus, Data, Tokenizer
from regard.config.training import Train

__all__ = [
    "ARCHITECTURES",
    "CLASSIFIERS",
    "HRAN",
    "PRESETS",
    "RETRIEVERS",
    "TAGGERS",
    "Classify",
    "Corpus",
    "Data",
    "Dense",
    "Encoder",
    "EncoderTagger",
    "Hierarchical",
    "Model",
    "Recipe",
    "Recurrent",
    "RecurrentTagger",
    "Retrieve",
    "Search",
    "Tag",
    "Tokenizer",
    "Train",
    "Transformer",
]


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run."""

    data: Data = field(default_factory=Data)
    """What to learn from."""
    tokenizer: Tokenizer = field(default_factory=Tokenizer)
    """How text becomes tokens."""
    model: Model = PRESETS["transformer-small"]
    """The architecture and its sizes."""
    train: Train = field(default_factory=Train)
    """How to learn."""
    search: Search = field(default_factory=Search)
    """How to translate."""
    classify: Classify = field(default_factory=Classify)
    """How documents are read and labelled."""
    retrieve: Retrieve = field(default_factory=Retrieve)
    """How questions are answered from a knowledge base."""
    tag: Tag = field(default_factory=Tag)
    """How words are read and labelled."""
