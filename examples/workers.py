"""Several server processes on one machine, with uvicorn:

    REGARD_RUNS="runs/en-de runs/de-en" uvicorn --factory examples.workers:app --workers 4 --port 5000

Each process opens the runs itself and computes with one thread; the system gives each connection to one process.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from regard.server.app import create_app
from regard.server.middleware import configure_logs
from regard.server.runs import ServedRuns
from regard.server.settings import ServerSettings

if TYPE_CHECKING:
    from fastapi import FastAPI


def app() -> FastAPI:
    """The application of one process."""
    settings = ServerSettings(threads=1, allow_host=("*",), keys=os.environ.get("REGARD_KEYS", ""))
    configure_logs(quiet=settings.quiet)
    return create_app(ServedRuns.open(os.environ["REGARD_RUNS"].split(), settings), settings)
