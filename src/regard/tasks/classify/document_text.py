"""Text of documents: divided into sentences and windows, encoded as tokens; weights of words and sentences."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from regard.tasks.classify.settings import ClassifySettings
from regard.text.tokenizer import EOS, Piece, Tokenizer
from regard.text.words import ShadedSentence, ShadedWord, split_sentences, words

# A tag at which a new line begins, and any tag. "<3" and "a < b" are not tags.
_BREAK = re.compile(r"<(?:br|/?p|/?div|/?li|/?tr|/?h[1-6])\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_TAG_OR_COMMENT = re.compile(rf"{_TAG.pattern}|<!--.*?-->", re.DOTALL)


def plain(text: str) -> str:
    """Remove HTML markup from a text: tags such as <br> and <p> become line ends, other tags and comments are deleted.

    Entities such as &amp; become characters.
    """
    if "<" in text:
        text = _BREAK.sub("\n", text)
        # No comment ends after `end`. Searching for the end of each "<!--" would take quadratic time.
        end = text.rfind("-->") + len("-->") if "-->" in text else 0
        text = _TAG_OR_COMMENT.sub("", text[:end]) + _TAG.sub("", text[end:])
    return html.unescape(text) if "&" in text else text


def sentences_of(text: str, settings: ClassifySettings) -> list[str]:
    """Divide each line of a document into sentences. A sentence without a space ("Dr.") is joined to the next one."""
    found: list[str] = []
    for line in (plain(text) if settings.markup == "remove" else text).splitlines():
        joined: list[str] = []
        for sentence in split_sentences(line):
            if joined and " " not in joined[-1]:
                joined[-1] += f" {sentence}"
            else:
                joined.append(sentence)
        found += joined
    return found


Window = tuple[int, int, int]
"""A part of a sentence, which the model reads like a sentence: sentence index, first token, last token + 1."""


def make_windows(lengths: Sequence[int], settings: ClassifySettings) -> tuple[list[Window], int]:
    """Choose the windows (sentences, or parts of long sentences) of a document that the model reads.

    `lengths`: the number of tokens of each sentence. Returns the windows and the number of tokens that are left out. A
    sentence of more than `sentence_tokens` is divided into windows of about equal length. If the document has more than
    `max_tokens`, windows are taken alternately from its start and its end (`truncate = "middle"`), or only from its
    start (`truncate = "end"`).
    """
    windows: list[Window] = []
    for number, length in enumerate(lengths):
        parts = -(-length // settings.sentence_tokens)
        windows += [(number, part * length // parts, (part + 1) * length // parts) for part in range(parts)]
    if sum(lengths) <= settings.max_tokens:
        return windows, 0
    first, last = 0, len(windows)
    head = tail = 0  # tokens that are kept from the start and from the end
    while first < last:
        from_start = settings.truncate == "end" or head <= tail
        _, start, end = windows[first if from_start else last - 1]
        size = end - start
        if head + tail + size > settings.max_tokens:
            break
        if from_start:
            first, head = first + 1, head + size
        else:
            last, tail = last - 1, tail + size
    return windows[:first] + windows[last:], sum(lengths) - head - tail


class EncodedDocument(NamedTuple):
    """The token ids of each window (a sentence, or a part of a long one), and the number of tokens left out.

    A document without text has one window with only EOS.
    """

    sentences: list[list[int]]
    truncated_tokens: int


def encode_document(text: str, tokenizer: Tokenizer, settings: ClassifySettings) -> EncodedDocument:
    encoded = tokenizer.encode_many(sentences_of(text, settings))
    windows, truncated = make_windows([len(ids) for ids in encoded], settings)
    return EncodedDocument([encoded[number][start:end] for number, start, end in windows] or [[EOS]], truncated)


class ShownWindow(NamedTuple):
    """The text of a window (a sentence, or a part of a long one), and its tokens with their positions in the text."""

    text: str
    pieces: list[Piece]


def show_document(text: str, tokenizer: Tokenizer, settings: ClassifySettings) -> list[ShownWindow]:
    """Divide a document into the windows that the model reads, as `encode_document` does, but keep their texts."""
    sentences = [tokenizer.normalize(sentence) for sentence in sentences_of(text, settings)]
    pieces = [tokenizer.pieces(sentence) for sentence in sentences]
    windows, _ = make_windows([len(found) for found in pieces], settings)
    shown = []
    for number, start, end in windows:
        found = pieces[number][start:end]
        first = found[0].start
        moved = [piece._replace(start=piece.start - first, end=piece.end - first) for piece in found]
        shown.append(ShownWindow(sentences[number][first : found[-1].end], moved))
    return shown


# Explanations


def shade(sentences: Sequence[ShownWindow], shares: Sequence[float]) -> tuple[ShadedSentence, ...]:
    """Give each sentence of a document, and each word, its weight. `shares`: the weights of all tokens, in order.

    The weight of a sentence is the sum over its tokens. The weights of the words of a sentence are scaled to sum to 1.
    """
    shaded = []
    for sentence, joined in zip(sentences, join_pieces(sentences, shares), strict=True):
        total = sum(word.weight for word in joined)
        scale = 1 / total if total else 0.0
        scaled = tuple(ShadedWord(word.text, word.weight * scale) for word in joined)
        shaded.append(ShadedSentence(sentence.text, total, scaled))
    return tuple(shaded)


def join_pieces(sentences: Sequence[ShownWindow], shares: Iterable[float]) -> list[list[ShadedWord]]:
    """Add up the weights of the tokens of each word; returns a list of weighted words for each sentence.

    `shares`: the weights of all tokens of all `sentences`, in order.
    """
    joined, left = [], iter(shares)
    for text, pieces in sentences:
        found = words(text)
        sums = [0.0] * len(found)
        place = 0
        for piece in pieces:
            while place + 1 < len(found) and found[place].end <= piece.start:
                place += 1
            sums[place] += next(left)
        joined.append([ShadedWord(word.text, share) for word, share in zip(found, sums, strict=True)])
    return joined
