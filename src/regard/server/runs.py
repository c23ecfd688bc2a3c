"""The served runs: found by name or by their languages, and closed together."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypedDict

from regard.errors import RegardError, SettingsError
from regard.languages import language_name, normalize_code
from regard.run import Run
from regard.server.language_detection import LanguageDetector
from regard.server.served_run import Capacity, Log, ServedRun
from regard.server.settings import ServerSettings


class NotServed(RegardError):  # noqa: N818  an answer, not a fault
    """No served run translates this pair of languages."""


class ServedLanguage(TypedDict):
    """A language, and the languages that it can be translated into."""

    code: str
    name: str
    targets: list[str]


class LanguageGuess(TypedDict):
    """A language that a text may be in, with a confidence from 0 to 100."""

    language: str
    confidence: float


class ServedRuns:
    """All runs that are served, by name."""

    def __init__(self, served: Iterable[ServedRun], capacity: Capacity):
        self.served = {one.name: one for one in served}
        self._capacity = capacity
        self._translators = [one for one in self.served.values() if one.translates]
        self._with_languages = [one for one in self._translators if one.source and one.target]
        self._detector = LanguageDetector(_samples(self._translators))

    @classmethod
    def open(cls, runs: Sequence[str | Path], settings: ServerSettings, log: Log | None = None) -> ServedRuns:
        """Open run folders. `log` gets a line about each conversion for another engine."""
        opened = [Run.open(folder) for folder in runs]  # wrong names are reported before anything is loaded
        names = unique_names([run.folder for run in opened])
        capacity = Capacity(settings)
        try:
            return cls([ServedRun(run, name, capacity, log) for run, name in zip(opened, names, strict=True)], capacity)
        except BaseException:
            capacity.close()
            raise

    async def close(self) -> None:
        """Finish the accepted requests, and end the threads."""
        await asyncio.gather(*(one.close() for one in self.served.values()))
        self._capacity.close()

    def batches(self) -> int:
        """Number of batches since the start."""
        return sum(queue.counters.batches for one in self.served.values() for queue in one.queues.values())

    def full_for(self) -> float:
        """Seconds until some run has room for another request; 0 if one has. Checked before a body is read."""
        return min((one.handler.full_for() for one in self.served.values()), default=0.0)

    def by_pair(self, source: str, target: str, task: str = "") -> ServedRun:
        """The first run (of a task) that translates this pair; if none matches exactly, "en" also matches "en-US"."""
        for form in (normalize_code, _language):
            for one in self._with_languages:
                if task in ("", one.task) and (form(one.source), form(one.target)) == (form(source), form(target)):
                    return one
        pairs = [f"{entry['code']} to {code}" for entry in self.languages for code in entry["targets"]]
        there = ", ".join(pairs) or f"{', '.join(self.served) or 'nothing'}, by name"
        raise NotServed(f"{source} to {target} is not served; served: {there}")

    @cached_property
    def languages(self) -> list[ServedLanguage]:
        """Source languages in the order of the runs, then languages that are only targets."""
        targets: dict[str, dict[str, None]] = defaultdict(dict)
        for one in self._with_languages:
            targets[one.source][one.target] = None
        for one in self._with_languages:
            targets.setdefault(one.target, {})
        return [{"code": code, "name": language_name(code), "targets": list(found)} for code, found in targets.items()]

    def detect(self, text: str) -> list[LanguageGuess]:
        """The languages that a text may be in, the most probable first. Only served languages are considered."""
        known = {entry["code"] for entry in self.languages}
        found = self._detector.detect(text)
        return [
            {"language": code, "confidence": round(100 * share, 1)} for code, share in found.items() if code in known
        ]

    def same_pair(self) -> list[list[ServedRun]]:
        """Groups of runs that translate the same pair; the first of a group is the one that `by_pair` finds."""
        by_pair: dict[tuple[str, str], list[ServedRun]] = defaultdict(list)
        for one in self._with_languages:
            by_pair[normalize_code(one.source), normalize_code(one.target)].append(one)
        return [runs for runs in by_pair.values() if len(runs) > 1]


def unique_names(folders: Sequence[Path]) -> list[str]:
    """The names of the folders; a repeated name gets a number. The same folder twice is refused."""
    places = [folder.resolve() for folder in folders]
    for place, times in Counter(places).items():
        if times > 1:
            raise SettingsError(f"{place.name}: given {times} times; give it once")
    names: list[str] = []
    for place in places:
        name, number = place.name, 2
        while name in names:
            name, number = f"{place.name}-{number}", number + 1
        names.append(name)
    return names


def _language(code: str) -> str:
    """A code without region and script."""
    return normalize_code(code).partition("-")[0]


def _samples(runs: Iterable[ServedRun]) -> dict[str, list[str]]:
    """Held-out sentences of each language."""
    samples: dict[str, list[str]] = defaultdict(list)
    for one in runs:
        pairs = one.run.held_out()
        for code, side in ((one.source, "source"), (one.target, "target")):
            if code:
                samples[code].extend(getattr(pair, side) for pair in pairs)
    return samples
