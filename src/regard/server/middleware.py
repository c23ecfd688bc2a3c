"""ASGI middleware around all routes: checks of the host and origin, limits on size and time, headers, and the log.

The bytes of a body are counted when they arrive, because the header Content-Length may be wrong. A body that arrives
too slowly is refused. When a client disconnects, its request is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.server.api_keys import ApiKeys
from regard.server.batching import CLIENT, RESERVE, QueueFull
from regard.server.errors import ApiError, error_response
from regard.server.metrics import OTHER, ServerMetrics
from regard.server.page import POLICY
from regard.server.settings import ServerSettings

DOCUMENTS = frozenset({"/translate_file", "/v1/documents"})
"""Routes that accept files."""
GRACE = 5.0
"""A request is aborted this many seconds after its deadline, so that there is time to send the response."""
DISCARDED_BYTES = 32_000_000
"""Maximum number of bytes of a refused body that are still read before the connection is closed."""


_HOST = re.compile(r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?")


class HostCheck:
    """Refuses requests with a wrong name in the Host header, and POST requests from pages of other web sites.

    A web site can make its own host name point to this machine (DNS rebinding): then the Host header has the name of
    that web site. A page of a web site can also send a form to this server: then the browser says in the header
    Sec-Fetch-Site that the request comes from another site.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings):
        self.app, self.hosts, self.origins = app, settings.hosts, frozenset(settings.allow_origin)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self._refusal(scope["method"], Headers(scope=scope))):
            await error_response(scope["path"], refusal)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _refusal(self, method: str, headers: Headers) -> ApiError | None:
        hosts = headers.getlist("host")
        found = _HOST.fullmatch(hosts[0]) if hosts else None
        if len(hosts) > 1 or (hosts and hosts[0] and not found):
            return ApiError(400, "the request must have one Host header with a name and, optionally, a port")
        if self.hosts is not None and (found is None or found["name"].strip("[]").lower() not in self.hosts):
            return ApiError(421, "this server is not configured for the name in the Host header (see --allow-host)")
        origin = headers.get("origin", "")
        crosses = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if "sec-fetch-site" not in headers and origin:  # an old browser
            crosses = origin.partition("://")[2].lower() != (hosts[0].lower() if hosts else "")
        allowed = "*" in self.origins or origin in self.origins
        if crosses and not allowed and method not in ("GET", "HEAD", "OPTIONS"):
            return ApiError(403, "pages of other web sites may not use this server (see --allow-origin)")
        return None


class RequestLimits:
    """Limits the number of open requests, the size of a body, and the time for the body and for the response."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        full_for: Callable[[], float] = lambda: 0.0,
        keys: ApiKeys | None = None,
        pictures: Collection[str] = (),
    ):
        """`full_for` returns the number of seconds until the queues accept another request; 0 if they accept it now.

        `keys`: clients with a valid API key are told apart by it, other clients by their address. `pictures`: the paths
        of routes that accept pictures.
        """
        self.app, self.settings, self.full_for, self.keys, self.pictures = app, settings, full_for, keys, pictures
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        client = client_of(scope, self.keys)
        if self._is_full(client):
            refusal = ApiError(503, "too many open requests; try again later", headers={"Retry-After": "1"})
            await error_response(scope["path"], refusal)(scope, receive, send)
            return
        self._open[client] += 1
        before = CLIENT.set(client)
        try:
            await self._limited(scope, receive, send)
        finally:
            CLIENT.reset(before)
            self._open -= Counter([client])  # removes counts of 0

    def _is_full(self, client: str) -> bool:
        """Whether another request of a client is refused; clients without open requests have a reserve."""
        most = self.settings.requests if client in self._open else RESERVE * self.settings.requests
        return self._open.total() >= most

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the app, or answer with an error: body too large, queues full, or time limit reached."""
        is_file = scope["path"] in DOCUMENTS
        is_large = is_file or scope["path"] in self.pictures
        most = self.settings.document_bytes if is_large else self.settings.body_bytes
        seconds = self.settings.document_timeout if is_file else self.settings.timeout
        exchange = _Exchange(receive, send, most, self.settings.body_timeout)
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")  # uvicorn has refused values that are not numbers
        is_too_large = length.isdecimal() and len(length) < 20 and int(length) > most
        refusal: Exception | None = _too_large(most) if is_too_large else None
        if refusal is None and scope["method"] == "POST" and (wait := self.full_for()):
            refusal = QueueFull(wait)  # before the body is parsed
        if refusal:
            if not headers.get("expect"):  # a client with this header has not sent the body yet
                await exchange.discard()
            await error_response(scope["path"], refusal)(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self.settings.body_timeout + seconds + GRACE):
                await exchange.run(self.app, scope)
        except TimeoutError as error:
            if not exchange.answering:
                await error_response(scope["path"], error)(scope, receive, send)


