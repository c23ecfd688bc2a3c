"""An answer: a translation and what is known about it, and the flags that say when not to trust it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from regard.analysis.alignment import Links, pharaoh
from regard.config import SearchSettings
from regard.data.languages import language_scripts
from regard.languages import share_in
from regard.run import Run
from regard.text.words import word_texts

if TYPE_CHECKING:
    from regard.decoding.search_tree import SearchTree


Flag = Literal["empty", "loops", "copies", "cut off", "script", "length", "retried", "split"]

LOOP_WORDS = 8
"""The longest run of words whose repetition is looked for."""
STUTTERED, STUTTER = 20, re.compile(r"(\w{1,8}?)\1{5,}")
"""A word of at least so many letters that says the same few again and again: a loop of subwords."""
COPIED_WORDS, COPIED_SHARE = 4, 0.8
"""So many words in a row, and this share of the whole, taken over from the source are a copy."""
ABSURD_RATIO, SHORT_TEXT = 4.0, 20
"""More characters than this many times the other side's, above a difference that short texts may well have."""


@dataclass(frozen=True)
class Alignment:
    """Which words of a text and of its translation belong together."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: Links
    """Places in `source` and `target`, counted from 0."""

    @property
    def pharaoh(self) -> str:
        """The links as "0-0 1-2"."""
        return pharaoh(self.links)

    @classmethod
    def joined(cls, parts: Iterable[Alignment]) -> Alignment:
        """That of a text of those of its pieces, in order."""
        source: tuple[str, ...] = ()
        target: tuple[str, ...] = ()
        links: Links = ()
        for part in parts:
            links += tuple((len(source) + s, len(target) + t) for s, t in part.links)
            source, target = source + part.source, target + part.target
        return cls(source, target, links)


@dataclass(frozen=True)
class Translation:
    """A translation and what is known about it. It becomes JSON once, and everything that shows it draws that."""

    source: str
    text: str
    score: float
    """Log-probability divided by the length penalty, plus the coverage penalty (docs/decoding.md)."""
    tokens: tuple[str, ...]
    log_probs: tuple[float, ...]
    """Of each token, and last of the end token."""
    ended: bool
    """False when the length limit cut it off."""
    flags: tuple[Flag, ...] = ()
    """What is suspicious about it."""
    alternatives: tuple[Translation, ...] = ()
    """Other hypotheses, best first, when they were asked for."""
    tree: SearchTree | None = None
    """What the beam search did, when it was asked for."""
    alignment: Alignment | None = None
    """Which words render which, when it was asked for."""

    @property
    def log_prob(self) -> float:
        """Log-probability of the whole translation, its end included."""
        return sum(self.log_probs)

    @property
    def others(self) -> list[Translation]:
        """The alternatives that read otherwise than this and those before them: other tokens may spell the same."""
        by_text: dict[str, Translation] = {}
        for other in self.alternatives:
            by_text.setdefault(other.text, other)
        by_text.pop(self.text, None)
        return list(by_text.values())

    def as_dict(self) -> dict[str, Any]:
        """For JSON. The tree and the alignment are there only when they were asked for."""
        made = asdict(self) | {"log_prob": self.log_prob}
        made["alternatives"] = [answer.as_dict() for answer in self.alternatives]
        for name in ("tree", "alignment"):
            if made[name] is None:
                del made[name]
        return made


def texts_of(answers: Iterable[Translation]) -> list[str]:
    """The translations alone."""
    return [answer.text for answer in answers]


SAFER_NO_REPEAT = 3
"""A translation that loops or is empty is tried again without repeating so many tokens, and with at least one."""


def failed(answer: Translation) -> bool:
    """Whether it should be tried again."""
    return "empty" in answer.flags or "loops" in answer.flags


def try_again(
    answers: Sequence[Translation],
    search: SearchSettings,
    answer: Callable[[list[int], SearchSettings], list[Translation]],
) -> list[Translation]:
    """The answers with loops and empty ones replaced, if safer settings give something better.

    `answer(places, settings)` translates the texts at these places once more.
    """
    places = [place for place, found in enumerate(answers) if failed(found)]
    if not places:
        return list(answers)
    no_repeat_ngram_size = min(search.no_repeat_ngram_size or SAFER_NO_REPEAT, SAFER_NO_REPEAT)
    safer = replace(search, no_repeat_ngram_size=no_repeat_ngram_size, min_length=max(search.min_length, 1))
    made = list(answers)
    for place, again in zip(places, answer(places, safer), strict=True):
        better = made[place] if failed(again) else again
        made[place] = replace(better, flags=(*better.flags, "retried"))
    return made


def target_scripts(run: Run) -> frozenset[str] | None:
    """What the target was written in when the run was trained, else what its language is written in, if known."""
    seen = run.card.get("scripts", {}).get("target")
    return frozenset(seen) if seen else language_scripts(run.recipe.data.target_language)


def find_flags(source: str, text: str, ended: bool, scripts: frozenset[str] | None) -> tuple[Flag, ...]:
    """What is suspicious about a translation. `scripts` are those that the target language is written in, if known."""
    if not text:
        return ("empty",)
    written, found = _folded(text), list[Flag]()
    if loops(written) and not loops(_folded(source)):
        found.append("loops")
    if _may_copy(source, written) and copies(_folded(source), written):
        found.append("copies")
    if not ended:
        found.append("cut off")
    if scripts and share_in(text, scripts) < 0.5:
        found.append("script")
    short, long = sorted((len(source), len(text)))
    if long > ABSURD_RATIO * short + SHORT_TEXT:
        found.append("length")
    return tuple(found)


def _folded(text: str) -> list[str]:
    return [word.casefold() for word in word_texts(text)]


def _may_copy(source: str, written: Sequence[str]) -> bool:
    """Most of the output includes its middle: without that word in the source there is no need to read the source."""
    return bool(written) and written[len(written) // 2] in source.casefold()


def loops(written: Sequence[str]) -> bool:
    """Whether a word stands four times in a row, or a run of up to `LOOP_WORDS` words thrice, or a word stutters."""
    if any(len(word) >= STUTTERED and STUTTER.search(word) for word in written):
        return True
    if len(written) - len(set(written)) < 3:  # the shortest loop says one word three times again
        return False
    for size in range(1, min(LOOP_WORDS, len(written) // 3) + 1):
        times = 4 if size == 1 else 3
        repeated = 0  # words in a row that are equal to the one `size` before them
        for before, word in zip(written, written[size:], strict=False):
            repeated = repeated + 1 if word == before else 0
            if repeated >= (times - 1) * size:
                return True
    return False


def copies(given: list[str], written: list[str]) -> bool:
    """Whether most of the output is one stretch of the source."""
    if len(written) < COPIED_WORDS or len(set(written) & set(given)) < COPIED_SHARE * len(set(written)):
        return False
    match = difflib.SequenceMatcher(None, given, written, autojunk=False).find_longest_match()
    return match.size >= max(COPIED_WORDS, COPIED_SHARE * len(written))
