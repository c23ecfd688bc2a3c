"""A server that is asked for the impossible: it refuses, it never fails, and it does not grow."""

import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from regard.server.app import RELEASE_INTERVAL
from tests.surface.hostile import PATIENCE, attacks, send
from tests.surface.serving import running, small_run

FEW, MANY = 270, 10_000
GROWTH = 40_000
"""Kilobytes by which a server may grow over thousands of requests: texts of all lengths scatter its memory."""
SETTINGS = {"body_timeout": 1.0, "timeout": 120.0, "document_timeout": 120.0}
"""Stalled bodies are given up soon; a slow machine is not taken for a failing server."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("hostile") / "en-it").folder


def attack(port, seed, count, clients=8):
    """Statuses by kind of attack."""
    found = Counter()
    with ThreadPoolExecutor(clients) as pool:
        planned = list(attacks(seed, count))
        for one, status in zip(planned, pool.map(lambda one: send(port, one), planned), strict=True):
            assert status is not None or not one.answered, f"no answer: {one.kind}, {one.pieces[0][:500]!r}"
            assert status is None or status < 500, f"{status}: {one.kind}, {one.pieces[0][:500]!r}"
            found[one.kind, status] += 1
    return found


def still_answers(port):
    body = {"q": "I am here.", "source": "en", "target": "it"}
    return httpx.post(f"http://127.0.0.1:{port}/translate", json=body, timeout=PATIENCE).status_code == 200


def test_a_few_hundred_hostile_requests(run):
    with running(run, **SETTINGS) as port:
        found = attack(port, seed=1, count=FEW)
        assert still_answers(port)
    statuses = {status for _, status in found}
    assert statuses >= {200, 400, 404, 405, 408, 413, 415}, found
    assert found["stalls", 408]


def test_the_same_seed_makes_the_same_attacks():
    assert list(attacks(7, 50)) == list(attacks(7, 50))
    assert list(attacks(7, 50)) != list(attacks(8, 50))


def test_a_connection_that_never_says_what_it_wants_is_closed(run):
    with running(run, **SETTINGS) as port:
        for said in (b"", b"GET /health HTTP/1.1\r\nHost: local"):
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as wire:
                wire.sendall(said)
                wire.settimeout(PATIENCE)
                began = time.monotonic()
                assert wire.recv(100) == b""
                assert time.monotonic() - began < PATIENCE / 2


def resident(process):
    """Kilobytes that a server keeps in memory once it has given back what it does not need."""
    time.sleep(1.5 * RELEASE_INTERVAL)
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_ten_thousand_hostile_requests_leave_no_trace(run):
    command = [sys.executable, "-m", "regard", "serve", str(run), "--port", "0", "--quiet", "--threads", "1"]
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS.items()]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            ready = next(line for line in process.stdout if line.startswith("serving "))
            port = int(ready.partition("http://127.0.0.1:")[2].split()[0])
            attack(port, seed=2, count=2000)  # memory that is taken once
            before = resident(process)
            attack(port, seed=3, count=MANY - 2000)
            assert still_answers(port)
            assert resident(process) - before < GROWTH
        finally:
            process.terminate()
        assert process.wait(PATIENCE) == 0


def exchange(port, *pieces):
    """What the server says to these bytes until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as wire:
        wire.settimeout(PATIENCE)
        try:
            for piece in pieces:
                wire.sendall(piece)
        except ConnectionError:
            pass  # it had enough
        said = b""
        try:
            while part := wire.recv(65536):
                said += part
        except ConnectionResetError:
            pass
        return said


START = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
ASKED = b'{"q": "I am here.", "source": "en", "target": "it"}'


@pytest.mark.parametrize(
    "pieces",
    [
        [START + b"X: " + b"a" * 40_000 + b"\r\n\r\n"],
        [START + b"X: ", *[b"a" * 1000] * 500],
        [START, *[b"X-%d: a\r\n" % number for number in range(5000)], b"\r\n"],
        [b"POST /" + b"a" * 40_000, b"a" * 300_000, b" HTTP/1.1\r\n\r\n"],
        [START + b"Transfer-Encoding: chunked\r\n\r\n", *[b"1;" + b"a" * 2000 + b"\r\n{\r\n"] * 100],
        [START + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n", *[b"X: " + b"a" * 900 + b"\r\n"] * 100],
    ],
    ids=["header", "header without end", "many headers", "address", "extensions of chunks", "trailers"],
)
def test_a_head_without_measure_or_sense_is_refused(run, pieces):
    with running(run, **SETTINGS) as port:
        said = exchange(port, *pieces)
        assert not said or said.startswith(b"HTTP/1.1 400"), said[:200]  # who is still sending may miss it
        assert still_answers(port)


@pytest.mark.parametrize("more", [b"", b"more", b"GET / HTTP/1.1\r\n\r\n"])
def test_connect_is_refused(run, more):
    with running(run, **SETTINGS) as port:
        said = exchange(port, b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n" + more)
        assert said.startswith(b"HTTP/1.1 400")
        assert said.endswith(b"CONNECT is not supported.")
        assert still_answers(port)


def test_who_offers_another_protocol_is_answered_in_this_one(run):
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    with running(run, **SETTINGS) as port:
        said = exchange(port, START + offer + b"Content-Length: %d\r\n\r\n" % len(ASKED) + ASKED)
        assert said.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in said
        assert b"translatedText" in said


def test_requests_may_be_sent_ahead(run):
    asked = START + b"Content-Length: %d\r\n\r\n" % len(ASKED) + ASKED
    last = asked.replace(b"Host", b"Connection: close\r\nHost")
    with running(run, **SETTINGS) as port:
        assert exchange(port, asked * 2 + last).count(b"HTTP/1.1 200") == 3