def client_of(scope: Scope, keys: ApiKeys | None = None) -> str:
    """Who sends a request: the API key, if it is valid, otherwise the address of the client."""
    if keys is not None:
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and keys.is_valid(key.strip()):
            return f"key {key.strip()}"
    address = (scope.get("client") or ("",))[0]
    with contextlib.suppress(ValueError):
        if (found := ipaddress.ip_address(address)).version == 6 and found.ipv4_mapped is None:
            return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))  # one client has many addresses
    return str(address)


def _too_large(most: int) -> ApiError:
    # The rest of the body is not read.
    return ApiError(
        413, f"the body is larger than {most:,} bytes; send less per request", headers={"Connection": "close"}
    )


class _Exchange:
    """One HTTP request and its response; the request is cancelled if the client disconnects.

    The request body may have at most `most` bytes and must arrive within `seconds`.
    """

    def __init__(self, receive: Receive, send: Send, most: int, seconds: float):
        self._receive, self._send, self._most = receive, send, most
        self._until = asyncio.get_running_loop().time() + seconds
        self._taken = 0
        self._watcher: asyncio.Task[None] | None = None
        self._left = self._answered = self.answering = False

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Call the app, and cancel it if the client disconnects before the response is sent."""
        self._task = asyncio.current_task()
        try:
            await app(scope, self.receive, self.send)
        except asyncio.CancelledError:
            if not self._left or (self._task and self._task.uncancel()):  # also cancelled by other code
                raise
        finally:
            if self._watcher:
                self._watcher.cancel()

    async def receive(self) -> Message:
        """The next ASGI message: a part of the body, within the limits; after the body, wait for the disconnection."""
        if self._watcher:
            await asyncio.wait([self._watcher])
            return {"type": "http.disconnect"}
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise ApiError(
                408, "the request body did not arrive in time; send a smaller one", headers={"Connection": "close"}
            ) from None
        self._taken += len(message.get("body", b""))
        if self._taken > self._most:
            if message.get("more_body", False):
                await self.discard()
            raise _too_large(self._most)
        if not message.get("more_body", False):
            self._watcher = asyncio.create_task(self._watch())
        return message

    async def discard(self) -> None:
        """Read the rest of a refused body, up to a limit: a client that is still sending would not get the response."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._until):
                while self._taken < DISCARDED_BYTES:
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
        self.answering = True
        self._answered = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)


HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),  # responses contain texts of users
]
"""Headers that are added to every response, unless the response has them already."""

logger = logging.getLogger("regard.server")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})


def configure_logs(*, quiet: bool) -> None:
    """Set up logging to standard error: errors and, unless `quiet`, one line per request."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    for name, level in (("regard.server", logging.WARNING if quiet else logging.INFO), ("uvicorn", logging.ERROR)):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(level)


class RequestLog:
    """Counts, times and logs requests (never their texts), answers unexpected errors with 500, and adds `HEADERS`."""

    def __init__(self, app: ASGIApp, metrics: ServerMetrics):
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0
        method = scope["method"] if scope["method"] in METHODS else OTHER
        # The path is logged as it was sent, percent-encoded, without the query, so that it is always one line.
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        path = raw.partition(b"?")[0][:200].decode("ascii", "backslashreplace")

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = list(message.get("headers", ()))
                there = {name.lower() for name, _ in own}
                message["headers"] = own + [header for header in HEADERS if header[0] not in there]
            await send(message)

        try:
            with self.metrics.open.track_inprogress():
                await self.app(scope, receive, send_with_headers)
        except Exception as error:
            # The message of the exception is not logged: it may contain a text of a user.
            frames = "".join(traceback.format_tb(error.__traceback__)).rstrip()
            logger.error("%s failed: %s\n%s", path, type(error).__name__, frames)
            if not status:
                await error_response(scope["path"], error)(scope, receive, send_with_headers)
        finally:
            seconds = time.perf_counter() - began
            self.metrics.count(method, getattr(scope.get("route"), "path", OTHER), status, seconds)
            logger.info("%s %s %s %.1f ms", method, path, status or "client left", 1000 * seconds)
