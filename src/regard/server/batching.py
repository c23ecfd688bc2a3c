"""Bounded queues: items of requests that arrive together are computed together; a full queue refuses requests (429).

A request has one or more items. If a thread is free, a request starts at once; if all threads are busy, its items wait
for the next batches. A batch takes the first waiting item of each request, then the second item of each, and so on, so
that a request of 500 items does not block a request of one item. Clients take turns in the same way, so that a client
with many requests does not block the others: see `CLIENT`. A refused client gets the number of seconds to wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable, Iterator, Sequence
from concurrent.futures import Executor
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from math import inf
from typing import Any, Generic, NamedTuple, TypeVar

DECAY = 0.95
"""After each batch, earlier measurements of the throughput are multiplied by this factor."""
DEFAULT_WAIT = 1.0
"""Seconds until a refused client should retry, if no throughput was measured yet."""
LOOKAHEAD = 4
"""The items of a batch of size n are chosen from the next LOOKAHEAD * n waiting items."""
FULL_SECONDS = 1.0
"""For this many seconds after the queue was full, only half as many requests may wait."""
CLIENT: ContextVar[str] = ContextVar("client", default="")
"""Who sent the current request. Each client has the same share of a queue, whatever the number of its requests."""
RESERVE = 1.5
"""A client without waiting requests may fill a queue up to this many times its limits, which other clients reached."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Throughput:
    """Measures the speed of a queue, to estimate after how many seconds a refused client should retry.

    The speed is the total weight of the computed items (e.g. their number of characters) per second of computing.
    Recent items count more.
    """

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
        """Estimated seconds to compute items of this total weight; DEFAULT_WAIT if no speed was measured yet."""
        return weight * self._seconds / self._weight if self._weight and self._seconds else DEFAULT_WAIT


class QueueFull(Exception):  # noqa: N818  an answer, not an error
    """Raised when a full queue refuses a request; `retry_after`: estimated seconds until it can be accepted."""

    def __init__(self, retry_after: float):
        super().__init__(f"the queue is full; try again in {retry_after:.1f} s")
        self.retry_after = retry_after


class TooLate(Exception):  # noqa: N818
    """Raised when a request is not done before its deadline."""


class Closing(Exception):  # noqa: N818
    """Raised for a new request while the server is shutting down."""


