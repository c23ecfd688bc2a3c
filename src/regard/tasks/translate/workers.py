"""Several processes with one thread each: for many sentences faster than one process with many threads."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from regard import plugins
from regard.errors import RegardError, RunError
from regard.system import START_METHOD
from regard.tasks.translate.translation import Translation
from regard.tasks.translate.translator import Translator, load

_translator: Translator | RegardError | None = None
"""In a worker process: the opened run, or the error that opening it raised."""


class Workers:
    """A run, or an ensemble of runs, opened in several processes; `translate` is that of `Translator`."""

    def __init__(self, runs: Sequence[str | Path], count: int, hint: str = ""):
        """`hint` is added to the error message if a process is killed, for example when memory runs out."""
        self.count, self.hint = count, hint
        self._pool = ProcessPoolExecutor(
            count,
            multiprocessing.get_context(START_METHOD),
            initializer=_open,
            initargs=(tuple(map(str, runs)), os.getpid(), plugins.files()),
        )

    def translate(self, texts: Sequence[str], **options: Any) -> list[Translation]:
        """Translate texts; results keep the order. Texts are sorted by length and dealt to the processes in turn."""
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        shares = [order[number :: self.count] for number in range(self.count)]
        results: dict[int, Translation] = {}
        try:
            waiting = [self._pool.submit(_translate, [texts[place] for place in share], options) for share in shares]
            for share, found in zip(shares, waiting, strict=True):
                results |= zip(share, found.result(), strict=True)
        except BrokenProcessPool:
            raise RunError(f"one of {self.count} worker processes ended; too little memory?{self.hint}") from None
        return [results[place] for place in range(len(texts))]

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)


def _open(runs: tuple[str, ...], parent: int, plugin_files: Sequence[str]) -> None:
    global _translator
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    import torch

    torch.set_num_threads(1)
    try:
        for file in plugin_files:
            plugins.load(file)
        _translator = load(*runs)
    except RegardError as error:  # raised here it would break the pool; the first call raises it
        _translator = error


def _end_with(parent: int) -> None:
    """Exit when the parent process is gone: a parent that was killed cannot stop its workers."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _translate(texts: list[str], options: dict[str, Any]) -> list[Translation]:
    assert _translator is not None
    if isinstance(_translator, RegardError):
        raise _translator
    return _translator.translate(texts, **options)
