"""The route /v1/chat/completions, for programs that are written for OpenAI's API.

It serves runs that reply to conversations (tasks whose api.py has `stream`) and runs that translate, which translate
the last message. If a run answers from a knowledge base, the response also has the stored question that was found.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from regard.errors import TokenizerError
from regard.server.bodies import JsonRoute, RequestBody
from regard.server.errors import ApiError, Json
from regard.server.runs import ServedRun
from regard.server.service import Service, TheService, key_required
from regard.server.v1 import ERRORS, STREAM, stream_events
from regard.tasks.api import MAX_REPLY_TOKENS, ConversationRequest, FieldError, SearchOptions
from regard.text.words import word_texts

# Request and result


class ContentPart(RequestBody):
    """A part of the content of a message, in OpenAI's format; only text is supported."""

    type: Literal["text"]
    text: str


class Message(RequestBody):
    """One message of a conversation, in OpenAI's format."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[ContentPart]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class StreamOptions(RequestBody):
    """Options of a streamed reply: whether the last chunk has the numbers of tokens."""

    include_usage: bool | None = False


class CompletionRequest(RequestBody):
    """The fields that OpenAI's requests for chat completions and for completions have in common."""

    model: str = Field(description="Name of a run.")
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    seed: int | None = Field(None, ge=0, le=2**31 - 1)
    max_tokens: int | None = Field(None, ge=1)

    def search(self) -> SearchOptions:
        return SearchOptions(
            sample=None if self.temperature is None else self.temperature > 0,
            temperature=self.temperature,
            # The task accepts no smaller value; 0.01 already leaves only the most probable token.
            top_p=None if self.top_p is None else max(self.top_p, 0.01),
            seed=self.seed,
        )

    @property
    def reports_usage(self) -> bool:
        """Whether the last chunk of a stream has the numbers of tokens."""
        return bool(self.stream_options and self.stream_options.include_usage)


class ChatRequest(CompletionRequest):
    """A chat completion request in OpenAI's format."""

    messages: list[Message] = Field(min_length=1, max_length=256)
    max_completion_tokens: int | None = Field(None, ge=1)
    n: int | None = Field(1, ge=1, description="More than one is refused.")
    tools: list[Any] | None = Field(None, description="Refused, unless empty.")
    logprobs: bool | None = Field(None, description="Refused, unless false.")


class ChatMessage(BaseModel):
    """The reply of the model, as a message."""

    role: Literal["assistant"]
    content: str


class ChatChoice(BaseModel):
    """A reply and why it ended: stop (it is complete) or length (it reached the maximum length)."""

    index: int
    message: ChatMessage
    finish_reason: Literal["stop", "length"]


class Usage(BaseModel):
    """Numbers of tokens: of the prompt, of the reply, and their sum."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int

    @classmethod
    def of(cls, read: int, written: int) -> dict[str, int]:
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def count_tokens(served: ServedRun, side: int, texts: Sequence[str]) -> int:
    """Number of tokens in `texts`, by the source tokenizer (`side` 0) or target tokenizer (1) of a run, or of words."""
    try:
        tokenizer = served.run.tokenizers[side]
    except TokenizerError:
        return sum(len(word_texts(text)) for text in texts)
    return sum(len(ids) for ids in tokenizer.encode_many(list(texts)))


def head(kind: str, served: ServedRun) -> dict[str, Any]:
    """The first fields of a response: a new id, which begins with `kind`, the time, and the name of the run."""
    return {"id": f"{kind}-{secrets.token_hex(12)}", "created": int(time.time()), "model": served.name}


class ChatSource(BaseModel):
    """The question of the knowledge base that is most similar to the user's question."""

    question: str = Field(description="The stored question that is most similar to the question asked.")
    score: float
    answered: bool = Field(description="Whether it is similar enough; if not, the reply is the fallback text.")


