"""Corpora of sentence pairs: parallel text, TSV, JSON lines, TMX, PO, Parquet and the built-in phrasebook, as streams.

Each format has one reader, which streams the pairs of a file. Every error is one line with file and line number.
"""

from __future__ import annotations

import functools
import hashlib
import re
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from regard.config import Corpus
from regard.data import records
from regard.data.builtin import corpus_of, part_hash, part_of, read_phrases
from regard.errors import CorpusError
from regard.files import opened, read_lines, require, split_suffix
from regard.languages import normalize_code


class Pair(NamedTuple):
    """A sentence and its translation, as they are in the file."""

    source: str
    target: str


class Languages(NamedTuple):
    """Codes of the source and target language to read from files that may hold several; empty strings if not given."""

    source: str
    target: str


def find_language(asked: str, codes: Iterable[str]) -> str | None:
    """The first of `codes` that equals `asked`, else the first that extends it: "en" finds "EN-US"; else None."""
    wanted, codes = normalize_code(asked), list(codes)
    if not wanted:
        return None
    exact = (code for code in codes if normalize_code(code) == wanted)
    longer = (code for code in codes if normalize_code(code).startswith(f"{wanted}-"))
    return next(chain(exact, longer), None)


# ---------------------------------------------------------------------------------------------------------------------
# Any corpus


def read_corpus(corpus: Corpus, source_language: str = "", target_language: str = "") -> Iterator[Pair]:
    """Stream the pairs of a corpus, unchanged. A file is not held in memory, except for PO files.

    The language codes select the sides in files that name languages: TMX, PO, TSV, JSON lines and Parquet.
    """
    if corpus_of(corpus.source) == "phrasebook":
        if corpus.target:
            raise CorpusError(corpus.source, "the phrasebook holds both sides; give it without --target")
        return (Pair(phrase.source, phrase.target) for phrase in read_phrases(part_of(corpus.source)))
    if not corpus.source:
        raise CorpusError("--source", "no file given; name one")
    if corpus.target:
        for name in (corpus.source, corpus.target):
            if split_suffix(name)[0] in READERS:
                raise CorpusError(name, "a file of this kind holds both sides; give it as --source, without --target")
        return _read_parallel(Path(corpus.source), Path(corpus.target))
    path = Path(corpus.source)
    suffix, compression = split_suffix(path)
    if suffix not in READERS:
        with opened(path):  # reports a mistyped name first
            both = f"or one file with both ({', '.join(READERS)})"
            raise CorpusError(path, f"holds one side only; give the other as --target, {both}")
    if suffix == ".parquet" and compression:
        raise CorpusError(path, f"Parquet is compressed inside already; decompress the {compression} file first")
    return READERS[suffix](path, Languages(source_language, target_language))


