"""Inspections of a served run: bounded before they start, in a thread of their own, stopped when nobody waits for them.

The time of an inspection grows with the square of the number of tokens. Its thread uses a copy of the predictor, which
shares the weights, because disabling heads and recording attention change the modules of a model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager
from threading import Event
from typing import TYPE_CHECKING, Any

from regard.server.batching import Batcher
from regard.tasks.api import FieldError, InspectRequest

if TYPE_CHECKING:
    from torch import nn

    from regard.server.runs import ServedRun

Json = dict[str, Any]
Job = tuple[InspectRequest, Event]
"""A request, and an event that is set when nobody waits for its answer."""

MOST_WAITING = 32
"""Maximum number of waiting inspections."""


class Stopped(Exception):  # noqa: N818  not an error
    """Raised within an inspection that nobody waits for."""


class Inspector:
    """Inspects texts with the model of a served run, one at a time."""

    def __init__(self, served: ServedRun, queue: Batcher[Job, Json]):
        self.served, self.queue = served, queue
        self._copy: Any = None

    async def inspect(self, request: InspectRequest, *, deadline: float | None = None) -> Json:
        """The data of the inspection page for one text; a request that needs too much computation is refused."""
        self._refuse_expensive(request)
        stopped = Event()
        try:
            [found] = await self.queue.submit([(request, stopped)], deadline=deadline)
            return found
        finally:
            stopped.set()

    def _refuse_expensive(self, request: InspectRequest) -> None:
        served = self.served
        estimate = getattr(served.api, "inspection_work", None)
        if estimate is None:
            return
        work, most = estimate(served.run, request, served.about["parameters"]), served.settings.inspect_work
        if work > most:
            remedy = "send a shorter text" if request.skip_slow else "send a shorter text, or set skip_slow"
            amount = f"about {work:.1g} multiplications, and this server allows {most:.1g}"
            raise FieldError("text", f"this inspection needs {amount}; {remedy}")

    def work(self, jobs: list[Job]) -> list[Json]:
        """Compute the inspections `jobs`; called in their thread."""
        if self._copy is None:
            self._copy = share_weights(self.served.load())
        found = []
        for request, stopped in jobs:
            with stop_when(stopped):
                found.append(self.served.api.inspect(self._copy, self.served.run, request))
        return found


def stop_when(stopped: Event) -> AbstractContextManager[Any]:
    """Context manager in which every function of torch first raises `Stopped` if the event is set."""
    from torch.overrides import TorchFunctionMode

    class Stoppable(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if stopped.is_set():
                raise Stopped
            return function(*args, **(kwargs or {}))

    return Stoppable()


def share_weights(predictor: Any) -> Any:
    """Copy a predictor with its modules; the copy has the same tensors as weights."""
    known = {id(tensor): tensor for module in _modules(predictor) for tensor in _tensors(module)}
    return copy.deepcopy(predictor, known)


def _modules(thing: Any) -> Iterator[nn.Module]:
    """The networks among the attributes of an object, of their attributes, and so on."""
    from torch import nn

    seen, waiting = set(), [thing]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, nn.Module):
            yield one
        elif isinstance(one, list | tuple):
            waiting += one
        elif type(one).__module__.startswith("regard"):
            waiting += getattr(one, "__dict__", {}).values()


def _tensors(module: nn.Module) -> Iterator[Any]:
    yield from module.parameters()
    yield from module.buffers()
