"""From settings to a running server, and back: listen, serve, and on a signal finish what was taken."""

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

    from regard.server.runs import ServedRun


Log = Callable[[str], None]


def serve(runs: Sequence[str | Path], settings: ServerSettings, log: Log) -> None:
    """Open the runs and answer requests until SIGTERM or SIGINT.

    `tell` hears what a conversion cost, what may not be meant, and one line once all is ready.
    """
    share_one_heap()
    with contextlib.closing(bind(settings.host, settings.port)) as listener:  # tells of a port in use at once
        fleet = ServedRuns.open(
            runs,
            engine=settings.engine,
            quantization=settings.quantization,
            threads=settings.threads,
            batch=settings.batch,
            queue=settings.queue,
            log=log,
        )
        app = create_app(fleet, settings)
        configure_logs(quiet=settings.quiet)
        for line in cautions(fleet, settings):
            log(line)
        opened = f"serving {', '.join(map(describe, fleet.served.values()))}; open {address(listener)} (Ctrl-C stops)"
        make_server(app, settings, lambda: log(opened)).run(sockets=[listener])


def cautions(fleet: ServedRuns, settings: ServerSettings) -> Iterator[str]:
    """What whoever starts the server may not have meant."""
    if not settings.is_local and not settings.keys:
        yield f"warning: with --host {settings.host} and no --keys, everyone who reaches this machine may ask"
    for first, *others in fleet.rivals():
        names = ", ".join(one.name for one in others)
        pair = f"{first.source} to {first.target}"
        yield f"{pair}: /translate takes {first.name}; ask for {names} by name at /v1/translate"


def describe(served: ServedRun) -> str:
    """A run in a few words."""
    pair = f"{served.source} to {served.target}, " if served.source and served.target else ""
    return f"{served.name} ({pair if served.kind == 'translate' else ''}{served.about()['arch']})"


def bind(host: str, port: int) -> socket.socket:
    """A socket with an address. It does not listen yet: until the models are loaded, connections are refused."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise SettingsError(f"--host {host}: there is no such address ({error.strerror})") from None
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
    """Where to find what listens there. A browser cannot go to "any address": this machine's own will do."""
    host, port = listener.getsockname()[:2]
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}"


def make_server(app: FastAPI, settings: ServerSettings, ready: Callable[[], None] = lambda: None) -> Server:
    """A web server for the app: the same parser and event loop whatever else is installed."""
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
    """uvicorn's server, which after SIGTERM or SIGINT comes to its end, instead of raising the signal once more."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]):
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell when that is done."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Hear the signals for as long as the server runs. Only the main thread can."""
        try:
            before = {number: signal.signal(number, self.handle_exit) for number in STOP_SIGNALS}
        except ValueError:
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