class Batcher(Generic[Item, Result]):
    """A bounded queue whose items are computed in batches by `work`, which returns one result per item."""

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
        """Compute at most `size` items per batch, and at most `threads` batches at once, in threads of `pool`.

        A request is refused (`QueueFull`) if the queue would then have more than `most_waiting` items, more than
        `most_requests` requests, or a total weight above `most_weight`; `weigh` returns the weight of an item. For
        FULL_SECONDS after the queue was full, only `most_requests` / 2 requests may wait, so that a new
        request gets its first batch sooner.
        """
        self.size, self.threads = size, threads
        self.most_waiting, self.most_requests, self.most_weight = most_waiting, most_requests, most_weight
        # For the metrics, since the start: requests that were refused or missed their deadline; batches and the items
        # in them; seconds that items waited and that batches took.
        self.refused = self.late = self.batches = self.items = 0
        self.waited = self.worked = 0.0
        self.waiting = self.working = 0  # numbers of items
        self.waiting_weight = 0.0
        self._work, self._weigh, self._pool = work, weigh, pool
        self._queue: list[_Request[Item, Result]] = []  # requests with unstarted items, next in turn first
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
        """Compute the results of `items`, in order. A batch contains only items of requests with the same `key`.

        After `deadline` seconds, `TooLate` is raised. When an item is done, `on_result` is called with its index and
        result. A late or cancelled request is removed from the queue; batches that have started are completed.
        """
        if self._closing:
            raise Closing("the server is shutting down; send the request again later")
        if not items:
            return []
        loop = asyncio.get_running_loop()
        weights = dict(enumerate(map(self._weigh, items)))
        request = _Request(items, weights, key, on_result, loop.create_future(), loop.time(), CLIENT.get())
        self._admit(request)
        self._start()
        clock = asyncio.timeout(deadline)
        try:
            async with clock:
                return await request.answered
        except TimeoutError:
            if not clock.expired():
                raise  # raised by the work itself
            self.late += 1
            raise TooLate(f"the request was not done within {deadline:g} s; send it again later") from None
        finally:
            self._drop(request)

    async def submit_in_order(
        self, items: Sequence[Item], *, key: Hashable = (), deadline: float | None = None
    ) -> AsyncGenerator[Result, None]:
        """Like `submit`, but yield the results in order, each as soon as it and all results before it are done."""
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
        """Estimated seconds until the queue can accept another request; 0 if it can accept one now."""
        return self._excess(1, 0.0) * self._throughput.seconds(self.waiting_weight) if self.waiting else 0.0

    # -----------------------------------------------------------------------------------------------------------------
    # The queue

    def _admit(self, request: _Request[Item, Result]) -> None:
        """Add the request to the queue, or raise `QueueFull`. A queue without waiting items accepts any request."""
        items, weight = len(request.items), sum(request.unstarted.values())
        if self.waiting and (excess := self._excess(items, weight)):
            self.refused += 1
            raise QueueFull(excess * self._throughput.seconds(self.waiting_weight))
        self.waiting += items
        self.waiting_weight += weight
        self._queue.append(request)
        if len(self._queue) >= self._request_limit():
            self._full_at = request.arrived

    def _request_limit(self) -> float:
        """Number of requests that may wait now: `most_requests`, or half of it if the queue was full recently."""
        if self._reserve() > 1:
            return self.most_requests
        was_full = asyncio.get_running_loop().time() - self._full_at < FULL_SECONDS
        return self.most_requests / 2 if was_full else self.most_requests

    def _reserve(self) -> float:
        """Factor on the limits for the current client."""
        return 1.0 if any(request.client == CLIENT.get() for request in self._queue) else RESERVE

    def _excess(self, items: int, weight: float) -> float:
        """Share (0 to 1) of the waiting work that must be done before the queue can accept another request.

        `items` is the number of items of this new request, and `weight` is their total weight.
        """
        reserve = self._reserve()
        excess = max(
            (self.waiting + items - reserve * self.most_waiting) / max(self.waiting, 1),
            (len(self._queue) + 1 - reserve * self._request_limit()) / max(len(self._queue), 1),
            (self.waiting_weight + weight - reserve * self.most_weight) / max(self.waiting_weight, 1e-9),
        )
        return min(max(excess, 0.0), 1.0)

    def _drop(self, request: _Request[Item, Result]) -> None:
        if request.unstarted:
            self._queue.remove(request)
            self._remove([_Place(request, number, weight) for number, weight in request.unstarted.items()])

    def _remove(self, places: Sequence[_Place[Item, Result]]) -> None:
        for place in places:
            del place.request.unstarted[place.number]
            self.waiting_weight -= place.weight
        self.waiting -= len(places)
        if not self.waiting:
            self.waiting_weight = 0.0  # rounding errors do not accumulate

    def _take(self) -> list[_Place[Item, Result]]:
        """Remove the items of the next batch from the queue and return them.

        The first half of the batch are the next items, taken from clients and requests in turn (`_in_turn`). To reduce
        padding, the second half are those of the next `LOOKAHEAD` * size items whose weight is nearest to the mean
        weight of the first half. All items belong to requests with the same `key`.
        """
        same_key = [request for request in self._queue if request.key == self._queue[0].key]
        candidates = list(islice(_in_turn(same_key), LOOKAHEAD * self.size))
        share = -(-(self.waiting + self.working) // self.threads)  # an even share for each thread
        size = min(self.size, share, len(candidates))
        sure = -(-size // 2)
        batch, others = candidates[:sure], candidates[sure:]
        middle = sum(place.weight for place in batch) / sure
        others.sort(key=lambda place: abs(place.weight - middle))  # stable: among equals, the oldest first
        batch += others[: size - sure]
        self._remove(batch)
        requests = {id(place.request) for place in batch}
        clients = {place.request.client for place in batch}
        waiting = [request for request in self._queue if request.unstarted]
        # Clients and requests that had a turn go to the back.
        self._queue = sorted(waiting, key=lambda request: (request.client in clients, id(request) in requests))
        return batch

    # -----------------------------------------------------------------------------------------------------------------
    # Batches

    def _start(self) -> None:
        while self._queue and len(self._batches) < self.threads:
            batch = self._take()
            self.working += len(batch)
            self._batches.add(asyncio.create_task(self._run(batch)))

    async def _run(self, batch: list[_Place[Item, Result]]) -> None:
        """Compute one batch, deliver its results, and start the next."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._throughput.begin(began)
        self.batches += 1
        self.items += len(batch)
        self.waited += sum(began - place.request.arrived for place in batch)
        items = [request.items[number] for request, number, _ in batch]
        outcomes: Sequence[Result | Exception]
        try:
            outcomes = await loop.run_in_executor(self._pool, _attempt, self._work, items)
        except Exception as error:  # the pool accepts no work
            outcomes = [error] * len(batch)
        ended = loop.time()
        self.worked += ended - began
        self._throughput.end(sum(place.weight for place in batch), ended)
        self.working -= len(batch)
        for (request, number, _), outcome in zip(batch, outcomes, strict=True):
            request.take(number, outcome)
            if isinstance(outcome, Exception):
                self._drop(request)
        self._batches.discard(asyncio.current_task())
        self._start()


@dataclass(eq=False)
class _Request(Generic[Item, Result]):
    """The items of one call of `Batcher.submit`, with the results so far."""

    items: Sequence[Item]
    unstarted: dict[int, float]  # the weights of the items that are still waiting, by index
    key: Hashable
    on_result: Callable[[int, Result], None] | None
    answered: asyncio.Future[list[Result]]
    arrived: float
    client: str = ""
    results: dict[int, Result] = field(default_factory=dict)

    def take(self, number: int, outcome: Result | Exception) -> None:
        """Store the result of the item with index `number`. An exception ends the request: later ones are ignored."""
        if self.answered.done():
            return
        if isinstance(outcome, Exception):
            self.answered.set_exception(outcome)
            return
        self.results[number] = outcome
        if self.on_result:
            self.on_result(number, outcome)
        if len(self.results) == len(self.items):
            self.answered.set_result([self.results[number] for number in range(len(self.items))])


class _Place(NamedTuple, Generic[Item, Result]):
    """One item in the queue: its request, its index in the request (`number`), and its weight."""

    request: _Request[Item, Result]
    number: int
    weight: float


def _round_robin(requests: Sequence[_Request[Item, Result]]) -> Iterator[_Place[Item, Result]]:
    """Yield the first unstarted item of each request, then the second of each, and so on."""
    for numbers in zip_longest(*(request.unstarted for request in requests)):
        for request, number in zip(requests, numbers, strict=True):
            if number is not None:
                yield _Place(request, number, request.unstarted[number])


def _in_turn(requests: Sequence[_Request[Item, Result]]) -> Iterator[_Place[Item, Result]]:
    """Yield one unstarted item of each client, then another one of each, and so on."""
    by_client: dict[str, list[_Request[Item, Result]]] = {}
    for request in requests:
        by_client.setdefault(request.client, []).append(request)
    for places in zip_longest(*map(_round_robin, by_client.values())):
        yield from (place for place in places if place is not None)


def _attempt(work: Callable[[list[Item]], list[Result]], items: list[Item]) -> list[Result | Exception]:
    """Apply `work` to a batch of items. If it fails, each item is computed alone; a faulty item gives its exception."""
    try:
        results = work(items)
        if len(results) != len(items):
            raise RuntimeError(
                f"`work` must return one result per item, but returned {len(results)} results for {len(items)} items"
            )
        return list(results)
    except Exception as error:
        if len(items) == 1:
            return [error]
    return [outcome for item in items for outcome in _attempt(work, [item])]


def retrieve_error(task: asyncio.Task[Any]) -> None:
    """Done callback for a task whose client may have disconnected: reads its exception, so that asyncio logs none."""
    if not task.cancelled():
        task.exception()


class ThreadToLoop(Generic[Item]):
    """Passes items from a worker thread to an asyncio queue of the event loop, in order.

    The loop is woken once for all items that arrive before it runs. If a fast thread woke the loop for each item, the
    loop could do nothing else.
    """

    def __init__(self, queue: asyncio.Queue[Item]):
        self._queue, self._loop = queue, asyncio.get_running_loop()
        self._items: deque[Item] = deque()
        self._woken = False

    def put(self, item: Item) -> None:
        """Append `item` to the asyncio queue; called in the worker thread."""
        self._items.append(item)
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._pass_on)

    def _pass_on(self) -> None:
        self._woken = False  # first: items that come later wake the loop again
        for _ in range(len(self._items)):
            self._queue.put_nowait(self._items.popleft())
