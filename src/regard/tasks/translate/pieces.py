"""Long texts: cut at sentence ends, translated in pieces, and joined again. Works without torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from regard.config import SearchSettings
from regard.errors import SettingsError
from regard.tasks.translate.translation import Alignment, Translation
from regard.text.tokenizer import Tokenizer
from regard.text.words import cut

Translate = Callable[[list[str]], list[Translation]]
TOO_LONG = "cut it, or set search.long_lines=split"
_LINE = re.compile(r"\S(?:[^\r\n]*\S)?")


def in_pieces(
    texts: Sequence[str], tokenizer: Tokenizer, settings: SearchSettings, translate: Translate
) -> list[Translation]:
    """Translate texts of any length. `translate` is called once, with the pieces of all texts."""
    pieces = [pieces_of(text, tokenizer, settings, f"text {number}") for number, text in enumerate(texts, 1)]
    translations = iter(translate([piece for parts in pieces for piece in parts]))
    return [join(text, [next(translations) for _ in parts]) for text, parts in zip(texts, pieces, strict=True)]


def pieces_of(text: str, tokenizer: Tokenizer, settings: SearchSettings, name: str = "the text") -> list[str]:
    """The parts of a text that are translated one at a time; usually the whole text. Errors call the text `name`."""
    limit = settings.max_source_tokens
    if settings.long_lines != "split":
        refuse_long(text, tokenizer, limit, name, TOO_LONG)
        return [text]
    most_joined = min(settings.max_joined_tokens or 1, limit)
    return cut(text, partial(_within, tokenizer, limit), partial(_within, tokenizer, most_joined)) or [text]


def refuse_long(text: str, tokenizer: Tokenizer, limit: int, name: str, advice: str) -> None:
    """Raise an error if a text has more than `limit` tokens."""
    if not _within(tokenizer, limit, text):
        size = len(tokenizer.encode(text))
        raise SettingsError(f"{name} has {size:,} tokens, more than search.max_source_tokens = {limit}; {advice}")


def _within(tokenizer: Tokenizer, limit: int, text: str) -> bool:
    # Counting bytes is faster, and no token is shorter than a byte.
    return len(text.encode(errors="surrogatepass")) <= limit or len(tokenizer.encode(text)) <= limit


def join(source: str, parts: Sequence[Translation]) -> Translation:
    """One translation of several. Its score is the mean over their tokens; alternatives are left out.

    The alignments are joined if every part has one.
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
        alignment=Alignment.joined(alignments) if len(alignments) == len(parts) else None,
    )


class Pieces:
    """A text cut into lines, and long lines into sentences. Line breaks and the white space around lines are kept."""

    def __init__(self, text: str, tokenizer: Tokenizer, settings: SearchSettings):
        self.text = text
        self._lines: list[list[str]] = []
        self._before: list[str] = []  # the white space before each line
        end = 0
        for line in _LINE.finditer(text):
            self._before.append(text[end : line.start()])
            self._lines.append(pieces_of(line[0], tokenizer, settings))
            end = line.end()
        self._after = text[end:]

    @property
    def texts(self) -> list[str]:
        """What to translate, in order."""
        return [piece for line in self._lines for piece in line]

    def join(self, translations: Sequence[Translation]) -> Translation:
        """One translation from those of the pieces.

        Alternatives are kept only where there is one piece, and only if their texts differ: different tokens can
        spell the same text.
        """
        if not translations:
            return Translation(self.text, self.text)
        if len(translations) == 1:
            one = translations[0]
            return self._framed(replace(one, alternatives=tuple(map(self._framed, one.others))))
        remaining = iter(translations)
        lines = [join("", [next(remaining) for _ in line]) for line in self._lines]
        text = "".join(before + line.text for before, line in zip(self._before, lines, strict=True)) + self._after
        whole = replace(join(self.text, translations), text=text)
        if len(lines) == len(translations):  # the user made these lines; no line was cut
            whole = replace(whole, flags=tuple(flag for flag in whole.flags if flag != "split"))
        return whole

    def _framed(self, translation: Translation) -> Translation:
        """The translation of the only piece, with the white space around it."""
        return replace(translation, source=self.text, text=self._before[0] + translation.text + self._after)
