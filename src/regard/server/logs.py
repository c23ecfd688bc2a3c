"""One line for each request, and one place where what nobody expected is caught. No line holds what a user wrote."""

from __future__ import annotations

import logging
import sys
import time
import traceback

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.server.metrics import OTHER, Metrics
from regard.server.problems import problem_answer

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


class Observer:
    """Counts, times and logs every request; an exception that nothing else handled becomes a plain answer here."""

    def __init__(self, app: ASGIApp, metrics: Metrics):
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