def content_hash(corpus: Corpus) -> str:
    """SHA-256 of a corpus: of the bytes of its one file, or of the source file followed by the target file.

    The hash of a folder is that of the names and the bytes of all files in it.
    """
    if corpus_of(corpus.source):
        return part_hash(corpus.source)
    digest, folder = hashlib.sha256(), Path(corpus.source)
    names = list(filter(None, (corpus.source, corpus.target)))
    if folder.is_dir():
        names = sorted(str(path) for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
        digest.update(
            "\n".join(Path(name).relative_to(folder).as_posix() for name in names).encode(errors="surrogateescape")
        )
    for name in names:
        with opened(name, unpacked=False) as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _read_parallel(source: Path, target: Path) -> Iterator[Pair]:
    sources, targets = read_lines(source), read_lines(target)
    for number, (line, translation) in enumerate(zip_longest(sources, targets), 1):
        if line is None or translation is None:
            short, long, rest = (source, target, targets) if line is None else (target, source, sources)
            counts = f"{number - 1:,} lines, but {long} has {number + sum(1 for _ in rest):,}"
            raise CorpusError(short, f"ends here with {counts}; the two must match line by line", line=number - 1)
        yield Pair(line, translation)


# ---------------------------------------------------------------------------------------------------------------------
# Lines: TSV and JSON


def read_tsv(path: Path, languages: Languages) -> Iterator[Pair]:
    """Read pairs from TSV. If the first row has the two language codes, or "source" and "target", it is a header.

    The header determines which columns are read. Without a header, the first two columns are source and target.
    """

    def find(cells: list[str]) -> list[int] | None:
        keys = _find_keys(tuple(cells), languages)
        return [cells.index(key) for key in keys] if keys and keys[0] != keys[1] else None

    rows = records.read_tsv(path, ("source", "target"), find, keep_empty=True)
    return (Pair(source, target) for _, (source, target) in rows)


def read_jsonl(path: Path, languages: Languages) -> Iterator[Pair]:
    """Read pairs from JSON lines: objects whose keys are the two language codes, or "source" and "target".

    The keys may also be in an inner object "translation". An empty line is a pair with two empty sides.
    """
    form, empty = "a line is an object that holds both sides", {"source": "", "target": ""}
    for number, record in records.read_objects(path, form, empty):
        yield _pair_from_record(record, languages, path, number)


def _pair_from_record(record: Mapping[str, Any], languages: Languages, path: Path, number: int) -> Pair:
    inner = record.get("translation")
    holder = inner if isinstance(inner, dict) else record
    keys = _find_keys(tuple(holder), languages)
    if keys is None:
        has = ", ".join(f'"{key}"' for key in holder) or "nothing"
        problem = f'no "source" and "target" here, but {has}; name the languages with --from and --to'
        if all(languages):
            asked = f'neither "{languages.source}" and "{languages.target}" nor "source" and "target"'
            problem = f"{asked} here, but {has}"
        raise CorpusError(path, problem, line=number)
    sides = [holder[key] for key in keys]
    for key, side in zip(keys, sides, strict=True):
        if not isinstance(side, str | None):
            raise CorpusError(path, f'the value of "{key}" is not a string', line=number)
        try:
            (side or "").encode()
        except UnicodeEncodeError:
            problem = f'"{key}" holds half a surrogate pair, which is not a character'
            raise CorpusError(path, problem, line=number) from None
    return Pair(*(side or "" for side in sides))


@functools.lru_cache(maxsize=64)
def _find_keys(keys: tuple[str, ...], languages: Languages) -> tuple[str, str] | None:
    source, target = (find_language(language, keys) for language in languages)
    if source is not None and target is not None:
        return source, target
    return ("source", "target") if {"source", "target"} <= set(keys) else None


# ---------------------------------------------------------------------------------------------------------------------
# Parquet


def read_parquet(path: Path, languages: Languages) -> Iterator[Pair]:
    """Read pairs from Parquet columns, named like the keys in `read_jsonl`. A null value is read as empty text."""

    def choose(columns: list[str]) -> Sequence[str]:
        if "translation" in columns:
            return ["translation"]
        return _find_keys(tuple(columns), languages) or columns  # missing ones are reported for the first row

    for number, record in records.read_parquet(path, choose):
        yield _pair_from_record(record, languages, path, number)


# ---------------------------------------------------------------------------------------------------------------------
# TMX

_XML_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
# These elements contain markup of another program, which is dropped; <hi> contains text.
_CODE_TAGS = frozenset({"bpt", "ept", "it", "ph", "ut"})


def read_tmx(path: Path, languages: Languages) -> Iterator[Pair]:
    """Read pairs from the TMX units that have both languages. Of several texts in a language, the first is used."""
    found: dict[str, None] = {}  # an ordered set
    any_pair = False
    for unit in _read_units(path):
        segments = _segments(unit)
        found.update(dict.fromkeys(segments))
        if not all(languages):
            raise CorpusError(path, f"name the languages to read with --from and --to; it has {', '.join(segments)}")
        source, target = (find_language(language, segments) for language in languages)
        if source is not None and target is not None:
            any_pair = True
            yield Pair(segments[source], segments[target])
    if not found:
        raise CorpusError(path, "no translation unit in this file; check that it is TMX")
    if not any_pair:
        asked = f'no translation unit with "{languages.source}" and "{languages.target}"'
        raise CorpusError(path, f"{asked}; it has {', '.join(found)}")


def _read_units(path: Path) -> Iterator[ElementTree.Element]:
    ancestors: list[ElementTree.Element] = []
    with opened(path) as file:
        try:
            for event, element in ElementTree.iterparse(file, ("start", "end")):
                if event == "start":
                    ancestors.append(element)
                    continue
                ancestors.pop()
                if _local_name(element) == "tu":
                    yield element
                    if ancestors:
                        del ancestors[-1][:]  # otherwise the whole file would stay in memory
        except ElementTree.ParseError as error:
            raise CorpusError(path, f"broken XML ({str(error).partition(':')[0]})", line=error.position[0]) from None
        except (LookupError, ValueError) as error:
            raise CorpusError(path, f"XML in an encoding that cannot be read ({error}); convert it to UTF-8") from None


def _segments(unit: ElementTree.Element) -> dict[str, str]:
    """The texts of a TMX translation unit by language code, in the order of the file, without markup."""
    segments: dict[str, str] = {}
    for variant in unit:
        if _local_name(variant) != "tuv":
            continue
        code = variant.get(_XML_LANGUAGE) or variant.get("lang") or "?"
        segment = next((child for child in variant if _local_name(child) == "seg"), None)
        for element in [] if segment is None else list(segment.iter()):
            if _local_name(element) in _CODE_TAGS:
                tail = element.tail
                element.clear()
                element.tail = tail
        segments.setdefault(code, "" if segment is None else "".join(segment.itertext()))
    return segments


def _local_name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


# ---------------------------------------------------------------------------------------------------------------------
# PO

_CLOSED = re.compile(r'(?<!\\)(?:\\\\)*"$')  # a quotation mark that is not escaped


def read_po(path: Path, languages: Languages) -> Iterator[Pair]:
    """Read pairs from a gettext catalog (PO file); untranslated, fuzzy and obsolete entries are skipped.

    A plural entry gives several pairs: the singular with the first translation, and the plural with each of the other
    translations. If there is only one translation, singular and plural are paired with it. If the language of the
    catalog is the source language, source and target are swapped. The whole file is held in memory by polib.
    """
    catalog = _parse_po(path)
    code, backwards = catalog.metadata.get("Language", ""), False
    if code and languages.target and not find_language(languages.target, [code]):
        if not find_language(languages.source, [code]):
            raise CorpusError(path, f'translated into "{code}", not into "{languages.target}"; correct --from and --to')
        backwards = True
    finished = [entry for entry in catalog if entry.translated()]
    if not finished:
        raise CorpusError(path, f"no finished translation among its {len(catalog)} entries; fuzzy entries are not used")
    for entry in finished:
        pairs = [(entry.msgid, entry.msgstr)]
        if entry.msgid_plural:
            first, *others = (form for _, form in sorted(entry.msgstr_plural.items()))
            pairs = [(entry.msgid, first), *((entry.msgid_plural, form) for form in others or [first])]
        for original, translation in pairs:
            yield Pair(translation, original) if backwards else Pair(original, translation)


def _parse_po(path: Path) -> Any:
    polib = require("polib", path, "reading .po")
    lines = list(read_lines(path))
    # polib splits a string at characters such as U+2028, but not a file, so it gets a copy in plain UTF-8.
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "catalog.po"
        copy.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
        try:
            catalog = polib.pofile(str(copy), encoding="utf-8")
        except (OSError, ValueError, IndexError) as error:
            place = re.search(r"\(line (\d+)\)(?:: (.*))?", str(error))
            reason = f" ({place[2]})" if place and place[2] else ""
            line = int(place[1]) if place else None
            raise CorpusError(path, f"broken PO syntax{reason}", line=line) from None
    # polib accepts a file that ends within an entry, and drops the last character.
    texts = [(number, text) for number, line in enumerate(lines, 1) if (text := line.strip()) and text[0] != "#"]
    keywords = [text for _, text in texts if text.startswith("msg")]
    if texts and not (keywords and keywords[-1].startswith("msgstr") and _CLOSED.search(texts[-1][1])):
        raise CorpusError(path, "ends within an entry; the file may be cut off", line=texts[-1][0])
    return catalog


READERS: Mapping[str, Callable[[Path, Languages], Iterator[Pair]]] = {
    ".tsv": read_tsv,
    ".jsonl": read_jsonl,
    ".tmx": read_tmx,
    ".po": read_po,
    ".parquet": read_parquet,
}
"""Readers of the formats with both sides in one file, by suffix."""


# ---------------------------------------------------------------------------------------------------------------------
# Writing


class PairWriter:
    """Writes pairs to `files`: two files of source and target lines, or one TSV file."""

    def __init__(self, files: Sequence[TextIO]):
        self._files = files
        self._breaking = re.compile(r"[\r\n]+" if len(files) == 2 else r"[\t\r\n]+")
        self.flattened = 0
        """Number of sentences in which line ends (possible in TMX and PO), or tabs in TSV, were replaced by spaces."""

    def write(self, pair: Pair) -> None:
        flat = [self._breaking.sub(" ", sentence) for sentence in pair]
        self.flattened += sum(line != sentence for line, sentence in zip(flat, pair, strict=True))
        lines = flat if len(self._files) == 2 else ["\t".join(flat)]
        for file, line in zip(self._files, lines, strict=True):
            file.write(line + "\n")
