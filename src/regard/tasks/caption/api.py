"""HTTP API of captions: /v1/caption."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.errors import CorpusError
from regard.tasks.api import FieldError, PictureRequest, SearchOptions

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.caption.captioner import Caption, Captioner


class Request(PictureRequest):
    """Describe one picture or several."""

    language: str = Field("", description="Language of the captions; empty: the first one of the run.")
    nbest: int = Field(1, ge=1, description="Number of captions per picture: the best one and its alternatives.")
    look: bool = Field(
        False,
        description="Add for each word of the caption the attention weights of the patches of the picture (`words`, "
        "`maps`), and the picture as the model reads it (`picture`, a data URL).",
    )
    search: SearchOptions = SearchOptions()


def batch_key(request: Request) -> Hashable:
    return request.language, request.nbest, tuple(sorted(request.search.given().items()))


def facts(run: Run) -> dict[str, Any]:
    """The languages of the run, and how many captions of a picture its search finds."""
    return {"languages": list(run.recipe.task.languages), "nbest": run.recipe.search.beam_size}


def answer(captioner: Captioner, requests: Sequence[Request]) -> list[dict[str, Any]]:
    first = requests[0]
    if first.language and first.language not in captioner.languages:
        known = ", ".join(captioner.languages) or "one without a name"
        raise FieldError("language", f'the model does not write "{first.language}"; it knows {known}')
    pixels = np.stack([_read(captioner, request) for request in requests])
    captions = captioner.caption_pixels(pixels, first.language, first.nbest, **first.search.given())
    return [
        caption.as_dict() | (_look(captioner, request.picture, caption) if request.look else {})
        for request, caption in zip(requests, captions, strict=True)
    ]


def _read(captioner: Captioner, request: Request) -> NDArray[np.uint8]:
    """The picture of a request in the size that the model reads."""
    try:
        return captioner.read([request.picture])[0]
    except CorpusError as error:  # a damaged picture
        raise request.refusal(str(error).removeprefix("picture 1: ")) from None


def _look(captioner: Captioner, picture: bytes, caption: Caption) -> dict[str, Any]:
    from regard.tasks.caption.inspect import look_at, show_picture

    found = look_at(captioner, picture, caption.text, caption.language)
    shown = {name: found[name] for name in ("words", "maps") if name in found}
    return shown | {"picture": show_picture(picture, captioner.recipe.pictures, largest=256)}
