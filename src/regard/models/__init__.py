"""One architecture a file, top to bottom as in its paper; the closed table of them is here."""

from __future__ import annotations

import dataclasses
from typing import Any

from regard import config
from regard.errors import SettingsError
from regard.models.base import ClassifierModel, Network, Seq2Seq, TaggerModel


def build_model(
    settings: config.ModelSettings, source_vocabulary: int, target_vocabulary: int, *, joint: bool
) -> Seq2Seq:
    """A freshly initialised encoder-decoder; `joint` says that both sides share one vocabulary."""
    numbers = _numbers(settings)
    if isinstance(settings, config.TransformerSettings | config.HRANSettings) and settings.tie == "all" and not joint:
        raise SettingsError('model.tie = "all" needs one vocabulary: set tokenizer.joint = true, or model.tie')
    if isinstance(settings, config.TransformerSettings):
        from regard.models.transformer import Transformer

        return Transformer(source_vocabulary, target_vocabulary, **numbers)
    if isinstance(settings, config.RecurrentSettings):
        from regard.models.recurrent import Recurrent

        return Recurrent(source_vocabulary, target_vocabulary, **numbers)
    if isinstance(settings, config.HRANSettings):
        from regard.models.hran import HRAN

        return HRAN(source_vocabulary, target_vocabulary, **numbers)
    tables = {"tag": config.TAGGERS, "retrieve": config.RETRIEVERS, "classify": config.CLASSIFIERS}
    task = next(task for task, table in tables.items() if settings.arch in table)
    raise SettingsError(f'model.arch = "{settings.arch}" writes no text; it is for data.task = "{task}"')


def build_classifier(settings: config.ModelSettings, vocabulary: int, labels: int) -> ClassifierModel:
    """A freshly initialised classifier of documents."""
    numbers = _numbers(settings)
    if isinstance(settings, config.HANSettings):
        from regard.models.han import HAN

        return HAN(vocabulary, labels, **numbers)
    if isinstance(settings, config.TransformerClassifierSettings):
        from regard.models.transformer_classifier import TransformerClassifier

        del numbers["window"]  # how a document is cut is the business of those who hand it in
        return TransformerClassifier(vocabulary, labels, **numbers)
    known = ", ".join(config.CLASSIFIERS)
    raise SettingsError(f'model.arch = "{settings.arch}" does not classify documents; choose from {known}')


def build_tagger(settings: config.ModelSettings, vocabulary: int, labels: int) -> TaggerModel:
    """A freshly initialised tagger of words."""
    if isinstance(settings, config.BiGRUCRFSettings):
        from regard.models.taggers import BiGRUCRF

        return BiGRUCRF(vocabulary, labels, **_numbers(settings))
    if isinstance(settings, config.TransformerCRFSettings):
        from regard.models.taggers import TransformerCRF

        return TransformerCRF(vocabulary, labels, **_numbers(settings))
    raise SettingsError(f'model.arch = "{settings.arch}" tags no words; choose from {", ".join(config.TAGGERS)}')


def build_encoder(settings: config.ModelSettings, vocabulary: int) -> Network:
    """A freshly initialised encoder of questions and answers."""
    if isinstance(settings, config.TextEncoderSettings):
        from regard.models.text_encoder import TextEncoder

        return TextEncoder(vocabulary, **_numbers(settings))
    known = ", ".join(config.RETRIEVERS)
    raise SettingsError(f'model.arch = "{settings.arch}" makes no vectors of texts; choose from {known}')


def _numbers(settings: config.ModelSettings) -> dict[str, Any]:
    """The settings of an architecture as its constructor takes them."""
    return {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings) if field.name != "arch"}
