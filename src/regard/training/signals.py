"""Signals that stop a command: Ctrl-C, SIGTERM, and SIGHUP when the terminal is closed.

Training saves a checkpoint and stops (`StopRequest`); other commands keep finished work and end (`interruptible`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from regard.errors import Terminated
from regard.system import HANGUP, STOP_SIGNALS


@contextmanager
def _handling(numbers: Iterable[int], handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Within the `with` block, `handle` is called for the signals `numbers`. Does nothing outside the main thread.

    An ignored SIGHUP stays ignored: `nohup` ignores it, so that the command continues without the terminal.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread receives signals
        yield
        return
    handled = [number for number in numbers if number != HANGUP or signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class StopRequest:
    """Within the `with` block, a signal only sets `requested` to True; a second Ctrl-C raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.requested = False
        self.terminated = False
        """Whether a signal other than Ctrl-C requested the stop."""
        self._handling = _handling(STOP_SIGNALS, self._handle)

    def __enter__(self) -> StopRequest:
        self._handling.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._handling.__exit__(None, None, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        if number == HANGUP:
            _leave_closed_terminal()
        self.requested, self.terminated = True, number != signal.SIGINT

    def interruption(self) -> KeyboardInterrupt:
        """The exception to raise after everything is saved: KeyboardInterrupt after Ctrl-C, else Terminated."""
        return Terminated() if self.terminated else KeyboardInterrupt()


def _leave_closed_terminal() -> None:
    """Redirect output from the closed terminal to the null device: errors in writing would prevent the checkpoint."""
    null = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
                os.dup2(null, descriptor)
    os.close(null)


@contextmanager
def interruptible() -> Iterator[None]:
    """Within the `with` block, SIGTERM and SIGHUP raise `Terminated`; an interruption also ends all child processes."""

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Terminated

    with _handling([number for number in STOP_SIGNALS if number != signal.SIGINT], terminate):
        try:
            yield
        except KeyboardInterrupt:
            import multiprocessing

            for child in multiprocessing.active_children():
                child.terminate()
            raise
