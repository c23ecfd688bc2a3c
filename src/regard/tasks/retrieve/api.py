"""HTTP API of retrieval: /v1/retrieve and /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from regard.tasks.api import ConversationRequest

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.retrieve.retriever import Retriever


class Request(ConversationRequest):
    """A request to answer the last message of a conversation from the knowledge base.

    The fields `search` and `max_tokens` are accepted, but have no effect.
    """


def answer(retriever: Retriever, requests: Sequence[Request]) -> list[dict[str, Any]]:
    replies = [retriever.reply(request.texts()[1]) for request in requests]
    return [reply.as_dict() | {"question": reply.matches[0].question if reply.matches else ""} for reply in replies]


def stream(retriever: Retriever, request: Request) -> Iterator[str]:
    yield retriever.reply(request.texts()[1]).text


def facts(run: Run) -> dict[str, Any]:
    """Return the numbers of questions and answers in the knowledge base of a run, which the server reports."""
    from regard.tasks.retrieve.index import count

    size = count(run)
    return {"questions": size.questions, "answers": size.answers}
