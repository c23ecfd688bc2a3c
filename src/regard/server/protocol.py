"""HTTP as uvicorn and httptools speak it, within bounds: on what is no body, and on the time a head may take."""

from __future__ import annotations

import asyncio

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 32_000
"""The head of a request is at most so long; what frames its body may be as long as the body on top of that."""


class HeadTooLong(Exception):  # noqa: N818  an answer, not an error
    """The parser gives up on such a request."""


class BoundedProtocol(HttpToolsProtocol):
    """While no request is being answered, a clock runs until the head of the next one is there.

    uvicorn closes connections that say nothing after an answer; not those that never say enough. And the parser keeps
    whatever is no body until it has an end: heads, trailers, the framing of chunks.
    """

    patience = 15.0
    _clock: asyncio.TimerHandle | None = None
    _unread = 0  # bytes of this request that are no body, as far as is known
    _head = 0  # bytes of its headers

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client came."""
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        """It said something: part of a head, or all of it and more."""
        self._unset_keepalive_if_required()
        self._unread += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if self._unread > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")
        self._look()

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            # Some clients offer another protocol with their first request, body and all. The parser stops at the head
            # of such a request for good: another one reads it as if nothing had been offered.
            head = [b"%s %s HTTP/1.1" % (self.parser.get_method(), self.url), b"connection: close"]
            head += [b"%s: %s" % header for header in self.headers if header[0] not in (b"connection", b"upgrade")]
            self.parser = httptools.HttpRequestParser(self)
            self.parser.feed_data(b"\r\n".join([*head, b"", data[offer.args[0] :]]))

    def connection_lost(self, exc: Exception | None) -> None:
        """It left."""
        super().connection_lost(exc)
        self._stop()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._head = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header is there, or a trailer."""
        self._head += len(name) + len(value)
        if self._head > HEAD_BYTES:
            raise HeadTooLong
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there."""
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Part of a body is there."""
        self._unread -= 2 * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._unread = 0
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _look(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._clock is None:
            self._clock = self.loop.call_later(self.patience, self.transport.close)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None


def bounded_protocol(seconds: float) -> type[BoundedProtocol]:
    """The protocol with its patience; uvicorn makes one for each connection and hands it nothing of ours."""
    return type("BoundedProtocol", (BoundedProtocol,), {"patience": seconds})
