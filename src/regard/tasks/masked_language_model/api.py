"""HTTP API of masked language models: /v1/masked-language-model fills the blanks of texts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from regard.tasks.api import TextRequest

if TYPE_CHECKING:
    from regard.tasks.masked_language_model.filler import BlankFiller


class Request(TextRequest):
    """Fill each [MASK] in one or several texts."""

    best: int = Field(5, ge=1, le=100, description="Number of candidates per blank.")


def batch_key(request: Request) -> Hashable:
    return request.best


def answer(filler: BlankFiller, requests: Sequence[Request]) -> list[dict[str, Any]]:
    return [one.as_dict() for one in filler.fill([request.text for request in requests], best=requests[0].best)]
