"""HTTP API of translation: requests and results of /v1/translate, its queues, and /v1/inspect.

Texts are cut into pieces before they are queued, so that short texts do not wait for a long one. CTranslate2 decodes
several batches at once, one per core. Torch translates what CTranslate2 does not support, and aligns words.
"""

from __future__ import annotations

import asyncio
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
    from regard.run import Run
    from regard.tasks.translate.translator import Translator


class Request(TextRequest):
    """Body of POST /v1/translate: one or several texts to translate, and which details the response contains."""

    model: str = Field("", description="Name of a run; empty: chosen by the languages, or the only one.")
    source: str = Field("", description='Language code of the text; "auto": detected.')
    target: str = Field("", description="Language code to translate into.")
    nbest: int = Field(1, ge=1, description="Number of translations of each text.")
    align: bool = Field(False, description="Add word alignments.")
    scores: bool = Field(False, description="Add the log-probability of each token.")
    stream: bool = Field(False, description="Server-sent events: one per sentence when it is done, then [DONE].")
    search: SearchOptions = SearchOptions()


class AlignmentResult(BaseModel):
    """Word alignment of a text and its translation: the words of both, and links between them."""

    source: list[str]
    target: list[str]
    links: list[tuple[int, int]] = Field(description="Pairs of the index of a source word and of a target word.")


class Result(BaseModel):
    """Translation of one text in the response of /v1/translate."""

    source: str
    text: str
    score: float | None
    tokens: list[str]
    finished: bool = Field(description="False if the length limit cut the translation off.")
    flags: list[str]
    alternatives: list[Result]
    alignment: AlignmentResult | None = None
    log_probs: list[float | None] = Field(
        [], description="Log-probability of each token and, last, of the end token; only with `scores`."
    )
    log_prob: float | None = Field(None, description="Log-probability of the translation; only with `scores`.")


class Results(BaseModel):
    """Response of /v1/translate: the name of the run, and one translation per text."""

    model: str
    results: list[Result]


class Piece(NamedTuple):
    """An item of a queue: a text or a part of a long text. `settings`, `nbest`, `details` are equal within a batch."""

    text: str
    settings: SearchSettings
    nbest: int = 1
    details: bool = False


class TranslationHandler:
    """Translates requests of the server with CTranslate2 or torch. `tasks.api.Host` documents the public methods."""

    def __init__(self, host: Host):
        self.host, self.run, settings = host, host.run, host.settings
        self.run.require_weights()
        search, quantization = self.run.recipe.search, settings.quantization
        self._fast = open_fast(settings.engine, self.run, search, quantization=quantization, log=host.log)
        if self._fast is None:
            host.load()
        self.decoding = host.add_queue("ctranslate2", self._decode, lambda item: len(item.text), parallel=True)
        self.searching = host.add_queue("torch", self._search, lambda item: len(item.text))
        self.aligning = host.add_queue(
            "align", lambda found: host.predictor.aligner().add(found), lambda item: len(item.text)
        )
        self._choose_queue = lru_cache(256)(self._find_queue)

    def full_for(self) -> float:
        """Estimated seconds until a request with the search settings of the run can be accepted; 0 if it can be now."""
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
        """Yield a pair for each sentence: the index of the text that contains the sentence, and its translation."""
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
        """Translate texts of any length. `align` adds word alignments, `details` the log-probabilities of tokens.

        After `deadline` seconds, `TooLate` is raised. `search` overrides search settings of the run.
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

        # Cutting long texts takes milliseconds, in which the server must not block.
        return cut() if sum(map(len, texts)) <= 2000 else await asyncio.to_thread(cut)

    def _find_queue(self, settings: SearchSettings) -> tuple[Queue, SearchSettings]:
        """Return the queue (CTranslate2 or torch) for `settings`, and the settings for texts that are already cut."""
        engine = self.host.settings.engine
        fast = self._fast is not None and choose_engine(engine, self.run, settings) == "ctranslate2"
        whole = replace(settings, max_joined_tokens=settings.max_source_tokens)
        return self.decoding if fast else self.searching, whole

    def _settings(self, nbest: int, search: dict[str, Any]) -> SearchSettings:
        """Return the search settings of the run, changed by `search`. A smaller default beam size becomes `nbest`."""
        settings = self.run.recipe.search
        if nbest > settings.beam_size:
            search = {"beam_size": nbest} | search
        settings = replace(settings, **search)
        if nbest > settings.beam_size and not settings.sample:
            raise SettingsError(f"nbest = {nbest} needs search.beam_size = {nbest} or more, not {settings.beam_size}")
        return settings

    # Called in worker threads

    def _decode(self, items: list[Piece]) -> list[Translation]:
        assert self._fast is not None
        first, texts = items[0], [item.text for item in items]
        return self._fast.translate(texts, nbest=first.nbest, details=first.details, **vars(first.settings))

    def _search(self, items: list[Piece]) -> list[Translation]:
        first, texts = items[0], [item.text for item in items]
        return self.host.predictor.translate(texts, nbest=first.nbest, **vars(first.settings))


def _remaining(end: float | None) -> float | None:
    return None if end is None else end - asyncio.get_running_loop().time()


make_handler = TranslationHandler


def inspect(translator: Translator, run: Run, request: InspectRequest) -> dict[str, Any]:
    """Return the data of /v1/inspect: attention, attribution, search etc. for a sentence, with some heads disabled."""
    from regard.layers.hooks import listen, without_heads
    from regard.tasks.translate.inspect.page import inspect_run

    with ExitStack() as stack:
        for attention, head in dict.fromkeys(request.disabled_heads):
            stack.enter_context(listen(translator.model, attention, without_heads(head)))
        return inspect_run(
            run,
            request.text,
            request.target,
            quick=request.skip_slow,
            translator=translator,
            measured=_measured(run),
        )


def inspection_work(run: Run, request: InspectRequest, parameters: int) -> float:
    """About how many multiplications an inspection needs. A translation that is not given is assumed to be as long.

    Per token, a pass needs one multiplication per parameter. The attribution by gradients needs a backward pass per
    target token, and that by occlusion a pass per token. Integrated gradients and hidden token attribution are not
    counted: they are left out if they are expensive (`regard.tasks.translate.inspect.page`).
    """
    source, target = run.tokenizers
    sources = len(source.encode(request.text)) + 1
    targets = len(target.encode(request.target)) + 1 if request.target else sources
    search = 0 if request.target else max(run.recipe.search.beam_size, 1)
    work = parameters * (search * targets + 4.0 * (sources + targets))
    if not request.skip_slow:
        work += parameters * (sources + targets) * (2.0 * targets + sources + targets)
    return work


@lru_cache(64)
def _measured(run: Run) -> dict[str, dict[str, Any]]:
    """Read the measurements of attention heads that earlier analyses stored in a run folder.

    Cached, because reading them computes a checksum of the weights.
    """
    from regard.tasks.translate.inspect.page import read_measured

    return read_measured(run)
