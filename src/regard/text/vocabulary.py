"""Whole words or single characters as tokens: a list of the most frequent ones; all others are unknown."""

from __future__ import annotations

import functools
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence

from regard import config
from regard.text.tokenizer import FIRST_TOKEN, SPACE_MARK, UNK, UNKNOWN, Piece, Tokenizer, find_symbols, spell


class VocabularyTokenizer(Tokenizer):
    """Looks up each word or character in a list."""

    def __init__(self, kind: str, lowercase: bool, tokens: Sequence[str], symbols: Sequence[str] = ()):
        """`tokens` in the order of their ids, without the special ones, symbols first."""
        # An unknown word most likely had a space before it, an unknown character most likely not.
        unknown = f" {UNKNOWN}" if kind == "word" else UNKNOWN
        super().__init__(kind, lowercase, tokens, [spell(token) for token in tokens], unknown, symbols)
        self._ids = {token: id for id, token in enumerate(tokens, start=FIRST_TOKEN)}

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(token, UNK) for token in split(self.kind, self.normalize(text), self.symbols)]

    def pieces(self, text: str) -> list[Piece]:
        """The tokens of a text with their places in `normalize(text)`, also for unknown words."""
        pieces, position = [], -1 if self.kind == "word" else 0  # the mark of the first word represents no space
        for token in split(self.kind, self.normalize(text), self.symbols):
            id = self._ids.get(token, UNK)
            start = position + token.startswith(SPACE_MARK)
            position += len(token)
            pieces.append(Piece(id, self.tokens[id], start, position))
        return pieces


def train(lines: list[str], settings: config.TokenizerSettings) -> VocabularyTokenizer:
    """The most frequent tokens of normalised lines: at most `vocab_size` with the special ones, or all if fewer."""
    symbols = settings.special_tokens
    counts = Counter(token for line in lines for token in split(settings.kind, line, symbols))
    ranked = sorted(counts.keys() - set(symbols), key=lambda token: (-counts[token], token))
    tokens = [*symbols, *ranked][: settings.vocab_size - FIRST_TOKEN - 1]  # PAD
    return VocabularyTokenizer(settings.kind, settings.lowercase, tokens, symbols)


def split(kind: str, text: str, symbols: Sequence[str] = ()) -> Iterator[str]:
    """The words or characters of a normalised text. Joined, with "▁" read as a space, they are the text again.

    The first word has the mark of a space like any other word. A symbol is always one token.
    """
    if not text:
        return
    marked = text.replace(" ", SPACE_MARK) if kind == "character" else SPACE_MARK + text.replace(" ", SPACE_MARK)
    between = find_symbols(symbols)
    for part in [marked] if between is None else filter(None, between.split(marked)):
        if part in symbols:
            yield part
        elif kind == "character":
            yield from part
        else:
            first, *others = part.split(SPACE_MARK)
            if first:  # directly after a symbol: it has no mark of a space
                token, *rest = _split_word(first)
                yield from (token.removeprefix(SPACE_MARK), *rest)
            for word in others:
                yield from _split_word(word) if word else [SPACE_MARK]


@functools.lru_cache(maxsize=1 << 16)
def _split_word(word: str) -> tuple[str, ...]:
    """A word and the punctuation around it, one token per mark; the first token gets the mark of the space."""
    start, end = 0, len(word)
    while start < end and _is_punctuation(word[start]):
        start += 1
    while end > start and _is_punctuation(word[end - 1]):
        end -= 1
    first, *rest = [*word[:start], *filter(None, [word[start:end]]), *word[end:]]
    return (SPACE_MARK + first, *rest)


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"
