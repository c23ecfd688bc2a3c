"""Two runs beside one another on the same sentences: size, BLEU, and the time they take."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from regard.data.corpus import Pair
from regard.models.base import count_parameters
from regard.run import WEIGHTS, Run
from regard.tasks.evaluate import quick_scores
from regard.tasks.translate import load, texts_of

CHUNK = 50  # sentences translated by one and then by the other, so that both meet the same neighbours


class Change(NamedTuple):
    """A figure before and after."""

    before: float
    after: float


@dataclass(frozen=True)
class Comparison:
    """What changed from one run to the other."""

    parameters: Change
    bytes: Change
    """Size of the weights' file."""
    bleu: Change
    seconds: Change
    """CPU time of translating the sentences, on one thread."""
    sentences: int


def compare_runs(before: Run, after: Run, pairs: Sequence[Pair]) -> Comparison:
    """Both runs on these pairs, in turn, each with its own search."""
    runs = (before, after)
    translators = [load(run.folder) for run in runs]
    texts: tuple[list[str], list[str]] = ([], [])
    seconds = [0.0, 0.0]
    with _one_thread():
        for translator in translators:
            translator.translate([pair.source for pair in pairs[:CHUNK]])  # the first time is slower
        for first in range(0, len(pairs), CHUNK):
            sources = [pair.source for pair in pairs[first : first + CHUNK]]
            for place, translator in enumerate(translators):
                began = time.process_time()
                texts[place].extend(texts_of(translator.translate(sources)))
                seconds[place] += time.process_time() - began
    references = [pair.target for pair in pairs]
    return Comparison(
        parameters=Change(*(count_parameters(translator.model) for translator in translators)),
        bytes=Change(*((run.folder / WEIGHTS).stat().st_size for run in runs)),
        bleu=Change(*(quick_scores(written, references)["bleu"] for written in texts)),
        seconds=Change(*seconds),
        sentences=len(pairs),
    )


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
