"""The result of translating a text: scores, tokens, alternatives, and flags that mark suspicious translations.

It imports no torch: both engines use it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from regard.config import SearchSettings
from regard.languages import language_scripts, share_in
from regard.run import Run
from regard.text.tokenizer import Tokenizer
from regard.text.words import word_texts

if TYPE_CHECKING:
    from regard.analysis.alignment import Links
    from regard.decoding.beam import SearchTree

Flag = Literal["empty", "loops", "copies", "cut off", "script", "length", "retried", "split"]
Scripts = frozenset[str] | None
"""The scripts of a language, if known."""

LOOP_WORDS = 8
"""Longest repeated sequence of words that is searched for."""
STUTTERED, STUTTER = 20, re.compile(r"(\w{1,8}?)\1{5,}")
"""A word of at least this many letters that repeats a few of them six times: a loop of subwords."""
COPIED_WORDS, COPIED_SHARE = 4, 0.8
"""At least this many consecutive source words that make up this share of the output are a copy."""
ABSURD_RATIO, SHORT_TEXT = 4.0, 20
"""Largest plausible ratio of lengths in characters, beyond a difference that is normal for short texts."""


@dataclass(frozen=True)
class Alignment:
    """Word alignment of a text and its translation."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: Links
    """Pairs of indices into `source` and `target`, starting at 0."""

    @property
    def pharaoh(self) -> str:
        """The links as "0-0 1-2"."""
        return " ".join(f"{source}-{target}" for source, target in self.links)

    @classmethod
    def joined(cls, parts: Iterable[Alignment]) -> Alignment:
        """The alignment of a text from the alignments of its pieces, in order."""
        source: tuple[str, ...] = ()
        target: tuple[str, ...] = ()
        links: Links = ()
        for part in parts:
            links += tuple((len(source) + s, len(target) + t) for s, t in part.links)
            source, target = source + part.source, target + part.target
        return cls(source, target, links)


@dataclass(frozen=True)
class Translation:
    """A translation with its scores and flags. `as_dict` is the one JSON form, used by the commands and the server."""

    source: str
    text: str
    score: float = 0.0
    """Log-probability divided by the length penalty, plus the coverage penalty (docs/decoding.md)."""
    tokens: tuple[str, ...] = ()
    log_probs: tuple[float, ...] = ()
    """Log-probability of each token and, last, of the end token; empty if the engine was not asked for them."""
    finished: bool = True
    """False if the length limit cut it off."""
    flags: tuple[Flag, ...] = ()
    """Signs that something is wrong with it."""
    alternatives: tuple[Translation, ...] = ()
    """Other hypotheses, best first, if requested."""
    tree: SearchTree | None = None
    """Record of the beam search, if requested."""
    alignment: Alignment | None = None
    """Word alignment, if requested."""

    @property
    def log_prob(self) -> float:
        """Log-probability of the whole translation, including the end token."""
        return sum(self.log_probs)

    @property
    def others(self) -> list[Translation]:
        """The alternatives without duplicates: different tokens can spell the same text."""
        by_text: dict[str, Translation] = {}
        for other in self.alternatives:
            by_text.setdefault(other.text, other)
        by_text.pop(self.text, None)
        return list(by_text.values())

    def as_dict(self, *, scores: bool = True) -> dict[str, Any]:
        """For JSON. `scores` includes the log-probabilities; the tree and the alignment are included if present."""
        fields = asdict(replace(self, alternatives=()))
        fields["alternatives"] = [other.as_dict(scores=scores) for other in self.alternatives]
        for name in ("tree", "alignment"):
            if fields[name] is None:
                del fields[name]
        if not scores:
            del fields["log_probs"]
            return fields
        return fields | {"log_prob": self.log_prob}


