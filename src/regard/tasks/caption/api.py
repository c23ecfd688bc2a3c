"""HTTP API of captions: /v1/caption."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from regard.tasks.api import FieldError, PictureRequest, SearchOptions

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.caption.captioner import Captioner

MOST_PIXELS = 16_000_000
"""Largest number of pixels of a picture in a request: decoding needs memory and time in proportion."""


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
    pictures = [_read(request) for request in requests]
    captions = captioner.caption(pictures, language=first.language, nbest=first.nbest, **first.search.given())
    return [
        caption.as_dict() | (_look(captioner, picture, caption.text, caption.language) if request.look else {})
        for request, picture, caption in zip(requests, pictures, captions, strict=True)
    ]


def _read(request: Request) -> bytes:
    """The content of the picture file in a request. Its header is checked, and nothing is decoded yet."""
    from regard.data.pictures import read_size
    from regard.errors import CorpusError

    content = request.picture
    try:
        rows, columns = read_size(content, "")
    except CorpusError as error:
        raise FieldError("pictures", str(error).removeprefix(": ")) from None
    if rows * columns > MOST_PIXELS:
        raise FieldError("pictures", f"at most {MOST_PIXELS:,} pixels, not {columns:,} x {rows:,}; make it smaller")
    return content


def _look(captioner: Captioner, picture: bytes, text: str, language: str) -> dict[str, Any]:
    from regard.tasks.caption.inspect import look_at, show_picture

    found = look_at(captioner, picture, text, language)
    shown = {name: found[name] for name in ("words", "maps") if name in found}
    return shown | {"picture": show_picture(picture, captioner.recipe.pictures, largest=256)}
