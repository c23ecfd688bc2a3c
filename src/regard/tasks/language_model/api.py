"""HTTP API of language models: POST /v1/language-model continues given beginnings of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from regard.tasks.api import MAX_REPLY_TOKENS, SearchOptions, TextRequest, generation_settings

if TYPE_CHECKING:
    from regard.tasks.language_model.generator import TextGenerator

BATCH_SIZE = 1
"""Texts are written one by one, because they have different lengths and settings."""


class Request(TextRequest):
    """Continue each text in `q`; for an empty text, write a new one."""

    search: SearchOptions = SearchOptions()
    max_tokens: int | None = Field(None, ge=1, le=MAX_REPLY_TOKENS, description="Length limit of the text, in tokens.")


def answer(generator: TextGenerator, requests: Sequence[Request]) -> list[dict[str, Any]]:
    written = (
        generator.write(request.text, **generation_settings(request.search, request.max_tokens)) for request in requests
    )
    return [text.as_dict() for texts in written for text in texts]
