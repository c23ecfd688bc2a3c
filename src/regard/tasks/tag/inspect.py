"""What a tagger did with one sentence: its labels, what made them likely, and attention between words, if any."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard import __version__
from regard.layers.hooks import trace
from regard.run import Run
from regard.tasks.tag.data import encode_words, make_words
from regard.tasks.tag.spans import mark
from regard.tasks.tag.tagger import LONGEST_EXPLAINED, Sentence, TaggedText, Tagger, load


def inspect(run: Run, sentence: Sentence, tagger: Tagger | None = None) -> dict[str, Any]:
    """Label one sentence, given as a text or as its words, and explain the labels. The result is ready for JSON.

    `tagger`: the run's model, if it is loaded already.
    """
    tagger = tagger or load(run.folder)
    [tagged] = tagger.tag([sentence], explain=True)
    return {
        "title": tagged.text,
        "marked": mark(tagged.tokens, tagged.tags, tagger.scheme),
        "run": run.folder.name,
        "version": __version__,
        "model": {"arch": run.recipe.model.arch},
        "tagged": tagged.as_dict(),
        "attention": attention_between(tagger, tagged),
    }


@torch.no_grad()
def attention_between(tagger: Tagger, tagged: TaggedText) -> dict[str, Any] | None:
    """Attention weights between words by layer and head; None if the model has no attention or the text is long."""
    if not tagged.tokens or len(tagged.tokens) > LONGEST_EXPLAINED:
        return None
    encoded = encode_words([tagged.tokens], tagger.tokenizer, tagger.recipe.task)
    with trace(tagger.model) as tape:
        tagger.model(make_words(encoded, tagger.tokenizer.pad))
    maps = [{"name": name, "heads": _rounded(seen.weights_BHTS[0])} for name, seen in tape.items()]
    return {"source": list(tagged.tokens), "target": list(tagged.tokens), "maps": maps} if maps else None


def _rounded(weights_HTT: Tensor) -> list[list[list[float]]]:
    """To what an eye can see."""
    return [[[round(weight, 3) for weight in row] for row in head] for head in weights_HTT.tolist()]
