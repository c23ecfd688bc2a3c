"""The served runs, each with its model and its queues. A run is found by its name or by its languages."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property
from importlib import import_module
from math import prod
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

from regard import tasks
from regard.errors import RegardError, RunError, SettingsError
from regard.languages import language_name, normalize_code
from regard.registry import TASKS
from regard.run import METRICS, RECIPE, REPORT, WEIGHTS, Run, stored_shapes
from regard.server.batching import Batcher, Closing, ThreadToLoop, retrieve_error
from regard.server.inspections import MOST_WAITING, Inspector
from regard.server.language_detection import LanguageDetector
from regard.server.settings import ServerSettings
from regard.system import usable_cores
from regard.tasks.api import ContinuationRequest, ConversationRequest, InspectRequest, TaskRequest

Json = dict[str, Any]
Log = Callable[[str], None]

logger = logging.getLogger("regard.server")

FOLLOW_SECONDS = 5.0
"""Seconds between two looks for changed run folders."""
MEAN_CHARACTERS = 200
"""A queue for n sentences has room for n * MEAN_CHARACTERS characters."""


def served_tasks() -> dict[str, ModuleType]:
    """The tasks that can be served: the module api.py of each task that has one, by the name of the task."""
    return {name: tasks.part(name, "api") for name in TASKS if tasks.has_part(name, "api")}


def converses(api: ModuleType) -> bool:
    """Whether the runs of the task with this api.py reply to conversations, at /v1/chat/completions."""
    return hasattr(api, "stream") and issubclass(api.Request, ConversationRequest)


def continues(api: ModuleType) -> bool:
    """Whether the runs of the task with this api.py continue texts, at /v1/completions."""
    return hasattr(api, "stream") and issubclass(api.Request, ContinuationRequest)


def takes_pictures(api: ModuleType) -> bool:
    """Whether requests to the task with this api.py have pictures."""
    return "pictures" in api.Request.model_fields


class Capacity:
    """The thread pools that all served runs share: for torch, for inspections, and for other engines."""

    def __init__(self, settings: ServerSettings):
        self.settings, self.threads = settings, settings.threads or usable_cores()
        self.parallel = ThreadPoolExecutor(self.threads, thread_name_prefix="decode")
        """Threads for engines that use one core per batch, e.g. CTranslate2."""
        cores = max(1, self.threads // 2)  # half of them, so that inspections do not slow down translations

        def limit() -> None:
            import_module("torch").set_num_threads(cores)

        self.torch = ThreadPoolExecutor(1, thread_name_prefix="torch", initializer=limit)
        self.inspections = ThreadPoolExecutor(1, thread_name_prefix="inspect", initializer=limit)
        """A thread of their own, because one inspection can take as long as thousands of other requests."""

    def close(self) -> None:
        for pool in (self.parallel, self.torch, self.inspections):
            pool.shutdown(wait=False)


class ServedRun:
    """A trained run and its queues, one for each kind of request that the api.py of its task supports.

    Only one thread, the torch thread, uses the model, because recording attention changes the model while it is active.
    Inspections have their own thread and copy of the model. This class implements the protocol `Host` of
    regard/tasks/api.py.
    """

    def __init__(self, run: Run, name: str, capacity: Capacity, log: Log | None = None):
        self.files = file_states(run)
        self.run, self.name, self.task = run, name, run.recipe.data.task
        self.source, self.target = run.recipe.data.source_language, run.recipe.data.target_language
        apis = served_tasks()
        if self.task not in apis:
            raise RunError(f'{run.folder}: the task "{self.task}" has no HTTP API (api.py), so it cannot be served')
        self.api = apis[self.task]
        self.settings, self.log, self._capacity = capacity.settings, log, capacity
        self.queues: dict[str, Batcher[Any, Any]] = {}
        """The queues by name; the metrics have the same names."""
        self._open_requests, self._closing, self._idle = 0, False, asyncio.Event()
        self.handler: Any = getattr(self.api, "make_handler", AnswerHandler)(self)
        self.converses, self.continues = converses(self.api), continues(self.api)
        self.inspects = hasattr(self.api, "inspect")
        self.translates = hasattr(self.handler, "translate_texts")
        """Whether the run translates texts and documents, and can be chosen by its languages."""
        if self.converses or self.continues:
            self.queues["stream"] = Batcher(self._stream, size=1, most_waiting=64, pool=capacity.torch)
        if self.inspects:
            queue: Batcher[Any, Json] = Batcher(
                lambda jobs: self._inspector.work(jobs), size=1, most_waiting=MOST_WAITING, pool=capacity.inspections
            )
            self.queues["inspect"] = queue
            self._inspector = Inspector(self, queue)
        if run.has_tokenizers:  # retrieval by words has none
            self.tokenizers = run.tokenizers  # read now: everything must be of the same generation
        self.about = describe_run(self)
        self.require_unchanged()

    @cached_property
    def predictor(self) -> Any:
        from regard.system import keep_memory

        keep_memory()
        loaded = tasks.load(self.run)
        self.require_unchanged()
        return loaded

    def require_unchanged(self) -> None:
        """Raise an error if a file of the run has changed since it was opened: weights and engine would not match."""
        if file_states(self.run) != self.files:
            raise RunError(f"{self.run.folder}: has changed since it was opened; its new files are opened soon")

    def load(self) -> Any:
        """Open the predictor in the torch thread, and return it. Not to be called in that thread."""
        return self._capacity.torch.submit(lambda: self.predictor).result()

    def add_queue(
        self,
        name: str,
        work: Callable[[list[Any]], list[Any]],
        weigh: Callable[[Any], float],
        *,
        size: int | None = None,
        parallel: bool = False,
    ) -> Batcher[Any, Any]:
        """Add a queue called `name`: `work` computes a batch of items, `weigh` returns the characters of an item.

        `size` is the maximum size of a batch (default: the setting `batch`). If `parallel`, `work` runs in several
        threads at the same time, otherwise only in the torch thread. At most `batch` requests per thread wait in the
        queue, so that no request waits long.
        """
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
            raise Closing("the server is shutting down; send the request again later")
        self._open_requests += 1
        try:
            yield
        finally:
            self._open_requests -= 1
            if not self._open_requests:
                self._idle.set()

    async def close(self) -> None:
        """Refuse new requests, and wait until the accepted requests are done."""
        self._closing = True
        self._idle.clear()
        if self._open_requests:
            await self._idle.wait()
        await asyncio.gather(*(queue.close() for queue in self.queues.values()))

    async def stream(self, request: TaskRequest, *, deadline: float | None = None) -> AsyncIterator[str]:
        """Yield the parts of the text that the model writes. The model stops when the client disconnects."""
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

    def _stream(self, jobs: list[tuple[TaskRequest, Callable[[str], None], Event]]) -> list[None]:
        for request, put, stopped in jobs:
            for part in self.api.stream(self.predictor, request):
                if stopped.is_set():
                    break
                put(part)
        return [None] * len(jobs)

    async def inspect(self, request: InspectRequest, *, deadline: float | None = None) -> Json:
        """The data of the inspection page for one text."""
        return await self._inspector.inspect(request, deadline=deadline)


class AnswerHandler:
    """Default handler of a served run: answers requests by the function `answer` of the task's api.py, in one queue."""

    def __init__(self, host: ServedRun):
        self.host, self.api = host, host.api
        host.load()
        size = getattr(host.api, "BATCH_SIZE", None)
        self.queue = host.add_queue(host.task, self._answer, lambda part: part.weight, size=size)
        self.full_for = self.queue.full_for

    async def answer(self, request: TaskRequest, *, deadline: float | None = None) -> list[Json]:
        parts = request.split()
        batch_key = getattr(self.api, "batch_key", lambda part: ())
        return await self.queue.submit(parts, key=batch_key(parts[0]) if parts else (), deadline=deadline)

    def _answer(self, requests: list[TaskRequest]) -> list[Json]:
        return self.api.answer(self.host.predictor, requests)


