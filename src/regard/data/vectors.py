"""Files of word vectors: the text and binary formats of word2vec, GloVe and fastText (.vec), also compressed.

Text: a word and its numbers per line, between spaces; word2vec and fastText write a first line with the number of words
and the width, GloVe does not. Binary (the name ends in .bin, before .gz or .zst): the same first line, then for each
word its text, a space, and float32 numbers.

Only the vectors of wanted words are kept, and what a first line says is never trusted: memory grows with the vectors
that were read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from regard.errors import CorpusError
from regard.files import opened, read_lines, split_suffix

Vector = NDArray[np.float32]
WIDEST = 65_536
"""Largest number of numbers in a vector, as in the settings of networks."""
LONGEST_WORD = 1_000
"""Largest number of bytes of a word in a binary file."""
FASTTEXT = b"\xba\x16\x4f\x2f"
"""The first bytes of a model of fastText."""
_HEADER = re.compile(r"\s*(\d{1,18}) (\d{1,18})\s*")
FORMATS = "word2vec or fastText text (.vec, .txt), GloVe text, word2vec binary (.bin), also .gz .zst"


@dataclass
class VectorFile:
    """The vectors of the wanted words in a file."""

    vectors: dict[str, Vector] = field(default_factory=dict)
    words: int = 0
    """Number of words in the file."""
    width: int = 0
    duplicates: int = 0
    """Number of wanted words that occurred again; the first vector of a word is used."""

    def add(self, word: str, vector: Vector) -> None:
        if word in self.vectors:
            self.duplicates += 1
        else:
            self.vectors[word] = vector


def read_vectors(path: str | Path, wanted: Collection[str] | None = None) -> VectorFile:
    """Read the vectors of the words in `wanted`; None: of all words."""
    found = _read_binary(path, wanted) if split_suffix(path)[0] == ".bin" else _read_text(path, wanted)
    if not found.words:
        raise CorpusError(path, f"there are no vectors in this file; give a file in a format of {FORMATS}")
    return found


def _read_text(path: str | Path, wanted: Collection[str] | None) -> VectorFile:
    found, stated = VectorFile(), None
    for number, line in enumerate(read_lines(path), 1):
        if number == 1 and (header := _HEADER.fullmatch(line)):
            stated, found.width = int(header[1]), _check_width(path, int(header[2]))
            continue
        line = line.rstrip(" \t\r")
        if not line:
            continue
        found.width = found.width or _check_width(path, line.count(" "))
        word, *numbers = line.rsplit(" ", found.width)
        if len(numbers) != found.width or _is_number(word.rpartition(" ")[2]) > (" " not in word):
            width = line.count(" ")
            problem = f"a vector of {width:,} numbers, but the others have {found.width:,}; correct the line"
            raise CorpusError(path, problem, line=number)
        found.words += 1
        if wanted is None or word in wanted:
            try:
                vector = np.array(numbers, np.float32)
            except ValueError:
                raise CorpusError(path, f'the vector of "{word}" is not {found.width:,} numbers', line=number) from None
            found.add(word, _finite(path, word, vector, number))
    _check_count(path, stated, found.words)
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_binary(path: str | Path, wanted: Collection[str] | None) -> VectorFile:
    with opened(path) as file:
        first = file.readline(100)
        header = _HEADER.fullmatch(first.decode("latin-1"))
        if first.startswith(FASTTEXT):
            raise CorpusError(path, "a model of fastText cannot be read; give its vectors, the file that ends in .vec")
        if not header:
            raise CorpusError(path, 'not word2vec\'s binary format: it begins with a line such as "3000000 300"')
        stated, found = int(header[1]), VectorFile(width=_check_width(path, int(header[2])))
        for word, content in _binary_entries(path, file, stated, found.width):
            found.words += 1
            if wanted is None or word in wanted:
                found.add(word, _finite(path, word, np.frombuffer(content, "<f4").astype(np.float32), None))
        if file.read(64).strip():
            raise CorpusError(path, f"the first line says {stated:,} words, but there are more; correct the file")
        return found


def _binary_entries(path: str | Path, file: BinaryIO, stated: int, width: int) -> Iterator[tuple[str, bytes]]:
    """Yield word and content of each vector; a file that ends too early is an error."""
    for number in range(1, stated + 1):
        word = bytearray()
        while (letter := file.read(1)) not in (b" ", b"") and len(word) <= LONGEST_WORD:
            word += letter
        if len(word) > LONGEST_WORD:
            raise CorpusError(path, f"word {number:,} is longer than {LONGEST_WORD:,} bytes; the file is damaged")
        content = file.read(4 * width) if letter else b""
        if len(content) < 4 * width:
            raise CorpusError(path, f"the file ends in word {number:,} of {stated:,}; it was cut short: get it again")
        yield word.decode("utf-8", errors="replace").strip("\n"), content


def _check_width(path: str | Path, width: int) -> int:
    if not 1 <= width <= WIDEST:
        problem = f"vectors of {width:,} numbers; widths from 1 to {WIDEST:,} can be read"
        raise CorpusError(path, problem if width else f"not vectors; give a file in a format of {FORMATS}")
    return width


def _check_count(path: str | Path, stated: int | None, words: int) -> None:
    if stated is not None and stated != words:
        raise CorpusError(path, f"the first line says {stated:,} words, but there are {words:,}; correct the file")


def _finite(path: str | Path, word: str, vector: Vector, line: int | None) -> Vector:
    if not np.isfinite(vector).all():
        raise CorpusError(path, f'the vector of "{word}" contains NaN or infinity; remove this word', line=line)
    return vector


def text_lines(words: Iterable[str], vectors_VD: NDArray[np.float32]) -> Iterator[str]:
    """The lines of word2vec's text format, with line ends."""
    yield f"{len(vectors_VD)} {vectors_VD.shape[1]}\n"
    for word, vector in zip(words, vectors_VD, strict=True):
        yield f"{word} {' '.join(f'{value:.8g}' for value in vector.tolist())}\n"


def binary_parts(words: Iterable[str], vectors_VD: NDArray[np.float32]) -> Iterator[bytes]:
    """The parts of word2vec's binary format."""
    yield f"{len(vectors_VD)} {vectors_VD.shape[1]}\n".encode()
    for word, vector in zip(words, vectors_VD.astype("<f4"), strict=True):
        yield word.encode() + b" " + vector.tobytes() + b"\n"
