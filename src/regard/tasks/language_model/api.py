"""HTTP API of language models: POST /v1/language-model continues beginnings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from regard.tasks.api import MAX_REPLY_TOKENS, SearchOptions, TextRequest

if TYPE_CHECKING:
    from regard.tasks.language_model.generator import TextGenerator

BATCH_SIZE = 1
"""Texts have different lengths and settings: each is written alone."""


class Request(TextRequest):
    """Continue the beginnings in `q`, which may be empty."""

    search: SearchOptions = SearchOptions()
    max_tokens: int | None = Field(None, ge=1, le=MAX_REPLY_TOKENS, description="Length limit of the text, in tokens.")


def answer(generator: TextGenerator, requests: Sequence[Request]) -> list[dict[str, Any]]:
    found = []
    for request in requests:
        search = request.search.given()
        if request.max_tokens:
            search["max_length_extra"] = request.max_tokens
        found += [text.as_dict() for text in generator.write(request.text, **search)]
    return found
