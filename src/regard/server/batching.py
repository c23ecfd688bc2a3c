"""Requests that arrive together are worked on together, and none is starved.

A request is one or more items. Nobody waits while a thread is free; while all are at work, others gather, and whatever
has gathered makes up the next batch. Items are taken in turns: one of each request, then a second one of each, so that
a request of 500 items and a request of one advance side by side. The queue is bounded, and who is refused hears when
there will be room.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, zip_longest
from math import inf
from typing import Generic, NamedTuple, TypeVar

from regard.system import usable_cores

# How fast work is done: so that who is refused can be told when to come again.


MEMORY = 0.95
"""What was measured before counts so much, each time that a batch ends."""
FIRST_GUESS = 1.0
"""Seconds to wait where nothing was measured yet."""


class Throughput:
    """Weight worked off a second, while there was something to do; batches may overlap."""

    def __init__(self) -> None:
        self._weight, self._seconds = 0.0, 0.0
        self._running, self._since = 0, 0.0

    def begin(self, now: float) -> None:
        """A batch begins."""
        if not self._running:
            self._since = now
        self._running += 1

    def end(self, weight: float, now: float) -> None:
        """A batch of this weight ends."""
        self._running -= 1
        self._weight = MEMORY * self._weight + weight
        self._seconds = MEMORY * self._seconds + now - self._since
        self._since = now

    def rate(self) -> float | None:
        """Weight a second, of late; None where nothing was measured."""
        return self._weight / self._seconds if self._weight and self._seconds else None

    def seconds(self, weight: float) -> float:
        """How long so much will take."""
        rate = self.rate()
        return weight / rate if rate else FIRST_GUESS


Item = TypeVar("Item")
Result = TypeVar("Result")

LOOKAHEAD = 4
"""A batch is put together from so many times its size of items that are next in turn."""
AFTERMATH = 1.0
"""Seconds for which a queue that was full stays short."""


class QueueFull(Exception):  # noqa: N818  an answer, not an error
    """No room for this request now; there should be in `retry_after` seconds."""

    def __init__(self, retry_after: float):
        super().__init__(f"the queue is full; try again in {retry_after:.1f} s")
        self.retry_after = retry_after


class TooLate(Exception):  # noqa: N818
    """The deadline passed before all of a request was done."""


class Closing(Exception):  # noqa: N818
    """Nothing new is taken: what was taken is being finished."""


@dataclass
class Counters:
    """What happened since the start."""

    accepted: int = 0
    """Requests; so are the next four."""
    refused: int = 0
    late: int = 0
    cancelled: int = 0
    failed: int = 0
    batches: int = 0
    items: int = 0
    """That were started."""
    sizes: dict[int, int] = field(default_factory=dict)
    """How many batches had so many items."""
    dropped: int = 0
    """Items that never were, because their request was late, cancelled or failed."""
    waited: float = 0.0
    """Seconds that items waited for their start, summed."""
    worked: float = 0.0
    """Seconds that batches took, summed."""


class Batcher(Generic[Item, Result]):
    """A bounded queue before `work`, which gets lists of items and gives back a result for each."""

    def __init__(
        self,
        work: Callable[[list[Item]], list[Result]],
        *,
        size: int,
        most_waiting: int,
        most_requests: float = inf,
        most_weight: float = inf,
        threads: int = 1,
        weigh: Callable[[Item], float] = lambda item: 1.0,
        pool: Executor | None = None,
    ):
        """At most `size` items a batch, and `threads` batches at once, in threads of its own or in those of `pool`.

        At most `most_waiting` items wait, of at most `most_requests` requests and of at most `most_weight` by `weigh`.
        As items are taken in turns, it is the requests that decide how long one waits for its first turn. So many may
        come at once; where they keep coming, half as many may wait, so that who is let in is answered soon.
        """
        self.size, self.threads = size, threads
        self.most_waiting, self.most_requests, self.most_weight = most_waiting, most_requests, most_weight
        self.counters = Counters()
        self.waiting, self.working = 0, 0
        """Items."""
        self.waiting_weight = 0.0
        self._work, self._weigh = work, weigh
        self._pool = pool or ThreadPoolExecutor(threads, thread_name_prefix="batch")
        self._owns_pool = pool is None
        self._line: list[_Request[Item, Result]] = []  # those with items that are not started, next in turn first
        self._batches: set[asyncio.Task[None]] = set()
        self._pace = Throughput()
        self._full_at = -inf
        self._closing = False

    async def submit(
        self,
        items: Sequence[Item],
        *,
        key: Hashable = (),
        deadline: float | None = None,
        hear: Callable[[int, Result], None] | None = None,
    ) -> list[Result]:
        """The results of these items, in their order. Only items whose requests have the same `key` share a batch.

        `deadline`: seconds after which `TooLate` is raised. `hear` is called with the place and the result of each
        item as it is done. Who is late or cancelled leaves the queue; what was started goes on for nothing.
        """
        if self._closing:
            raise Closing("the server is shutting down")
        if not items:
            return []
        loop = asyncio.get_running_loop()
        weights = [self._weigh(item) for item in items]
        request = _Request(items, weights, key, hear, loop.create_future(), loop.time())
        self._admit(request)
        self._start()
        clock = asyncio.timeout(deadline)
        try:
            async with clock:
                return await request.answered
        except TimeoutError:
            if not clock.expired():
                raise  # the work's own
            self.counters.late += 1
            raise TooLate(f"not done within {deadline:g} s") from None
        except asyncio.CancelledError:
            self.counters.cancelled += 1
            raise
        finally:
            self._drop(request)

    async def close(self) -> None:
        """Take nothing more, and come back when all that was taken is done."""
        self._closing = True
        while self._batches:
            await asyncio.wait(tuple(self._batches))
        if self._owns_pool:
            self._pool.shutdown(wait=False)

    def full_for(self) -> float:
        """Seconds until another request may be let in; 0 where one may be now."""
        return self._excess(1, 0.0) * self._pace.seconds(self.waiting_weight) if self.waiting else 0.0

    @property
    def rate(self) -> float | None:
        """Weight worked off a second, as measured of late; None where nothing was."""
        return self._pace.rate()

    # -----------------------------------------------------------------------------------------------------------------
    # Into the queue, and out of it

    def _admit(self, request: _Request[Item, Result]) -> None:
        """Put it at the end of the line. One that is larger than the whole queue is let in when nobody waits."""
        items, weight = len(request.items), sum(request.weights)
        if self.waiting and (excess := self._excess(items, weight)):
            self.counters.refused += 1
            raise QueueFull(excess * self._pace.seconds(self.waiting_weight))
        self.counters.accepted += 1
        self.waiting += items
        self.waiting_weight += weight
        self._line.append(request)
        if len(self._line) >= self._room():
            self._full_at = request.arrived

    def _room(self) -> float:
        """How many requests may wait."""
        was_full = asyncio.get_running_loop().time() - self._full_at < AFTERMATH
        return self.most_requests / 2 if was_full else self.most_requests

    def _excess(self, items: int, weight: float) -> float:
        """The share of what waits that must have been worked off before there is room for so much more."""
        excess = max(
            (self.waiting + items - self.most_waiting) / max(self.waiting, 1),
            (len(self._line) + 1 - self._room()) / max(len(self._line), 1),
            (self.waiting_weight + weight - self.most_weight) / max(self.waiting_weight, 1e-9),
        )
        return min(max(excess, 0.0), 1.0)

    def _drop(self, request: _Request[Item, Result]) -> None:
        """Forget what is not started, if anything."""
        if request.unstarted:
            self._line.remove(request)
            self.counters.dropped += len(request.unstarted)
            self._leave([_Place(request, number) for number in request.unstarted])

    def _leave(self, places: Sequence[_Place[Item, Result]]) -> None:
        """Out of the queue, into a batch or nowhere."""
        for place in places:
            del place.request.unstarted[place.number]
            self.waiting_weight -= place.weight
        self.waiting -= len(places)
        if not self.waiting:
            self.waiting_weight = 0.0  # the errors of rounding do not add up

    def _take(self) -> list[_Place[Item, Result]]:
        """The next batch: half of it as turns have it, the rest alike in weight, from those that are next in turn."""
        kin = [request for request in self._line if request.key == self._line[0].key]
        candidates = list(islice(_turns(kin), LOOKAHEAD * self.size))
        size = min(self._share(), len(candidates))
        sure = -(-size // 2)
        batch, others = candidates[:sure], candidates[sure:]
        middle = sum(place.weight for place in batch) / sure
        others.sort(key=lambda place: abs(place.weight - middle))  # stable: among equals, age wins
        batch += others[: size - sure]
        self._leave(batch)
        served = {id(place.request) for place in batch}
        waiting = [request for request in self._line if request.unstarted]
        self._line = sorted(waiting, key=lambda request: id(request) in served)  # who had a turn goes to the back
        return batch

    # -----------------------------------------------------------------------------------------------------------------
    # Batches

    def _share(self) -> int:
        """How many items the next batch should have: an even part for each thread."""
        return min(self.size, -(-(self.waiting + self.working) // self.threads))

    def _start(self) -> None:
        """Start batches while there is a free thread and something to do."""
        while self._line and len(self._batches) < self.threads:
            batch = self._take()
            self.working += len(batch)
            self._batches.add(asyncio.create_task(self._run(batch)))

    async def _run(self, batch: list[_Place[Item, Result]]) -> None:
        """Work on one batch, answer, and start the next."""
        loop, counters = asyncio.get_running_loop(), self.counters
        began = loop.time()
        self._pace.begin(began)
        counters.batches += 1
        counters.sizes[len(batch)] = counters.sizes.get(len(batch), 0) + 1
        counters.items += len(batch)
        counters.waited += sum(began - place.request.arrived for place in batch)
        items = [request.items[number] for request, number in batch]
        outcomes: Sequence[Result | Exception]
        try:
            outcomes = await loop.run_in_executor(self._pool, _attempt, self._work, items)
        except Exception as error:  # there is no thread to work in
            outcomes = [error] * len(batch)
        ended = loop.time()
        counters.worked += ended - began
        self._pace.end(sum(place.weight for place in batch), ended)
        self.working -= len(batch)
        for (request, number), outcome in zip(batch, outcomes, strict=True):
            if request.take(number, outcome):
                counters.failed += 1
                self._drop(request)
        self._batches.discard(asyncio.current_task())
        self._start()


class _Request(Generic[Item, Result]):
    """The items of one caller: which of them are not started, and the results so far."""

    def __init__(
        self,
        items: Sequence[Item],
        weights: Sequence[float],
        key: Hashable,
        hear: Callable[[int, Result], None] | None,
        answered: asyncio.Future[list[Result]],
        arrived: float,
    ):
        self.items, self.weights, self.key = items, weights, key
        self.hear, self.answered, self.arrived = hear, answered, arrived
        self.unstarted = dict.fromkeys(range(len(items)))  # a set in order
        self._results: dict[int, Result] = {}

    def take(self, number: int, outcome: Result | Exception) -> bool:
        """An item is done; says whether the request failed by it. Who has left meanwhile is not told."""
        if self.answered.done():
            return False
        if isinstance(outcome, Exception):
            self.answered.set_exception(outcome)
            return True
        self._results[number] = outcome
        if self.hear:
            self.hear(number, outcome)
        if len(self._results) == len(self.items):
            self.answered.set_result([self._results[number] for number in range(len(self.items))])
        return False


class _Place(NamedTuple, Generic[Item, Result]):
    """One item of a request."""

    request: _Request[Item, Result]
    number: int

    @property
    def weight(self) -> float:
        return self.request.weights[self.number]


def _turns(requests: Sequence[_Request[Item, Result]]) -> Iterator[_Place[Item, Result]]:
    """The first unstarted item of each request, then the second of each, and so on."""
    for numbers in zip_longest(*(request.unstarted for request in requests)):
        for request, number in zip(requests, numbers, strict=True):
            if number is not None:
                yield _Place(request, number)


def _attempt(work: Callable[[list[Item]], list[Result]], items: list[Item]) -> list[Result | Exception]:
    """The results. If it fails, item by item, so that only those fail that fail alone and not their neighbours."""
    try:
        results = work(items)
        if len(results) != len(items):
            raise RuntimeError(f"{len(results)} results for {len(items)} items")
        return list(results)
    except Exception as error:
        if len(items) == 1:
            return [error]
    return [outcome for item in items for outcome in _attempt(work, [item])]


# A door that lets everyone out and, once it is closing, nobody in.


class ShutdownGate:
    """Counts who is inside."""

    def __init__(self) -> None:
        self.inside = 0
        self._closing, self._empty = False, asyncio.Event()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be inside for the length of a `with` block."""
        if self._closing:
            raise Closing("the server is shutting down")
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
            if not self.inside:
                self._empty.set()

    async def close(self) -> None:
        """Let nobody in any more, and wait until all have left."""
        self._closing = True
        self._empty.clear()
        if self.inside:
            await self._empty.wait()


