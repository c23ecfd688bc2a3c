"""The door to every corpus: pairs of sentences from text, TSV, JSON lines, TMX, PO and Parquet files, as a stream."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from regard.config import Corpus
from regard.data.builtin import corpus_of, part_of, read_phrases
from regard.data.dialogues import dialogues_hash
from regard.data.files import opened, read_lines, split_suffix
from regard.data.formats import READERS, Languages, Pair
from regard.errors import CorpusError

__all__ = ["Pair", "content_hash", "read_corpus", "read_lines"]

_BOTH_SIDES = ", ".join(READERS)


def read_corpus(corpus: Corpus, source_language: str = "", target_language: str = "") -> Iterator[Pair]:
    """Stream the pairs of a corpus, raw. Memory does not grow with the file (but see `read_po`).

    The languages find the sides in files that name them: TMX, PO, and JSON lines or Parquet keyed by language.
    """
    if corpus_of(corpus.source) == "phrasebook":
        return _read_phrasebook(corpus)
    if not corpus.source:
        raise CorpusError("--source", "no file given")
    if corpus.target:
        return _read_parallel(_one_sided(corpus.source), _one_sided(corpus.target))
    path = Path(corpus.source)
    suffix, compression = split_suffix(path)
    if suffix not in READERS:
        return _refuse_lone_text(path)
    if suffix == ".parquet" and compression:
        raise CorpusError(path, f"Parquet is packed inside already; unpack the {compression} first")
    return READERS[suffix](path, Languages(source_language, target_language))


def content_hash(corpus: Corpus) -> str:
    """SHA-256 of the corpus: of its file as it lies on disk, or of the source file followed by the target file."""
    if corpus_of(corpus.source) == "smalltalk":
        return dialogues_hash(corpus)
    digest = hashlib.sha256()
    if corpus_of(corpus.source) == "phrasebook":
        for pair in _read_phrasebook(corpus):
            digest.update(f"{pair.source}\t{pair.target}\n".encode())
        return digest.hexdigest()
    for name in filter(None, (corpus.source, corpus.target)):
        with opened(name, unpacked=False) as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _read_parallel(source: Path, target: Path) -> Iterator[Pair]:
    sources, targets = read_lines(source), read_lines(target)
    count = 0
    for line in sources:
        facing = next(targets, None)
        if facing is None:
            raise _uneven(target, count, source, count + 1 + sum(1 for _ in sources))
        count += 1
        yield Pair(line, facing)
    more = sum(1 for _ in targets)
    if more:
        raise _uneven(source, count, target, count + more)


def _uneven(short: Path, fewer: int, long: Path, more: int) -> CorpusError:
    problem = f"ends here with {fewer:,} lines, but {long} has {more:,}; the two must match line by line"
    return CorpusError(short, problem, line=fewer)


def _one_sided(name: str) -> Path:
    if split_suffix(name)[0] in READERS:
        raise CorpusError(name, "a file of this kind holds both sides; give it as --source, without --target")
    return Path(name)


def _refuse_lone_text(path: Path) -> Iterator[Pair]:
    with opened(path):  # a name that is simply mistyped is told first
        raise CorpusError(path, f"text has one side only; give its target too (both in one: {_BOTH_SIDES})")


def _read_phrasebook(corpus: Corpus) -> Iterator[Pair]:
    if corpus.target:
        raise CorpusError(corpus.source, "the phrasebook holds both sides; give it without --target")
    return (Pair(phrase.source, phrase.target) for phrase in read_phrases(part_of(corpus.source)))
