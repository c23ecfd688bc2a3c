"""Ctrl-C and SIGTERM ask the loop to save and leave; a second Ctrl-C leaves at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from regard.errors import Terminated


class StopRequest:
    """While entered, remembers that a stop was asked for instead of dying of it."""

    def __init__(self) -> None:
        self.requested = False
        self.terminated = False
        """Whether SIGTERM asked for it."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # signals reach no other thread
            self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested, self.terminated = True, number == signal.SIGTERM

    def interruption(self) -> KeyboardInterrupt:
        """What the command ends with, once all is saved."""
        return Terminated() if self.terminated else KeyboardInterrupt()
