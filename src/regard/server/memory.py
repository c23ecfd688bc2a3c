"""Memory of a process that lives long and is asked for sentences of every length."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from regard.system import give_back

INTERVAL = 10.0
"""Seconds. Giving back takes some milliseconds, in which no thread can ask for memory."""


async def give_back_now_and_then(worked: Callable[[], int], every: float = INTERVAL) -> None:
    """Give memory back every so many seconds in which something was done; `worked` counts what was, since the start."""
    before = worked()
    while True:
        await asyncio.sleep(every)
        if (now := worked()) != before:
            before = now
            await asyncio.to_thread(give_back)