def make_translation(
    source: str, target: Tokenizer, scripts: Scripts, ids: Sequence[int], score: float, log_probs: tuple[float, ...],
    *, finished: bool,
) -> Translation:  # fmt: skip
    """The output of a search as text, with flags. `ids` do not include the end token."""
    text = target.decode(ids)
    flags = find_flags(source, text, finished, scripts)
    return Translation(source, text, score, tuple(map(target.token, ids)), log_probs, finished, flags)


def texts_of(translations: Iterable[Translation]) -> list[str]:
    """The texts alone."""
    return [translation.text for translation in translations]


SAFER_NO_REPEAT = 3
"""A translation that loops or is empty is retried with n-grams of this size blocked and at least one token."""


def failed(translation: Translation) -> bool:
    """Whether it should be retried."""
    return "empty" in translation.flags or "loops" in translation.flags


def retry_failed(
    translations: Sequence[Translation],
    search: SearchSettings,
    translate: Callable[[list[int], SearchSettings], list[Translation]],
) -> list[Translation]:
    """Retry translations that loop or are empty with safer settings, and keep the result if it is better.

    Nothing is retried if the settings say so (`search.retry_failures`).
    `translate(indices, settings)` translates the texts with these indices again.
    """
    results = list(translations)
    indices = [index for index, translation in enumerate(results) if failed(translation)]
    if not indices or not search.retry_failures:
        return results
    no_repeat_ngram_size = min(search.no_repeat_ngram_size or SAFER_NO_REPEAT, SAFER_NO_REPEAT)
    safer = replace(search, no_repeat_ngram_size=no_repeat_ngram_size, min_length=max(search.min_length, 1))
    for index, second in zip(indices, translate(indices, safer), strict=True):
        better = results[index] if failed(second) else second
        results[index] = replace(better, flags=(*better.flags, "retried"))
    return results


def target_scripts(run: Run) -> Scripts:
    """The scripts of the target side of the training data, else those of the target language, if known."""
    seen = run.card.get("scripts", {}).get("target")
    return frozenset(seen) if seen else language_scripts(run.recipe.data.target_language)


def find_flags(source: str, text: str, finished: bool, scripts: Scripts) -> tuple[Flag, ...]:
    """The flags of a translation. `scripts` are the scripts of the target language, if known."""
    if not text:
        return ("empty",)
    written, found = _folded(text), list[Flag]()
    if loops(written) and not loops(_folded(source)):
        found.append("loops")
    # A cheap test before `copies`: a copy of most of the output includes its middle word.
    may_copy = written and written[len(written) // 2] in source.casefold()
    if may_copy and copies(_folded(source), written):
        found.append("copies")
    if not finished:
        found.append("cut off")
    if scripts and share_in(text, scripts) < 0.5:
        found.append("script")
    short, long = sorted((len(source), len(text)))
    if long > ABSURD_RATIO * short + SHORT_TEXT:
        found.append("length")
    return tuple(found)


def _folded(text: str) -> list[str]:
    return [word.casefold() for word in word_texts(text)]


def loops(written: Sequence[str]) -> bool:
    """Whether a word occurs four times in a row, or up to `LOOP_WORDS` words three times, or parts of a word repeat."""
    if any(len(word) >= STUTTERED and STUTTER.search(word) for word in written):
        return True
    if len(written) - len(set(written)) < 3:  # the shortest loop repeats one word three times
        return False
    for size in range(1, min(LOOP_WORDS, len(written) // 3) + 1):
        times = 4 if size == 1 else 3
        repeated = 0  # consecutive words that equal the word `size` places before them
        for before, word in zip(written, written[size:], strict=False):
            repeated = repeated + 1 if word == before else 0
            if repeated >= (times - 1) * size:
                return True
    return False


def copies(given: list[str], written: list[str]) -> bool:
    """Whether most of the output is one sequence of source words."""
    if len(written) < COPIED_WORDS or len(set(written) & set(given)) < COPIED_SHARE * len(set(written)):
        return False
    match = difflib.SequenceMatcher(None, given, written, autojunk=False).find_longest_match()
    return match.size >= max(COPIED_WORDS, COPIED_SHARE * len(written))
