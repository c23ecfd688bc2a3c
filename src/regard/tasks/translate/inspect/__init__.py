"""The content of `regard inspect` for a translator: one translation in detail, or measurements over many sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from regard.config import Corpus
from regard.data.pairs import read_corpus
from regard.run import Run
from regard.terminal import text_or_file

if TYPE_CHECKING:
    from regard.tasks.translate.inspect.explain import CorpusMeasurements

PAGE = "inspect"
OPTIONS = ("target", "quick", "measure")

Log = Callable[[str], None]


def read(given: str) -> str:
    return given


def inspect(
    run: Run, sentence: str, *, target: str | None = None, quick: bool = False, log: Log = lambda doing: None
) -> dict[str, Any]:
    """Return the data of the HTML page of `regard inspect` for a sentence and its translation.

    The translation is `target` (a text, or the name of a file) or, if None, the output of the model. `quick` leaves out
    slow analyses. `log` receives progress messages.
    """
    given = None if target is None else text_or_file(target)

    from regard.tasks.translate.inspect.page import inspect_run

    return inspect_run(run, sentence, given, quick=quick, log=log)


def summary(data: dict[str, Any]) -> str:
    return str(data["target"]["text"])


def measure(run: Run, pairs: str, sentences: int, log: Log = lambda doing: None) -> CorpusMeasurements:
    """Measure the faithfulness of attribution methods, and token identifiability; store both in the run folder.

    `pairs` names a file of sentence pairs; if empty, the held-out pairs of the run are used. Faithfulness is measured
    on the first `sentences` pairs.
    """
    data = run.recipe.data
    given = list(read_corpus(Corpus(pairs), data.source_language, data.target_language)) if pairs else []

    from regard.tasks.translate.inspect.explain import survey

    return survey(run, given, sentences=sentences, log=log)
