"""`regard serve` under load, on loopback: the gain of batching, the behaviour under overload, and memory growth.

The server is a separate process with the demo's run and its default settings. This process sends the sentences of the
phrasebook's test part to LibreTranslate's /translate over persistent connections.

- closed loop: one client, then 32 at the same time, in turns; each sends its next request after its answer. Measured:
  sentences per second and response times;
- open loop: requests arrive at twice that rate, answered or not. Measured: how many are refused (429), and the response
  times of the others;
- 10,000 requests: resident memory after the first 1,000 and at the end.

    make bench-serve       (python benchmarks/serve.py [--run runs/demo] [--seconds 10] [--rounds 3])
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from multi30k import OUT
from regard.data.builtin import read_phrases
from regard.run import Run
from stream import resident

CLIENTS, OVERLOAD = 32, 2.0
REQUESTS, FIRST = 10_000, 1_000
CONNECTIONS = 600
"""Maximum number of connections of this process; requests beyond it wait, and the wait is timed."""
WARM = 200
"""Number of warm-up requests."""


@dataclass
class Answers:
    """Results of requests."""

    seconds: list[float] = field(default_factory=list)
    """Seconds of the requests with status 200."""
    statuses: Counter[int] = field(default_factory=Counter)
    """Number of requests by HTTP status; status 0 means no response."""
    without_retry_after: int = 0
    """Refusals without a Retry-After header."""
    lasted: float = 0.0

    @property
    def errors(self) -> int:
        """Number of requests that were neither answered (200) nor refused (429)."""
        return sum(count for status, count in self.statuses.items() if status not in (200, 429))

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.seconds) / self.lasted

    def at(self, share: float) -> float:
        """Milliseconds within which this share of the requests was answered."""
        return 1000 * sorted(self.seconds)[min(int(share * len(self.seconds)), len(self.seconds) - 1)]

    def add(self, other: Answers) -> None:
        """Add the results of another round."""
        self.seconds += other.seconds
        self.statuses += other.statuses
        self.without_retry_after += other.without_retry_after
        self.lasted += other.lasted

    def facts(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return {
            "answers_per_second": self.rate,
            "milliseconds": {"p50": self.at(0.5), "p90": self.at(0.9), "p99": self.at(0.99)},
            "statuses": dict(self.statuses),
            "errors": self.errors,
            "refusals_without_retry_after": self.without_retry_after,
        }


class Connection:
    """One persistent connection to the server, opened on first use, with minimal HTTP."""

    def __init__(self, port: int):
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes, answers: Answers, since: float | None = None) -> None:
        """Send a request and record the answer, timed from `since` or from now."""
        began = time.perf_counter() if since is None else since
        try:
            status, head = await self._exchange(request)
        except (OSError, asyncio.IncompleteReadError):
            status, head = 0, b""
            self.close()
        answers.statuses[status] += 1
        if status == 200:
            answers.seconds.append(time.perf_counter() - began)
        elif status == 429 and b"\r\nretry-after:" not in head.lower():
            answers.without_retry_after += 1

    async def _exchange(self, request: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self._streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))
        return int(head[9:12]), head

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Load:
    """Sends requests with real sentences, which are repeated, to a server."""

    def __init__(self, port: int, pair: dict[str, str]):
        self.port = port
        bodies = [json.dumps({"q": phrase.source} | pair).encode() for phrase in read_phrases("test")]
        head = "POST /translate HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\n"
        head += "Content-Length: {}\r\n\r\n"
        self.requests = cycle([head.format(port, len(body)).encode() + body for body in bodies])

    async def closed(self, clients: int, *, seconds: float = float("inf"), requests: int = sys.maxsize) -> Answers:
        """Run clients that send a request after each answer, until `seconds` are over or `requests` are sent."""
        answers, left = Answers(), iter(range(requests))
        began = time.perf_counter()

        async def client() -> None:
            connection = Connection(self.port)
            while time.perf_counter() - began < seconds and next(left, None) is not None:
                await connection.ask(next(self.requests), answers)
            connection.close()

        await asyncio.gather(*(client() for _ in range(clients)))
        answers.lasted = time.perf_counter() - began
        return answers

    async def open(self, rate: float, seconds: float) -> Answers:
        """Send requests at this rate, independent of answers. Response times count from the scheduled start."""
        answers, idle = Answers(), [Connection(self.port) for _ in range(CONNECTIONS)]
        free = asyncio.Semaphore(CONNECTIONS)
        began = time.perf_counter()

        async def send(due: float) -> None:
            async with free:
                connection = idle.pop()  # the one used last, so that few are opened
                await connection.ask(next(self.requests), answers, since=due)
                idle.append(connection)

        tasks = []
        for number in range(int(rate * seconds)):
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(send(due)))
        await asyncio.gather(*tasks)
        answers.lasted = time.perf_counter() - began
        for connection in idle:
            connection.close()
        return answers


@contextlib.contextmanager
def server(run: Path, options: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run `regard serve` on a free port within the `with` block, which begins when the server is ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "regard", "serve", str(run), "--port", str(port), "--quiet", *options]
    process = subprocess.Popen(command)
    try:
        until = time.monotonic() + 120
        while not is_healthy(port):
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit("regard serve did not start")
            time.sleep(0.2)
        yield process, port
        process.send_signal(signal.SIGTERM)
        if process.wait(60) != 0:
            raise SystemExit(f"regard serve ended with {process.returncode}")
    finally:
        process.kill()


def is_healthy(port: int) -> bool:
    """Whether the server answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


