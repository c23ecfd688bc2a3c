"""From settings to a running server: bind, load, serve, and finish the accepted requests on a signal."""

from __future__ import annotations

import contextlib
import math
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from regard.errors import SettingsError
from regard.server.app import create_app
from regard.server.middleware import configure_logs
from regard.server.protocol import bounded_protocol
from regard.server.runs import ServedRuns
from regard.server.settings import ServerSettings
from regard.system import STOP_SIGNALS, share_one_heap

if TYPE_CHECKING:
    from fastapi import FastAPI

    from regard.server.served_run import Log, ServedRun


def serve(runs: Sequence[str | Path], settings: ServerSettings, log: Log) -> None:
    """Open the runs and answer requests until SIGTERM or SIGINT.

    `log` gets warnings, a line about each conversion, and one line when the server is ready.
    """
    share_one_heap()
    with contextlib.closing(bind(settings.host, settings.port)) as listener:  # reports a port in use at once
        opened = ServedRuns.open(runs, settings, log)
        app = create_app(opened, settings)
        configure_logs(quiet=settings.quiet)
        for line in warnings(opened, settings):
            log(line)
        names = ", ".join(map(describe, opened.served.values()))
        ready = f"serving {names}; open {address(listener)} (Ctrl-C stops)"
        make_server(app, settings, lambda: log(ready)).run(sockets=[listener])


def warnings(runs: ServedRuns, settings: ServerSettings) -> Iterator[str]:
    """Lines about settings that may be mistakes."""
    if not settings.is_local and not settings.keys:
        yield f"warning: with --host {settings.host} and no --keys, everyone who reaches this machine can use it"
    for first, *others in runs.same_pair():
        names = ", ".join(one.name for one in others)
        pair = f"{first.source} to {first.target}"
        yield f"{pair}: /translate uses {first.name}; to use {names}, set model at /v1/translate"


def describe(served: ServedRun) -> str:
    """Name, languages and architecture of a run."""
    pair = served.translates and served.source and served.target
    return f"{served.name} ({f'{served.source} to {served.target}, ' if pair else ''}{served.about()['arch']})"


def bind(host: str, port: int) -> socket.socket:
    """A bound socket. It does not listen yet: until the models are loaded, connections are refused."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise SettingsError(f"--host {host}: not an address of this machine ({error.strerror})") from None
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
    """The address for a browser. For "any address" it is the loopback address."""
    host, port = listener.getsockname()[:2]
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}"


def make_server(app: FastAPI, settings: ServerSettings, ready: Callable[[], None] = lambda: None) -> Server:
    """A web server for the app, with the same parser and event loop whatever else is installed."""
    longest = max(settings.timeout, settings.document_timeout)
    config = uvicorn.Config(
        app,
        http=bounded_protocol(settings.body_timeout),
        loop="asyncio",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(settings.body_timeout + longest),
    )
    return Server(config, ready)


class Server(uvicorn.Server):
    """uvicorn's server, which returns after SIGTERM or SIGINT instead of raising the signal again."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]):
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and then call `ready`."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals while the server runs; only possible in the main thread."""
        try:
            before = {number: signal.signal(number, self.handle_exit) for number in STOP_SIGNALS}
        except ValueError:
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
