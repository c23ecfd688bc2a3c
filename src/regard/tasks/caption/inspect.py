"""The content of `regard inspect` for captions: for each word, where the model looked; other captions of the picture.

`look_at` is also what the report and the HTTP API show. `regard inspect RUN --measure` measures the attention on the
built-in drawings (pointing.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from regard import __version__
from regard.config import PictureSettings
from regard.data.builtin import corpus_of
from regard.data.pictures import read_size, to_data_url
from regard.errors import NoCrossAttentionError, SettingsError
from regard.files import opened
from regard.run import Run
from regard.tasks.caption.captioner import Captioner, Picture, load
from regard.tasks.caption.pointing import Pointing, measure_pointing
from regard.tasks.pictures import read_pictures
from regard.text.words import Word, words

Json = dict[str, Any]
Log = Callable[[str], None]

PAGE, INPUT = "picture", "picture"
OPTIONS = ("target", "language", "measure")
NBEST = 5
"""Largest number of captions on the page."""
LARGEST = 384
"""Largest height or width in pixels of the picture on a page."""


def read(given: str) -> bytes:
    """The content of the picture file to inspect."""
    if not Path(given).is_file():
        raise SettingsError(f"{given}: no such file; give the name of a picture")
    with opened(given, unpacked=False) as file:
        return file.read()


def summary(data: Json) -> str:
    return str(data["title"])


def inspect(
    run: Run,
    picture: bytes,
    captioner: Captioner | None = None,
    *,
    target: str | None = None,
    language: str = "",
    log: Log = lambda doing: None,
) -> Json:
    """Describe a picture and return the data of its page: captions, probabilities of words, attention to the picture.

    `captioner`: the model of `run`, if it is already loaded. `target`: show the attention for this caption, not for
    those of the model. `language`: one of those of the run; empty: the first one. `log` receives progress messages.
    """
    log("loading the model")
    captioner = captioner or load(run)
    language = captioner.language(language)
    log("describing the picture")
    if target:
        [score] = captioner.score(picture, [target], language)
        found = [(target, score)]
    else:
        [best] = captioner.caption([picture], language=language, nbest=min(NBEST, run.recipe.search.beam_size))
        found = [(one.text, one.score) for one in (best, *best.alternatives)]
    looks = [
        look_at(captioner, picture, text, language, with_layers=not place) | {"score": round(score, 4)}
        for place, (text, score) in enumerate(found)
    ]
    return {
        "title": looks[0]["text"],
        "run": run.folder.name,
        "version": __version__,
        "model": {"arch": run.recipe.model.arch},
        "picture": show_picture(picture, captioner.recipe.pictures),
        "looks": looks,
    }


def look_at(captioner: Captioner, picture: Picture, text: str, language: str, *, with_layers: bool = False) -> Json:
    """The words of a caption with their probabilities and, for each word, the attention to the patches of the picture.

    The `maps` are means over all layers and heads; with `with_layers`, those of each head are added. A word of several
    tokens has the mean of their weights, and the probability of the least probable one. Punctuation is left out.
    A model without attention to the picture has no maps.
    """
    try:
        seen = captioner.look(picture, text, language)
    except NoCrossAttentionError:
        return {"text": text, "language": language, "words": [asdict(word) for word in named_words(text)]}
    found = [(word, seen.tokens_in(word.start, word.end)) for word in named_words(seen.text)]
    found = [(word, places) for word, places in found if places]
    shown: Json = {
        "text": seen.text,
        "language": language,
        "words": [
            asdict(word) | {"probability": round(math.exp(min(seen.log_probs[place] for place in places)), 4)}
            for word, places in found
        ],
        "maps": [_rounded(seen.maps[places].mean(0)) for _, places in found],
    }
    if with_layers:
        shown["layers"] = [
            {"name": name, "heads": [[_rounded(head[places].mean(0)) for _, places in found] for head in heads]}
            for name, heads in seen.layers.items()
        ]
    return shown


def named_words(text: str) -> list[Word]:
    """The words of a caption, without punctuation marks."""
    return [word for word in words(text) if any(map(str.isalnum, word.text))]


def _rounded(weights: Tensor) -> list[list[float]]:
    rounded: list[list[float]] = weights.double().round(decimals=4).tolist()
    return rounded


def show_picture(picture: bytes, settings: PictureSettings, largest: int = LARGEST) -> str:
    """A picture as a data URL, fitted as the model reads it, but with more pixels if it has them."""
    inside = max(settings.size)
    finer = max(1, min(largest // inside, -(-max(read_size(picture, "the picture")) // inside)))
    height, width = settings.size
    return to_data_url(read_pictures([picture], replace(settings, size=(height * finer, width * finer)))[0])


def measure(run: Run, pairs: str, sentences: int, log: Log) -> Pointing:
    """How often the largest attention weight of a word is on the thing that it names, in built-in drawings."""
    if pairs:
        raise SettingsError("--pairs: the places of words are only known for the built-in drawings; leave it out")
    if not corpus_of(run.recipe.pictures.images):
        raise SettingsError(
            f"{run.folder}: --measure is for runs that were trained on the built-in drawings (--images shapes)"
        )
    log("measuring")
    return measure_pointing(load(run), sentences)
