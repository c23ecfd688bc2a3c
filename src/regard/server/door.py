"""A door that lets everyone out and, once it is closing, nobody in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from regard.server.batcher import Closing


class Door:
    """Counts who is inside."""

    def __init__(self) -> None:
        self.inside = 0
        self._closing, self._empty = False, asyncio.Event()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be inside for the length of a `with` block."""
        if self._closing:
            raise Closing("the server is shutting down")
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
            if not self.inside:
                self._empty.set()

    async def close(self) -> None:
        """Let nobody in any more, and wait until all have left."""
        self._closing = True
        self._empty.clear()
        if self.inside:
            await self._empty.wait()
