"""Runs with random weights: enough to see whether another program computes the same."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch

from regard.config import Recipe
from regard.config.recipe import make_recipe
from regard.data.builtin import read_phrases
from regard.run import Run
from regard.text.tokenizer import Tokenizer, train_tokenizer

SMALL = {
    "arch": "transformer-small", "encoder_layers": 2, "decoder_layers": 2, "width": 32, "heads": 4, "ffn_width": 48,
    "dropout": 0.0,
}  # fmt: skip
TOKENS = 420


def sentences(count: int = 12) -> list[str]:
    """Source sentences, of several lengths."""
    return [phrase.source for phrase in read_phrases()[:count]]


@functools.cache
def tokenizer(kind: str, language: str) -> Tokenizer:
    """A small vocabulary; `language` is "both" for a joint one."""
    train = read_phrases()[:200]
    lines = {"source": [phrase.source for phrase in train], "target": [phrase.target for phrase in train]}
    text = lines["source"] + lines["target"] if language == "both" else lines[language]
    settings = make_recipe(
        {"tokenizer": {"kind": kind, "vocab_size": TOKENS if kind in ("bpe", "unigram") else 200}}
    ).tokenizer
    return train_tokenizer(text, settings, seed=1)


def random_recipe(model: dict[str, Any] | None = None, **sections: dict[str, Any]) -> Recipe:
    """A small recipe."""
    return make_recipe({"model": SMALL | (model or {}), **sections})


def random_run(folder: Path, recipe: Recipe, seed: int = 0) -> Run:
    """A run of this recipe that has learnt nothing; all weights, biases and norms included, are random."""
    kind = recipe.tokenizer.kind
    run = Run.create(folder)
    run.write_recipe(recipe)
    sides = ("both", "both") if recipe.tokenizer.joint else ("source", "target")
    source, target = (tokenizer(kind, side) for side in sides)
    run.write_tokenizers(source, target)
    run.write_sizes(source_vocabulary=source.size, target_vocabulary=target.size)
    torch.manual_seed(seed)
    model = run.build_network()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    run.write_weights(dict(model.named_parameters()))
    return run
