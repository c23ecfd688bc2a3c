"""The content of `regard inspect` for a tagger: labels of a sentence, their explanation, attention between words."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import torch

from regard import __version__
from regard.errors import CorpusError
from regard.files import read_lines, split_suffix
from regard.layers.hooks import trace
from regard.run import Run
from regard.tasks.dataset import Log
from regard.tasks.tag.conll import LOOKED_AT, OF_WORDS, looks_like_columns, read_words
from regard.tasks.tag.data import encode_words, make_words
from regard.tasks.tag.spans import mark
from regard.tasks.tag.tagger import LONGEST_EXPLAINED, Sentence, TaggedText, Tagger, load
from regard.terminal import text_or_file

PAGE = "tags"
OPTIONS: tuple[str, ...] = ()


def read(given: str) -> Sentence:
    """Return the sentence to inspect: `given` or, if this is the name of a file, the first sentence of the file.

    A sentence from a CoNLL or .jsonl file is a list of words.
    """
    is_file = len(given) <= 255 and Path(given).is_file()
    if is_file and (
        split_suffix(given)[0] in OF_WORDS or looks_like_columns(list(islice(read_lines(given), LOOKED_AT)))
    ):
        if words := next(read_words(given), ()):
            return words
        raise CorpusError(given, "no words found; give a text, or a file with words")
    return text_or_file(given)


def summary(data: dict[str, Any]) -> str:
    return f"{data['title']}\n{data['marked']}"


def inspect(
    run: Run, sentence: Sentence, tagger: Tagger | None = None, *, log: Log = lambda doing: None
) -> dict[str, Any]:
    """Label one sentence and return the data of its page: labels, explanations and attention weights.

    `tagger` is the run's model, if it is already loaded. `log` receives progress messages.
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
    """Return the attention weights between the words of a sentence, for each layer and head.

    None if the model has no attention, or the sentence has no words or more than `LONGEST_EXPLAINED`.
    """
    if not tagged.tokens or len(tagged.tokens) > LONGEST_EXPLAINED:
        return None
    encoded = encode_words([tagged.tokens], tagger.tokenizer, tagger.recipe.task)
    with trace(tagger.model) as tape:
        tagger.model(make_words(encoded, tagger.tokenizer.pad))
    maps = [
        {"name": name, "heads": seen.weights_BHTS[0].double().round(decimals=3).tolist()} for name, seen in tape.items()
    ]
    return {"source": list(tagged.tokens), "target": list(tagged.tokens), "maps": maps} if maps else None
