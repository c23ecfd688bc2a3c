"""HTTP API of language models: /v1/language-model and /v1/completions continue given beginnings of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from regard.tasks.api import ContinuationRequest, generation_settings

if TYPE_CHECKING:
    from regard.tasks.language_model.generator import TextGenerator

BATCH_SIZE = 1
"""Texts are written one by one, because they have different lengths and settings."""


class Request(ContinuationRequest):
    """Continue each text in `q`; for an empty text, write a new one."""


def answer(generator: TextGenerator, requests: Sequence[Request]) -> list[dict[str, Any]]:
    written = (generator.write(request.text, nbest=request.nbest, **_search(request)) for request in requests)
    return [text.as_dict() for texts in written for text in texts]


def stream(generator: TextGenerator, request: Request) -> Iterator[str]:
    """Yield the parts of the continuation of `request.text`, without this beginning."""
    return generator.stream(request.text, with_beginning=False, **_search(request))


def _search(request: Request) -> dict[str, Any]:
    return generation_settings(request.search, request.max_tokens)
