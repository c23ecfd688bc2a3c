"""Server-sent events: `data:` lines of JSON, and `data: [DONE]` at the end, as OpenAI's clients read them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from pydantic_core import to_json
from starlette.responses import StreamingResponse

from regard.server.problems import as_problem, problem_body

DONE = b"data: [DONE]\n\n"
MEDIA_TYPE = "text/event-stream"
UNBUFFERED = {"X-Accel-Buffering": "no"}
"""Asks nginx to pass each event on at once."""


async def stream_events(path: str, events: AsyncGenerator[Any, None]) -> StreamingResponse:
    """An answer of these events.

    The first one is waited for, so that what is wrong from the start is told by a status; what goes wrong later becomes
    an event, because the status is gone by then.
    """
    first = await anext(events, None)

    async def lines() -> AsyncIterator[bytes]:
        try:
            async with aclosing(events):
                if first is not None:
                    yield _line(first)
                async for event in events:
                    yield _line(event)
        except Exception as error:
            problem = as_problem(error)
            if problem.status_code == 500:
                raise
            yield _line(problem_body(path, problem))
        yield DONE

    return StreamingResponse(lines(), media_type=MEDIA_TYPE, headers=UNBUFFERED)


def _line(event: Any) -> bytes:
    return b"data: " + to_json(event, inf_nan_mode="null") + b"\n\n"
