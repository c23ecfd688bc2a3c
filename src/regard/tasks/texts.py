"""Files of texts, for tasks that train on plain text: lines of a file, "text" in JSON lines, or a built-in corpus.

Also the option --source of the commands that score texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.config import Corpus
from regard.data import builtin
from regard.data.records import read_objects
from regard.errors import CorpusError, SettingsError
from regard.files import STDIN, read_input_lines, read_lines, split_suffix
from regard.tasks import single_file

if TYPE_CHECKING:
    import argparse

    from regard.terminal import Parser

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


def configure_texts(parser: Parser) -> None:
    """Add the run and --source to the options of a command."""
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--source", default="-", metavar="FILE", help=f"{FORMATS}; - is standard input (default)")


def texts_of(options: argparse.Namespace) -> list[str]:
    """Return the texts of --source; a file without texts is an error."""
    from_stdin = options.source == "-"
    texts = [line for line in read_input_lines() if line.strip()] if from_stdin else read_texts(Corpus(options.source))
    if not texts:
        where = STDIN if from_stdin else options.source
        raise SettingsError(f"{where}: there is no text to score; all lines are empty")
    return texts
