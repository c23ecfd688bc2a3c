"""What one request may take: who may send it, how large it may be, how long it may last.

ASGI middleware, outside of all routes. A body is counted as it arrives, whatever its head said; one that dribbles in is
given up; and once nobody waits for an answer, the work on it is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
import traceback
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.server.batching import QueueFull
from regard.server.errors import ApiError, problem_answer
from regard.server.metrics import OTHER, ServerMetrics
from regard.server.page import POLICY
from regard.server.settings import ServerSettings

DOCUMENTS = frozenset({"/translate_file", "/v1/documents"})
"""Routes that take whole files."""
GRACE = 5.0
"""Seconds beyond its deadline after which a request is cut off: to write the answer, or if a deadline was missed."""
DISCARDED = 32_000_000
"""Bytes that are read of a body that is too large, before the connection is closed."""


class HostCheck:
    """Lets in only requests that call the server by its name, and changes nothing for pages of other web sites.

    A page on the web can make its own name point to this machine (DNS rebinding), or send a form here: the first gives
    itself away by the Host, the second by what browsers say in Sec-Fetch-Site.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings):
        self.app, self.hosts, self.origins = app, settings.hosts, frozenset(settings.allow_origin)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on."""
        if scope["type"] == "http" and (problem := self._refusal(scope["method"], Headers(scope=scope))):
            await problem_answer(scope["path"], problem)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _refusal(self, method: str, headers: Headers) -> ApiError | None:
        if self.hosts is not None and _host_name(headers.get("host", "")) not in self.hosts:
            return ApiError(421, "this server does not go by the name in the Host header (--allow-host names others)")
        crosses = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if crosses and method not in ("GET", "HEAD", "OPTIONS") and not self._welcome(headers.get("origin", "")):
            return ApiError(403, "pages of other web sites may not use this server (--allow-origin lets them)")
        return None

    def _welcome(self, origin: str) -> bool:
        return "*" in self.origins or origin in self.origins


def _host_name(host: str) -> str:
    """The name in a Host header, without port and brackets; empty for what is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


class RequestLimits:
    """Bounds the size of a request's body, the time it takes to arrive, and the time that its answer may take."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, full_for: Callable[[], float] = lambda: 0.0):
        """`full_for` says in how many seconds there will be room for more work; 0 where there is now."""
        self.app, self.settings, self.full_for = app, settings, full_for
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, if there are not too many."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif self._open >= self.settings.requests:
            problem = ApiError(503, "too many requests at a time; try again later", headers={"Retry-After": "1"})
            await problem_answer(scope["path"], problem)(scope, receive, send)
        else:
            self._open += 1
            try:
                await self._bounded(scope, receive, send)
            finally:
                self._open -= 1

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        whole = scope["path"] in DOCUMENTS
        most = self.settings.document_bytes if whole else self.settings.body_bytes
        seconds = self.settings.document_timeout if whole else self.settings.timeout
        exchange = _Exchange(receive, send, most, self.settings.body_timeout)
        problem: Exception | None = _too_large(most) if _length(scope) > most else None
        if problem is None and scope["method"] == "POST" and (wait := self.full_for()):
            problem = QueueFull(wait)  # before it costs anything to understand it
        if problem:
            if not Headers(scope=scope).get("expect"):  # else the client waits to hear whether it may send
                await exchange.discard()
            await problem_answer(scope["path"], problem)(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self.settings.body_timeout + seconds + GRACE):
                await exchange.run(self.app, scope)
        except TimeoutError as error:
            if not exchange.answering:
                await problem_answer(scope["path"], error)(scope, receive, send)


def _length(scope: Scope) -> int:
    """The length that the head promises. What is not a number was never let in by uvicorn."""
    length = Headers(scope=scope).get("content-length", "0")
    return int(length) if length.isdecimal() and len(length) < 20 else 0


def _too_large(most: int) -> ApiError:
    # Whatever is still to come is not read.
    return ApiError(413, f"the body is larger than {most:,} bytes", headers={"Connection": "close"})


class _Exchange:
    """One request and its answer, watched from both sides."""

    def __init__(self, receive: Receive, send: Send, most: int, seconds: float):
        self._receive, self._send, self._most = receive, send, most
        self._until = asyncio.get_running_loop().time() + seconds
        self._taken = 0
        self._watcher: asyncio.Task[None] | None = None
        self._left = self._answered = self.answering = False

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Call the app; cancelled when the client leaves before it has its answer."""
        self._task = asyncio.current_task()
        try:
            await app(scope, self.receive, self.send)
        except asyncio.CancelledError:
            if not self._left or (self._task and self._task.uncancel()):  # something else wants us to end as well
                raise
        finally:
            if self._watcher:
                self._watcher.cancel()

    async def receive(self) -> Message:
        """What uvicorn has next: parts of the body, within bounds, then the news that the client has left."""
        if self._watcher:
            await asyncio.wait([self._watcher])
            return {"type": "http.disconnect"}
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise ApiError(408, "the body did not arrive in time", headers={"Connection": "close"}) from None
        self._taken += len(message.get("body", b""))
        if self._taken > self._most:
            if message.get("more_body", False):
                await self.discard()
            raise _too_large(self._most)
        if not message.get("more_body", False):
            self._watcher = asyncio.create_task(self._watch())
        return message

    async def discard(self) -> None:
        """Read the rest of a body that is too large, within reason: who is cut off while sending misses the answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._until):
                while self._taken < DISCARDED:
                    message = await self._receive()
                    self._taken += len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._task and not self._answered:
            self._left = True
            self._task.cancel()

    async def send(self, message: Message) -> None:
        """Pass the answer on."""
        self.answering = True
        self._answered = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)


# Headers that every answer carries, whoever made it, unless it has its own.


HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),  # answers hold what a user wrote
]


class SafeHeaders:
    """Adds them."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, with headers."""

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = list(message.get("headers", ()))
                there = {name.lower() for name, _ in own}
                message["headers"] = own + [header for header in HEADERS if header[0] not in there]
            await send(message)

        await self.app(scope, receive, dressed)


# One line for each request, and one place where what nobody expected is caught. No line holds what a user wrote.


logger = logging.getLogger("regard.server")
LONGEST_PATH = 200
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})


def configure_logs(*, quiet: bool) -> None:
    """Write to standard error: a line a request unless `quiet`, and what goes wrong inside the web server."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    for name, level in (("regard.server", logging.WARNING if quiet else logging.INFO), ("uvicorn", logging.ERROR)):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(level)


class RequestLog:
    """Counts, times and logs every request; an exception that nothing else handled becomes a plain answer here."""

    def __init__(self, app: ASGIApp, metrics: ServerMetrics):
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request and tell of it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            with self.metrics.open.track_inprogress():
                await self.app(scope, receive, watched)
        except Exception as error:
            logger.error("%s failed: %s\n%s", _path(scope), type(error).__name__, _frames(error))
            if not status:
                await problem_answer(scope["path"], error)(scope, receive, watched)
        finally:
            self._tell(scope, status, time.perf_counter() - began)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in METHODS else OTHER
        self.metrics.count(method, getattr(scope.get("route"), "path", OTHER), status, seconds)
        logger.info("%s %s %s %.1f ms", method, _path(scope), status or "left", 1000 * seconds)


def _path(scope: Scope) -> str:
    """The path as it was sent, percent signs and all: one line, without the query."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0][:LONGEST_PATH].decode("ascii", "backslashreplace")


def _frames(error: Exception) -> str:
    """Where it happened. The message of an exception may hold a user's text, so only its type is told."""
    return "".join(traceback.format_tb(error.__traceback__)).rstrip()
