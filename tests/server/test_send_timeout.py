"""Clients that do not read their response are disconnected; SIGHUP opens the runs again."""

import asyncio
import contextlib
import signal
import socket
import threading
import time
from contextlib import closing, contextmanager
from types import SimpleNamespace

from fastapi import FastAPI, Response

from regard.server import serve
from regard.server.serve import bind, make_server
from regard.server.settings import ServerSettings

LARGE = 6_000_000


@contextmanager
def server(**options):
    """A server with one large response, on a free port."""
    app, settings = FastAPI(), ServerSettings(port=0, **options)
    app.add_api_route("/large", lambda: Response(bytes(LARGE)))
    with closing(bind(settings.host, settings.port)) as listener:
        running = make_server(app, settings)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        while not running.started:
            time.sleep(0.01)
        try:
            yield running, listener.getsockname()
        finally:
            running.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


def ask(address):
    """A client with small buffers that has sent a request."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(30)
    client.connect(address)
    client.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return client


def test_a_client_that_does_not_read_is_disconnected():
    with server(send_timeout=0.3) as (running, address), closing(ask(address)) as client:
        until = time.monotonic() + 30
        connected = True
        while connected and time.monotonic() < until:
            time.sleep(0.1)
            connected = bool(running.server_state.connections)
        assert not connected
        read = 0
        with contextlib.suppress(ConnectionResetError):
            while data := client.recv(65536):
                read += len(data)
        assert read < LARGE


def test_a_client_that_reads_slowly_gets_everything():
    with server(send_timeout=1.0) as (_, address), closing(ask(address)) as client:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")  # sent ahead
        read = 0
        while data := client.recv(1_000_000):
            read += len(data)
            if read < LARGE // 50:
                time.sleep(0.02)
        assert read > 2 * LARGE


def test_sighup_opens_the_runs_again_but_stops_when_the_terminal_is_gone(monkeypatch):
    reloaded = []

    async def reload():
        reloaded.append(True)

    async def scenario():
        app = FastAPI()
        app.state.reload = reload
        running = make_server(app, ServerSettings(port=0))
        running._hang_up(signal.SIGHUP, None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (reloaded, running.should_exit) == ([True], False)
        running._has_terminal = True
        monkeypatch.setattr(serve, "os", SimpleNamespace(isatty=lambda number: False))
        running._hang_up(signal.SIGHUP, None)
        assert running.should_exit

    asyncio.run(scenario())
