"""The result of a translation, flags that mark failures, retries after a failure, and translation of long texts.

Long texts are cut at sentence ends, translated in parts (pieces), and joined again. Both engines, torch and
CTranslate2, use this file; it does not import torch.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from regard.config import SearchSettings
from regard.errors import SettingsError
from regard.languages import language_scripts, share_in
from regard.run import Run
from regard.text.tokenizer import Tokenizer
from regard.text.words import cut, word_texts

if TYPE_CHECKING:
    from regard.analysis.alignment import Links
    from regard.decoding.beam import SearchTree
    from regard.decoding.hypothesis import Hypothesis
    from regard.tasks.translate.engine import EngineHypothesis

Flag = Literal["empty", "loops", "copies", "cut off", "script", "length", "retried", "split"]
Scripts = frozenset[str] | None
"""The scripts of a language; None if unknown."""
Input = TypeVar("Input")

COPIED_WORDS, COPIED_SHARE = 4, 0.8
"""An output is a copy if at least this many words, and at least this share of it, are consecutive source words."""


@dataclass(frozen=True)
class Alignment:
    """Word alignment: the words of a text, the words of its translation, and the links between them."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: Links
    """Pairs of indices into `source` and `target`, starting at 0."""

    @property
    def pharaoh(self) -> str:
        """The links in Pharaoh format, e.g. "0-0 1-2": source index, hyphen, target index, counted from 0."""
        return " ".join(f"{source}-{target}" for source, target in self.links)

    def __add__(self, other: Alignment) -> Alignment:
        """Concatenate two alignments: the words and links of `other` follow, with the indices of its links shifted."""
        links = tuple((len(self.source) + s, len(self.target) + t) for s, t in other.links)
        return Alignment(self.source + other.source, self.target + other.target, self.links + links)


@dataclass(frozen=True)
class Translation:
    """A translation with its score, and with flags that name possible failures, e.g. "empty", "loops", "cut off"."""

    source: str
    text: str
    score: float = 0.0
    """Log-probability divided by the length penalty, plus the coverage penalty (docs/decoding.md)."""
    tokens: tuple[str, ...] = ()
    log_probs: tuple[float, ...] = ()
    """Log-probability of each token and, last, of the end token; empty if not requested."""
    finished: bool = True
    """False if the length limit cut the translation off."""
    flags: tuple[Flag, ...] = ()
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
        """The alternatives without those that repeat a text: different token sequences can decode to the same text."""
        by_text: dict[str, Translation] = {}
        for other in self.alternatives:
            by_text.setdefault(other.text, other)
        by_text.pop(self.text, None)
        return list(by_text.values())

    def as_dict(self, *, scores: bool = True) -> dict[str, Any]:
        """Return a dictionary for JSON, as commands and the server print it. `scores`: include log-probabilities."""
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
    source: str, target: Tokenizer, scripts: Scripts, *found: Hypothesis | EngineHypothesis
) -> Translation:
    """Convert `found`, the hypotheses for one source text (best first), to a translation with flags and alternatives.

    `target` is the tokenizer of the target language, and `scripts` are its writing systems.
    """
    best, text = found[0], target.decode(found[0].tokens)
    tokens, flags = tuple(map(target.token, best.tokens)), find_flags(source, text, best.ended, scripts)
    alternatives = tuple(make_translation(source, target, scripts, other) for other in found[1:])
    return Translation(source, text, best.score, tokens, best.log_probs, best.ended, flags, alternatives)


def texts_of(translations: Iterable[Translation]) -> list[str]:
    return [translation.text for translation in translations]