class ChatCompletion(BaseModel):
    """The response to a chat completion request, in OpenAI's format."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    found: ChatSource | None = Field(None, description="Only if the run answers from a knowledge base.")


# Route

router = APIRouter(prefix="/v1", route_class=JsonRoute, tags=["OpenAI"], responses=ERRORS)


@router.post("/chat/completions", response_model=ChatCompletion, responses=STREAM, dependencies=[Depends(key_required)])
async def complete(asked: ChatRequest, request: Request, service: TheService) -> Response:
    """Reply to a conversation. A translation run translates the last message."""
    completion = Completion(asked, service)
    if asked.stream:
        return await stream_events(request.url.path, completion.chunks())
    return Json(await completion.whole())


class Completion:
    """Computes the response to one chat request: `whole` returns it as one object, `chunks` yields it in parts."""

    def __init__(self, asked: ChatRequest, service: Service):
        self.asked, self.service = asked, service
        self.served = service.named(asked.model)
        if not self.served.translates and not self.served.converses:
            task = self.served.task
            raise ApiError(400, f"{asked.model} was trained for {task}, not for chat; use /v1/{task}", param="model")
        # Unsupported fields that would change the format of the response are refused; others are ignored.
        for field, is_asked, why in (
            ("n", (asked.n or 1) > 1, "only one reply per request is supported; set n to 1"),
            ("tools", asked.tools, "these models cannot call tools; leave the field out"),
            ("logprobs", asked.logprobs, 'not supported here; use /v1/translate with "scores"'),
        ):
            if is_asked:
                raise FieldError(field, why)
        # System messages are instructions, which these models do not follow.
        self.turns = [message.text for message in asked.messages if message.role in ("user", "assistant")]
        service.check_texts(self.turns, "messages")
        if not self.turns:
            raise FieldError("messages", 'contains no message with the role "user"; add one')
        self.head = head("chatcmpl", self.served)

    async def whole(self) -> dict[str, Any]:
        handler, deadline = self.served.handler, self.service.settings.timeout
        if self.served.translates:
            [translation] = await handler.translate_texts(self.turns[-1:], deadline=deadline)
            result = translation.as_dict(scores=False)
        else:
            [result] = await handler.answer(self.request(), deadline=deadline)
        written = len(result["tokens"]) if "tokens" in result else count_tokens(self.served, 1, [result["text"]])
        self.service.metrics.count_texts(self.served.name, [written])
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": result["text"]},
            "finish_reason": "stop" if result.get("finished", True) else "length",
        }
        made = self.head | {"object": "chat.completion", "choices": [choice], "usage": self.usage(written)}
        if "answered" in result:  # found in a knowledge base
            made["found"] = {key: result[key] for key in ("question", "score", "answered")}
        return made

    async def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        written: list[str] = []
        async with aclosing(self.parts()) as parts:
            async for part in parts:
                delta = {"content": part} | ({} if written else {"role": "assistant"})
                written.append(part)
                yield self.chunk(delta)
        yield self.chunk({} if written else {"role": "assistant", "content": ""}, finish="stop")
        if self.asked.reports_usage:
            usage = self.usage(count_tokens(self.served, 1, ["".join(written)]))
            yield self.head | {"object": "chat.completion.chunk", "choices": [], "usage": usage}

    async def parts(self) -> AsyncGenerator[str, None]:
        deadline = self.service.settings.timeout
        if not self.served.translates:
            async for part in self.served.stream(self.request(), deadline=deadline):
                yield part
            return
        for line in self.turns[-1].splitlines(keepends=True):
            space = line[: len(line) - len(line.lstrip())]
            async for translation in self.served.handler.translate_sentences(line, deadline=deadline):
                yield space + translation.text
                space = " "
            if end := line[len(line.rstrip()) :]:
                yield end

    def chunk(self, delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return self.head | {"object": "chat.completion.chunk", "choices": [choice]}

    def request(self) -> ConversationRequest:
        """Convert the OpenAI request, with temperature, top_p, seed and max_tokens, to a request of the run's task."""
        most = self.asked.max_completion_tokens or self.asked.max_tokens
        limit = min(most, MAX_REPLY_TOKENS) if most else None
        search = self.asked.search()
        return ConversationRequest(model=self.served.name, turns=self.turns, search=search, max_tokens=limit)

    def usage(self, written: int) -> dict[str, int]:
        turns = self.turns[-1:] if self.served.translates else self.turns
        return Usage.of(count_tokens(self.served, 0, turns), written)
