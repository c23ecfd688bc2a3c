"""HTTP API of word vectors: /v1/embed returns the neighbours of words, or of sums such as king - man + woman."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from regard.tasks.api import TextRequest

if TYPE_CHECKING:
    from regard.tasks.embed.vectors import WordVectors


class Request(TextRequest):
    """Find the words with the most similar vectors, for each word or sum in `q`."""

    count: int = Field(10, ge=1, le=100, description="Number of neighbours.")
    vector: bool = Field(False, description="Also return the vector of the word, as it was trained; not for sums.")


def answer(vectors: WordVectors, requests: Sequence[Request]) -> list[dict[str, Any]]:
    return [_answer_one(vectors, request, request.texts()[1][0]) for request in requests]


def _answer_one(vectors: WordVectors, request: Request, query: str) -> dict[str, Any]:
    """The neighbours of one query. For an unknown word, the list is empty and `error` says why."""
    from regard.errors import ModelError

    try:
        found: dict[str, Any] = {
            "query": query,
            "neighbours": [one._asdict() for one in vectors.neighbours(query, request.count)],
        }
        return found | ({"vector": vectors.vector(query).tolist()} if request.vector else {})
    except ModelError as error:
        return {"query": query, "neighbours": [], "error": str(error)}
