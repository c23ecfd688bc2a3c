"""The runs that a server serves: found by name or languages, each with its queues and its model."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property, partial
from math import prod
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

from regard import tasks
from regard.errors import RegardError, RunError, SettingsError
from regard.languages import language_name, normalize_code
from regard.run import RECIPE, WEIGHTS, Run
from regard.server.batching import Batcher, Closing, ThreadToLoop, retrieve_error
from regard.server.language_detection import LanguageDetector
from regard.server.settings import ServerSettings
from regard.system import usable_cores
from regard.tasks.api import ConversationRequest, InspectRequest, TaskRequest

Json = dict[str, Any]
Log = Callable[[str], None]

MEAN_CHARACTERS = 200
"""The queue has room for this many characters per place, on average."""


def served_tasks() -> dict[str, ModuleType]:
    """The module api.py of every task that has one, by the name of the task."""
    return {name: tasks.part(name, "api") for name in tasks.names() if tasks.has_part(name, "api")}


class Capacity:
    """Threads that all served runs share. They start when they are first needed."""

    def __init__(self, settings: ServerSettings):
        self.settings, self.threads = settings, settings.threads or usable_cores()
        self.parallel = ThreadPoolExecutor(self.threads, thread_name_prefix="decode")
        """For engines that use one core per batch, as CTranslate2 does."""
        # Half of the cores for torch, so that inspections do not slow down translations.
        limit = partial(_limit_torch, max(1, self.threads // 2))
        self.torch = ThreadPoolExecutor(1, thread_name_prefix="torch", initializer=limit)

    def close(self) -> None:
        for pool in (self.parallel, self.torch):
            pool.shutdown(wait=False)


def _limit_torch(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


class ServedRun:
    """A run and its queues: one for each kind of request that the task's api.py offers.

    Only the one torch thread uses its model: disabling heads and recording attention change it for other users. It is
    the `Host` of regard/tasks/api.py.
    """

    def __init__(self, run: Run, name: str, capacity: Capacity, log: Log | None = None):
        self.run, self.name, self.task = run, name, run.recipe.data.task
        self.source, self.target = run.recipe.data.source_language, run.recipe.data.target_language
        apis = served_tasks()
        if self.task not in apis:
            raise RunError(f'{run.folder}: the task "{self.task}" has no HTTP API (api.py), so it cannot be served')
        self.api = apis[self.task]
        self.settings, self.log, self._capacity = capacity.settings, log, capacity
        self.queues: dict[str, Batcher[Any, Any]] = {}
        """By name, as in the metrics."""
        self._open_requests, self._closing, self._idle = 0, False, asyncio.Event()
        self.handler: Any = getattr(self.api, "make_handler", AnswerHandler)(self)
        self.converses, self.inspects = hasattr(self.api, "stream"), hasattr(self.api, "inspect")
        self.translates = hasattr(self.handler, "translate_texts")
        """Whether it translates texts and documents, and is chosen by its languages."""
        if self.converses:
            self.queues["stream"] = Batcher(self._stream, size=1, most_waiting=64, pool=capacity.torch)
        if self.inspects:
            self.queues["inspect"] = Batcher(self._inspect, size=1, most_waiting=32, pool=capacity.torch)
        self.about = describe_run(self)

    @cached_property
    def predictor(self) -> Any:
        from regard.system import keep_memory

        keep_memory()
        return tasks.load(self.run)

    def load(self) -> None:
        self._capacity.torch.submit(lambda: self.predictor).result()

    def add_queue(
        self,
        name: str,
        work: Callable[[list[Any]], list[Any]],
        weigh: Callable[[Any], float],
        *,
        size: int | None = None,
        parallel: bool = False,
    ) -> Batcher[Any, Any]:
        """Accepted requests all fit into the next round of batches: each is started soon."""
        threads, batch, queue = self._capacity.threads, self.settings.batch, self.settings.queue
        self.queues[name] = Batcher(
            work,
            size=size or batch,
            most_waiting=queue,
            most_requests=batch * threads,
            most_weight=MEAN_CHARACTERS * queue,
            weigh=weigh,
            pool=self._capacity.parallel if parallel else self._capacity.torch,
            threads=threads if parallel else 1,
        )
        return self.queues[name]

    @contextmanager
    def open_request(self) -> Iterator[None]:
        if self._closing:
            raise Closing("the server is shutting down")
        self._open_requests += 1
        try:
            yield
        finally:
            self._open_requests -= 1
            if not self._open_requests:
                self._idle.set()

    async def close(self) -> None:
        """Finish the accepted requests and refuse new ones."""
        self._closing = True
        self._idle.clear()
        if self._open_requests:
            await self._idle.wait()
        await asyncio.gather(*(queue.close() for queue in self.queues.values()))

    async def stream(self, request: ConversationRequest, *, deadline: float | None = None) -> AsyncIterator[str]:
        """The reply to a conversation in parts. The model stops when the client leaves."""
        parts: asyncio.Queue[str | None] = asyncio.Queue()
        stopped = Event()
        job = (request, ThreadToLoop(parts).put, stopped)
        work = asyncio.create_task(self.queues["stream"].submit([job], deadline=deadline))
        work.add_done_callback(retrieve_error)
        work.add_done_callback(lambda task: parts.put_nowait(None))
        try:
            while (part := await parts.get()) is not None:
                yield part
            await work
        finally:
            stopped.set()
            work.cancel()

    def _stream(self, jobs: list[tuple[ConversationRequest, Callable[[str], None], Event]]) -> list[None]:
        for request, put, stopped in jobs:
            for part in self.api.stream(self.predictor, request):
                if stopped.is_set():
                    break
                put(part)
        return [None] * len(jobs)

    async def inspect(self, request: InspectRequest, *, deadline: float | None = None) -> Json:
        """The data that `regard inspect` shows, for one text."""
        [found] = await self.queues["inspect"].submit([request], deadline=deadline)
        return found

    def _inspect(self, requests: list[InspectRequest]) -> list[Json]:
        return [self.api.inspect(self.predictor, self.run, request) for request in requests]


class AnswerHandler:
    """Answers requests by the function `answer` of the task's api.py, in one queue."""

    def __init__(self, host: ServedRun):
        self.host, self.api = host, host.api
        host.load()
        size = getattr(host.api, "BATCH_SIZE", None)
        self.queue = host.add_queue(host.task, self._answer, lambda part: sum(map(len, part.texts()[1])), size=size)
        self.full_for = self.queue.full_for

    async def answer(self, request: TaskRequest, *, deadline: float | None = None) -> list[Json]:
        parts = request.split()
        batch_key = getattr(self.api, "batch_key", lambda part: ())
        return await self.queue.submit(parts, key=batch_key(parts[0]) if parts else (), deadline=deadline)

    def _answer(self, requests: list[TaskRequest]) -> list[Json]:
        return self.api.answer(self.host.predictor, requests)


