"""A running server for tests: the real one, in a thread of this process, on a free port."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from regard.data.builtin import read_phrases
from regard.data.pairs import Pair
from regard.run import Run
from regard.server.app import create_app
from regard.server.runs import ServedRuns
from regard.server.serve import bind, make_server
from regard.server.settings import ServerSettings
from tests.export.runs import random_recipe, random_run

PATIENCE = 60.0


def small_run(folder: Path) -> Run:
    """A model that has learnt nothing, English to Italian, with sentences to know the language by.

    It never ends by itself, so its translations are kept short.
    """
    languages = {"source_language": "en", "target_language": "it"}
    run = random_run(
        folder, random_recipe(data=languages, search={"beam_size": 2, "max_length_ratio": 0.5, "max_length_extra": 3})
    )
    pairs = read_phrases()[1:51]
    run.write_held_out([Pair(phrase.source, phrase.target) for phrase in pairs])
    return run


@contextmanager
def running(*runs: Path, **settings: Any) -> Iterator[int]:
    """A server before these runs; gives its port."""
    chosen = ServerSettings(port=0, threads=1, **settings)
    with closing(bind(chosen.host, chosen.port)) as listener:
        fleet = ServedRuns.open(runs, chosen)
        server = make_server(create_app(fleet, chosen), chosen)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        until = time.monotonic() + PATIENCE
        while not server.started and thread.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        try:
            assert server.started
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive()
