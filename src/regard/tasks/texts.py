"""Files of texts, for tasks that train on plain text: lines of a file, "text" in JSON lines, or a built-in corpus."""

from __future__ import annotations

from regard.config import Corpus
from regard.data import builtin
from regard.data.records import read_objects
from regard.errors import CorpusError
from regard.files import read_lines, split_suffix
from regard.tasks import single_file

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
