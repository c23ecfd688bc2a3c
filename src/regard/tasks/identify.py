"""Token identifiability of a trained model over text: which lines the maps learn from, and which they are tried on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import torch

from regard.analysis.identifiability import Identifiability, encoder_states, identifiability
from regard.analysis.positions import embedding_table
from regard.data.batch import Source, make_sources
from regard.errors import SettingsError
from regard.tasks.translate import Translator

TRAIN_SHARE = 0.7
"""Of the lines, for the maps to learn from (as in Brunner et al. 2020); the rest is for trying them."""
FEWEST, MOST = 20, 1000
"""Lines needed, and lines used."""
ROWS = 64
"""Sentences read at once."""


def identify(
    translator: Translator, lines: Sequence[str], *, whole_vocabulary: bool = False, seed: int = 1
) -> Identifiability:
    """Trace the encoder's states back to the tokens of these lines, which the model should not have been trained on.

    Equal lines count once, so that no sentence is both learnt from and tried. At most a thousand are drawn.
    """
    encoded = sorted({tuple(ids) for ids in translator.source.encode_many(list(lines)) if ids})
    if len(encoded) < FEWEST:
        raise SettingsError(f"token identifiability needs {FEWEST} different held-out lines, not {len(encoded)}")
    Random(seed).shuffle(encoded)
    encoded = encoded[:MOST]
    cut = round(TRAIN_SHARE * len(encoded))
    train, test = (encoder_states(translator.model, _read(translator, part)) for part in (encoded[:cut], encoded[cut:]))
    table_VD = embedding_table(translator.model).cpu().float() if whole_vocabulary else None
    return identifiability(train, test, vocabulary_VD=table_VD, seed=seed)


def _read(translator: Translator, sentences: Sequence[tuple[int, ...]]) -> Iterator[Source]:
    """Batches of sentences of similar lengths."""
    device: torch.device = translator.model.output.weight.device
    ordered = [list(ids) for ids in sorted(sentences, key=len)]
    for start in range(0, len(ordered), ROWS):
        yield make_sources(ordered[start : start + ROWS], translator.source.pad).to(device)