def file_states(run: Run) -> dict[str, tuple[int, int, int]]:
    """Inode, size and time of change of the files in a run folder, without those that training writes all the time."""
    with suppress(OSError):
        return {
            entry.name: (state.st_ino, state.st_size, state.st_mtime_ns)
            for entry in os.scandir(run.folder)
            if entry.is_file() and not entry.name.startswith(".") and entry.name not in (METRICS, REPORT)
            for state in [entry.stat()]
        }
    return {}


def describe_run(served: ServedRun) -> Json:
    """The entry of a run in the response of /v1/models: the fields of OpenAI's API, and facts about the run."""
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
        "generation": run.checksums.check(WEIGHTS)[:12],
        "scores": plain_scores,
        "facts": served.api.facts(run) if hasattr(served.api, "facts") else {},
    }


def _count_parameters(run: Run) -> int:
    path = run.folder / WEIGHTS
    return sum(map(prod, stored_shapes(path).values())) if path.is_file() else 0  # retrieval by words needs none


def _created(run: Run) -> int:
    """Unix time when the run was created: from its card.json, else the modification time of its recipe file."""
    try:
        return int(datetime.fromisoformat(run.card["created"]).timestamp())
    except (KeyError, TypeError, ValueError, OverflowError):
        return int((run.folder / RECIPE).stat().st_mtime)


# ---------------------------------------------------------------------------------------------------------------------
# All runs


class NotServed(RegardError):  # noqa: N818  an answer, not a fault
    """Raised when no served run translates the requested pair of languages."""


