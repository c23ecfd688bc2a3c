"""The runs of a server: found by name or by their languages, and closed together."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cached_property, lru_cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, cast, get_args

from regard.config import SearchSettings
from regard.errors import RegardError, RunError, SettingsError, nearest
from regard.languages import language_name, normalize_code
from regard.run import WEIGHTS, Run
from regard.server.batching import Batcher, Capacity, ShutdownGate, ThreadToLoop
from regard.server.language_detection import LanguageDetector
from regard.server.settings import ServerSettings
from regard.tasks.translate.engine import EngineName, FastTranslator, Quantization, choose_engine, open_fast
from regard.tasks.translate.pieces import Pieces
from regard.tasks.translate.translation import Translation

if TYPE_CHECKING:
    from regard.tasks.chat.chatbot import Chatbot
    from regard.tasks.classify.classifier import Classification, Classifier
    from regard.tasks.retrieve.retriever import RetrieverChat
    from regard.tasks.tag.tagger import TaggedText, Tagger
    from regard.tasks.translate.alignment import Aligner
    from regard.tasks.translate.translator import Translator


# What a run does with torch: opened when it is first needed, and only ever touched by the one thread for torch.
#
# One thread, because switching a head off, or recording what passes, changes the model for whoever else is using it.


Json = dict[str, Any]
Off = tuple[tuple[str, int], ...]
"""Heads to switch off: names of attentions, and numbers of heads."""


@dataclass(frozen=True)
class TorchRequest:
    """A piece of text to translate, and how."""

    text: str
    settings: SearchSettings
    nbest: int = 1
    details: bool = False

    @property
    def key(self) -> tuple[SearchSettings, int, bool]:
        """What sentences that are translated together have in common."""
        return self.settings, self.nbest, self.details


@dataclass(frozen=True)
class InspectJob:
    """A sentence to look inside; its translation may be given, and heads may be off."""

    text: str
    target: str | None = None
    off: Off = ()
    quick: bool = True


class TorchWorker:
    """A run, opened with torch."""

    def __init__(self, run: Run):
        self.run = run

    @cached_property
    def opened(self) -> Any:
        """The run, loaded."""
        from regard.system import keep_memory
        from regard.tasks import load

        keep_memory()
        return load(self.run)

    @property
    def translator(self) -> Translator:
        """A run that translates."""
        from regard.tasks.translate.translator import Translator

        assert isinstance(self.opened, Translator)
        return self.opened

    @property
    def chatter(self) -> Chatbot | RetrieverChat:
        """A run that talks."""
        from regard.tasks.chat.chatbot import Chatbot
        from regard.tasks.retrieve.retriever import Retriever, RetrieverChat

        if isinstance(self.opened, Retriever):
            return RetrieverChat(self.opened)
        assert isinstance(self.opened, Chatbot)
        return self.opened

    @property
    def classifier(self) -> Classifier:
        """A run that classifies."""
        from regard.tasks.classify.classifier import Classifier

        assert isinstance(self.opened, Classifier)
        return self.opened

    @property
    def tagger(self) -> Tagger:
        """A run that tags words."""
        from regard.tasks.tag.tagger import Tagger

        assert isinstance(self.opened, Tagger)
        return self.opened

    def translate(self, sentences: list[TorchRequest]) -> list[Translation]:
        """Answers to sentences that have their settings in common."""
        first, texts = sentences[0], [sentence.text for sentence in sentences]
        return self.translator.translate(texts, nbest=first.nbest, **vars(first.settings))

    def align(self, answers: list[Translation]) -> list[Translation]:
        """The answers with their alignments, whoever translated them."""
        return self._aligner.add(answers)

    def inspect(self, look: InspectJob) -> Json:
        """The inspection of a sentence, as `regard inspect` makes it."""
        from regard.tasks.translate.inspect.page import inspect_run

        with self._without(look.off):
            return inspect_run(
                self.run,
                look.text,
                look.target,
                quick=look.quick,
                translator=self.translator,
                measured=self._measured,
            )

    @cached_property
    def _aligner(self) -> Aligner:
        from regard.tasks.translate.alignment import Aligner

        translator = self.translator
        return Aligner(translator.model, translator.source, translator.target, translator.alignment)

    @cached_property
    def _measured(self) -> dict[str, Json]:
        from regard.tasks.translate.inspect.page import read_measured

        return read_measured(self.run)

    @contextmanager
    def _without(self, off: Off) -> Iterator[None]:
        """Some heads switched off."""
        from regard.layers.hooks import listen, without_heads

        by_attention: dict[str, list[int]] = defaultdict(list)
        for attention, head in off:
            by_attention[attention].append(head)
        with ExitStack() as stack:
            for attention, heads in by_attention.items():
                stack.enter_context(listen(self.translator.model, attention, without_heads(*heads)))
            yield


# One open run, as the server uses it: texts in, answers out, for many requests at a time.
#
# Texts are cut into pieces before they are queued, so that a long one takes turns with short ones. CTranslate2
# decodes
# several batches at once, on one core each; whatever torch does, for all runs, is done in one thread of its own.


Kind = Literal["translate", "chat", "classify", "tag"]
Log = Callable[[str], None]
Heard = TypeVar("Heard")

LOOKS, TALKS = 32, 64
"""Inspections, and replies, that may wait."""
ROOM = 200
"""Characters for which each place in the queue has room, on average."""
CUT_AT_ONCE = 2_000
"""Texts of more characters are cut in a thread: that may take some milliseconds."""
_SEARCH = frozenset(field.name for field in fields(SearchSettings))


@dataclass
class _Talk:
    """A conversation to go on with; `say` hears the reply piece by piece, in the thread for torch."""

    turns: Sequence[str]
    search: dict[str, Any]
    say: Callable[[str], object] | None = None
    heard: bool = True
    """Whether anyone still listens."""


class ServedRun:
    """A run and its queues."""

    def __init__(
        self,
        run: Run,
        name: str,
        capacity: Capacity,
        *,
        engine: EngineName = "auto",
        quantization: Quantization = "int8",
        log: Log | None = None,
    ):
        self.run, self.name, self.engine = run, name, engine
        self.kind = _kind(run)
        self.source, self.target = run.recipe.data.source_language, run.recipe.data.target_language
        self._torch = TorchWorker(run)
        self._fast: FastTranslator | None = None
        if self.kind == "translate":
            self._fast = open_fast(engine, run, run.recipe.search, quantization=quantization, log=log)
        if self._fast is None:  # then everything needs torch, and what is wrong is told now and not to a client
            capacity.torch.submit(lambda: self._torch.opened).result()
        self._about = _describe(self)
        self._way = lru_cache(256)(self._find_way)
        self._door = (
            ShutdownGate()
        )  # who has its translation and waits for its alignment must not find that queue closed
        self._make_queues(capacity)

    def _make_queues(self, capacity: Capacity) -> None:
        """A queue for each kind of work. All but the first run in the one thread for torch."""
        # The next round of batches has room for everyone who waits: so soon has everyone who is let in a first turn.
        first_turns = capacity.batch * capacity.threads
        many: dict[str, Any] = {"size": capacity.batch, "most_waiting": capacity.queue, "most_requests": first_turns}
        for_torch: dict[str, Any] = {"pool": capacity.torch}
        texts: dict[str, Any] = {"most_weight": ROOM * capacity.queue, "weigh": lambda one: len(one.text)}
        side = self._torch
        self.decoding: Batcher[TorchRequest, Translation] = Batcher(
            self._decode, **many, **texts, threads=capacity.threads, pool=capacity.decoding
        )
        self.searching: Batcher[TorchRequest, Translation] = Batcher(side.translate, **many, **texts, **for_torch)
        self.aligning: Batcher[Translation, Translation] = Batcher(side.align, **many, **texts, **for_torch)
        self.inspecting: Batcher[InspectJob, Json] = Batcher(
            lambda looks: [side.inspect(look) for look in looks], size=1, most_waiting=LOOKS, **for_torch
        )
        self.talking: Batcher[_Talk, Translation | None] = Batcher(
            lambda talks: [self._talk(talk) for talk in talks], size=1, most_waiting=TALKS, **for_torch
        )
        self.classifying: Batcher[tuple[str, bool], Classification] = Batcher(
            lambda asked: side.classifier.classify([text for text, _ in asked], explain=asked[0][1]),
            **many,
            **for_torch,
        )
        self.tagging: Batcher[tuple[str, bool], TaggedText] = Batcher(
            lambda asked: side.tagger.tag([text for text, _ in asked], explain=asked[0][1]), **many, **for_torch
        )
        by_kind: dict[Kind, dict[str, Batcher[Any, Any]]] = {
            "translate": {
                "ctranslate2": self.decoding,
                "torch": self.searching,
                "align": self.aligning,
                "inspect": self.inspecting,
            },
            "chat": {"chat": self.talking},
            "classify": {"classify": self.classifying},
            "tag": {"tag": self.tagging},
        }
        self.queues = by_kind[self.kind]
        """By name, those that this run has."""

    def about(self) -> Json:
        """What a client may want to know of it."""
        return dict(self._about)

    def full_for(self) -> float:
        """Seconds until there is room for another request of the ordinary kind; 0 where there is now."""
        if self.kind == "translate":
            return self._way(self.run.recipe.search)[0].full_for()
        return min(queue.full_for() for queue in self.queues.values())

    async def close(self) -> None:
        """Finish what was taken."""
        await self._door.close()
        await asyncio.gather(*(queue.close() for queue in self.queues.values()))

    # -----------------------------------------------------------------------------------------------------------------
    # Translation

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
        """Answers to texts of any length, in order; line breaks and the space around lines are kept.

        `align` says which words render which, `details` adds the log-probabilities of tokens. Keywords override
        `search` settings, e.g. beam_size=1. `deadline`: seconds that all of it may take.
        """
        until = _until(deadline)
        settings = self._settings(nbest, search)
        with self._door.entered():
            cut = await self._cut(texts, settings)
            pieces = [piece for one in cut for piece in one.texts]
            answers = await self._answer(pieces, settings, nbest, details, deadline=_left(until))
            if align:
                answers = await self.aligning.submit(answers, deadline=_left(until))
        left = iter(answers)
        return [one.join([next(left) for _ in one.texts]) for one in cut]

    async def pieces(self, text: str, *, deadline: float | None = None, **search: Any) -> AsyncIterator[Translation]:
        """The answers to the pieces of one text, each as soon as it and those before it are done."""
        settings = self._settings(1, search)
        [cut] = await self._cut([text], settings)
        done: asyncio.Queue[tuple[int, Translation] | None] = asyncio.Queue()

        def hear(place: int, answer: Translation) -> None:
            done.put_nowait((place, answer))

        early: dict[int, Translation] = {}
        place = 0
        work = asyncio.create_task(self._answer(cut.texts, settings, deadline=deadline, hear=hear))
        async with aclosing(_follow(done, work)) as found:
            async for number, answer in found:
                early[number] = answer
                while place in early:
                    yield early.pop(place)
                    place += 1

    async def _cut(self, texts: Sequence[str], settings: SearchSettings) -> list[Pieces]:
        """The texts as pieces; many of them elsewhere than in the thread that all requests share."""
        tokenizer = self.run.tokenizers[0]

        def cut() -> list[Pieces]:
            return [Pieces(text, tokenizer, settings) for text in texts]

        return cut() if sum(map(len, texts)) <= CUT_AT_ONCE else await asyncio.to_thread(cut)

    async def _answer(
        self,
        texts: Sequence[str],
        settings: SearchSettings,
        nbest: int = 1,
        details: bool = False,
        *,
        deadline: float | None = None,
        hear: Callable[[int, Translation], None] | None = None,
    ) -> list[Translation]:
        """Answers to pieces, by the engine that can do what is asked."""
        queue, settings = self._way(settings)
        sentences = [TorchRequest(text, settings, nbest, details) for text in texts]
        key = (settings, nbest, details)
        return await queue.submit(sentences, key=key, deadline=deadline, hear=hear)

    def _find_way(self, settings: SearchSettings) -> tuple[Batcher[TorchRequest, Translation], SearchSettings]:
        """The queue for these settings, and the settings for what is cut already."""
        fast = self._fast is not None and choose_engine(self.engine, self.run, settings) == "ctranslate2"
        return self.decoding if fast else self.searching, replace(
            settings, max_joined_tokens=settings.max_source_tokens
        )

    def _decode(self, sentences: list[TorchRequest]) -> list[Translation]:
        """By CTranslate2."""
        assert self._fast is not None
        first, texts = sentences[0], [sentence.text for sentence in sentences]
        return self._fast.translate(texts, nbest=first.nbest, details=first.details, **vars(first.settings))

    def _settings(self, nbest: int, search: dict[str, Any]) -> SearchSettings:
        """The run's settings, and those asked for. The beam is wide enough for `nbest`, unless one was asked for."""
        self._must("translate")
        for name in search.keys() - _SEARCH:
            raise SettingsError(f"there is no setting search.{name}{nearest(name, _SEARCH)}")
        settings = self.run.recipe.search
        if nbest > settings.beam_size:
            search = {"beam_size": nbest} | search
        if search:
            settings = replace(settings, **search)
        if nbest < 1 or (nbest > settings.beam_size and not settings.sample):
            raise SettingsError(
                f"{nbest} best translations need a search.beam_size of at least as many, not {settings.beam_size}"
            )
        return settings

    # -----------------------------------------------------------------------------------------------------------------
    # Looking inside, talking, classifying

    async def inspect(
        self,
        text: str,
        target: str | None = None,
        *,
        off: Sequence[tuple[str, int]] = (),
        quick: bool = True,
        deadline: float | None = None,
    ) -> Json:
        """What happens inside while `text` becomes `target`, or what the model makes of it; heads may be `off`."""
        self._must("translate")
        look = InspectJob(text, target, tuple((attention, head) for attention, head in off), quick)
        [found] = await self.inspecting.submit([look], deadline=deadline)
        return found

    async def reply(self, turns: Sequence[str], *, deadline: float | None = None, **search: Any) -> Translation:
        """What is said next in a conversation."""
        self._must("chat")
        [answer] = await self.talking.submit([_Talk(turns, search)], deadline=deadline)
        assert answer is not None
        return answer

    async def stream(self, turns: Sequence[str], *, deadline: float | None = None, **search: Any) -> AsyncIterator[str]:
        """The same, piece by piece. Who stops listening stops the talk."""
        self._must("chat")
        said: asyncio.Queue[str | None] = asyncio.Queue()
        talk = _Talk(turns, search, say=ThreadToLoop(said).say)
        work = asyncio.create_task(self.talking.submit([talk], deadline=deadline))
        try:
            async with aclosing(_follow(said, work)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            talk.heard = False

    async def classify(
        self, texts: Sequence[str], *, explain: bool = False, deadline: float | None = None
    ) -> list[Classification]:
        """Verdicts on documents, in order."""
        self._must("classify")
        return await self.classifying.submit([(text, explain) for text in texts], key=explain, deadline=deadline)

    async def tag(
        self, texts: Sequence[str], *, explain: bool = False, deadline: float | None = None
    ) -> list[TaggedText]:
        """The labels of the words of sentences, in order."""
        self._must("tag")
        return await self.tagging.submit([(text, explain) for text in texts], key=explain, deadline=deadline)

    def _talk(self, talk: _Talk) -> Translation | None:
        chatter = self._torch.chatter
        if talk.say is None:
            return chatter.reply(talk.turns, **talk.search)
        for piece in chatter.stream(talk.turns, **talk.search):
            if not talk.heard:
                break
            talk.say(piece)
        return None

    def _must(self, kind: Kind) -> None:
        """Refuse what this run was not trained for."""
        if self.kind != kind:
            raise SettingsError(f'"{self.name}" was trained to {self.kind}, and cannot {kind}')


def _kind(run: Run) -> Kind:
    task = run.recipe.data.task
    if task == "retrieve":  # it talks; what it lacks is told when it is opened
        return "chat"
    if task not in get_args(Kind):
        raise RunError(f'{run.folder}: made for the task "{task}", which is not served')
    run.require_weights()
    return cast(Kind, task)


def _describe(served: ServedRun) -> Json:
    from safetensors import safe_open

    run, card = served.run, served.run.card
    shapes: list[Sequence[int]] = []
    if (run.folder / WEIGHTS).is_file():  # a knowledge base may do without
        with safe_open(run.folder / WEIGHTS, framework="numpy") as weights:
            shapes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118  it is no dict
    made = card.get("created")
    when = datetime.fromisoformat(made).timestamp() if made else (run.folder / WEIGHTS).stat().st_mtime
    return {
        "id": served.name,
        "kind": served.kind,
        "source": served.source,
        "target": served.target,
        "arch": card.get("arch", run.recipe.model.arch),
        "parameters": sum(map(prod, shapes)),
        "created": int(when),
        "scores": {
            part: {name: value for name, value in found.items() if isinstance(value, int | float | str)}
            for part, found in card.get("scores", {}).items()
        },
        "knowledge": _knowledge(run),
    }


def _knowledge(run: Run) -> dict[str, int] | None:
    """How much is known, if answers are from a knowledge base; as it was when the server opened it."""
    if run.recipe.data.task != "retrieve":
        return None
    from regard.tasks.retrieve.index_run import count

    known = count(run)
    return {"questions": known.questions, "answers": known.answers}


async def _follow(queue: asyncio.Queue[Heard | None], work: asyncio.Task[Any]) -> AsyncGenerator[Heard, None]:
    """What is put into the queue until the work is done; then its error, if it failed. Who leaves ends the work."""

    def end(task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # seen, even if nobody waits for it any more
        queue.put_nowait(None)

    work.add_done_callback(end)
    try:
        while (found := await queue.get()) is not None:
            yield found
        await work
    finally:
        work.cancel()


def _until(deadline: float | None) -> float | None:
    return None if deadline is None else asyncio.get_running_loop().time() + deadline


def _left(until: float | None) -> float | None:
    return None if until is None else until - asyncio.get_running_loop().time()


class NotServed(RegardError):  # noqa: N818  an answer, not a fault
    """A name, or a pair of languages, that this server does not have."""


class ServedLanguage(TypedDict):
    """A language, and what it is translated into, if anything."""

    code: str
    name: str
    targets: list[str]


class LanguageGuess(TypedDict):
    """A language that a text may be in, and how sure that is, from 0 to 100."""

    language: str
    confidence: float


class ServedRuns:
    """All runs that are served, by name."""

    def __init__(self, served: Iterable[ServedRun], capacity: Capacity):
        self.served = {one.name: one for one in served}
        self._capacity = capacity
        self._translators = [one for one in self.served.values() if one.kind == "translate"]
        self._detector = LanguageDetector(_samples(self._translators))

    @classmethod
    def open(
        cls,
        runs: Sequence[str | Path],
        *,
        engine: EngineName = ServerSettings.engine,
        quantization: Quantization = ServerSettings.quantization,
        threads: int = ServerSettings.threads,
        batch: int = ServerSettings.batch,
        queue: int = ServerSettings.queue,
        log: Callable[[str], None] | None = None,
    ) -> ServedRuns:
        """Open run folders; see `Capacity` for the numbers. `tell` hears what converting a run for CTranslate2 cost."""
        opened = [Run.open(folder) for folder in runs]  # what was mistyped is told before anything is loaded
        names = unique_names([run.folder for run in opened])
        capacity = Capacity(threads, batch, queue)
        try:
            served = [
                ServedRun(run, name, capacity, engine=engine, quantization=quantization, log=log)
                for run, name in zip(opened, names, strict=True)
            ]
        except BaseException:
            capacity.close()
            raise
        return cls(served, capacity)

    async def close(self) -> None:
        """Finish what was taken, and end the threads."""
        await asyncio.gather(*(one.close() for one in self.served.values()))
        self._capacity.close()

    @property
    def waiting(self) -> int:
        """Items that wait, in all queues of all runs."""
        return sum(queue.waiting for one in self.served.values() for queue in one.queues.values())

    def batches(self) -> int:
        """How many were worked on since the start."""
        return sum(queue.counters.batches for one in self.served.values() for queue in one.queues.values())

    def full_for(self) -> float:
        """Seconds until some run has room for another request; 0 where one has. Quick to ask before a body is read."""
        return min((one.full_for() for one in self.served.values()), default=0.0)

    def by_name(self, name: str) -> ServedRun:
        """The run of this name."""
        if name not in self.served:
            raise NotServed(f'no model "{name}" is served{nearest(name, self.served)}; there is {self._names()}')
        return self.served[name]

    def by_pair(self, source: str, target: str) -> ServedRun:
        """The first run that translates this pair; where none does exactly, "en" will do for "en-US"."""
        for form in (normalize_code, _language):
            for one in self._translators:
                known = one.source and one.target
                if known and (form(one.source), form(one.target)) == (form(source), form(target)):
                    return one
        pairs = [f"{entry['code']} to {code}" for entry in self.languages for code in entry["targets"]]
        there = ", ".join(pairs) or f"{self._names()}, by name"
        raise NotServed(f"{source} to {target} is not served; there is {there}")

    @cached_property
    def languages(self) -> list[ServedLanguage]:
        """Source languages in the order of the runs, then those that are only translated into, with no targets.

        Runs that do not know their languages are left out.
        """
        targets: dict[str, dict[str, None]] = defaultdict(dict)
        pairs = [(one.source, one.target) for one in self._translators if one.source and one.target]
        for source, target in pairs:
            targets[source][target] = None
        for _, target in pairs:
            targets.setdefault(target, {})
        return [{"code": code, "name": language_name(code), "targets": list(found)} for code, found in targets.items()]

    def detect(self, text: str) -> list[LanguageGuess]:
        """What language a text may be in, the likeliest first: among the languages served, and no other."""
        known = {entry["code"] for entry in self.languages}
        found = self._detector.detect(text)
        return [
            {"language": code, "confidence": round(100 * share, 1)} for code, share in found.items() if code in known
        ]

    def rivals(self) -> list[list[ServedRun]]:
        """Runs that translate the same pair, where there are several: the first is the one that `by_pair` finds."""
        by_pair: dict[tuple[str, str], list[ServedRun]] = defaultdict(list)
        for one in self._translators:
            if one.source and one.target:
                by_pair[normalize_code(one.source), normalize_code(one.target)].append(one)
        return [runs for runs in by_pair.values() if len(runs) > 1]

    def _names(self) -> str:
        return ", ".join(self.served) or "nothing"


def unique_names(folders: Sequence[Path]) -> list[str]:
    """The names of the folders; a second one of the same name gets a number. The same folder twice is refused."""
    places = [folder.resolve() for folder in folders]
    for place, times in Counter(places).items():
        if times > 1:
            raise SettingsError(f"{place.name}: given {times} times; once is enough")
    names: list[str] = []
    for place in places:
        name, number = place.name, 2
        while name in names:
            name, number = f"{place.name}-{number}", number + 1
        names.append(name)
    return names


def _language(code: str) -> str:
    """A code without what follows the language."""
    return normalize_code(code).partition("-")[0]


def _samples(runs: Iterable[ServedRun]) -> dict[str, list[str]]:
    """Sentences of each language, from pairs that the runs were not trained on."""
    samples: dict[str, list[str]] = defaultdict(list)
    for one in runs:
        pairs = one.run.held_out()
        for code, side in ((one.source, "source"), (one.target, "target")):
            if code:
                samples[code].extend(getattr(pair, side) for pair in pairs)
    return samples
