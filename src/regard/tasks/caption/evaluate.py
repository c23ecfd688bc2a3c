"""Evaluation of a captioner: captions of pictures with references, their scores, and retrieval of the pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import Corpus
from regard.data.pictures import PictureSource, PictureStore
from regard.errors import SettingsError
from regard.tasks.caption.captioner import Caption, Captioner, texts_of
from regard.tasks.caption.data import Captioned, Described, group_captions, read_captions
from regard.tasks.caption.scores import recall, score_captions
from regard.tasks.pictures import Gallery, fit_pictures

Json = dict[str, Any]


def describe(predictor: Captioner, wanted: Sequence[Described], gallery: Gallery, **search: Any) -> list[Caption]:
    """Captions of the pictures in the languages of `wanted`, in order."""
    found: dict[int, Caption] = {}
    for language in dict.fromkeys(one.language for one in wanted):
        places = [place for place, one in enumerate(wanted) if one.language == language]
        pixels = fit_pictures(gallery.pixels(wanted[place].picture for place in places), predictor.recipe.pictures)
        found |= zip(places, predictor.caption_pixels(pixels, language, **search), strict=True)
    return [found[place] for place in range(len(wanted))]


def retrieve(predictor: Captioner, wanted: Sequence[Described], gallery: Gallery) -> dict[str, float]:
    """Recall@1, @5 and @10 of finding the picture of each first reference; the mean over the languages.

    At most `caption.retrieval_pictures` pictures per language take part.
    """
    found: list[dict[str, float]] = []
    for language in dict.fromkeys(one.language for one in wanted):
        some = [one for one in wanted if one.language == language][: predictor.recipe.task.retrieval_pictures]
        pixels = fit_pictures(gallery.pixels(one.picture for one in some), predictor.recipe.pictures)
        scores_NM = predictor.score_pairs(pixels, [one.references[0] for one in some], language)
        found.append(recall(scores_NM, range(len(some))))
    return {name: sum(one[name] for one in found) / len(found) for name in found[0]}


def evaluate(predictor: Captioner, wanted: Sequence[Described], gallery: Gallery) -> tuple[Json, list[Caption]]:
    """All scores of a captioner on pictures with references, and its captions.

    With several languages, the scores of each are under "by_language"; CIDEr-D and recall are the means over them.
    """
    captions = describe(predictor, wanted, gallery)
    languages = list(dict.fromkeys(one.language for one in wanted))
    texts, references = texts_of(captions), [one.references for one in wanted]
    scores = score_captions(texts, references) | retrieve(predictor, wanted, gallery)
    if len(languages) > 1:
        scores["by_language"] = {
            language: score_captions(
                *zip(
                    *(
                        (text, one.references)
                        for text, one in zip(texts, wanted, strict=True)
                        if one.language == language
                    ),
                    strict=True,
                )
            )
            | retrieve(predictor, [one for one in wanted if one.language == language], gallery)
            for language in languages
        }
        scores["cider"] = sum(one["cider"] for one in scores["by_language"].values()) / len(languages)
    pictures = len({one.picture for one in wanted})
    return scores | {"captions": len(wanted), "pictures": pictures}, captions


def read_list(predictor: Captioner, corpus: Corpus, images: str, language: str = "") -> tuple[list[Captioned], Gallery]:
    """Read the captions of a list in the languages that a captioner knows, or only in one, and their pictures."""
    if not images:
        raise SettingsError("name the folder or ZIP file of the pictures (--images DIR|ZIP)")
    wanted = (language,) if language else predictor.languages
    with PictureSource.open(images) as source:
        examples = read_captions(corpus, source, wanted, wanted[0] if len(wanted) == 1 else "")
        names = list(dict.fromkeys(one.picture for one in examples))
        pixels = np.stack([source.read(name, corpus.source, predictor.recipe.pictures) for name in names])
    return examples, Gallery(PictureStore(Path(images), pixels), names)


def evaluate_list(predictor: Captioner, corpus: Corpus, images: str, language: str = "") -> Json:
    """All scores of a captioner on a list of pictures with captions."""
    examples, gallery = read_list(predictor, corpus, images, language)
    return evaluate(predictor, group_captions(examples), gallery)[0]
