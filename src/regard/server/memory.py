"""Memory of a process that lives long and is asked for sentences of every length."""

from __future__ import annotations

import ctypes

_ARENA_MAX = -8
"""glibc's name for how many heaps its threads may have."""


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
