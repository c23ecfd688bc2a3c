"""The runs of a server: found by name or by their languages, and closed together."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypedDict

from regard.convert.engine import Quantization
from regard.data.languages import language_name, normalize_code
from regard.errors import RegardError, SettingsError, nearest
from regard.run import Run
from regard.server.capacity import Capacity
from regard.server.detect import Detector
from regard.server.served import Served
from regard.server.settings import ServerSettings
from regard.tasks.fast import EngineName


class NotServed(RegardError):  # noqa: N818  an answer, not a fault
    """A name, or a pair of languages, that this server does not have."""


class Language(TypedDict):
    """A language, and what it is translated into, if anything."""

    code: str
    name: str
    targets: list[str]


class Guess(TypedDict):
    """A language that a text may be in, and how sure that is, from 0 to 100."""

    language: str
    confidence: float


class Fleet:
    """All runs that are served, by name."""

    def __init__(self, served: Iterable[Served], capacity: Capacity):
        self.served = {one.name: one for one in served}
        self._capacity = capacity
        self._translators = [one for one in self.served.values() if one.kind == "translate"]
        self._detector = Detector(_samples(self._translators))

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
        tell: Callable[[str], None] | None = None,
    ) -> Fleet:
        """Open run folders; see `Capacity` for the numbers. `tell` hears what converting a run for CTranslate2 cost."""
        opened = [Run.open(folder) for folder in runs]  # what was mistyped is told before anything is loaded
        names = unique_names([run.folder for run in opened])
        capacity = Capacity(threads, batch, queue)
        try:
            served = [
                Served(run, name, capacity, engine=engine, quantization=quantization, tell=tell)
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

    def by_name(self, name: str) -> Served:
        """The run of this name."""
        if name not in self.served:
            raise NotServed(f'no model "{name}" is served{nearest(name, self.served)}; there is {self._names()}')
        return self.served[name]

    def by_pair(self, source: str, target: str) -> Served:
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
    def languages(self) -> list[Language]:
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

    def detect(self, text: str) -> list[Guess]:
        """What language a text may be in, the likeliest first: among the languages served, and no other."""
        known = {entry["code"] for entry in self.languages}
        found = self._detector.detect(text)
        return [
            {"language": code, "confidence": round(100 * share, 1)} for code, share in found.items() if code in known
        ]

    def rivals(self) -> list[list[Served]]:
        """Runs that translate the same pair, where there are several: the first is the one that `by_pair` finds."""
        by_pair: dict[tuple[str, str], list[Served]] = defaultdict(list)
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


def _samples(runs: Iterable[Served]) -> dict[str, list[str]]:
    """Sentences of each language, from pairs that the runs were not trained on."""
    samples: dict[str, list[str]] = defaultdict(list)
    for one in runs:
        pairs = one.run.held_out()
        for code, side in ((one.source, "source"), (one.target, "target")):
            if code:
                samples[code].extend(getattr(pair, side) for pair in pairs)
    return samples
