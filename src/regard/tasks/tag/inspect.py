"""What a tagger did with one sentence: its labels, what made them likely, and attention between words, if any."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard import __version__
from regard.errors import CorpusError
from regard.files import read_lines, split_suffix
from regard.layers.hooks import trace
from regard.run import Run
from regard.tasks.tag.conll import LOOKED_AT, OF_WORDS, looks_like_columns, read_words
from regard.tasks.tag.data import encode_words, make_words
from regard.tasks.tag.spans import mark
from regard.tasks.tag.tagger import LONGEST_EXPLAINED, Sentence, TaggedText, Tagger, load
from regard.terminal import text_or_file

Log = Callable[[str], None]

PAGE = "tags"
OPTIONS: tuple[str, ...] = ()


def read(given: str) -> Sentence:
    """A sentence from the command line: a text, or the first sentence of a file."""
    words: tuple[str, ...] = ()
    if len(given) <= 255 and Path(given).is_file() and is_file_of_words(given):
        words = next(iter(read_words(given)), ())
        if not words:
            raise CorpusError(given, "no word here")
    return words or text_or_file(given)


def is_file_of_words(name: str) -> bool:
    """Whether a file has one word per line."""
    return split_suffix(name)[0] in OF_WORDS or looks_like_columns(list(islice(read_lines(name), LOOKED_AT)))


def summary(data: dict[str, Any]) -> str:
    """The sentence, and below it the sentence with its labels."""
    return f"{data['title']}\n{data['marked']}"


def inspect(
    run: Run, sentence: Sentence, tagger: Tagger | None = None, *, log: Log = lambda doing: None
) -> dict[str, Any]:
    """Label one sentence, given as a text or as its words, and explain the labels. The result is ready for JSON.

    `tagger`: the run's model, if it is loaded already.
    """
    log("loading the model")
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
    """Rounded to what can be seen in a picture."""
    return [[[round(weight, 3) for weight in row] for row in head] for head in weights_HTT.tolist()]
