"""Tagged sentences for tests: taggers at toy size, random words to feed them, and a small language to learn."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard import models
from regard.config import ModelSettings
from regard.models import presets
from regard.models.base import TaggerModel
from regard.models.taggers import TransformerCRFSettings

VOCABULARY, LABELS = 19, 4


def toy_tagger(arch: str, **changes: Any) -> ModelSettings:
    """A preset in small."""
    small = {"char_embedding": 6, "char_cnn_width": 10, "word_hash_rows": 64, "embedding_width": 7, "width": 16}
    more = {"ffn_width": 24, "encoder_layers": 2} if isinstance(presets("tagger")[arch], TransformerCRFSettings) else {}
    return dataclasses.replace(presets("tagger")[arch], **(small | more | changes))


CASES = {arch: toy_tagger(arch) for arch in presets("tagger")} | {
    "two layers of GRUs": toy_tagger("bigru-crf", layers=2),
    "encoder, rotary, swiglu": toy_tagger("transformer-crf", positional_encoding="rotary", activation="swiglu"),
}


def build(settings: ModelSettings, seed: int = 0) -> TaggerModel:
    """A tagger in evaluation mode; noise on all weights, so that no bias is zero and no norm an identity."""
    torch.default_generator.manual_seed(seed)
    model = models.build(settings, vocabulary=VOCABULARY, labels=LABELS).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


class Words(NamedTuple):
    """A batch of sentences."""

    ids_BTS: Tensor
    mask_BTS: Tensor


def sentences(lengths: Sequence[Sequence[int]]) -> Words:
    """Random sentences with words of these numbers of pieces. The padding holds random pieces: nobody may read it."""
    words, pieces = max(map(len, lengths)), max(map(max, lengths))
    mask = torch.zeros(len(lengths), words, pieces, dtype=torch.bool)
    for row, sentence in enumerate(lengths):
        for place, length in enumerate(sentence):
            mask[row, place, :length] = True
    return Words(torch.randint(VOCABULARY, mask.shape), mask)


# ---------------------------------------------------------------------------------------------------------------------
# A language whose spans a few words and their endings decide

ARTICLES, NOUNS = ["the", "a", "every"], ["cat", "dog", "house", "tree", "bird", "river"]
ADJECTIVES, VERBS, ADVERBS = ["small", "old", "green"], ["sees", "likes", "finds"], ["slowly", "gladly", "rarely"]

SMALL = [
    "model.char_embedding=8",
    "model.char_cnn_width=16",
    "model.embedding_width=8",
    "model.word_hash_rows=256",
    "model.width=16",
    "model.dropout=0.1",
    "train.batch_tokens=256",
    "train.learning_rate=0.02",
    "train.warmup_steps=5",
    "train.ema_decay=0.9",
    "train.log_every=2",
    "train.validate_every=20",
    "train.checkpoint_every=5",
]
"""Settings of a run that learns it in seconds."""


def chunks(chance: random.Random) -> list[tuple[str, str]]:
    """A sentence in words and chunks: the old dog / sees / a bird / slowly."""

    def noun_phrase() -> list[tuple[str, str]]:
        words = [chance.choice(ARTICLES), *chance.sample(ADJECTIVES, chance.randint(0, 2)), chance.choice(NOUNS)]
        return [(word, "I-NP" if place else "B-NP") for place, word in enumerate(words)]

    adverb = [(chance.choice(ADVERBS), "B-ADVP")] if chance.random() < 0.5 else []
    return [*noun_phrase(), (chance.choice(VERBS), "B-VP"), *noun_phrase(), *adverb, (".", "O")]


def write_chunks(path: Path, count: int = 300, seed: int = 1, *, column: bool = False) -> Path:
    """Sentences in a CoNLL file; with a `column` of something else before the label."""
    chance = random.Random(seed)
    between = " x" if column else ""
    blocks = ["".join(f"{word}{between} {tag}\n" for word, tag in chunks(chance)) for _ in range(count)]
    path.write_text("\n".join(blocks), encoding="utf-8")
    return path


def train_arguments(data: Path, out: Path, *settings: str) -> list[str]:
    """Arguments of `regard train` for such a run."""
    arguments = ["train", "--task", "tag", str(data), "--out", str(out)]
    for setting in (*SMALL, *settings):
        arguments += ["--set", setting]
    return arguments
