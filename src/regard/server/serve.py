"""The web server: bind a socket, open the runs, answer requests, and stop on a signal after the accepted requests.

This file also adds limits on request heads to uvicorn's HTTP protocol. No other file uses private parts of uvicorn.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import httptools
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from regard.errors import SettingsError
from regard.server.app import create_app
from regard.server.middleware import configure_logs
from regard.server.runs import Log, ServedRun, ServedRuns
from regard.server.settings import ServerSettings
from regard.system import HANGUP, STOP_SIGNALS, share_one_heap


def serve(runs: Sequence[str | Path], settings: ServerSettings, log: Log) -> None:
    """Open the run folders and answer requests until SIGTERM or SIGINT. `log` prints warnings and the server's URL."""
    share_one_heap()
    with contextlib.closing(bind(settings.host, settings.port)) as listener:  # first: reports a port in use at once
        opened = ServedRuns.open(runs, settings, log)
        app = create_app(opened, settings)
        configure_logs(quiet=settings.quiet)
        for line in warnings(opened, settings):
            log(line)
        names = ", ".join(f"{one.name} ({_languages(one)}{one.about['arch']})" for one in opened.served.values())
        ready = f"serving {names}; open {address(listener)} (Ctrl-C stops)"
        make_server(app, settings, lambda: log(ready)).run(sockets=[listener])


def warnings(runs: ServedRuns, settings: ServerSettings) -> Iterator[str]:
    """Yield a line if other machines can use the server without a key, and one per pair that several runs translate."""
    if not settings.is_local and not settings.keys:
        yield f"warning: with --host {settings.host} and no --keys, everyone who can reach this machine can use it"
    for first, *others in runs.same_pair():
        names = ", ".join(one.name for one in others)
        uses = f"/translate uses {first.name}; to use {names}, set model at /v1/translate"
        yield f"{first.source} to {first.target}: {uses}"


def _languages(run: ServedRun) -> str:
    return f"{run.source} to {run.target}, " if run.translates and run.source and run.target else ""


def bind(host: str, port: int) -> socket.socket:
    """Return a bound socket that does not listen yet, so that connections are refused until the models are loaded."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise SettingsError(
            f"--host {host}: not an address ({error.strerror}); give an address of this machine, e.g. 127.0.0.1"
        ) from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"cannot listen on {host}, port {port} ({error.strerror}); choose another --host or --port"
        ) from None
    return listener


def address(listener: socket.socket) -> str:
    """The URL of the server for a browser. A socket on all addresses (0.0.0.0 or ::) gets the loopback address."""
    host, port = listener.getsockname()[:2]
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}"


def make_server(app: FastAPI, settings: ServerSettings, ready: Callable[[], None] = lambda: None) -> Server:
    """Return a uvicorn server for `app` with limits on request headers; it calls `ready` when it accepts requests."""
    longest = max(settings.timeout, settings.document_timeout)
    config = uvicorn.Config(
        app,
        # uvicorn creates the protocol of each connection itself, so our setting is an attribute of a subclass
        http=type(
            "Protocol",
            (BoundedProtocol,),
            {"head_timeout": settings.body_timeout, "send_timeout": settings.send_timeout},
        ),
        loop="asyncio",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(settings.body_timeout + longest),
    )
    return Server(config, ready)


class Server(uvicorn.Server):
    """uvicorn's server, but it calls `ready` when it accepts requests, and it returns after SIGTERM or SIGINT.

    SIGHUP opens the runs again. If it comes because the terminal was closed, the server stops.
    """

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]):
        super().__init__(config)
        self._ready = ready
        self._has_terminal = _is_terminal()
        self._reloading: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Context manager in which signals are handled; it does nothing outside the main thread."""
        try:
            loop = asyncio.get_running_loop()
            before = {number: signal.signal(number, self.handle_exit) for number in STOP_SIGNALS}
            if HANGUP is not None and HANGUP in before:
                signal.signal(HANGUP, lambda number, frame: loop.call_soon_threadsafe(self._hang_up, number, frame))
        except ValueError:  # not in the main thread
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hang_up(self, number: int, frame: FrameType | None) -> None:
        if self._has_terminal and not _is_terminal():
            self.handle_exit(number, frame)
        elif self._reloading is None or self._reloading.done():
            app: Any = self.config.app
            self._reloading = asyncio.get_running_loop().create_task(app.state.reload())


def _is_terminal() -> bool:
    return os.isatty(2)


# ---------------------------------------------------------------------------------------------------------------------
# Limits on the size of request heads and on the time in which they must arrive

HEAD_BYTES = 32_000
"""Maximum number of bytes of a request head. Head and framing of a chunked body may exceed the body by this number."""


LEAST_READ = 16_000
"""Minimum number of bytes of a response that a client must read per `send_timeout`."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, but a connection is closed if the request headers are too long or arrive too slowly.

    The limits are HEAD_BYTES and `head_timeout` seconds. uvicorn itself waits for the end of the headers without a
    time limit, and its parser buffers headers, trailers and chunk framing of any length. A connection is also closed
    if the client does not read the response: LEAST_READ bytes in `send_timeout` seconds. uvicorn keeps a response in
    memory until it is read.
    """

    head_timeout = 15.0
    send_timeout = 30.0
    _reading: asyncio.TimerHandle | None = None
    _unread_response = 0  # bytes that waited to be sent when the timer `_reading` was started
    _timer: asyncio.TimerHandle | None = None
    _unread = 0  # bytes received of this request, minus twice those of its body
    _head = 0  # bytes of its headers

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._update_timer()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._unread += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if self._unread > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The headers of the request have more than {HEAD_BYTES:,} bytes.")
        self._update_timer()

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self.parser.get_method() == b"CONNECT":  # the parser expects another protocol after the head
                self.send_400_response("CONNECT is not supported.")
                return
            # Some clients offer to upgrade to another protocol in their first request, which may have a body. The
            # parser stops after the head of such a request; a new parser reads the request without the offer.
            head = [b"%s %s HTTP/1.1" % (self.parser.get_method(), self.url), b"connection: close"]
            head += [b"%s: %s" % header for header in self.headers if header[0] not in (b"connection", b"upgrade")]
            self.parser = httptools.HttpRequestParser(self)
            self.parser.feed_data(b"\r\n".join([*head, b"", data[offer.args[0] :]]))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()
        if self._reading is not None:
            self._reading.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread_response = sys.maxsize  # the client has read; from now on, more may be written

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_reading()

    def _watch_reading(self) -> None:
        if self._reading is None and (waiting := self.transport.get_write_buffer_size()):
            self._unread_response = waiting
            self._reading = self.loop.call_later(self.send_timeout, self._check_reading)

    def _check_reading(self) -> None:
        self._reading = None
        waiting = self.transport.get_write_buffer_size()
        if waiting and self._unread_response - waiting < LEAST_READ:
            self.transport.abort()
        else:
            self._watch_reading()

    def on_message_begin(self) -> None:
        self._head = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value)
        if self._head > HEAD_BYTES:
            # The parser stops reading the request.
            raise ValueError(f"the headers of the request have more than {HEAD_BYTES:,} bytes; send shorter headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread -= 2 * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
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