def describe_run(served: ServedRun) -> Json:
    """Facts about a run, for /v1/models: OpenAI's fields, and more."""
    run, card = served.run, served.run.card
    plain_scores = {
        part: {name: value for name, value in scores.items() if isinstance(value, int | float | str)}
        for part, scores in card.get("scores", {}).items()
    }
    return {
        "object": "model",
        "owned_by": "regard",
        "id": served.name,
        "task": served.task,
        "source": served.source,
        "target": served.target,
        "arch": card.get("arch", run.recipe.model.arch),
        "parameters": _count_parameters(run),
        "created": _created(run),
        "scores": plain_scores,
        "facts": served.api.facts(run) if hasattr(served.api, "facts") else {},
    }


def _count_parameters(run: Run) -> int:
    from safetensors import safe_open

    if not (run.folder / WEIGHTS).is_file():  # retrieval by words needs no weights
        return 0
    with safe_open(run.folder / WEIGHTS, framework="numpy") as weights:
        return sum(prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118  not a dict


def _created(run: Run) -> int:
    """When the run was made: from its card, or if that has no valid time, from its files."""
    try:
        return int(datetime.fromisoformat(run.card["created"]).timestamp())
    except (KeyError, TypeError, ValueError, OverflowError):
        return int((run.folder / RECIPE).stat().st_mtime)


# ---------------------------------------------------------------------------------------------------------------------
# All runs


class NotServed(RegardError):  # noqa: N818  an answer, not a fault
    """No served run translates this pair of languages."""


class ServedRuns:
    """All runs that are served, by name."""

    def __init__(self, served: Iterable[ServedRun], capacity: Capacity):
        self.served = {one.name: one for one in served}
        self._capacity = capacity
        self._translators = [one for one in self.served.values() if one.translates]
        self._with_languages = [one for one in self._translators if one.source and one.target]
        samples: dict[str, list[str]] = defaultdict(list)  # held-out sentences of each language
        for one in self._translators:
            pairs = one.run.held_out()
            for code, side in ((one.source, "source"), (one.target, "target")):
                if code:
                    samples[code].extend(getattr(pair, side) for pair in pairs)
        self._detector = LanguageDetector(samples)

    @classmethod
    def open(cls, runs: Sequence[str | Path], settings: ServerSettings, log: Log | None = None) -> ServedRuns:
        """Open run folders. `log` gets a line about each conversion for another engine."""
        opened = [Run.open(folder) for folder in runs]  # wrong names are reported before anything is loaded
        names = unique_names([run.folder for run in opened])
        capacity = Capacity(settings)
        try:
            return cls([ServedRun(run, name, capacity, log) for run, name in zip(opened, names, strict=True)], capacity)
        except BaseException:
            capacity.close()
            raise

    async def close(self) -> None:
        await asyncio.gather(*(one.close() for one in self.served.values()))
        self._capacity.close()

    def batches(self) -> int:
        return sum(queue.counters.batches for one in self.served.values() for queue in one.queues.values())

    def full_for(self) -> float:
        """Seconds until some run has room for another request; 0 if one has. Checked before a body is read."""
        return min((one.handler.full_for() for one in self.served.values()), default=0.0)

    def by_pair(self, source: str, target: str, task: str = "") -> ServedRun:
        """The first run (of a task) that translates this pair; if none matches exactly, "en" also matches "en-US"."""
        for form in (normalize_code, _language):
            for one in self._with_languages:
                if task in ("", one.task) and (form(one.source), form(one.target)) == (form(source), form(target)):
                    return one
        pairs = [f"{entry['code']} to {code}" for entry in self.languages for code in entry["targets"]]
        there = ", ".join(pairs) or f"{', '.join(self.served) or 'nothing'}, by name"
        raise NotServed(f"{source} to {target} is not served; served: {there}")

    @cached_property
    def languages(self) -> list[Json]:
        """Languages, and into which each can be translated: those of sources first, then those of targets only."""
        targets: dict[str, dict[str, None]] = defaultdict(dict)
        for one in self._with_languages:
            targets[one.source][one.target] = None
        for one in self._with_languages:
            targets.setdefault(one.target, {})
        return [{"code": code, "name": language_name(code), "targets": list(found)} for code, found in targets.items()]

    def detect(self, text: str) -> list[Json]:
        """The served languages that a text may be in, the most probable first, with a confidence from 0 to 100."""
        known = {entry["code"] for entry in self.languages}
        found = self._detector.detect(text)
        return [
            {"language": code, "confidence": round(100 * share, 1)} for code, share in found.items() if code in known
        ]

    def same_pair(self) -> list[list[ServedRun]]:
        """Groups of runs that translate the same pair; the first of a group is the one that `by_pair` finds."""
        by_pair: dict[tuple[str, str], list[ServedRun]] = defaultdict(list)
        for one in self._with_languages:
            by_pair[normalize_code(one.source), normalize_code(one.target)].append(one)
        return [runs for runs in by_pair.values() if len(runs) > 1]


def unique_names(folders: Sequence[Path]) -> list[str]:
    """The names of the folders; a repeated name gets a number. The same folder twice is refused."""
    places = [folder.resolve() for folder in folders]
    for place, times in Counter(places).items():
        if times > 1:
            raise SettingsError(f"{place.name}: given {times} times; give it once")
    names: list[str] = []
    for place in places:
        name, number = place.name, 2
        while name in names:
            name, number = f"{place.name}-{number}", number + 1
        names.append(name)
    return names


def _language(code: str) -> str:
    """A code without region and script."""
    return normalize_code(code).partition("-")[0]
