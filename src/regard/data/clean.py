"""Cleaning of a corpus: rules in a fixed order, each of which removes one kind of useless pairs.

A pair is kept unchanged or removed. A removed pair is counted only for the first rule that matches it, so that kept and
removed pairs add up to the pairs that were read.
"""

from __future__ import annotations

import html.entities
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from regard.data.pairs import Pair
from regard.data.split import SeenTexts, pair_text
from regard.errors import SettingsError
from regard.languages import common_scripts, language_scripts, share_in


@dataclass(frozen=True)
class CleaningSettings:
    """Settings: which pairs to remove from a corpus. The defaults remove pairs that harm training, and few others."""

    source_language: str = ""
    """Language code of the source; determines the expected script."""
    target_language: str = ""
    """Language code of the target; determines the expected script."""
    max_words: int = 200
    """Remove pairs with more words than this on either side; 0: no limit."""
    max_characters: int = 2000
    """Remove pairs with more characters than this on either side; 0: no limit."""
    max_length_ratio: float = 4.0
    """Remove pairs with one side this many times longer than the other; 0: no limit."""
    min_script: float = 0.5
    """Remove pairs if on one side less than this share of the letters is in the script of the language; 0: no check."""
    drop_control: bool = True
    """Remove pairs with control characters, unusual line separators or the replacement character U+FFFD."""
    drop_html: bool = True
    """Remove pairs with HTML tags or entities such as &nbsp; in the text."""
    drop_copies: bool = True
    """Remove pairs whose target is a copy of the source, unless they have no letters (e.g. numbers)."""
    drop_duplicates: bool = True
    """Remove pairs whose two sides are exactly those of an earlier pair."""

    def __post_init__(self) -> None:
        for name, flag in (("max_words", "--max-words"), ("max_characters", "--max-characters")):
            if getattr(self, name) < 0:
                raise SettingsError(f"{flag} must be 0 (no limit) or more, not {getattr(self, name)}")
        if self.max_length_ratio != 0 and not self.max_length_ratio >= 1:
            raise SettingsError(
                f"--max-length-ratio must be at least 1, or 0 for no limit, not {self.max_length_ratio}"
            )
        if not 0 <= self.min_script <= 1:
            raise SettingsError(f"--min-script must be between 0 and 1, not {self.min_script}")


RULES = {
    "empty": "one side is empty",
    "control": "control characters, or U+FFFD in place of a lost character",
    "html": "HTML tags or entities left in the text",
    "long": "too many words or characters",
    "ratio": "one side much longer than the other",
    "copy": "the target is a copy of the source",
    "script": "letters of a script that the language does not use",
    "duplicate": "the same pair occurred before",  # after the others, because it stores a hash of every pair it checks
    "domain": "less like the texts of the domain than other pairs",  # see `keep_domain`
}
"""Reasons to remove a pair, in the order in which they are tried."""


@dataclass
class CleaningReport:
    """Counts of kept and removed pairs, updated while the pairs are read."""

    read: int = 0
    kept: int = 0
    removed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RULES, 0))
    """Number of removed pairs by rule, in the order of `RULES`."""
    examples: dict[str, list[tuple[int, Pair]]] = field(default_factory=lambda: {name: [] for name in RULES})
    """The first few removed pairs of each rule, each with its number in the corpus; the first pair is 1."""


def clean(
    pairs: Iterable[Pair], settings: CleaningSettings, examples: int = 3
) -> tuple[Iterator[Pair], CleaningReport]:
    """An iterator of the pairs that no rule removes, and a report, which is complete when all pairs have been read.

    `examples`: how many removed pairs the report shows for each rule.
    """
    report = CleaningReport()

    def keep(pairs: Iterator[Pair]) -> Iterator[Pair]:
        head = list(itertools.islice(pairs, 1000))
        checks = _make_checks(settings, head)
        for number, pair in enumerate(itertools.chain(head, pairs), 1):
            report.read = number
            name = next((name for name, check in checks.items() if check(pair)), None)
            if name is None:
                report.kept += 1
                yield pair
                continue
            report.removed[name] += 1
            if len(report.examples[name]) < examples:
                report.examples[name].append((number, pair))

    return keep(iter(pairs)), report


