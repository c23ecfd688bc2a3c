"""A fleet behind Ray Serve: the page and the API of `regard serve`, by as many copies as are needed.

    python examples/ray_serve.py runs/en-de runs/de-en --replicas 4 --cpus 2
    python examples/ray_serve.py runs/en-de --address auto --replicas 16        # on a cluster that is up

Each replica is a process with an application of its own; nothing is shared between them, so Ray may start, stop and
move them as it likes. Ray's proxy gives a request to the replica with the least to do. On several machines the run
folders lie on a file system that all of them see.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # before Ray is imported: it would tell its makers of us

import ray
from ray import serve

from regard.errors import RegardError
from regard.run import Run
from regard.tasks.translate.engine import choose_engine, convert_if_new

if TYPE_CHECKING:
    from fastapi import FastAPI

REQUESTS = 256
"""Requests that a replica holds at a time; its own queue refuses (429) what would wait too long."""


def main() -> int:
    """Read the command, serve until SIGTERM or SIGINT, and say in one line what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--address", help='a cluster to join, e.g. "auto"; by default one is started on this machine')
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--cpus", type=int, default=1, help="processors for each replica")
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
    """Check a run, and convert it for CTranslate2 once, before all replicas would; gives where it lies."""
    run = Run.open(folder)
    if choose_engine("auto", run, run.recipe.search) == "ctranslate2":
        convert_if_new(run, "int8")
    return str(run.folder.resolve())


def application(runs: list[str], replicas: int, cpus: int) -> serve.Application:
    """The runs as an application of Ray Serve."""

    def build() -> FastAPI:  # in each replica, when it starts
        from regard.server.app import create_app
        from regard.server.runs import ServedRuns
        from regard.server.settings import ServerSettings

        # Who may connect, and under which name, is for the proxy to say.
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