class ServedRuns:
    """All served runs, by name; finds the run for a pair of languages and detects languages."""

    def __init__(self, served: Iterable[ServedRun], capacity: Capacity):
        self.served = {one.name: one for one in served}
        self._capacity = capacity
        self._failed: dict[str, dict[str, tuple[int, int, int]]] = {}
        """The states of files that could not be opened again, by the name of the run."""
        self._index()

    def _index(self) -> None:
        """Make the tables by which runs and languages are found."""
        self.__dict__.pop("languages", None)
        self._translators = [one for one in self.served.values() if one.translates]
        self._with_languages = [one for one in self._translators if one.source and one.target]
        samples: dict[str, list[str]] = defaultdict(list)  # held-out sentences by language code
        for one in self._translators:
            pairs = one.run.held_out()
            for code, side in ((one.source, "source"), (one.target, "target")):
                if code:
                    samples[code].extend(getattr(pair, side) for pair in pairs)
        self._detector = LanguageDetector(samples)

    @classmethod
    def open(cls, runs: Sequence[str | Path], settings: ServerSettings, log: Log | None = None) -> ServedRuns:
        """Open the run folders `runs`. `log` gets a line when a run is converted for another engine (CTranslate2)."""
        opened = [Run.open(folder) for folder in runs]  # wrong names are reported before anything is loaded
        names = unique_names([run.folder for run in opened])
        capacity = Capacity(settings)
        try:
            return cls([ServedRun(run, name, capacity, log) for run, name in zip(opened, names, strict=True)], capacity)
        except BaseException:
            capacity.close()
            raise

    async def follow(self, every: float = FOLLOW_SECONDS) -> None:
        """Open a run again when its files have changed and stay unchanged for `every` seconds."""
        before: dict[str, dict[str, tuple[int, int, int]]] = {}
        while True:
            await asyncio.sleep(every)
            for name, one in list(self.served.items()):
                found = await asyncio.to_thread(file_states, one.run)
                is_new = found not in (one.files, self._failed.get(name))
                if found and is_new and before.get(name) == found:
                    await self.reload(name)
                before[name] = found

    async def reload(self, *names: str) -> None:
        """Open the runs `names` (default: all) again from their folders, and use them for all further requests.

        Requests that are being answered keep the run that they have. A run that cannot be opened again stays as it is.
        """
        for name in names or list(self.served):
            old = self.served[name]
            states = file_states(old.run)
            try:
                new = await asyncio.to_thread(ServedRun, Run.open(old.run.folder), name, self._capacity, old.log)
            except RegardError as error:
                self._failed[name] = states
                logger.error("%s: cannot be opened again, the earlier files are served: %s", name, error)
                continue
            self.served[name] = new
            self._index()
            logger.warning("%s: opened again, generation %s", name, new.about["generation"])

    async def close(self) -> None:
        await asyncio.gather(*(one.close() for one in self.served.values()))
        self._capacity.close()

    def batches(self) -> int:
        return sum(queue.batches for one in self.served.values() for queue in one.queues.values())

    def full_for(self) -> float:
        """Estimated seconds until at least one run can accept another request; 0 if a run can accept it now."""
        return min((one.handler.full_for() for one in self.served.values()), default=0.0)

    def by_pair(self, source: str, target: str, task: str = "") -> ServedRun:
        """The first run (of `task`, if given) for two language codes. Without an exact match, "en" matches "en-US"."""
        for form in (normalize_code, lambda code: normalize_code(code).partition("-")[0]):
            for one in self._with_languages:
                if task in ("", one.task) and (form(one.source), form(one.target)) == (form(source), form(target)):
                    return one
        pairs = [f"{entry['code']} to {code}" for entry in self.languages for code in entry["targets"]]
        there = ", ".join(pairs) or f"{', '.join(self.served) or 'nothing'}, by name"
        raise NotServed(f"{source} to {target} is not served; served: {there}")

    @cached_property
    def languages(self) -> list[Json]:
        """Code, name and "targets" (codes that it can be translated into) of each language; source languages first."""
        targets: dict[str, dict[str, None]] = defaultdict(dict)
        for one in self._with_languages:
            targets[one.source][one.target] = None
        for one in self._with_languages:
            targets.setdefault(one.target, {})
        return [{"code": code, "name": language_name(code), "targets": list(found)} for code, found in targets.items()]

    def detect(self, text: str) -> list[Json]:
        """The served languages with the confidence (0 to 100) that `text` is written in them, highest first."""
        known = {entry["code"] for entry in self.languages}
        found = self._detector.detect(text)
        return [
            {"language": code, "confidence": round(100 * share, 1)} for code, share in found.items() if code in known
        ]

    def same_pair(self) -> list[list[ServedRun]]:
        """Groups of two or more runs that translate the same language pair; `by_pair` returns the first of a group."""
        by_pair: dict[tuple[str, str], list[ServedRun]] = defaultdict(list)
        for one in self._with_languages:
            by_pair[normalize_code(one.source), normalize_code(one.target)].append(one)
        return [runs for runs in by_pair.values() if len(runs) > 1]


def unique_names(folders: Sequence[Path]) -> list[str]:
    """A unique name per folder: its own name, or "NAME-2" if an earlier one has it. A repeated folder is an error."""
    places = [folder.resolve() for folder in folders]
    for place, times in Counter(places).items():
        if times > 1:
            raise SettingsError(f"{place.name}: given {times} times; give each run folder once")
    names: list[str] = []
    for place in places:
        name, number = place.name, 2
        while name in names:
            name, number = f"{place.name}-{number}", number + 1
        names.append(name)
    return names