def search_with_retries(
    inputs: list[Input], settings: SearchSettings, search: Callable[[list[Input], SearchSettings], list[Translation]]
) -> list[Translation]:
    """Call `search`; if `settings.retry_failures`, call it again for inputs whose output is empty or repeats words.

    The second search blocks empty outputs and repeated trigrams (or shorter n-grams, if so set). If it fails too, the
    first output is kept.
    """

    def failed(translation: Translation) -> bool:
        return "empty" in translation.flags or "loops" in translation.flags

    results = search(inputs, settings)
    indices = [index for index, translation in enumerate(results) if failed(translation)]
    if not indices or not settings.retry_failures:
        return results
    blocked = min(settings.no_repeat_ngram_size or 3, 3)
    safer = replace(settings, no_repeat_ngram_size=blocked, min_length=max(settings.min_length, 1))
    for index, second in zip(indices, search([inputs[index] for index in indices], safer), strict=True):
        better = results[index] if failed(second) else second
        results[index] = replace(better, flags=(*better.flags, "retried"))
    return results


def target_scripts(run: Run) -> Scripts:
    """Return the writing systems of the target: those in card.json (seen in the data), else those of its language."""
    seen = run.card.get("scripts", {}).get("target")
    return frozenset(seen) if seen else language_scripts(run.recipe.data.target_language)


