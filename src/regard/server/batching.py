"""Batching: requests that arrive together are computed together, and long ones do not block short ones.

A request is one or more items. While a thread is free, a request starts at once; while all threads are busy, items
wait, and form the next batch. Items are taken in turns: one of each request, then a second one of each, so that a
request of 500 items and a request of one item advance side by side. The queue is bounded; a refused request learns when
there will be room.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice, zip_longest
from math import inf
from typing import Any, Generic, NamedTuple, TypeVar

DECAY = 0.95
"""Factor for earlier measurements of the throughput at the end of each batch."""
DEFAULT_WAIT = 1.0
"""Seconds until a refused client should retry, if no throughput was measured yet."""
LOOKAHEAD = 4
"""A batch is chosen from this many times its size of the items that are next in turn."""
FULL_SECONDS = 1.0
"""For this long after the queue was full, half as many requests may wait."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Throughput:
    """Weight computed per second, to tell refused clients when to retry. Idle time is not counted."""

    def __init__(self) -> None:
        self._weight, self._seconds = 0.0, 0.0
        self._running, self._since = 0, 0.0

    def begin(self, now: float) -> None:
        if not self._running:
            self._since = now
        self._running += 1

    def end(self, weight: float, now: float) -> None:
        self._running -= 1
        self._weight = DECAY * self._weight + weight
        self._seconds = DECAY * self._seconds + now - self._since
        self._since = now

    def seconds(self, weight: float) -> float:
        """Estimated time for this weight."""
        return weight * self._seconds / self._weight if self._weight and self._seconds else DEFAULT_WAIT


class QueueFull(Exception):  # noqa: N818  an answer, not an error
    """The queue has no room; there should be room in `retry_after` seconds."""

    def __init__(self, retry_after: float):
        super().__init__(f"the queue is full; try again in {retry_after:.1f} s")
        self.retry_after = retry_after


class TooLate(Exception):  # noqa: N818
    """The deadline passed before the request was done."""


class Closing(Exception):  # noqa: N818
    """The server is shutting down and accepts no new requests."""


@dataclass
class Counters:
    """Counts since the start, for the metrics."""

    refused: int = 0
    """Requests, like the next."""
    late: int = 0
    batches: int = 0
    items: int = 0
    """Items that were started."""
    waited: float = 0.0
    """Total waiting time of items, in seconds."""
    worked: float = 0.0
    """Total duration of batches, in seconds."""


