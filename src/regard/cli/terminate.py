"""SIGTERM as Ctrl-C: what is done is kept, helpers are ended, and a line says how to go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from regard.errors import Terminated


@contextmanager
def interruptible() -> Iterator[None]:
    """While entered, SIGTERM raises `Terminated`; when interrupted, processes started here end at once."""
    if threading.current_thread() is not threading.main_thread():  # signals reach no other thread
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except KeyboardInterrupt:
        import multiprocessing

        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: object) -> None:
    raise Terminated
