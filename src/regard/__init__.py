"""Regard trains, runs and explains attention models that turn one sequence into another."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.errors import RegardError
    from regard.layers.hooks import trace
    from regard.tasks import load
    from regard.tasks.chat.chatbot import Chatbot
    from regard.tasks.classify.classifier import Classifier
    from regard.tasks.retrieve.retriever import Retriever
    from regard.tasks.tag.tagger import Tagger
    from regard.tasks.train import train
    from regard.tasks.translate.translator import Translator


__version__ = "0.1.0"
__all__ = [
    "Chatbot",
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
    "Chatbot": "regard.tasks.chat.chatbot",
    "Classifier": "regard.tasks.classify.classifier",
    "RegardError": "regard.errors",
    "Retriever": "regard.tasks.retrieve.retriever",
    "Tagger": "regard.tasks.tag.tagger",
    "Translator": "regard.tasks.translate.translator",
    "load": "regard.tasks",
    "trace": "regard.layers.hooks",
    "train": "regard.tasks.train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