def keep_domain(
    pairs: Iterable[Pair],
    report: CleaningReport,
    differences: Callable[[list[Pair]], Sequence[float]],
    share: float | None,
    examples: int = 3,
) -> Iterator[Pair]:
    """Yield the pairs of a domain, by the difference of two cross-entropies of each pair (Moore and Lewis 2010).

    `pairs` and `report` are the results of `clean`. `differences(pairs)` returns one number per pair: the cross-entropy
    by a model of the domain, minus that by a model of general texts. With `share`, this share of the pairs with the
    lowest differences is kept, for which all pairs are stored in memory; else the pairs with a negative difference.
    """
    numbered = ((report.read, pair) for pair in pairs)
    limit = 0.0
    if share is not None:
        stored = list(numbered)
        found = [value for some in _chunks(stored) for value in differences([pair for _, pair in some])]
        count = max(round(share * len(found)), 1)
        limit = sorted(found)[count] if count < len(found) else math.inf
        scored: Iterable[tuple[tuple[int, Pair], float]] = zip(stored, found, strict=True)
    else:
        scored = (
            both
            for some in _chunks(numbered)
            for both in zip(some, differences([pair for _, pair in some]), strict=True)
        )
    for (number, pair), value in scored:
        if value < limit:
            yield pair
            continue
        report.kept -= 1
        report.removed["domain"] += 1
        if len(report.examples["domain"]) < examples:
            report.examples["domain"].append((number, pair))


def _chunks(rows: Iterable[tuple[int, Pair]]) -> Iterator[list[tuple[int, Pair]]]:
    rows = iter(rows)
    return iter(lambda: list(itertools.islice(rows, 1024)), [])


# ---------------------------------------------------------------------------------------------------------------------
# The rules

# C0 and C1 controls except tab and line end (white space, which occurs in TMX and PO entries), the line and paragraph
# separators at which other programs would split a line, and the replacement character.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufffd]")
# Only names of HTML elements: "<filename>" may be part of a sentence.
_TAG = re.compile(
    r"</?(?:a|abbr|article|b|big|blockquote|body|br|button|center|code|dd|div|dl|dt|em|font|form|h[1-6]|head|hr|html|i"
    r"|iframe|img|input|label|li|link|meta|ol|option|p|pre|s|script|section|select|small|span|strike|strong|style|sub"
    r"|sup|table|tbody|td|th|thead|tr|tt|u|ul)(?:\s[^<>]*)?/?>|<!--",
    re.IGNORECASE,
)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|([A-Za-z][A-Za-z0-9]{1,30}));")


def _make_checks(settings: CleaningSettings, head: Sequence[Pair]) -> dict[str, Callable[[Pair], bool]]:
    """For each rule that is turned on, a function that returns whether the rule removes a pair.

    `head`: the first pairs of the corpus, whose letters show the script of a language that the settings do not name.
    """
    words, characters = settings.max_words or math.inf, settings.max_characters or math.inf

    def is_too_long(text: str) -> bool:
        return len(text) > characters or (len(text) > words and len(text.split()) > words)

    def is_far(one: int, other: int) -> bool:  # 5 characters are added for short texts: "Hi." may become "Buongiorno."
        return max(one, other) > settings.max_length_ratio * (min(one, other) + 5)

    def is_unbalanced(pair: Pair) -> bool:
        # Chinese has a third of the characters of English, Russian twice the bytes: a good pair never differs in both.
        source, target = pair
        return is_far(len(source), len(target)) and is_far(len(source.encode()), len(target.encode()))

    def is_copied(pair: Pair) -> bool:  # a number or a date may be copied; a sentence may not
        source, target = (side.casefold().split() for side in pair)
        return source == target and any(map(str.isalpha, pair.source))

    checks: dict[str, Callable[[Pair], bool]] = {
        "empty": lambda pair: not (pair.source.strip() and pair.target.strip())
    }
    if settings.drop_control:
        checks["control"] = lambda pair: any(map(_CONTROL.search, pair))
    if settings.drop_html:
        checks["html"] = lambda pair: any(map(_has_html, pair))
    checks["long"] = lambda pair: any(map(is_too_long, pair))
    if settings.max_length_ratio:
        checks["ratio"] = is_unbalanced
    if settings.drop_copies:
        checks["copy"] = is_copied
    if settings.min_script:
        source = language_scripts(settings.source_language) or common_scripts(pair.source for pair in head)
        target = language_scripts(settings.target_language) or common_scripts(pair.target for pair in head)
        checks["script"] = lambda pair: (
            min(share_in(pair.source, source), share_in(pair.target, target)) < settings.min_script
        )
    if settings.drop_duplicates:
        seen = SeenTexts()
        checks["duplicate"] = lambda pair: not seen.is_new(pair_text(*pair))
    return checks


def _has_html(text: str) -> bool:
    if "<" in text and _TAG.search(text):
        return True
    entities = _ENTITY.finditer(text) if "&" in text else ()
    return any(entity[1] is None or f"{entity[1]};" in html.entities.html5 for entity in entities)  # None: a number
