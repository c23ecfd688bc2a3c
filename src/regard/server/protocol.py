"""uvicorn's HTTP protocol with limits on the size and the time of request heads.

The only module that uses private parts of uvicorn.
"""

from __future__ import annotations

import asyncio

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 32_000
"""Maximum length of the head of a request; chunk framing may additionally be as long as the body."""


class HeadTooLong(Exception):  # noqa: N818  an answer, not an error
    """The parser stops reading the request."""


class BoundedProtocol(HttpToolsProtocol):
    """While no request is being answered, a timer runs until the head of the next one is complete.

    uvicorn closes connections that are idle after a response, but not those that never complete a head. And the parser
    buffers everything but bodies until it is complete: heads, trailers, the framing of chunks.
    """

    head_timeout = 15.0
    _timer: asyncio.TimerHandle | None = None
    _unread = 0  # bytes of this request that are not known to be body
    _head = 0  # bytes of its headers

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected."""
        super().connection_made(transport)
        self._update_timer()

    def data_received(self, data: bytes) -> None:
        """Parse what the client sent."""
        self._unset_keepalive_if_required()
        self._unread += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if self._unread > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")
        self._update_timer()

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self.parser.get_method() == b"CONNECT":  # the parser takes what follows for another protocol
                self.send_400_response("CONNECT is not supported.")
                return
            # Some clients offer another protocol with their first request, which may have a body. The parser stops
            # after the head of such a request; a new parser reads it without the offer.
            head = [b"%s %s HTTP/1.1" % (self.parser.get_method(), self.url), b"connection: close"]
            head += [b"%s: %s" % header for header in self.headers if header[0] not in (b"connection", b"upgrade")]
            self.parser = httptools.HttpRequestParser(self)
            self.parser.feed_data(b"\r\n".join([*head, b"", data[offer.args[0] :]]))

    def connection_lost(self, exc: Exception | None) -> None:
        """The client disconnected."""
        super().connection_lost(exc)
        self._stop_timer()

    def on_message_begin(self) -> None:
        """A request starts."""
        self._head = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header or a trailer is complete."""
        self._head += len(name) + len(value)
        if self._head > HEAD_BYTES:
            raise HeadTooLong
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is complete."""
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Part of a body arrived."""
        self._unread -= 2 * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is complete."""
        self._unread = 0
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _update_timer(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.head_timeout, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def bounded_protocol(seconds: float) -> type[BoundedProtocol]:
    """The protocol with a time limit for heads; uvicorn creates one per connection, without arguments of ours."""
    return type("BoundedProtocol", (BoundedProtocol,), {"head_timeout": seconds})