class Batcher(Generic[Item, Result]):
    """A bounded queue for `work`, which gets lists of items and returns one result per item."""

    def __init__(
        self,
        work: Callable[[list[Item]], list[Result]],
        *,
        size: int,
        most_waiting: int,
        most_requests: float = inf,
        most_weight: float = inf,
        weigh: Callable[[Item], float] = lambda item: 1.0,
        pool: Executor,
        threads: int = 1,
    ):
        """At most `size` items per batch and `threads` batches at once, in threads of `pool`.

        At most `most_waiting` items wait, of at most `most_requests` requests, with at most `most_weight` by `weigh`.
        Since items are taken in turns, the number of requests determines how long one waits for its first turn. While
        the queue keeps being full, only half as many requests may wait, so that accepted ones are answered soon.
        """
        self.size, self.threads = size, threads
        self.most_waiting, self.most_requests, self.most_weight = most_waiting, most_requests, most_weight
        self.counters = Counters()
        self.waiting, self.working = 0, 0
        """Items."""
        self.waiting_weight = 0.0
        self._work, self._weigh, self._pool = work, weigh, pool
        self._line: list[_Request[Item, Result]] = []  # requests with unstarted items, next in turn first
        self._batches: set[asyncio.Task[None]] = set()
        self._throughput = Throughput()
        self._full_at = -inf
        self._closing = False

    async def submit(
        self,
        items: Sequence[Item],
        *,
        key: Hashable = (),
        deadline: float | None = None,
        on_result: Callable[[int, Result], None] | None = None,
    ) -> list[Result]:
        """The results of these items, in order. Only items whose requests have the same `key` share a batch.

        `deadline`: seconds after which `TooLate` is raised. `on_result` is called with the index and the result of each
        item when it is done. A late or cancelled request leaves the queue; its running batches are not stopped.
        """
        if self._closing:
            raise Closing("the server is shutting down")
        if not items:
            return []
        loop = asyncio.get_running_loop()
        weights = [self._weigh(item) for item in items]
        request = _Request(items, weights, key, on_result, loop.create_future(), loop.time())
        self._admit(request)
        self._start()
        clock = asyncio.timeout(deadline)
        try:
            async with clock:
                return await request.answered
        except TimeoutError:
            if not clock.expired():
                raise  # raised by the work itself
            self.counters.late += 1
            raise TooLate(f"not done within {deadline:g} s") from None
        finally:
            self._drop(request)

    async def submit_in_order(
        self, items: Sequence[Item], *, key: Hashable = (), deadline: float | None = None
    ) -> AsyncGenerator[Result, None]:
        """The results in order, each as soon as it and all before it are done."""
        loop = asyncio.get_running_loop()
        results: list[asyncio.Future[Result]] = [loop.create_future() for _ in items]
        work = asyncio.create_task(
            self.submit(items, key=key, deadline=deadline, on_result=lambda at, result: results[at].set_result(result))
        )
        work.add_done_callback(retrieve_error)
        try:
            for result in results:
                await asyncio.wait((result, work), return_when=asyncio.FIRST_COMPLETED)
                if not result.done():
                    await work  # raises its error
                yield result.result()
        finally:
            work.cancel()

    async def close(self) -> None:
        """Accept no more requests, and wait until the accepted ones are done."""
        self._closing = True
        while self._batches:
            await asyncio.wait(tuple(self._batches))

    def full_for(self) -> float:
        """Seconds until another request can be accepted; 0 if it can be now."""
        return self._excess(1, 0.0) * self._throughput.seconds(self.waiting_weight) if self.waiting else 0.0

    # -----------------------------------------------------------------------------------------------------------------
    # The queue

    def _admit(self, request: _Request[Item, Result]) -> None:
        """Append it to the queue. A request larger than the whole queue is accepted if the queue is empty."""
        items, weight = len(request.items), sum(request.weights)
        if self.waiting and (excess := self._excess(items, weight)):
            self.counters.refused += 1
            raise QueueFull(excess * self._throughput.seconds(self.waiting_weight))
        self.waiting += items
        self.waiting_weight += weight
        self._line.append(request)
        if len(self._line) >= self._room():
            self._full_at = request.arrived

    def _room(self) -> float:
        """Number of requests that may wait."""
        was_full = asyncio.get_running_loop().time() - self._full_at < FULL_SECONDS
        return self.most_requests / 2 if was_full else self.most_requests

    def _excess(self, items: int, weight: float) -> float:
        """The share of the queue that must be finished before there is room for this request."""
        excess = max(
            (self.waiting + items - self.most_waiting) / max(self.waiting, 1),
            (len(self._line) + 1 - self._room()) / max(len(self._line), 1),
            (self.waiting_weight + weight - self.most_weight) / max(self.waiting_weight, 1e-9),
        )
        return min(max(excess, 0.0), 1.0)

    def _drop(self, request: _Request[Item, Result]) -> None:
        if request.unstarted:
            self._line.remove(request)
            self._leave([_Place(request, number) for number in request.unstarted])

    def _leave(self, places: Sequence[_Place[Item, Result]]) -> None:
        for place in places:
            del place.request.unstarted[place.number]
            self.waiting_weight -= place.weight
        self.waiting -= len(places)
        if not self.waiting:
            self.waiting_weight = 0.0  # rounding errors do not accumulate

    def _take(self) -> list[_Place[Item, Result]]:
        """The next batch: half of it in turn, the rest of similar weight among the items that are next in turn."""
        kin = [request for request in self._line if request.key == self._line[0].key]
        candidates = list(islice(_turns(kin), LOOKAHEAD * self.size))
        share = -(-(self.waiting + self.working) // self.threads)  # an even share for each thread
        size = min(self.size, share, len(candidates))
        sure = -(-size // 2)
        batch, others = candidates[:sure], candidates[sure:]
        middle = sum(place.weight for place in batch) / sure
        others.sort(key=lambda place: abs(place.weight - middle))  # stable: among equals, the oldest first
        batch += others[: size - sure]
        self._leave(batch)
        served = {id(place.request) for place in batch}
        waiting = [request for request in self._line if request.unstarted]
        # Requests that had a turn go to the back.
        self._line = sorted(waiting, key=lambda request: id(request) in served)
        return batch

    # -----------------------------------------------------------------------------------------------------------------
    # Batches

    def _start(self) -> None:
        while self._line and len(self._batches) < self.threads:
            batch = self._take()
            self.working += len(batch)
            self._batches.add(asyncio.create_task(self._run(batch)))

    async def _run(self, batch: list[_Place[Item, Result]]) -> None:
        """Compute one batch, deliver its results, and start the next."""
        loop, counters = asyncio.get_running_loop(), self.counters
        began = loop.time()
        self._throughput.begin(began)
        counters.batches += 1
        counters.items += len(batch)
        counters.waited += sum(began - place.request.arrived for place in batch)
        items = [request.items[number] for request, number in batch]
        outcomes: Sequence[Result | Exception]
        try:
            outcomes = await loop.run_in_executor(self._pool, _attempt, self._work, items)
        except Exception as error:  # the pool accepts no work
            outcomes = [error] * len(batch)
        ended = loop.time()
        counters.worked += ended - began
        self._throughput.end(sum(place.weight for place in batch), ended)
        self.working -= len(batch)
        for (request, number), outcome in zip(batch, outcomes, strict=True):
            if request.take(number, outcome):
                self._drop(request)
        self._batches.discard(asyncio.current_task())
        self._start()


@dataclass(eq=False)
class _Request(Generic[Item, Result]):
    """The items of one caller: which are not started, and the results so far."""

    items: Sequence[Item]
    weights: Sequence[float]
    key: Hashable
    on_result: Callable[[int, Result], None] | None
    answered: asyncio.Future[list[Result]]
    arrived: float

    def __post_init__(self) -> None:
        self.unstarted = dict.fromkeys(range(len(self.items)))  # an ordered set
        self._results: dict[int, Result] = {}

    def take(self, number: int, outcome: Result | Exception) -> bool:
        """Store the result of an item; returns whether the request failed. Ignored if the caller has left."""
        if self.answered.done():
            return False
        if isinstance(outcome, Exception):
            self.answered.set_exception(outcome)
            return True
        self._results[number] = outcome
        if self.on_result:
            self.on_result(number, outcome)
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
    """The results. If a batch fails, its items are tried one by one, so that only the faulty ones fail."""
    try:
        results = work(items)
        if len(results) != len(items):
            raise RuntimeError(f"{len(results)} results for {len(items)} items")
        return list(results)
    except Exception as error:
        if len(items) == 1:
            return [error]
    return [outcome for item in items for outcome in _attempt(work, [item])]


def retrieve_error(task: asyncio.Task[Any]) -> None:
    """A callback for tasks that may fail after their client has left: without it, Python logs the error."""
    if not task.cancelled():
        task.exception()


class ThreadToLoop(Generic[Item]):
    """Passes items from a thread to a queue of the event loop, in order.

    The loop is woken once for all items since the last time. Waking it for each item of a fast thread could keep it
    busy with nothing else.
    """

    def __init__(self, queue: asyncio.Queue[Item]):
        self._queue, self._loop = queue, asyncio.get_running_loop()
        self._items: deque[Item] = deque()
        self._woken = False

    def put(self, item: Item) -> None:
        """Called in the thread."""
        self._items.append(item)
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._pass_on)

    def _pass_on(self) -> None:
        self._woken = False  # first: items that come later wake the loop again
        for _ in range(len(self._items)):
            self._queue.put_nowait(self._items.popleft())
