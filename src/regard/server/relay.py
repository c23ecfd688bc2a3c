"""From a thread to the event loop: what was said meanwhile, all of it at one waking."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

Said = TypeVar("Said")


class Relay(Generic[Said]):
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
