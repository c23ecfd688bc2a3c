"""Training texts: lines of a file, "text" in JSON lines, or a built-in corpus; read, encoded and stored.

A text with more than `data.max_length` tokens is divided into windows of that length. Each window is a separate
example, with SOS before it and EOS after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from regard.config import Corpus
from regard.data import builtin
from regard.data.records import read_objects
from regard.data.store import DocumentStore, write_documents
from regard.errors import CorpusError
from regard.files import read_lines, split_suffix
from regard.run import Run
from regard.tasks import single_file
from regard.tasks.dataset import Parts, PreparedData, new_store, store_parts

FORMATS = 'text with one text per line, .jsonl (objects with "text"), also .gz .zst'


def read_texts(corpus: Corpus) -> list[str]:
    """Read the texts of a file or of a built-in corpus. Empty texts are left out."""
    path = single_file(corpus, "the texts")
    if builtin.corpus_of(corpus.source):
        return list(builtin.read_texts(corpus.source))
    suffix = split_suffix(path)[0]
    if suffix in (".tsv", ".csv", ".parquet", ".tmx", ".po"):
        raise CorpusError(path, f"texts cannot be read from this format; use {FORMATS}")
    texts = read_lines(path)
    if suffix == ".jsonl":
        objects = read_objects(path, 'a line is an object with "text"', text="text")
        texts = (record["text"] for _, record in objects)
    return [text for text in texts if text.strip()]


TextData = PreparedData[DocumentStore, str]
"""Each document of the store is one window of a training text, without labels."""


def windows(ids: Sequence[int], size: int) -> list[Sequence[int]]:
    """Divide the token ids of a text into consecutive windows of `size` tokens; the last one may be shorter."""
    return [ids[start : start + size] for start in range(0, len(ids), size)]


def write_store(run: Run, examples: Parts[str]) -> None:
    """Encode the training texts in windows, and write them and the held-out texts into the folder store/ of a run."""
    tokenizer, size = run.tokenizers[0], run.recipe.data.max_length
    encoded = [
        ([part for ids in tokenizer.encode_many(texts) for part in windows(ids, size)], weight)
        for texts, weight in examples.corpora
    ]
    if not any(found for found, _ in encoded):
        raise CorpusError(
            run.recipe.data.train[0].source, "the tokenizer finds no tokens in the training texts; give other texts"
        )
    with new_store(run, examples.held_out) as folder:
        parts = store_parts((len(found), weight) for found, weight in encoded)
        rows = (([list(part)], ()) for found, _ in encoded for part in found)
        write_documents(folder / "train", rows, parts, tokenizer.size)
