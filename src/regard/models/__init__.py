"""One architecture a file, top to bottom as in its paper; the closed table of them is here."""

from __future__ import annotations

import dataclasses

from regard import config
from regard.errors import SettingsError
from regard.models.base import Seq2Seq


def build_model(settings: config.Model, source_vocabulary: int, target_vocabulary: int, *, joint: bool) -> Seq2Seq:
    """A freshly initialised model; `joint` says that both sides share one vocabulary."""
    numbers = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    del numbers["arch"]
    if isinstance(settings, config.Transformer):
        from regard.models.transformer import Transformer

        if settings.tie == "all" and not joint:
            raise SettingsError('model.tie = "all" needs one vocabulary: set tokenizer.joint = true, or model.tie')
        return Transformer(source_vocabulary, target_vocabulary, **numbers)
    from regard.models.rnn import Recurrent

    return Recurrent(source_vocabulary, target_vocabulary, **numbers)
