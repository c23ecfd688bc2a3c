"""SIGTERM and SIGHUP like Ctrl-C: what is done is kept, worker processes end, and a line says how to go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from regard.errors import Terminated
from regard.system import STOP_SIGNALS


@contextmanager
def interruptible() -> Iterator[None]:
    """While entered, SIGTERM or SIGHUP raises `Terminated`; when interrupted, processes started here end at once."""
    if threading.current_thread() is not threading.main_thread():  # signals reach no other thread
        yield
        return
    before = {number: signal.signal(number, _terminate) for number in STOP_SIGNALS if number != signal.SIGINT}
    try:
        yield
    except KeyboardInterrupt:
        import multiprocessing

        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _terminate(number: int, frame: object) -> None:
    raise Terminated
