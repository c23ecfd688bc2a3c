"""One served run: a queue per kind of request, and the model, which only the torch thread touches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from math import prod
from types import ModuleType
from typing import Any, TypeVar

from regard.run import RECIPE, WEIGHTS, Run
from regard.server.batching import Batcher, Capacity, ThreadToLoop
from regard.server.task_apis import api_of
from regard.tasks.api import ConversationRequest, InspectRequest, TaskRequest

Json = dict[str, Any]
Part = TypeVar("Part")

MAX_INSPECTIONS, MAX_STREAMS = 32, 64
"""Inspections and streamed replies that may wait."""
MEAN_CHARACTERS = 200
"""The queue has room for this many characters per place, on average."""


class TorchWorker:
    """A run opened with torch, at its first use.

    Only the one torch thread may use it: disabling heads and recording attention change the model for other users.
    """

    def __init__(self, run: Run, api: ModuleType):
        self.run, self.api = run, api

    @cached_property
    def predictor(self) -> Any:
        """The object that `regard.load` returns."""
        from regard.system import keep_memory
        from regard.tasks import load

        keep_memory()
        return load(self.run)

    def answer(self, requests: list[TaskRequest]) -> list[Json]:
        """Results of requests with the same batch key."""
        results: list[Json] = self.api.answer(self.predictor, requests)
        return results

    def stream(self, jobs: list[StreamJob]) -> list[None]:
        """Pass on the parts of a reply until it ends or the client leaves."""
        for job in jobs:
            for part in self.api.stream(self.predictor, job.request):
                if not job.wanted:
                    break
                job.put(part)
        return [None] * len(jobs)

    def inspect(self, requests: list[InspectRequest]) -> list[Json]:
        """The data of an inspection."""
        return [self.api.inspect(self.predictor, self.run, request) for request in requests]


@dataclass
class StreamJob:
    """A reply to stream. `put` is called in the torch thread with each part."""

    request: ConversationRequest
    put: Callable[[str], object]
    wanted: bool = True
    """False when the client has left."""


class ServedRun:
    """A run and its queues: one for each kind of request that the task's api.py offers."""

    def __init__(self, run: Run, name: str, capacity: Capacity):
        self.run, self.name, self.task = run, name, run.recipe.data.task
        self.source, self.target = run.recipe.data.source_language, run.recipe.data.target_language
        self.api = api_of(self.task)
        self.worker = TorchWorker(run, self.api)
        self.queues: dict[str, Batcher[Any, Any]] = {}
        """By name, as in the metrics."""
        self._open(capacity)
        self._add_queues(capacity)
        self._about = describe_run(self)

    def _open(self, capacity: Capacity) -> None:
        """Load the model now, so that errors are reported at start-up and not to a client."""
        capacity.torch.submit(lambda: self.worker.predictor).result()

    def _add_queues(self, capacity: Capacity) -> None:
        limits = queue_limits(capacity, weigh=weigh_request)
        limits["size"] = getattr(self.api, "BATCH_SIZE", capacity.batch)
        self.queues[self.task] = Batcher(self.worker.answer, **limits, pool=capacity.torch)
        if self.converses:
            self.queues["stream"] = Batcher(self.worker.stream, size=1, most_waiting=MAX_STREAMS, pool=capacity.torch)
        if self.inspects:
            self.queues["inspect"] = Batcher(
                self.worker.inspect, size=1, most_waiting=MAX_INSPECTIONS, pool=capacity.torch
            )

    @property
    def converses(self) -> bool:
        """Whether it replies to conversations."""
        return hasattr(self.api, "stream")

    @property
    def inspects(self) -> bool:
        """Whether it can be inspected."""
        return hasattr(self.api, "inspect")

    def about(self) -> Json:
        """Facts for clients."""
        return dict(self._about)

    def full_for(self) -> float:
        """Seconds until there is room for another request; 0 if there is room now."""
        return self.queues[self.task].full_for()

    async def close(self) -> None:
        """Finish the accepted requests and refuse new ones."""
        await asyncio.gather(*(queue.close() for queue in self.queues.values()))

    async def answer(self, request: TaskRequest, *, deadline: float | None = None) -> list[Json]:
        """One result per text (or conversation) of the request, in order. `deadline` is in seconds."""
        parts = request.split()
        key = self.api.batch_key(parts[0]) if parts else ()
        results: list[Json] = await self.queues[self.task].submit(parts, key=key, deadline=deadline)
        return results

    async def stream(self, request: ConversationRequest, *, deadline: float | None = None) -> AsyncIterator[str]:
        """The reply to a conversation in parts. The model stops when the client leaves."""
        parts: asyncio.Queue[str | None] = asyncio.Queue()
        job = StreamJob(request, ThreadToLoop(parts).put)
        work = asyncio.create_task(self.queues["stream"].submit([job], deadline=deadline))
        try:
            async with aclosing(read_until_done(parts, work)) as found:
                async for part in found:
                    yield part
        finally:
            job.wanted = False

    async def inspect(self, request: InspectRequest, *, deadline: float | None = None) -> Json:
        """The data that `regard inspect` shows, for one text."""
        [found] = await self.queues["inspect"].submit([request], deadline=deadline)
        return dict(found)


def queue_limits(capacity: Capacity, weigh: Callable[[Any], float]) -> dict[str, Any]:
    """Arguments of the queues for many texts.

    Accepted requests all fit into the next round of batches, so each gets its first turn soon.
    """
    return {
        "size": capacity.batch,
        "most_waiting": capacity.queue,
        "most_requests": capacity.batch * capacity.threads,
        "most_weight": MEAN_CHARACTERS * capacity.queue,
        "weigh": weigh,
    }


def weigh_request(request: TaskRequest) -> float:
    """Characters of a request."""
    return sum(map(len, request.texts()[1]))


async def read_until_done(queue: asyncio.Queue[Part | None], work: asyncio.Task[Any]) -> AsyncGenerator[Part, None]:
    """What the work puts into the queue; then its error, if it failed. Closing the generator cancels the work."""

    def finish(task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # retrieved, even if nobody waits for it any more
        queue.put_nowait(None)

    work.add_done_callback(finish)
    try:
        while (part := await queue.get()) is not None:
            yield part
        await work
    finally:
        work.cancel()


def describe_run(served: ServedRun) -> Json:
    """Facts about a run, for /v1/models."""
    run, card = served.run, served.run.card
    facts = getattr(served.api, "facts", None)
    return {
        "id": served.name,
        "task": served.task,
        "source": served.source,
        "target": served.target,
        "arch": card.get("arch", run.recipe.model.arch),
        "parameters": sum(map(prod, _weight_shapes(run))),
        "created": _created(run),
        "scores": _scores(card),
        "facts": facts(run) if facts else {},
    }


def _weight_shapes(run: Run) -> list[Sequence[int]]:
    from safetensors import safe_open

    if not (run.folder / WEIGHTS).is_file():  # retrieval by words needs no weights
        return []
    with safe_open(run.folder / WEIGHTS, framework="numpy") as weights:
        return [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118  not a dict


def _created(run: Run) -> int:
    """When the run was made: from its card, or if that has no valid time, from its files."""
    try:
        return int(datetime.fromisoformat(run.card["created"]).timestamp())
    except (KeyError, TypeError, ValueError, OverflowError):
        return int((run.folder / RECIPE).stat().st_mtime)


def _scores(card: Mapping[str, Any]) -> Json:
    """Scores of the card that are plain values."""
    return {
        part: {name: value for name, value in scores.items() if isinstance(value, int | float | str)}
        for part, scores in card.get("scores", {}).items()
    }