# From a thread to the event loop: what was said meanwhile, all of it at one waking.


Said = TypeVar("Said")


class ThreadToLoop(Generic[Said]):
    """Passes on what a thread says to a queue of the event loop, in order.

    The loop is woken once for all that came since: one that is woken for each by a thread that never stops may read
    wakings for ever, and do nothing else.
    """

    def __init__(self, heard: asyncio.Queue[Said]):
        self._heard, self._loop = heard, asyncio.get_running_loop()
        self._said: deque[Said] = deque()
        self._woken = False

    def say(self, said: Said) -> None:
        """In the thread."""
        self._said.append(said)
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._pass_on)

    def _pass_on(self) -> None:
        self._woken = False  # before looking: what comes after wakes again
        for _ in range(len(self._said)):
            self._heard.put_nowait(self._said.popleft())


# What the runs of a server share: threads, and how much each of them may take in.


class Capacity:
    """Threads that start when they are first needed, and limits."""

    def __init__(self, threads: int, batch: int, queue: int):
        """`threads`: batches that CTranslate2 decodes at once, 0 for one a core; `batch`: sentences decoded together,
        at most; `queue`: sentences that may wait for a run.
        """
        self.threads, self.batch, self.queue = threads or usable_cores(), batch, queue
        self.decoding = ThreadPoolExecutor(self.threads, thread_name_prefix="decode")
        """For CTranslate2, which computes on one core for each batch."""
        # Half of the cores for one operation, so that looking inside a model does not hold up those who translate.
        calm = partial(_limit_torch, max(1, self.threads // 2))
        self.torch = ThreadPoolExecutor(1, thread_name_prefix="torch", initializer=calm)
        """The one thread for torch."""

    def close(self) -> None:
        """End the threads, once what they were given is done."""
        for pool in (self.decoding, self.torch):
            pool.shutdown(wait=False)


def _limit_torch(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
