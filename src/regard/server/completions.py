"""The route /v1/completions of OpenAI's API: runs of language models continue texts."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from regard.server.bodies import JsonRoute
from regard.server.errors import ApiError, Json
from regard.server.openai import CompletionRequest, Usage, count_tokens, head
from regard.server.service import Service, TheService, key_required
from regard.server.v1 import ERRORS, STREAM, stream_events
from regard.tasks.api import MAX_REPLY_TOKENS, FieldError


class TextCompletionRequest(CompletionRequest):
    """A completion request in OpenAI's format."""

    prompt: str | list[str] = Field("", description="The beginning of a text, or a list of them; empty: a new text.")
    n: int | None = Field(1, ge=1, description="Number of texts per prompt; limited like `nbest`. A stream has one.")
    echo: bool | None = Field(False, description="Whether the texts include their prompts.")
    logprobs: int | None = Field(None, description="Refused.")
    suffix: str | None = Field(None, description="Refused, unless empty.")


class TextChoice(BaseModel):
    """A text and why it ended: stop (it is complete) or length (it reached the maximum length)."""

    index: int
    text: str
    logprobs: None = None
    finish_reason: Literal["stop", "length"] | None


class TextCompletion(BaseModel):
    """The response to a completion request, in OpenAI's format. The chunks of a stream have the same form."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage | None = None


router = APIRouter(prefix="/v1", route_class=JsonRoute, tags=["OpenAI"], responses=ERRORS)


@router.post("/completions", response_model=TextCompletion, responses=STREAM, dependencies=[Depends(key_required)])
async def complete(asked: TextCompletionRequest, request: Request, service: TheService) -> Response:
    """Continue a text by a language model."""
    completion = Completion(asked, service)
    if asked.stream:
        return await stream_events(request.url.path, completion.chunks())
    return Json(await completion.whole())


class Completion:
    """Computes the response to one completion request: `whole` returns it as one object, `chunks` yields its parts."""

    def __init__(self, asked: TextCompletionRequest, service: Service):
        self.asked, self.service = asked, service
        self.served = service.named(asked.model)
        if not self.served.continues:
            task = self.served.task
            raise ApiError(
                400, f"{asked.model} was trained for {task}, not to continue texts; use /v1/{task}", param="model"
            )
        for field, is_asked, why in (
            ("logprobs", asked.logprobs is not None, "not supported here; leave the field out"),
            ("suffix", asked.suffix, "these models write only after the prompt; leave the field out"),
            ("n", asked.stream and (asked.n or 1) > 1, "a stream has one text per prompt; set n to 1"),
        ):
            if is_asked:
                raise FieldError(field, why)
        self.prompts = service.check_texts(asked.prompt, "prompt")
        self.count = service.check_nbest(asked.n or 1, "n")
        if not self.prompts:
            raise FieldError("prompt", "an empty list; send at least one text")
        self.head = head("cmpl", self.served) | {"object": "text_completion"}

    async def whole(self) -> dict[str, Any]:
        request = self.request(self.prompts)
        results = await self.served.handler.answer(request, deadline=self.service.settings.timeout)
        found = [one for result in results for one in (result, *result.get("alternatives", ()))]
        written = [count_tokens(self.served, 0, [one["continuation"]]) for one in found]
        self.service.metrics.count_texts(self.served.name, written)
        choices = [
            {
                "index": index,
                "text": self.prompt_of(index // self.count) + one["continuation"],
                "logprobs": None,
                "finish_reason": "stop" if one["finished"] else "length",
            }
            for index, one in enumerate(found)
        ]
        return self.head | {"choices": choices, "usage": self.usage(sum(written))}

    async def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        written = 0
        for index, prompt in enumerate(self.prompts):
            if beginning := self.prompt_of(index):
                yield self.chunk(index, beginning)
            parts: list[str] = []
            async for part in self.served.stream(self.request(prompt), deadline=self.service.settings.timeout):
                parts.append(part)
                yield self.chunk(index, part)
            written += count_tokens(self.served, 0, ["".join(parts)])
            yield self.chunk(index, "", "stop")
        if self.asked.reports_usage:
            yield self.head | {"choices": [], "usage": self.usage(written)}

    def chunk(self, index: int, text: str, finish: str | None = None) -> dict[str, Any]:
        choice = {"index": index, "text": text, "logprobs": None, "finish_reason": finish}
        return self.head | {"choices": [choice]}

    def prompt_of(self, index: int) -> str:
        """The text before a continuation: the prompt if the request has `echo`, else nothing."""
        return self.prompts[index] if self.asked.echo else ""

    def request(self, prompts: str | list[str]) -> Any:
        """Convert the OpenAI request to a request of the run's task."""
        limit = min(self.asked.max_tokens, MAX_REPLY_TOKENS) if self.asked.max_tokens else None
        search = self.asked.search()
        more = {"nbest": self.count, "max_tokens": limit}
        return self.served.api.Request(model=self.served.name, q=prompts, search=search, **more)

    def usage(self, written: int) -> dict[str, int]:
        return Usage.of(count_tokens(self.served, 0, self.prompts), written)
