"""HTTP API of conversation: /v1/chat and /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from regard.tasks.api import ConversationRequest, generation_settings

if TYPE_CHECKING:
    from regard.tasks.chat.chatbot import Chatbot

BATCH_SIZE = 1
"""Conversations are answered one by one, so that a seed always gives the same reply."""


class Request(ConversationRequest):
    """Request for the next reply in a conversation, given its `turns` so far, oldest first."""


def answer(chatbot: Chatbot, requests: Sequence[Request]) -> list[dict[str, Any]]:
    return [chatbot.reply(request.texts()[1], **_search(request)).as_dict(scores=False) for request in requests]


def stream(chatbot: Chatbot, request: Request) -> Iterator[str]:
    return chatbot.stream(request.texts()[1], **_search(request))


def _search(request: Request) -> dict[str, Any]:
    return generation_settings(request.search, request.max_tokens)
