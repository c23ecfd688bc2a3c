"""HTTP API of translation: requests and results of /v1/translate, and /v1/inspect. Its queues are in serving.py."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from regard.tasks.api import Host, InspectRequest, SearchOptions, TextRequest

if TYPE_CHECKING:
    from pathlib import Path

    from regard.run import Run
    from regard.tasks.translate.serving import TranslationHandler
    from regard.tasks.translate.translator import Translator


class Request(TextRequest):
    """Translate one text or several, with alternatives, scores, flags and alignments; at once or per sentence."""

    model: str = Field("", description="Name of a run; empty: chosen by the languages, or the only one.")
    source: str = Field("", description='Language code of the text; "auto": detected.')
    target: str = Field("", description="Language code to translate into.")
    nbest: int = Field(1, ge=1, description="Number of translations of each text.")
    align: bool = Field(False, description="Add word alignments.")
    scores: bool = Field(False, description="Add the log-probability of each token.")
    stream: bool = Field(False, description="Server-sent events: one per sentence when it is done, then [DONE].")
    search: SearchOptions = SearchOptions()


class AlignmentResult(BaseModel):
    """Which words are translations of each other."""

    source: list[str]
    target: list[str]
    links: list[tuple[int, int]] = Field(description="Pairs of a source and a target word, counted from 0.")


class Result(BaseModel):
    """A translation with its score and flags."""

    source: str
    text: str
    score: float | None
    tokens: list[str]
    finished: bool = Field(description="False if the length limit cut it off.")
    flags: list[str]
    alternatives: list[Result]
    alignment: AlignmentResult | None = None
    log_probs: list[float | None] = Field([], description="Of each token, the end token included; with `scores`.")
    log_prob: float | None = Field(None, description="Of the whole translation; with `scores`.")


class Results(BaseModel):
    """One translation per text."""

    model: str
    results: list[Result]


def make_handler(host: Host) -> TranslationHandler:
    """Long texts are queued in pieces, CTranslate2 decodes on several cores, and another engine aligns words."""
    from regard.tasks.translate.serving import TranslationHandler

    return TranslationHandler(host)


def inspect(translator: Translator, run: Run, request: InspectRequest) -> dict[str, Any]:
    """What the model computed while it translated a sentence; attention heads may be disabled."""
    from regard.layers.hooks import listen, without_heads
    from regard.tasks.translate.inspect.page import inspect_run

    disabled: dict[str, list[int]] = defaultdict(list)
    for attention, head in request.disabled_heads:
        disabled[attention].append(head)
    with ExitStack() as stack:
        for attention, heads in disabled.items():
            stack.enter_context(listen(translator.model, attention, without_heads(*heads)))
        return inspect_run(
            run,
            request.text,
            request.target,
            quick=request.skip_slow,
            translator=translator,
            measured=_measured(run.folder),
        )


@lru_cache(64)
def _measured(folder: Path) -> dict[str, dict[str, Any]]:
    """What was measured over many sentences; read once, because it needs the checksum of the weights."""
    from regard.run import Run
    from regard.tasks.translate.inspect.page import read_measured

    return read_measured(Run.open(folder))
