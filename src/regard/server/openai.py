"""Chat completions as OpenAI's client asks for them.

A run that translates takes part: it translates what was said last. One that answers from a knowledge base says, beside
the answer, which known question it is the answer to.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from regard.errors import TokenizerError
from regard.server.bodies import JsonRoute
from regard.server.errors import ApiError, Json
from regard.server.runs import ServedRun
from regard.server.schemas import ChatCompletion, ChatRequest
from regard.server.service import Service, TheService, admitted
from regard.server.v1 import ERRORS, ONE_BY_ONE, STREAM, stream_events
from regard.tasks.retrieve.retriever import RetrievedReply
from regard.text.words import word_texts

LONGEST_REPLY = 512
"""Tokens, at most, whatever is asked for: clients like to ask for thousands, and a bad model never stops."""

router = APIRouter(prefix="/v1", route_class=JsonRoute, tags=["OpenAI"], responses=ERRORS)


@router.post("/chat/completions", response_model=ChatCompletion, responses=STREAM, dependencies=[Depends(admitted)])
async def complete(asked: ChatRequest, request: Request, service: TheService) -> Response:
    """Say what comes next in a conversation; of a run that translates, the translation of the last message."""
    talk = Conversation(asked, service)
    if asked.stream:
        return await stream_events(request.url.path, talk.chunks())
    return Json(await talk.whole())


def _refuse_unsupported(asked: ChatRequest) -> None:
    """Refuse what would change the shape of the answer; what is only a wish is ignored."""
    for field, is_asked, why in (
        ("n", (asked.n or 1) > 1, "one reply is given to each request"),
        ("tools", bool(asked.tools), "these models call no tools"),
        ("logprobs", bool(asked.logprobs), 'not given here; ask /v1/translate with "scores"'),
    ):
        if is_asked:
            raise ApiError(400, f"{field}: {why}", param=field)


class Conversation:
    """One request for a completion."""

    def __init__(self, asked: ChatRequest, service: Service):
        self.asked, self.service = asked, service
        self.served: ServedRun = service.named(asked.model)
        if self.served.kind in ("classify", "tag"):
            kind = self.served.kind
            raise ApiError(400, f"{asked.model} is made to {kind}; ask /v1/{kind}", param="model")
        _refuse_unsupported(asked)
        # What a system says is meant for models that follow instructions; these answer what people say.
        self.turns = [message.text for message in asked.messages if message.role in ("user", "assistant")]
        service.texts(self.turns, "messages")
        if not self.turns:
            raise ApiError(400, "messages: nobody has said anything yet", param="messages")
        self.head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": self.served.name,
        }

    async def whole(self) -> dict[str, Any]:
        """The reply at once."""
        deadline = self.service.settings.timeout
        if self.served.kind == "chat":
            answer = await self.served.reply(self.turns, deadline=deadline, **self.search())
        else:
            [answer] = await self.served.translate(self.turns[-1:], deadline=deadline)
        self.service.metrics.wrote(self.served.name, [answer])
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": answer.text},
            "finish_reason": "stop" if answer.finished else "length",
        }
        usage = self.usage(len(answer.tokens))
        found = {"found": answer.found} if isinstance(answer, RetrievedReply) else {}
        return self.head | {"object": "chat.completion", "choices": [choice], "usage": usage} | found

    async def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        """The reply as it is made."""
        said: list[str] = []
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                delta = {"content": piece} | ({} if said else {"role": "assistant"})
                said.append(piece)
                yield self.chunk(delta)
        yield self.chunk({} if said else {"role": "assistant", "content": ""}, finish="stop")
        if self.asked.stream_options and self.asked.stream_options.include_usage:
            written = self.count(1, ["".join(said)])
            yield self.head | {"object": "chat.completion.chunk", "choices": [], "usage": self.usage(written)}

    async def pieces(self) -> AsyncGenerator[str, None]:
        """The reply, part by part."""
        deadline = self.service.settings.timeout
        if self.served.kind == "chat":
            async for piece in self.served.stream(self.turns, deadline=deadline, **self.search()):
                yield piece
            return
        for line in self.turns[-1].splitlines(keepends=True):
            space = line[: len(line) - len(line.lstrip())]
            async for answer in self.served.pieces(line, deadline=deadline, **ONE_BY_ONE):
                yield space + answer.text
                space = " "
            if end := line[len(line.rstrip()) :]:
                yield end

    def chunk(self, delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
        """One part in OpenAI's form."""
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return self.head | {"object": "chat.completion.chunk", "choices": [choice]}

    def search(self) -> dict[str, Any]:
        """Settings of the search that the request asks for; what it does not mention is as the run has it."""
        asked = self.asked
        search: dict[str, Any] = {}
        if asked.temperature is not None:
            search |= {"sample": asked.temperature > 0, "temperature": asked.temperature}
        if asked.top_p is not None:
            search["top_p"] = asked.top_p
        if asked.seed is not None:
            search["seed"] = asked.seed
        if most := asked.max_completion_tokens or asked.max_tokens:
            # A number of tokens, however long the source is.
            search |= {"max_length_ratio": 1e-9, "max_length_extra": min(most, LONGEST_REPLY)}
        return search

    def count(self, side: int, texts: Sequence[str]) -> int:
        """Tokens of texts, by the source's or the target's tokenizer. Words, where a knowledge base has none."""
        try:
            tokenizer = self.served.run.tokenizers[side]
        except TokenizerError:
            return sum(len(word_texts(text)) for text in texts)
        return sum(len(ids) for ids in tokenizer.encode_many(list(texts)))

    def usage(self, written: int) -> dict[str, int]:
        """Tokens read and written."""
        turns = self.turns if self.served.kind == "chat" else self.turns[-1:]
        read = self.count(0, turns)
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
