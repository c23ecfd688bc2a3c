"""Translation in the server: texts in pieces, a queue per engine, one for alignments; sentences as they are done.

Texts are cut into pieces before they are queued, so that a long text takes turns with short ones. CTranslate2 decodes
several batches at once, one per core; torch searches where CTranslate2 cannot, and aligns words.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import fields, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.config import SearchSettings
from regard.errors import SettingsError, nearest
from regard.tasks.api import FieldError, Host, Queue
from regard.tasks.translate.engine import choose_engine, open_fast
from regard.tasks.translate.pieces import Pieces
from regard.tasks.translate.translation import Translation

if TYPE_CHECKING:
    from regard.tasks.translate.alignment import Aligner
    from regard.tasks.translate.api import Request

CUT_IN_THREAD = 2_000
"""Texts of more characters are cut in a thread: that may take some milliseconds."""
_SEARCH = frozenset(field.name for field in fields(SearchSettings))


class Piece(NamedTuple):
    """A piece of text to translate, and the settings, which hold for a whole batch."""

    text: str
    settings: SearchSettings
    nbest: int = 1
    details: bool = False


class TranslationHandler:
    """Translates for the server."""

    def __init__(self, host: Host):
        run, settings = host.run, host.settings
        run.require_weights()
        self.host, self.run = host, run
        self._fast = open_fast(
            settings.engine, run, run.recipe.search, quantization=settings.quantization, log=host.log
        )
        if self._fast is None:
            host.load()
        self.decoding = host.add_queue("ctranslate2", self._decode, lambda item: len(item.text), parallel=True)
        self.searching = host.add_queue("torch", self._search, lambda item: len(item.text))
        self.aligning = host.add_queue("align", self._align, lambda item: len(item.text))
        self._choose_queue = lru_cache(256)(self._find_queue)

    def full_for(self) -> float:
        """Seconds until there is room for another translation with the run's own settings; 0 if there is room now."""
        return self._choose_queue(self.run.recipe.search)[0].full_for()

    async def answer(self, request: Request, *, deadline: float | None = None) -> list[dict[str, Any]]:
        """The JSON of each translation."""
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
        """The index of a text and the translation of its next sentence."""
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

        `align` adds word alignments, `details` the log-probabilities of tokens. Keywords override `search` settings,
        e.g. beam_size=1. `deadline`: seconds that all of it may take.
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
        """The translation of each sentence of a text, as soon as it and all before it are done."""
        settings = self._settings(1, search | {"max_joined_tokens": 1})  # two sentences are never joined
        [cut] = await self._cut([text], settings)
        queue, settings = self._choose_queue(settings)
        items = [Piece(piece, settings) for piece in cut.texts]
        async with aclosing(queue.submit_in_order(items, key=(settings, 1, False), deadline=deadline)) as results:
            async for found in results:
                yield found

    async def _cut(self, texts: Sequence[str], settings: SearchSettings) -> list[Pieces]:
        """The texts in pieces. Long texts are cut in a thread, so that other requests need not wait."""
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
        for name in search.keys() - _SEARCH:
            raise SettingsError(f"there is no setting search.{name}{nearest(name, _SEARCH)}")
        settings = self.run.recipe.search
        if nbest > settings.beam_size:
            search = {"beam_size": nbest} | search
        if search:
            settings = replace(settings, **search)
        if nbest < 1 or (nbest > settings.beam_size and not settings.sample):
            raise SettingsError(
                f"{nbest} best translations need a search.beam_size of at least {nbest}, not {settings.beam_size}"
            )
        return settings

    # -----------------------------------------------------------------------------------------------------------------
    # In the threads

    def _decode(self, items: list[Piece]) -> list[Translation]:
        assert self._fast is not None
        first, texts = items[0], [item.text for item in items]
        return self._fast.translate(texts, nbest=first.nbest, details=first.details, **vars(first.settings))

    def _search(self, items: list[Piece]) -> list[Translation]:
        first, texts = items[0], [item.text for item in items]
        return self.host.predictor.translate(texts, nbest=first.nbest, **vars(first.settings))

    def _align(self, translations: list[Translation]) -> list[Translation]:
        """Add alignments with torch, whichever engine translated."""
        return self._aligner.add(translations)

    @cached_property
    def _aligner(self) -> Aligner:
        from regard.tasks.translate.alignment import Aligner

        translator = self.host.predictor
        return Aligner(translator.model, translator.source, translator.target, translator.alignment)


def _remaining(end: float | None) -> float | None:
    return None if end is None else end - asyncio.get_running_loop().time()
