"""One open run, as the server uses it: texts in, answers out, for many requests at a time.

Texts are cut into pieces before they are queued, so that a long one takes turns with short ones. CTranslate2 decodes
several batches at once, on one core each; whatever torch does, for all runs, is done in one thread of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from regard.config import Search
from regard.convert.engine import Quantization
from regard.errors import RunError, SettingsError, nearest
from regard.run import WEIGHTS, Run
from regard.server.batcher import Batcher
from regard.server.capacity import Capacity
from regard.server.door import Door
from regard.server.pieces import Pieces
from regard.server.relay import Relay
from regard.server.torch_side import Json, Look, Sentence, TorchSide
from regard.tasks.answer import Answer
from regard.tasks.fast import EngineName, FastTranslator, choose_engine, open_fast

if TYPE_CHECKING:
    from regard.tasks.classify import Verdict
    from regard.tasks.tag import Tagged

Kind = Literal["translate", "chat", "classify", "tag"]
Tell = Callable[[str], None]
Heard = TypeVar("Heard")

LOOKS, TALKS = 32, 64
"""Inspections, and replies, that may wait."""
ROOM = 200
"""Characters for which each place in the queue has room, on average."""
CUT_AT_ONCE = 2_000
"""Texts of more characters are cut in a thread: that may take some milliseconds."""
_SEARCH = frozenset(field.name for field in fields(Search))


@dataclass
class _Talk:
    """A conversation to go on with; `say` hears the reply piece by piece, in the thread for torch."""

    turns: Sequence[str]
    search: dict[str, Any]
    say: Callable[[str], object] | None = None
    heard: bool = True
    """Whether anyone still listens."""


class Served:
    """A run and its queues."""

    def __init__(
        self,
        run: Run,
        name: str,
        capacity: Capacity,
        *,
        engine: EngineName = "auto",
        quantization: Quantization = "int8",
        tell: Tell | None = None,
    ):
        self.run, self.name, self.engine = run, name, engine
        self.kind = _kind(run)
        self.source, self.target = run.recipe.data.source_language, run.recipe.data.target_language
        self._torch = TorchSide(run)
        self._fast: FastTranslator | None = None
        if self.kind == "translate":
            self._fast = open_fast(engine, run, run.recipe.search, quantization=quantization, log=tell)
        if self._fast is None:  # then everything needs torch, and what is wrong is told now and not to a client
            capacity.torch.submit(lambda: self._torch.opened).result()
        self._about = _describe(self)
        self._way = lru_cache(256)(self._find_way)
        self._door = Door()  # who has its translation and waits for its alignment must not find that queue closed
        self._make_queues(capacity)

    def _make_queues(self, capacity: Capacity) -> None:
        """A queue for each kind of work. All but the first run in the one thread for torch."""
        # The next round of batches has room for everyone who waits: so soon has everyone who is let in a first turn.
        first_turns = capacity.batch * capacity.threads
        many: dict[str, Any] = {"size": capacity.batch, "most_waiting": capacity.queue, "most_requests": first_turns}
        for_torch: dict[str, Any] = {"pool": capacity.torch}
        texts: dict[str, Any] = {"most_weight": ROOM * capacity.queue, "weigh": lambda one: len(one.text)}
        side = self._torch
        self.decoding: Batcher[Sentence, Answer] = Batcher(
            self._decode, **many, **texts, threads=capacity.threads, pool=capacity.decoding
        )
        self.searching: Batcher[Sentence, Answer] = Batcher(side.translate, **many, **texts, **for_torch)
        self.aligning: Batcher[Answer, Answer] = Batcher(side.align, **many, **texts, **for_torch)
        self.inspecting: Batcher[Look, Json] = Batcher(
            lambda looks: [side.inspect(look) for look in looks], size=1, most_waiting=LOOKS, **for_torch
        )
        self.talking: Batcher[_Talk, Answer | None] = Batcher(
            lambda talks: [self._talk(talk) for talk in talks], size=1, most_waiting=TALKS, **for_torch
        )
        self.classifying: Batcher[tuple[str, bool], Verdict] = Batcher(
            lambda asked: side.classifier.classify([text for text, _ in asked], explain=asked[0][1]),
            **many,
            **for_torch,
        )
        self.tagging: Batcher[tuple[str, bool], Tagged] = Batcher(
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
    ) -> list[Answer]:
        """Answers to texts of any length, in order; line breaks and the space around lines are kept.

        `align` says which words render which, `details` adds the log-probabilities of tokens. Keywords override
        `search` settings, e.g. beam=1. `deadline`: seconds that all of it may take.
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

    async def pieces(self, text: str, *, deadline: float | None = None, **search: Any) -> AsyncIterator[Answer]:
        """The answers to the pieces of one text, each as soon as it and those before it are done."""
        settings = self._settings(1, search)
        [cut] = await self._cut([text], settings)
        done: asyncio.Queue[tuple[int, Answer] | None] = asyncio.Queue()

        def hear(place: int, answer: Answer) -> None:
            done.put_nowait((place, answer))

        early: dict[int, Answer] = {}
        place = 0
        work = asyncio.create_task(self._answer(cut.texts, settings, deadline=deadline, hear=hear))
        async with aclosing(_follow(done, work)) as found:
            async for number, answer in found:
                early[number] = answer
                while place in early:
                    yield early.pop(place)
                    place += 1

    async def _cut(self, texts: Sequence[str], settings: Search) -> list[Pieces]:
        """The texts as pieces; many of them elsewhere than in the thread that all requests share."""
        tokenizer = self.run.tokenizers[0]

        def cut() -> list[Pieces]:
            return [Pieces(text, tokenizer, settings) for text in texts]

        return cut() if sum(map(len, texts)) <= CUT_AT_ONCE else await asyncio.to_thread(cut)

    async def _answer(
        self,
        texts: Sequence[str],
        settings: Search,
        nbest: int = 1,
        details: bool = False,
        *,
        deadline: float | None = None,
        hear: Callable[[int, Answer], None] | None = None,
    ) -> list[Answer]:
        """Answers to pieces, by the engine that can do what is asked."""
        queue, settings = self._way(settings)
        sentences = [Sentence(text, settings, nbest, details) for text in texts]
        key = (settings, nbest, details)
        return await queue.submit(sentences, key=key, deadline=deadline, hear=hear)

    def _find_way(self, settings: Search) -> tuple[Batcher[Sentence, Answer], Search]:
        """The queue for these settings, and the settings for what is cut already."""
        fast = self._fast is not None and choose_engine(self.engine, self.run, settings) == "ctranslate2"
        return self.decoding if fast else self.searching, replace(settings, join_up_to=settings.max_source)

    def _decode(self, sentences: list[Sentence]) -> list[Answer]:
        """By CTranslate2."""
        assert self._fast is not None
        first, texts = sentences[0], [sentence.text for sentence in sentences]
        return self._fast.translate(texts, nbest=first.nbest, details=first.details, **vars(first.settings))

    def _settings(self, nbest: int, search: dict[str, Any]) -> Search:
        """The run's settings, and those asked for. The beam is wide enough for `nbest`, unless one was asked for."""
        self._must("translate")
        for name in search.keys() - _SEARCH:
            raise SettingsError(f"there is no setting search.{name}{nearest(name, _SEARCH)}")
        settings = self.run.recipe.search
        if nbest > settings.beam:
            search = {"beam": nbest} | search
        if search:
            settings = replace(settings, **search)
        if nbest < 1 or (nbest > settings.beam and not settings.sample):
            raise SettingsError(
                f"{nbest} best translations need a search.beam of at least as many, not {settings.beam}"
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
        look = Look(text, target, tuple((attention, head) for attention, head in off), quick)
        [found] = await self.inspecting.submit([look], deadline=deadline)
        return found

    async def reply(self, turns: Sequence[str], *, deadline: float | None = None, **search: Any) -> Answer:
        """What is said next in a conversation."""
        self._must("chat")
        [answer] = await self.talking.submit([_Talk(turns, search)], deadline=deadline)
        assert answer is not None
        return answer

    async def stream(self, turns: Sequence[str], *, deadline: float | None = None, **search: Any) -> AsyncIterator[str]:
        """The same, piece by piece. Who stops listening stops the talk."""
        self._must("chat")
        said: asyncio.Queue[str | None] = asyncio.Queue()
        talk = _Talk(turns, search, say=Relay(said).say)
        work = asyncio.create_task(self.talking.submit([talk], deadline=deadline))
        try:
            async with aclosing(_follow(said, work)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            talk.heard = False

    async def classify(
        self, texts: Sequence[str], *, explain: bool = False, deadline: float | None = None
    ) -> list[Verdict]:
        """Verdicts on documents, in order."""
        self._must("classify")
        return await self.classifying.submit([(text, explain) for text in texts], key=explain, deadline=deadline)

    async def tag(self, texts: Sequence[str], *, explain: bool = False, deadline: float | None = None) -> list[Tagged]:
        """The labels of the words of sentences, in order."""
        self._must("tag")
        return await self.tagging.submit([(text, explain) for text in texts], key=explain, deadline=deadline)

    def _talk(self, talk: _Talk) -> Answer | None:
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
    kind: Kind = task
    return kind


def _describe(served: Served) -> Json:
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
    from regard.tasks.index_run import count

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
