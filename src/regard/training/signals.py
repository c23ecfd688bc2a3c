"""Signals that stop a command: Ctrl-C, SIGTERM, and SIGHUP when the terminal is closed.

Training saves a checkpoint and stops (`StopRequest`); other commands keep what is done and end (`interruptible`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from regard.errors import Terminated
from regard.system import STOP_SIGNALS

HANGUP = getattr(signal, "SIGHUP", None)
"""The signal of a closed terminal; not every system has it."""


class StopRequest:
    """While entered, records that a stop was requested instead of ending the process."""

    def __init__(self) -> None:
        self.requested = False
        self.terminated = False
        """Whether another signal than Ctrl-C requested it."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # only the main thread receives signals
            self._before = {
                number: signal.signal(number, self._handle) for number in STOP_SIGNALS if _is_handled(number)
            }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        if number == HANGUP:
            _leave_closed_terminal()
        self.requested, self.terminated = True, number != signal.SIGINT

    def interruption(self) -> KeyboardInterrupt:
        """The exception that ends the command after everything is saved."""
        return Terminated() if self.terminated else KeyboardInterrupt()


def _is_handled(number: int) -> bool:
    """Not SIGHUP if it is ignored: `nohup` does that, so that the command continues without the terminal."""
    return number != HANGUP or signal.getsignal(number) is not signal.SIG_IGN


def _leave_closed_terminal() -> None:
    """Discard further output to a closed terminal: an error in writing there would prevent saving the checkpoint."""
    null = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
                os.dup2(null, descriptor)
    os.close(null)


@contextmanager
def interruptible() -> Iterator[None]:
    """Within the block SIGTERM and SIGHUP raise `Terminated`. On an interruption all child processes are ended."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread receives signals
        yield
        return
    handled = [number for number in STOP_SIGNALS if number != signal.SIGINT and _is_handled(number)]
    before = {number: signal.signal(number, _terminate) for number in handled}
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
