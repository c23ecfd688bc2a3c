"""`regard serve` as a process: it answers, refuses what it has no room for, and on SIGTERM finishes what it took."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.export.runs import random_recipe, random_run, sentences

pytest.importorskip("ctranslate2")
pytest.importorskip("uvicorn")

PATIENCE = 60.0
"""Seconds that anything may take on a busy machine."""
OPEN = re.compile(r"^regard_requests_open (\S+)$", re.MULTILINE)
WAITING = re.compile(r'^regard_queue_waiting\{[^}]*queue="ctranslate2"[^}]*\} (\S+)$', re.MULTILINE)


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: Any


class Server(NamedTuple):
    """A running `regard serve`."""

    process: subprocess.Popen[str]
    port: int

    def ask(self, path: str, body: Any = None) -> Reply:
        """GET, or POST of JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                status, headers, text = answer.status, dict(answer.headers), answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                status, headers, text = error.code, dict(error.headers), error.read().decode()
        return Reply(status, {name.lower(): value for name, value in headers.items()}, _read(text))

    def translate(self, texts: list[str]) -> Reply:
        """As LibreTranslate's clients do."""
        return self.ask("/translate", {"q": texts, "source": "en", "target": "it"})

    def open_requests(self) -> int:
        """How many are being answered, the one that asks not counted."""
        return int(float(OPEN.search(self.ask("/metrics").body)[1])) - 1  # type: ignore[index]

    def waiting(self) -> int:
        """How many sentences stand in the queue."""
        return int(float(WAITING.search(self.ask("/metrics").body)[1]))  # type: ignore[index]


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait, but not for ever."""
    until = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learnt nothing, and writes as much as it may."""
    languages = {"source_language": "en", "target_language": "it"}
    return random_run(tmp_path_factory.mktemp("serve") / "en-it", random_recipe(data=languages)).folder


@contextlib.contextmanager
def serve(run: Path, *options: str) -> Iterator[Server]:
    """A server that answers; killed in the end if it still runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "regard", "serve", str(run), "--port", str(port), *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    server = Server(process, port)

    def is_there() -> bool:
        assert process.poll() is None, process.stderr.read()  # type: ignore[union-attr]
        with contextlib.suppress(OSError):
            return server.ask("/health").status == 200
        return False

    try:
        wait_until(is_there)
        yield server
    finally:
        process.kill()
        process.communicate()


def test_sigterm_under_load_answers_all_that_was_accepted(run: Path) -> None:
    clients, texts = 24, sentences(12)
    with serve(run, "--queue", "5000", "--timeout", "120") as server, ThreadPoolExecutor(clients) as pool:
        waiting = [pool.submit(server.translate, texts) for _ in range(clients)]
        wait_until(lambda: server.open_requests() == clients or all(task.done() for task in waiting))
        unanswered = sum(not task.done() for task in waiting)
        server.process.send_signal(signal.SIGTERM)
        replies = [task.result() for task in waiting]
        assert unanswered > clients / 2, "the load was too light to tell anything"
        assert {reply.status for reply in replies} == {200}
        assert {len(reply.body["translatedText"]) for reply in replies} == {len(texts)}
        assert server.process.wait(PATIENCE) == 0
        with pytest.raises(OSError, match="refused"):
            server.ask("/health")


def test_beyond_the_queue_requests_are_told_when_to_come_again(run: Path) -> None:
    with serve(run, "--queue", "1", "--batch", "1", "--threads", "1") as server, ThreadPoolExecutor(1) as pool:
        assert server.translate(["I am here."]).status == 200
        long = pool.submit(server.translate, sentences(100))
        wait_until(lambda: server.waiting() > 0 or long.done())
        refused = server.translate(["I am here."])
        assert not long.done(), "the load was too light to tell anything"
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "error" in refused.body
        assert long.result().status == 200
        assert server.translate(["I am here."]).status == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0


def test_a_mistyped_run_is_told_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "regard", "serve", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 2
    assert re.fullmatch(r"regard: .*no such run folder.*\n", done.stderr)
