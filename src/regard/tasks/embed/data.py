"""Training texts of word vectors, encoded and stored, and the counts of the words in them.

Words that are not in the vocabulary are left out, so their neighbors move together, as in word2vec. A text with more
than `data.max_length` words is divided into texts of that length. Texts with a single word are left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.data.store import DocumentStore, Ids, open_documents, write_documents
from regard.errors import CorpusError, RunError
from regard.files import write_atomically
from regard.run import Run
from regard.tasks.dataset import Parts, PreparedData, new_store, store_parts
from regard.text.tokenizer import FIRST_TOKEN, UNK, Tokenizer

COUNTS = "word-counts.json"
"""File of a run with the count of each token in the training texts, in the order of ids."""


@dataclass(frozen=True)
class EmbedData(PreparedData[DocumentStore, str]):
    """Each document of the store is one text, without labels."""

    counts: NDArray[np.int64]
    """How often each token occurs in the training texts, by id."""


def encode_texts(texts: Sequence[str], tokenizer: Tokenizer, longest: int) -> list[list[int]]:
    """The ids of the known words of each text, in parts of at most `longest` words, at least two."""
    found = []
    for ids in tokenizer.encode_many(list(texts)):
        known = [id for id in ids if id != UNK]
        found += [part for start in range(0, len(known), longest) if len(part := known[start : start + longest]) > 1]
    return found


def join_texts(texts: Sequence[Sequence[int]]) -> tuple[Ids, NDArray[np.int64]]:
    """The ids of several texts, one after another, and the length of each."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return np.fromiter((id for ids in texts for id in ids), np.uint32, int(lengths.sum())), lengths


def write_store(run: Run, examples: Parts[str]) -> None:
    """Write the encoded training texts and the held-out texts into the folder store/ of a run, and the word counts."""
    tokenizer, size = run.tokenizers[0], run.recipe.data.max_length
    encoded = [(encode_texts(texts, tokenizer, size), weight) for texts, weight in examples.corpora]
    if not any(found for found, _ in encoded):
        where = run.recipe.data.train[0].source
        raise CorpusError(where, "no text has two words of the vocabulary; give more or longer texts")
    with new_store(run, examples.held_out) as folder:
        parts = store_parts((len(found), weight) for found, weight in encoded)
        write_documents(folder / "train", (([ids], ()) for found, _ in encoded for ids in found), parts, tokenizer.size)
    store = open_documents(run.folder / "store" / "train")
    counts = store.token_counts(tokenizer.size).tolist()
    store.close()
    write_atomically(run.folder / COUNTS, (json.dumps(counts) + "\n").encode())


def read_counts(run: Run) -> NDArray[np.int64]:
    """The counts that `write_store` stored; an error if the file is missing or does not fit the vocabulary."""
    path = run.folder / COUNTS
    try:
        counts = np.array(json.loads(path.read_text(encoding="utf-8")), np.int64)
    except (OSError, ValueError, TypeError, OverflowError):
        counts = np.zeros(0, np.int64)
    if counts.shape != (run.tokenizers[0].size,) or counts.min() < 0 or not counts[FIRST_TOKEN:].any():
        raise RunError(f"{path}: the counts of the words cannot be read; take the file from a copy of the run")
    return counts
