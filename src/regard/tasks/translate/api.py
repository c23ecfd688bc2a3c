"""HTTP API of translation: requests and results of /v1/translate, its queues, and /v1/inspect.

Texts are cut into pieces before they are queued, so that a long text takes turns with short ones. CTranslate2 decodes
several batches at once, one per core. Torch searches where CTranslate2 cannot, and aligns words.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, Field

from regard.config import SearchSettings
from regard.errors import SettingsError
from regard.tasks.api import FieldError, Host, InspectRequest, Queue, SearchOptions, TextRequest
from regard.tasks.translate.engine import choose_engine, open_fast
from regard.tasks.translate.translation import Pieces, Translation

if TYPE_CHECKING:
    from pathlib import Path

    from regard.run import Run
    from regard.tasks.translate.translator import Translator

CUT_IN_THREAD = 2_000
"""Texts of more characters are cut in a thread: that may take some milliseconds."""


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


class Piece(NamedTuple):
    """A piece of text to translate, and the settings, which hold for a whole batch."""

    text: str
    settings: SearchSettings
    nbest: int = 1
    details: bool = False


class TranslationHandler:
    """Translates for the server. `tasks.api.Host` describes its public methods."""

    def __init__(self, host: Host):
        self.host, self.run, settings = host, host.run, host.settings
        self.run.require_weights()
        search, quantization = self.run.recipe.search, settings.quantization
        self._fast = open_fast(settings.engine, self.run, search, quantization=quantization, log=host.log)
        if self._fast is None:
            host.load()
        self.decoding = host.add_queue("ctranslate2", self._decode, lambda item: len(item.text), parallel=True)
        self.searching = host.add_queue("torch", self._search, lambda item: len(item.text))
        self.aligning = host.add_queue("align", self._align, lambda item: len(item.text))
        self._choose_queue = lru_cache(256)(self._find_queue)

    def full_for(self) -> float:
        """As seen by a request with the run's own settings."""
        return self._choose_queue(self.run.recipe.search)[0].full_for()

    async def answer(self, request: Request, *, deadline: float | None = None) -> list[dict[str, Any]]:
        found = await self.translate_texts(
            request.texts()[1],
            nbest=request.nbest,
            align=request.align,
            details=request.scores,
            deadline=deadline,
            **request.search.given(),
        )
        return [one.as_dict(scores=request.scores) for one in found]

    async def stream_results(
        self, request: Request, *, deadline: float | None = None
    ) -> AsyncIterator[tuple[int, dict[str, Any]]]:
        """Each result is the translation of one sentence."""
        if request.nbest > 1 or request.align or request.scores:
            raise FieldError("stream", "cannot be combined with align, scores or nbest")
        for index, text in enumerate(request.texts()[1]):
            async for found in self.translate_sentences(text, deadline=deadline, **request.search.given()):
                yield index, found.as_dict(scores=False)

    async def translate_texts(
        self,
        texts: Sequence[str],
        *,
        nbest: int = 1,
        align: bool = False,
        details: bool = False,
        deadline: float | None = None,
        **search: Any,
    ) -> list[Translation]:
        """Translations of texts of any length, in order. Line breaks and the white space around lines are kept.

        `align` adds word alignments, `details` the log-probabilities of tokens. Keywords override `search` settings.
        """
        end = None if deadline is None else asyncio.get_running_loop().time() + deadline
        settings = self._settings(nbest, search)
        with self.host.open_request():
            cut = await self._cut(texts, settings)
            queue, settings = self._choose_queue(settings)
            items = [Piece(piece, settings, nbest, details) for one in cut for piece in one.texts]
            found = await queue.submit(items, key=(settings, nbest, details), deadline=_remaining(end))
            if align:
                found = await self.aligning.submit(found, deadline=_remaining(end))
        remaining = iter(found)
        return [one.join([next(remaining) for _ in one.texts]) for one in cut]

    async def translate_sentences(
        self, text: str, *, deadline: float | None = None, **search: Any
    ) -> AsyncIterator[Translation]:
        settings = self._settings(1, search | {"max_joined_tokens": 1})  # two sentences are never joined
        [cut] = await self._cut([text], settings)
        queue, settings = self._choose_queue(settings)
        items = [Piece(piece, settings) for piece in cut.texts]
        async with aclosing(queue.submit_in_order(items, key=(settings, 1, False), deadline=deadline)) as results:
            async for found in results:
                yield found

    async def _cut(self, texts: Sequence[str], settings: SearchSettings) -> list[Pieces]:
        tokenizer = self.run.tokenizers[0]

        def cut() -> list[Pieces]:
            return [Pieces(text, tokenizer, settings) for text in texts]

        return cut() if sum(map(len, texts)) <= CUT_IN_THREAD else await asyncio.to_thread(cut)

    def _find_queue(self, settings: SearchSettings) -> tuple[Queue, SearchSettings]:
        """The queue for these settings, and the settings for texts that are cut already."""
        engine = self.host.settings.engine
        fast = self._fast is not None and choose_engine(engine, self.run, settings) == "ctranslate2"
        whole = replace(settings, max_joined_tokens=settings.max_source_tokens)
        return self.decoding if fast else self.searching, whole

    def _settings(self, nbest: int, search: dict[str, Any]) -> SearchSettings:
        """The run's settings with those of a request. Unless the request sets the beam, it is widened for `nbest`."""
        settings = self.run.recipe.search
        if nbest > settings.beam_size:
            search = {"beam_size": nbest} | search
        settings = replace(settings, **search)
        if nbest > settings.beam_size and not settings.sample:
            raise SettingsError(
                f"{nbest} best translations need a search.beam_size of at least {nbest}, not {settings.beam_size}"
            )
        return settings

    # In the threads

    def _decode(self, items: list[Piece]) -> list[Translation]:
        assert self._fast is not None
        first, texts = items[0], [item.text for item in items]
        return self._fast.translate(texts, nbest=first.nbest, details=first.details, **vars(first.settings))

    def _search(self, items: list[Piece]) -> list[Translation]:
        first, texts = items[0], [item.text for item in items]
        return self.host.predictor.translate(texts, nbest=first.nbest, **vars(first.settings))

    def _align(self, translations: list[Translation]) -> list[Translation]:
        return self.host.predictor.aligner().add(translations)


def _remaining(end: float | None) -> float | None:
    return None if end is None else end - asyncio.get_running_loop().time()


make_handler = TranslationHandler


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
