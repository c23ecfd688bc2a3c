"""HTTP as uvicorn speaks it, which gives up on connections that take too long to say what they want."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol


class PatientProtocol(H11Protocol):
    """While no request is being answered, a clock runs until the head of the next one is there.

    uvicorn closes connections that say nothing after an answer; not those that never say enough.
    """

    patience = 15.0
    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client came."""
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        """It said something: part of a head, or all of it and more."""
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """It left."""
        super().connection_lost(exc)
        self._stop()

    def _look(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._clock is None:
            self._clock = self.loop.call_later(self.patience, self.transport.close)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None


def patient_protocol(seconds: float) -> type[PatientProtocol]:
    """The protocol with its patience; uvicorn makes one for each connection and hands it nothing of ours."""
    return type("PatientProtocol", (PatientProtocol,), {"patience": seconds})
