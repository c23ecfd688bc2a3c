"""A served run that translates: what only translation has.

Texts are cut into pieces before they are queued, so that a long text takes turns with short ones. CTranslate2 decodes
several batches at once, one per core; torch searches where CTranslate2 cannot, aligns words and inspects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from regard.config import SearchSettings
from regard.errors import SettingsError, nearest
from regard.run import Run
from regard.server.batching import Batcher, Capacity, ShutdownGate
from regard.server.served_run import MAX_INSPECTIONS, ServedRun, queue_limits, read_until_done
from regard.tasks.translate.engine import EngineName, FastTranslator, Quantization, choose_engine, open_fast
from regard.tasks.translate.pieces import Pieces
from regard.tasks.translate.translation import Translation

if TYPE_CHECKING:
    from regard.tasks.translate.alignment import Aligner

TRANSLATE = "translate"
"""Name of the task that this module serves."""
CUT_IN_THREAD = 2_000
"""Texts of more characters are cut in a thread: that may take some milliseconds."""
_SEARCH = frozenset(field.name for field in fields(SearchSettings))


@dataclass(frozen=True)
class TranslationRequest:
    """A piece of text to translate, and the settings."""

    text: str
    settings: SearchSettings
    nbest: int = 1
    details: bool = False

    @property
    def key(self) -> tuple[SearchSettings, int, bool]:
        """Pieces are translated together only if this is equal."""
        return self.settings, self.nbest, self.details


class ServedTranslator(ServedRun):
    """A run that translates, and its queues: one per engine, one for alignments, one for inspections."""

    def __init__(
        self,
        run: Run,
        name: str,
        capacity: Capacity,
        *,
        engine: EngineName = "auto",
        quantization: Quantization = "int8",
        log: Callable[[str], None] | None = None,
    ):
        run.require_weights()
        self.engine = engine
        self._fast: FastTranslator | None = open_fast(
            engine, run, run.recipe.search, quantization=quantization, log=log
        )
        self._choose_queue = lru_cache(256)(self._find_queue)
        # A request whose alignment comes after its translation must not find the second queue closed.
        self._gate = ShutdownGate()
        super().__init__(run, name, capacity)

    def _open(self, capacity: Capacity) -> None:
        if self._fast is None:
            super()._open(capacity)

    def _add_queues(self, capacity: Capacity) -> None:
        limits = queue_limits(capacity, weigh=lambda item: len(item.text))
        self.decoding: Batcher[TranslationRequest, Translation] = Batcher(
            self._decode, **limits, threads=capacity.threads, pool=capacity.decoding
        )
        self.searching: Batcher[TranslationRequest, Translation] = Batcher(self._search, **limits, pool=capacity.torch)
        self.aligning: Batcher[Translation, Translation] = Batcher(self._align, **limits, pool=capacity.torch)
        self.queues = {
            "ctranslate2": self.decoding,
            "torch": self.searching,
            "align": self.aligning,
            "inspect": Batcher(self.worker.inspect, size=1, most_waiting=MAX_INSPECTIONS, pool=capacity.torch),
        }

    def full_for(self) -> float:
        """Seconds until there is room for another translation with the run's own settings; 0 if there is room now."""
        return self._choose_queue(self.run.recipe.search)[0].full_for()

    async def close(self) -> None:
        """Finish the accepted requests and refuse new ones."""
        await self._gate.close()
        await super().close()

    async def translate(
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
        with self._gate.entered():
            cut = await self._cut(texts, settings)
            pieces = [piece for one in cut for piece in one.texts]
            found = await self._translate_pieces(pieces, settings, nbest, details, deadline=_remaining(end))
            if align:
                found = await self.aligning.submit(found, deadline=_remaining(end))
        remaining = iter(found)
        return [one.join([next(remaining) for _ in one.texts]) for one in cut]

    async def pieces(self, text: str, *, deadline: float | None = None, **search: Any) -> AsyncIterator[Translation]:
        """The translations of the pieces of one text, each as soon as it and all before it are done."""
        settings = self._settings(1, search)
        [cut] = await self._cut([text], settings)
        done: asyncio.Queue[tuple[int, Translation] | None] = asyncio.Queue()

        def put(place: int, found: Translation) -> None:
            done.put_nowait((place, found))

        early: dict[int, Translation] = {}
        place = 0
        work = asyncio.create_task(self._translate_pieces(cut.texts, settings, deadline=deadline, on_result=put))
        async with aclosing(read_until_done(done, work)) as results:
            async for number, found in results:
                early[number] = found
                while place in early:
                    yield early.pop(place)
                    place += 1

    async def _cut(self, texts: Sequence[str], settings: SearchSettings) -> list[Pieces]:
        """The texts in pieces. Long texts are cut in a thread, so that other requests need not wait."""
        tokenizer = self.run.tokenizers[0]

        def cut() -> list[Pieces]:
            return [Pieces(text, tokenizer, settings) for text in texts]

        return cut() if sum(map(len, texts)) <= CUT_IN_THREAD else await asyncio.to_thread(cut)

    async def _translate_pieces(
        self,
        texts: Sequence[str],
        settings: SearchSettings,
        nbest: int = 1,
        details: bool = False,
        *,
        deadline: float | None = None,
        on_result: Callable[[int, Translation], None] | None = None,
    ) -> list[Translation]:
        """Translations of pieces by the engine that supports the settings."""
        queue, settings = self._choose_queue(settings)
        items = [TranslationRequest(text, settings, nbest, details) for text in texts]
        key = (settings, nbest, details)
        return await queue.submit(items, key=key, deadline=deadline, on_result=on_result)

    def _find_queue(self, settings: SearchSettings) -> tuple[Batcher[TranslationRequest, Translation], SearchSettings]:
        """The queue for these settings, and the settings for texts that are cut already."""
        fast = self._fast is not None and choose_engine(self.engine, self.run, settings) == "ctranslate2"
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

    def _decode(self, items: list[TranslationRequest]) -> list[Translation]:
        """Translate with CTranslate2."""
        assert self._fast is not None
        first, texts = items[0], [item.text for item in items]
        return self._fast.translate(texts, nbest=first.nbest, details=first.details, **vars(first.settings))

    def _search(self, items: list[TranslationRequest]) -> list[Translation]:
        """Translate with torch."""
        first, texts = items[0], [item.text for item in items]
        found: list[Translation] = self.worker.predictor.translate(texts, nbest=first.nbest, **vars(first.settings))
        return found

    def _align(self, translations: list[Translation]) -> list[Translation]:
        """Add alignments with torch, whichever engine translated."""
        return self._aligner.add(translations)

    @cached_property
    def _aligner(self) -> Aligner:
        from regard.tasks.translate.alignment import Aligner

        translator = self.worker.predictor
        return Aligner(translator.model, translator.source, translator.target, translator.alignment)


def _remaining(end: float | None) -> float | None:
    return None if end is None else end - asyncio.get_running_loop().time()
