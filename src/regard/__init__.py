"""Regard trains, runs and explains attention models that turn one sequence into another."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.errors import RegardError
    from regard.layers.taps import trace
    from regard.tasks.chat import Chatter
    from regard.tasks.classify import Classifier
    from regard.tasks.open import load
    from regard.tasks.retrieve import Retriever
    from regard.tasks.tag import Tagger
    from regard.tasks.train import train
    from regard.tasks.translate import Translator

__version__ = "0.1.0"
__all__ = [
    "Chatter",
    "Classifier",
    "RegardError",
    "Retriever",
    "Tagger",
    "Translator",
    "__version__",
    "load",
    "trace",
    "train",
]

# Public names and their homes; each is imported when first used, so that `import regard` does not import torch.
_HOMES = {
    "Chatter": "regard.tasks.chat",
    "Classifier": "regard.tasks.classify",
    "RegardError": "regard.errors",
    "Retriever": "regard.tasks.retrieve",
    "Tagger": "regard.tasks.tag",
    "Translator": "regard.tasks.translate",
    "load": "regard.tasks.open",
    "trace": "regard.layers.taps",
    "train": "regard.tasks.train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
