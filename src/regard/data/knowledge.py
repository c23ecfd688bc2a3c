"""Knowledge bases: questions and their answers, from TSV, CSV, JSON lines and Markdown, and how they are changed.

An answer may have several questions. In all formats, rows with the same answer are one entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.config import Corpus
from regard.data.faq import read_markdown
from regard.data.files import read_lines, split_suffix
from regard.data.fingerprints import normalise
from regard.data.records import read_objects, read_table
from regard.durable import write_atomically
from regard.errors import CorpusError, RunError

FORMATS = ".tsv (question, tab, answer), .csv (with a header), .jsonl, .md (questions as headings or in bold)"
FORM = 'a line is {"question": "...", "answer": "..."}, or has a list of "questions"'
QUESTION_COLUMNS, ANSWER_COLUMNS = ("question", "text"), ("answer", "category", "label")


class Entry(NamedTuple):
    """An answer and the questions that it is known to answer."""

    questions: tuple[str, ...]
    answer: str


_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,80}")


def are_names(entries: Sequence[Entry]) -> bool:
    """Whether the answers are names, such as `card_arrival`, and not sentences to compare a question with."""
    return 2 * sum(_NAME.fullmatch(entry.answer) is not None for entry in entries) > len(entries)


def texts_of(entry: Entry, *, answers: bool) -> tuple[str, ...]:
    """What a question is compared with: the known questions, and the answer if it is to be compared too."""
    return (*entry.questions, entry.answer) if answers else entry.questions


# ---------------------------------------------------------------------------------------------------------------------
# Files


def read_knowledge(corpus: Corpus) -> list[Entry]:
    """The entries of a file, in the order in which their answers first stand there."""
    if not corpus.source:
        raise CorpusError("--source", "no file given")
    if corpus.target:
        raise CorpusError(corpus.target, "questions and answers stand in one file; leave out --target")
    path = Path(corpus.source)
    readers = {".tsv": _read_rows, ".csv": _read_rows, ".jsonl": _read_jsonl, ".md": _read_faq, ".markdown": _read_faq}
    reader = readers.get(split_suffix(path)[0])
    if reader is None:
        raise CorpusError(path, f"not a knowledge base; one comes as {FORMATS}, also .gz .zst")
    entries = gather(reader(path))
    if not entries:
        raise CorpusError(path, "the knowledge base is empty: no question with an answer here")
    return entries


def _read_rows(path: Path) -> Iterator[Entry]:
    """Question and answer; other columns are ignored."""
    columns = (QUESTION_COLUMNS, ANSWER_COLUMNS)
    for number, (question, answer) in read_table(path, ("question", "answer"), columns):
        yield _entry([question], answer, path, number)


def _read_jsonl(path: Path) -> Iterator[Entry]:
    """Objects with "answer", and "question" or a list of "questions"."""
    for number, record in read_objects(path, FORM):
        yield _from_record(record, path, number)


def _from_record(record: dict[str, Any], path: Path, number: int) -> Entry:
    """The entry that a line of JSON holds."""
    if not isinstance(record.get("answer"), str):
        raise CorpusError(path, f'no "answer" here; {FORM}', line=number)
    questions = record.get("questions", [record.get("question")])
    if not isinstance(questions, list) or not all(isinstance(question, str) for question in questions):
        raise CorpusError(path, f"no question here; {FORM}", line=number)
    return _entry(questions, record["answer"], path, number)


def _read_faq(path: Path) -> Iterator[Entry]:
    for found in read_markdown(read_lines(path)):
        yield _entry(found.questions, found.answer, path, found.line)


def _entry(questions: Sequence[str], answer: str, path: Path, number: int) -> Entry:
    real = tuple(clean for question in questions if (clean := _plain(question)))
    if not real:
        raise CorpusError(path, "no question in this row", line=number)
    if not (text := _sound(answer).strip()):
        raise CorpusError(path, f'the question "{real[0][:60]}" has no answer', line=number)
    return Entry(real, text)


def _plain(question: str) -> str:
    """A question on one line."""
    return " ".join(_sound(question).split())


def _sound(text: str) -> str:
    """Half a surrogate pair, which JSON can spell, is no character."""
    return text.encode(errors="replace").decode()


# ---------------------------------------------------------------------------------------------------------------------
# Changes


def gather(entries: Iterable[Entry]) -> list[Entry]:
    """Entries with the same answer made one, each question once."""
    questions: dict[str, dict[str, str]] = {}
    answers: dict[str, str] = {}
    for entry in entries:
        key = normalise(entry.answer)
        answers.setdefault(key, entry.answer)
        known = questions.setdefault(key, {})
        for question in entry.questions:
            known.setdefault(normalise(question), question)
    return [Entry(tuple(known.values()), answers[key]) for key, known in questions.items()]


def add(entries: Sequence[Entry], new: Sequence[Entry]) -> list[Entry]:
    """The entries with new ones. A question that comes again has its new answer from then on."""
    answer_of = {normalise(question): normalise(entry.answer) for entry in new for question in entry.questions}
    kept = []
    for entry in entries:
        own = normalise(entry.answer)
        stay = tuple(question for question in entry.questions if answer_of.get(normalise(question), own) == own)
        kept += [Entry(stay, entry.answer)] if stay else []
    return gather([*kept, *new])


def remove(entries: Sequence[Entry], texts: Iterable[str]) -> tuple[list[Entry], list[str]]:
    """The entries without these questions, or without all questions of these answers; and the texts nobody knows."""
    wanted = {normalise(text): text for text in texts}
    known = {normalise(text) for entry in entries for text in (*entry.questions, entry.answer)}
    left = (_without(entry, wanted) for entry in entries if normalise(entry.answer) not in wanted)
    return [entry for entry in left if entry.questions], [text for key, text in wanted.items() if key not in known]


def _without(entry: Entry, keys: Container[str]) -> Entry:
    return Entry(tuple(question for question in entry.questions if normalise(question) not in keys), entry.answer)


# ---------------------------------------------------------------------------------------------------------------------
# As a run keeps them


def write_entries(path: Path, entries: Iterable[Entry]) -> None:
    """Entries as JSON lines: all of them, or the file as it was."""
    lines = (json.dumps({"questions": one.questions, "answer": one.answer}, ensure_ascii=False) for one in entries)
    write_atomically(path, "".join(line + "\n" for line in lines).encode())


def read_entries(path: Path) -> list[Entry]:
    """What `write_entries` wrote. Here an entry may have no question left."""
    try:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        return [Entry(tuple(map(str, record["questions"])), str(record["answer"])) for record in records]
    except OSError as error:
        raise RunError(f"{path}: cannot read the knowledge base ({error.strerror})") from None
    except (ValueError, KeyError, TypeError):
        raise RunError(f"{path}: damaged; take it from a copy of the run, or fill it anew by --replace") from None