def find_flags(source: str, text: str, finished: bool, scripts: Scripts) -> tuple[Flag, ...]:
    """Return the flags of `text`, a translation of `source`: names of possible failures, e.g. "empty" or "copies".

    `finished` is False if the length limit cut the translation off. `scripts` are the writing systems of the target.
    """
    if not text:
        return ("empty",)
    written, found = _folded(text), list[Flag]()
    if loops(written) and not loops(_folded(source)):
        found.append("loops")
    # A fast test before `copies`: if the output is a copy, its middle word is in the source.
    may_copy = written and written[len(written) // 2] in source.casefold()
    if may_copy and copies(_folded(source), written):
        found.append("copies")
    if not finished:
        found.append("cut off")
    if scripts and share_in(text, scripts) < 0.5:
        found.append("script")
    short, long = sorted((len(source), len(text)))
    if long > 4 * short + 20:
        found.append("length")
    return tuple(found)


def _folded(text: str) -> list[str]:
    return [word.casefold() for word in word_texts(text)]


def loops(written: Sequence[str]) -> bool:
    """Whether the words `written` repeat: one word 4 times in a row, or a sequence of 2 to 8 words 3 times in a row.

    A word of at least 20 characters that repeats the same 1 to 8 characters six times in a row also counts.
    """
    if any(len(word) >= 20 and re.search(r"(\w{1,8}?)\1{5,}", word) for word in written):
        return True
    if len(written) - len(set(written)) < 3:  # a fast test: the shortest loop is one word and three repetitions
        return False
    for size in range(1, min(8, len(written) // 3) + 1):
        times = 4 if size == 1 else 3
        repeated = 0  # number of consecutive words that equal the word `size` positions before
        for before, word in zip(written, written[size:], strict=False):
            repeated = repeated + 1 if word == before else 0
            if repeated >= (times - 1) * size:
                return True
    return False


def copies(given: list[str], written: list[str]) -> bool:
    """Whether the output words `written` are mostly one sequence of consecutive source words (`given`)."""
    if len(written) < COPIED_WORDS or len(set(written) & set(given)) < COPIED_SHARE * len(set(written)):
        return False
    match = difflib.SequenceMatcher(None, given, written, autojunk=False).find_longest_match()
    return match.size >= max(COPIED_WORDS, COPIED_SHARE * len(written))


# Long texts


def in_pieces(
    texts: Sequence[str],
    tokenizer: Tokenizer,
    settings: SearchSettings,
    translate: Callable[[list[str]], list[Translation]],
) -> list[Translation]:
    """Cut long texts into parts, translate all parts by one call of `translate`, and join the results of each text."""
    pieces = [pieces_of(text, tokenizer, settings, f"text {number}") for number, text in enumerate(texts, 1)]
    translations = iter(translate([piece for parts in pieces for piece in parts]))
    return [join(text, [next(translations) for _ in parts]) for text, parts in zip(texts, pieces, strict=True)]


def pieces_of(text: str, tokenizer: Tokenizer, settings: SearchSettings, name: str = "the text") -> list[str]:
    """Cut a text into parts that are translated separately: groups of sentences, or parts of very long sentences.

    If `settings.long_lines` is not "split", the text is not cut. Then more than `max_source_tokens` tokens raise an
    error, which calls the text `name`.
    """
    limit = settings.max_source_tokens
    if settings.long_lines != "split":
        refuse_long(text, tokenizer, limit, name)
        return [text]
    most_joined = min(settings.max_joined_tokens or 1, limit)
    return cut(text, partial(_within, tokenizer, limit), partial(_within, tokenizer, most_joined)) or [text]


def refuse_long(
    text: str, tokenizer: Tokenizer, limit: int, name: str, advice: str = "cut it, or set search.long_lines=split"
) -> None:
    """Raise an error if a text has over `limit` tokens. The message calls the text `name` and ends with `advice`."""
    if not _within(tokenizer, limit, text):
        size = len(tokenizer.encode(text))
        raise SettingsError(f"{name} has {size:,} tokens, more than search.max_source_tokens = {limit}; {advice}")


def _within(tokenizer: Tokenizer, limit: int, text: str) -> bool:
    # Counting bytes is faster than tokenizing, and a text has no more tokens than bytes.
    return len(text.encode(errors="surrogatepass")) <= limit or len(tokenizer.encode(text)) <= limit


def join(source: str, parts: Sequence[Translation]) -> Translation:
    """Join `parts`, the translations of consecutive parts of the text `source`, with spaces.

    The score is the mean of the scores of the parts, weighted by their numbers of tokens. Alternatives are left out.
    """
    if len(parts) == 1:
        return parts[0]
    sizes = [len(part.tokens) + 1 for part in parts]
    flags = dict.fromkeys(flag for part in parts for flag in part.flags)
    alignments = [part.alignment for part in parts if part.alignment]
    return Translation(
        source,
        " ".join(part.text for part in parts if part.text),
        sum(part.score * size for part, size in zip(parts, sizes, strict=True)) / sum(sizes),
        tuple(token for part in parts for token in part.tokens),
        tuple(value for part in parts for value in part.log_probs),
        all(part.finished for part in parts),
        (*flags, "split"),
        alignment=reduce(add, alignments) if len(alignments) == len(parts) else None,
    )


class Pieces:
    """The parts of a text that are translated separately (`texts`); `join` keeps its line breaks and indentation."""

    def __init__(self, text: str, tokenizer: Tokenizer, settings: SearchSettings):
        self.text = text
        self._lines: list[list[str]] = []
        self._before: list[str] = []  # the white space before each line
        end = 0
        for line in re.finditer(r"\S(?:[^\r\n]*\S)?", text):
            self._before.append(text[end : line.start()])
            self._lines.append(pieces_of(line[0], tokenizer, settings))
            end = line.end()
        self._after = text[end:]

    @property
    def texts(self) -> list[str]:
        return [piece for line in self._lines for piece in line]

    def join(self, translations: Sequence[Translation]) -> Translation:
        """Join `translations`, one for each of `texts`, into one. Alternatives are kept only if there is one part."""
        if not translations:
            return Translation(self.text, self.text)
        if len(translations) == 1:
            one = translations[0]
            return self._framed(replace(one, alternatives=tuple(map(self._framed, one.others))))
        remaining = iter(translations)
        lines = [join("", [next(remaining) for _ in line]) for line in self._lines]
        text = "".join(before + line.text for before, line in zip(self._before, lines, strict=True)) + self._after
        whole = replace(join(self.text, translations), text=text)
        if len(lines) == len(translations):  # no line was cut
            whole = replace(whole, flags=tuple(flag for flag in whole.flags if flag != "split"))
        return whole

    def _framed(self, translation: Translation) -> Translation:
        return replace(translation, source=self.text, text=self._before[0] + translation.text + self._after)
