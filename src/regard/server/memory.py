"""Memory of a process that lives long and is asked for sentences of every length."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
from collections.abc import Callable

_ARENA_MAX = -8
"""glibc's name for how many heaps its threads may have."""
INTERVAL = 10.0
"""Seconds. Giving back takes some milliseconds, in which no thread can ask for memory."""


def share_one_heap() -> bool:
    """Let all threads take memory from one heap; call it before there are threads.

    glibc gives threads heaps of their own, and what one has freed no other can use, so that a process that is asked
    for texts of all lengths grows for long (`tests/surface/test_hostile.py` watches it). Elsewhere (musl, macOS)
    nothing happens and False comes back.
    """
    try:
        return bool(ctypes.CDLL(None).mallopt(_ARENA_MAX, 1))
    except (AttributeError, OSError):
        return False


def give_back() -> None:
    """Return to the system whatever pages are free, also those between pages in use; where the library can."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


async def give_back_now_and_then(worked: Callable[[], int], every: float = INTERVAL) -> None:
    """Give memory back every so many seconds in which something was done; `worked` counts what was, since the start."""
    before = worked()
    while True:
        await asyncio.sleep(every)
        if (now := worked()) != before:
            before = now
            await asyncio.to_thread(give_back)
