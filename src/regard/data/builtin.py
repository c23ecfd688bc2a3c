"""The built-in corpora: "phrasebook", "smalltalk" and "shapes", with parts such as "phrasebook:valid".

They are packaged files of JSON lines. The programs that write them are in tools/ of the source repository.
"""

from __future__ import annotations

import bz2
import functools
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from regard.errors import CorpusError, nearest
from regard.registry import BUILTIN

PARTS = ("train", "valid", "test")


@dataclass(frozen=True, slots=True)
class Roles:
    """The subject, the verb and the object of a sentence, as indices into `words(sentence)`.

    In a sentence with a reason ("... because it was tired"), the roles are those of the first clause. Where Italian
    drops the pronoun, the subject is empty. The verb "piacere" (to please) has the liked thing as its subject: in
    "Mi piace la casa" (I like the house), the subject is "la casa".
    """

    subject: tuple[int, ...]
    verb: tuple[int, ...]
    object: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Phrase:
    """An English sentence, its Italian translation, and the gold word alignment between them."""

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]
    """The aligned words: index into `words(source)`, and index into `words(target)`."""
    source_roles: Roles
    target_roles: Roles


def corpus_of(name: str) -> str:
    """The corpus in the name of a part: "phrasebook:valid" gives "phrasebook"; "" if it is not a built-in corpus."""
    corpus = name.partition(":")[0]
    return corpus if corpus in BUILTIN else ""


def part_names(corpus: str) -> tuple[str, ...]:
    """The names of the parts of a corpus: "phrasebook" (the training part), "phrasebook:valid", "phrasebook:test"."""
    return tuple(corpus if part == "train" else f"{corpus}:{part}" for part in PARTS)


def part_of(name: str) -> str:
    """The part in the name of a built-in corpus: "phrasebook" gives "train", "phrasebook:valid" gives "valid"."""
    names = part_names(corpus_of(name))
    if name not in names:
        hint = nearest(name, names) or f"; its parts are {', '.join(names)}"
        raise CorpusError(name, f"{corpus_of(name)} has no such part{hint}")
    return PARTS[names.index(name)]


@functools.cache
def read_phrases(part: str = "train") -> tuple[Phrase, ...]:
    """Sentence pairs of the phrasebook: 24,000 in "train", 500 in "valid", 1,000 in "test".

    No sentence, source or target, is in two parts. The training part begins with examples from lectures
    ("The animal didn't cross the street because it was too tired."). Each sentence of the test part has two words that
    do not occur together in any sentence of the other parts.
    """
    return tuple(
        Phrase(
            row["source"],
            row["target"],
            tuple((source, target) for source, target in row["alignment"]),
            Roles(*map(tuple, row["source_roles"])),
            Roles(*map(tuple, row["target_roles"])),
        )
        for row in read_rows("phrasebook", part)
    )


@functools.cache
def read_conversations(part: str = "train") -> tuple[tuple[str, ...], ...]:
    """Small-talk conversations as lists of turns: 3,000 in "train", 150 in "valid", 300 in "test"."""
    return tuple(tuple(row["turns"]) for row in read_rows("smalltalk", part))


def read_texts(name: str) -> Iterator[str]:
    """The texts of a part: source sentences of the phrasebook, turns of small talk, English captions of drawings."""
    for row in read_rows(corpus_of(name), part_of(name)):
        yield from _texts_of(row)


def caption_rows(name: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The name of each drawing of a part, and its captions by language; a drawing with two captions has two rows.

    `regard.data.drawings.DrawingSource` has the drawings by these names.
    """
    part = part_of(name)
    for number, row in enumerate(read_rows(corpus_of(name), part)):
        if "captions" not in row:
            raise CorpusError(name, f"{corpus_of(name)} has no pictures; use another corpus")
        for texts in zip(*row["captions"].values(), strict=True):
            yield f"{part}/{number}.png", dict(zip(row["captions"], (text for text, _ in texts), strict=True))


def part_hash(name: str) -> str:
    """SHA-256 of a part, e.g. "phrasebook:valid": of lines (source, tab, target), of conversations or rows as JSON."""
    digest = hashlib.sha256()
    for row in read_rows(corpus_of(name), part_of(name)):
        is_pair = "source" in row
        text = f"{row['source']}\t{row['target']}\n" if is_pair else json.dumps(row.get("turns", row))
        digest.update(text.encode())
    return digest.hexdigest()


def _texts_of(row: dict[str, Any]) -> list[str]:
    if "captions" in row:
        [(text, _), *_] = row["captions"]["en"]
        return [text]
    return row["turns"] if "turns" in row else [row["source"]]


def read_rows(corpus: str, part: str) -> Iterator[dict[str, Any]]:
    """The rows of one part of a packaged file."""
    packed = (files(__package__) / BUILTIN[corpus]).read_bytes()
    rows = map(json.loads, bz2.decompress(packed).decode().splitlines())
    return (row for row in rows if row["part"] == part)
