"""Several replicas with Ray Serve: each is the whole application of `regard serve`, with its page and API.

    python examples/ray_serve.py runs/en-de runs/de-en --replicas 4 --cpus 2
    python examples/ray_serve.py runs/en-de --address auto --replicas 16        # on a running cluster

Each replica is a process with its own application. Replicas share nothing, so Ray can start, stop and move them. Ray's
proxy sends a request to the least busy replica. On several machines, the run folders must be on a file system that all
of them see.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # turn off usage statistics, before Ray is imported

import ray
from ray import serve

from regard.errors import RegardError
from regard.run import Run
from regard.tasks.translate.engine import choose_engine, open_engine

if TYPE_CHECKING:
    from fastapi import FastAPI

REQUESTS = 256
"""Requests that a replica accepts at a time; its own queue refuses (429) those that would wait too long."""


def main() -> int:
    """Parse the options and serve until SIGTERM or SIGINT; errors are reported in one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--address", help='a cluster to join, e.g. "auto" (default: start one on this machine)')
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--cpus", type=int, default=1, help="processors per replica")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5000)
    options = parser.parse_args()
    try:
        runs = [prepare(folder) for folder in options.runs]
    except RegardError as error:
        print(f"ray_serve: {error}", file=sys.stderr)
        return 2
    if options.address:
        ray.init(address=options.address, log_to_driver=False)
    else:
        cpus = options.replicas * options.cpus
        ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": options.host, "port": options.port})
    serve.run(application(runs, options.replicas, options.cpus), name="regard", route_prefix="/")
    print(f"serving at http://{options.host}:{options.port}", flush=True)
    wait_for_signal()
    serve.shutdown()
    ray.shutdown()
    return 0


def prepare(folder: Path) -> str:
    """Check a run and convert it for CTranslate2, once for all replicas; returns its path."""
    run = Run.open(folder)
    if choose_engine("auto", run, run.recipe.search) == "ctranslate2":
        open_engine(run, "int8")  # converts the model
    return str(run.folder.resolve())


def application(runs: list[str], replicas: int, cpus: int) -> serve.Application:
    """The runs as an application of Ray Serve."""

    def build() -> FastAPI:  # called in each replica when it starts
        from regard.server.app import create_app
        from regard.server.runs import ServedRuns
        from regard.server.settings import ServerSettings

        # The proxy decides which clients and host names are accepted.
        settings = ServerSettings(threads=cpus, allow_host=("*",), quiet=True)
        return create_app(ServedRuns.open(runs, settings), settings)

    deployment = serve.deployment(
        serve.ingress(build)(),
        name="replica",
        num_replicas=replicas,
        max_ongoing_requests=REQUESTS,
        ray_actor_options={"num_cpus": cpus},
    )
    return deployment.bind()


def wait_for_signal() -> None:
    """Wait for SIGTERM or SIGINT."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()


if __name__ == "__main__":
    sys.exit(main())