async def measure(load: Load, process: subprocess.Popen[bytes], options: argparse.Namespace) -> dict[str, Any]:
    """Run all measurements."""
    await load.closed(CLIENTS, requests=WARM)
    one, many = Answers(), Answers()
    turns: list[tuple[Answers, Callable[[], Awaitable[Answers]]]] = [
        (one, lambda: load.closed(1, seconds=options.seconds)),
        (many, lambda: load.closed(CLIENTS, seconds=options.seconds)),
    ]
    for _ in range(options.rounds):
        for total, turn in turns:
            total.add(await turn())
    over = await load.open(OVERLOAD * many.rate, options.seconds)
    await load.closed(CLIENTS, requests=FIRST)
    first = resident(process.pid)
    rest = await load.closed(CLIENTS, requests=REQUESTS - FIRST)
    return {
        "one": one.facts(),
        "many": many.facts(),
        "gain": many.rate / one.rate,
        "spread": many.at(0.99) / many.at(0.5),
        "overload": over.facts() | {"asked_per_second": OVERLOAD * many.rate},
        "memory_mb": {f"after {FIRST:,}": first, f"after {REQUESTS:,}": resident(process.pid)},
        "errors": one.errors + many.errors + over.errors + rest.errors,
    }


def report(found: dict[str, Any]) -> None:
    """Print the table."""
    print(f"\n{'':34}{'answers/s':>10}{'p50 ms':>9}{'p90 ms':>9}{'p99 ms':>9}{'429':>8}{'errors':>8}")
    overload = f"{found['overload']['asked_per_second']:.0f} requests a second"
    for name, row in (
        ("one client", found["one"]),
        (f"{CLIENTS} clients", found["many"]),
        (overload, found["overload"]),
    ):
        times = "".join(f"{row['milliseconds'][share]:9.1f}" for share in ("p50", "p90", "p99"))
        print(f"{name:34}{row['answers_per_second']:10.0f}{times}{row['statuses'].get(429, 0):8}{row['errors']:8}")
    silent = found["overload"]["refusals_without_retry_after"]
    memory = ", ".join(f"{size:.0f} MB {when}" for when, size in found["memory_mb"].items())
    print(
        f"\n{CLIENTS} clients: {found['gain']:.2f} x the throughput of one (aim: 4); "
        f"p99 is {found['spread']:.2f} x p50 (aim: at most 4)\n"
        f"refusals without Retry-After: {silent}; errors: {found['errors']}\n"
        f"memory: {memory} requests"
    )


def main() -> None:
    """Train if needed, start the server, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--run", type=Path, default=Path("runs/demo"), help="a run that translates from English (default: runs/demo)"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds per turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("options", nargs="*", help="options of regard serve, after --")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    if not options.run.exists():
        subprocess.run([sys.executable, "-m", "regard", "demo", "--out", str(options.run)], check=True)
    data = Run.open(options.run).recipe.data
    pair = {"source": data.source_language, "target": data.target_language}
    with server(options.run, options.options) as (process, port):
        found = asyncio.run(measure(Load(port, pair), process, options))
    (OUT / "serve.json").write_text(json.dumps(found, indent=1))
    report(found)


if __name__ == "__main__":
    main()
