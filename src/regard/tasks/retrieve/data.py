"""Knowledge bases: questions and their answers, from TSV, CSV, JSON lines and Markdown, and how they are changed.

An answer may have several questions. In all formats, rows with the same answer are one entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from regard.config import Corpus
from regard.data.records import read_objects, read_table
from regard.data.split import normalise
from regard.errors import CorpusError, RunError
from regard.files import read_lines, split_suffix, write_atomically

# Questions and answers in Markdown: a question is a heading or a line in bold, its answer the text below it.
#
# Where questions stand in bold, headings only divide them, unless one ends in a question mark. Elsewhere the headings
# are
# the questions, but for the title: the only heading of the highest level, when it comes first. Questions of one kind
# right below each other share the answer; a heading with only smaller headings below it is the name of a section.


BOLD = 7
"""The level of a line in bold: below all headings."""
QUESTION_MARKS = ("?", "？", "؟")

# All of these take linear time: possessive quantifiers ("*+") never give back what they took.
_HEADING = re.compile(r"\s{0,3}(#{1,6})\s++(.*)")
_BOLD_LINE = re.compile(r"\s*(?:[-*+]\s+|\d{1,3}[.)]\s+)?(?:\*\*(?P<stars>[^*]+)\*\*|__(?P<bars>[^_]+)__)\s*+:?\s*+$")
_UNDERLINE = re.compile(r"\s{0,3}(=+|-+)\s*$")
_FENCE = re.compile(r"\s{0,3}(```+|~~~+)")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^)]*\)")
_NUMBER = re.compile(r"\A(?:\d{1,3}[.)]\s+|[Qq](?:uestion)?\s*+\d*+\s*+:\s*)")
_ANSWER = re.compile(r"\A\**[Aa](?:nswer)?\s*:\**\s+")


class FaqEntry(NamedTuple):
    """Questions with the text below them, and the line of the first."""

    questions: tuple[str, ...]
    answer: str
    line: int


class _Line(NamedTuple):
    number: int
    text: str
    level: int
    """Of a heading, 1 to 6; `BOLD`; 0 for text."""
    raw: str


@dataclass
class _Open:
    """Questions that wait for their answer."""

    level: int = 0
    line: int = 0
    questions: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def found(self) -> Iterator[FaqEntry]:
        answer = _ANSWER.sub("", "\n".join(self.text).strip(), count=1) if self.text else ""
        if self.questions and answer:
            yield FaqEntry(tuple(self.questions), answer, self.line)


def read_markdown(lines: Iterable[str]) -> Iterator[FaqEntry]:
    """The questions and answers of a document."""
    marked = list(_mark(lines))
    questions = _find_questions(marked)
    waiting = _Open()
    for line in marked:
        if not line.level or (line.level == BOLD and line.number not in questions):
            waiting.text.append(line.raw)
            continue
        answered = any(text.strip() for text in waiting.text)
        if answered or line.level != waiting.level:
            yield from waiting.found()
            waiting = _Open(line.level, line.number)
        if line.number in questions:
            waiting.questions.append(_NUMBER.sub("", line.text, count=1))
            waiting.text = []
    yield from waiting.found()


def _mark(lines: Iterable[str]) -> Iterator[_Line]:
    """Lines with their levels; code stays text, and front matter is left out."""
    numbered = list(enumerate(lines, 1))
    if numbered and numbered[0][1].strip() == "---":
        end = next((place for place, (_, text) in enumerate(numbered) if place and text.strip() == "---"), 0)
        numbered = numbered[end + 1 :]
    fence = ""
    skip = False
    for (number, text), (_, below) in pairwise([*numbered, (0, "")]):
        if skip:
            skip = False
            continue
        opened = _FENCE.match(text)
        if fence or opened:
            fence = _inside(fence, opened)
            yield _Line(number, text, 0, text)
            continue
        line = _classify(number, text, below)
        skip = line.level in (1, 2) and not text.lstrip().startswith("#")
        yield line


def _inside(fence: str, opened: re.Match[str] | None) -> str:
    """The mark that closes the code that we are in after this line."""
    if not fence:
        return opened[1] if opened else ""
    return "" if opened and opened[1].startswith(fence) else fence


def _classify(number: int, text: str, below: str) -> _Line:
    if heading := _HEADING.match(text):
        return _Line(number, _inline(_without_closing(heading[2].rstrip())), len(heading[1]), text)
    if bold := _BOLD_LINE.match(text):
        return _Line(number, _inline(bold["stars"] or bold["bars"]), BOLD, text)
    if text.strip() and (line := _UNDERLINE.match(below)):
        return _Line(number, _inline(text), 1 if line[1].startswith("=") else 2, text)
    return _Line(number, text, 0, text)


def _without_closing(heading: str) -> str:
    """A heading without the "##" that may close it."""
    text = heading.rstrip("#")
    return text.rstrip() if text[-1:].isspace() else heading


def _inline(text: str) -> str:
    """A heading without the marks of emphasis, code and links."""
    end = text.rfind(")") + 1  # no link ends after this place; looking for its end from each "](" on would be quadratic
    text = _LINK.sub(r"\1", text[:end]) + text[end:]
    return re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", text).strip()


def _find_questions(lines: list[_Line]) -> set[int]:
    """Numbers of the lines that are questions, as this document writes them."""
    headings = [line for line in lines if 0 < line.level < BOLD]
    bold = [line for line in lines if line.level == BOLD]
    asked = {line.number for line in (*headings, *bold) if line.text.endswith(QUESTION_MARKS)}
    if bold and (asked & {line.number for line in bold} or not asked):
        return asked | {line.number for line in bold}
    top = min((line.level for line in headings), default=0)
    has_title = len(headings) > 1 and headings[0].level == top and sum(line.level == top for line in headings) == 1
    return {line.number for line in headings[has_title:]} | asked


FORMATS = ".tsv (question, tab, answer), .csv (with a header), .jsonl, .md (questions as headings or in bold)"
FORM = 'a line is {"question": "...", "answer": "..."}, or has a list of "questions"'
QUESTION_COLUMNS, ANSWER_COLUMNS = ("question", "text"), ("answer", "category", "label")


class KnowledgeEntry(NamedTuple):
    """An answer and the questions that it is known to answer."""

    questions: tuple[str, ...]
    answer: str


_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,80}")


def are_names(entries: Sequence[KnowledgeEntry]) -> bool:
    """Whether the answers are names, such as `card_arrival`, and not sentences to compare a question with."""
    return 2 * sum(_NAME.fullmatch(entry.answer) is not None for entry in entries) > len(entries)


def texts_of(entry: KnowledgeEntry, *, answers: bool) -> tuple[str, ...]:
    """What a question is compared with: the known questions, and the answer if it is to be compared too."""
    return (*entry.questions, entry.answer) if answers else entry.questions


# ---------------------------------------------------------------------------------------------------------------------
# Files


def read_knowledge(corpus: Corpus) -> list[KnowledgeEntry]:
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


def _read_rows(path: Path) -> Iterator[KnowledgeEntry]:
    """Question and answer; other columns are ignored."""
    columns = (QUESTION_COLUMNS, ANSWER_COLUMNS)
    for number, (question, answer) in read_table(path, ("question", "answer"), columns):
        yield _entry([question], answer, path, number)


def _read_jsonl(path: Path) -> Iterator[KnowledgeEntry]:
    """Objects with "answer", and "question" or a list of "questions"."""
    for number, record in read_objects(path, FORM):
        yield _from_record(record, path, number)


def _from_record(record: dict[str, Any], path: Path, number: int) -> KnowledgeEntry:
    """The entry that a line of JSON holds."""
    if not isinstance(record.get("answer"), str):
        raise CorpusError(path, f'no "answer" here; {FORM}', line=number)
    questions = record.get("questions", [record.get("question")])
    if not isinstance(questions, list) or not all(isinstance(question, str) for question in questions):
        raise CorpusError(path, f"no question here; {FORM}", line=number)
    return _entry(questions, record["answer"], path, number)


def _read_faq(path: Path) -> Iterator[KnowledgeEntry]:
    for found in read_markdown(read_lines(path)):
        yield _entry(found.questions, found.answer, path, found.line)


def _entry(questions: Sequence[str], answer: str, path: Path, number: int) -> KnowledgeEntry:
    real = tuple(clean for question in questions if (clean := _plain(question)))
    if not real:
        raise CorpusError(path, "no question in this row", line=number)
    if not (text := _sound(answer).strip()):
        raise CorpusError(path, f'the question "{real[0][:60]}" has no answer', line=number)
    return KnowledgeEntry(real, text)


def _plain(question: str) -> str:
    """A question on one line."""
    return " ".join(_sound(question).split())


def _sound(text: str) -> str:
    """Half a surrogate pair, which JSON can spell, is no character."""
    return text.encode(errors="replace").decode()


# ---------------------------------------------------------------------------------------------------------------------
# Changes


def gather(entries: Iterable[KnowledgeEntry]) -> list[KnowledgeEntry]:
    """Entries with the same answer made one, each question once."""
    questions: dict[str, dict[str, str]] = {}
    answers: dict[str, str] = {}
    for entry in entries:
        key = normalise(entry.answer)
        answers.setdefault(key, entry.answer)
        known = questions.setdefault(key, {})
        for question in entry.questions:
            known.setdefault(normalise(question), question)
    return [KnowledgeEntry(tuple(known.values()), answers[key]) for key, known in questions.items()]


def add(entries: Sequence[KnowledgeEntry], new: Sequence[KnowledgeEntry]) -> list[KnowledgeEntry]:
    """The entries with new ones. A question that comes again has its new answer from then on."""
    answer_of = {normalise(question): normalise(entry.answer) for entry in new for question in entry.questions}
    kept = []
    for entry in entries:
        own = normalise(entry.answer)
        stay = tuple(question for question in entry.questions if answer_of.get(normalise(question), own) == own)
        kept += [KnowledgeEntry(stay, entry.answer)] if stay else []
    return gather([*kept, *new])


def remove(entries: Sequence[KnowledgeEntry], texts: Iterable[str]) -> tuple[list[KnowledgeEntry], list[str]]:
    """The entries without these questions, or without all questions of these answers; and the texts nobody knows."""
    wanted = {normalise(text): text for text in texts}
    known = {normalise(text) for entry in entries for text in (*entry.questions, entry.answer)}
    left = (_without(entry, wanted) for entry in entries if normalise(entry.answer) not in wanted)
    return [entry for entry in left if entry.questions], [text for key, text in wanted.items() if key not in known]


def _without(entry: KnowledgeEntry, keys: Container[str]) -> KnowledgeEntry:
    return KnowledgeEntry(
        tuple(question for question in entry.questions if normalise(question) not in keys), entry.answer
    )


# ---------------------------------------------------------------------------------------------------------------------
# As a run keeps them


def write_entries(path: Path, entries: Iterable[KnowledgeEntry]) -> None:
    """Entries as JSON lines: all of them, or the file as it was."""
    lines = (json.dumps({"questions": one.questions, "answer": one.answer}, ensure_ascii=False) for one in entries)
    write_atomically(path, "".join(line + "\n" for line in lines).encode())


def read_entries(path: Path) -> list[KnowledgeEntry]:
    """What `write_entries` wrote. Here an entry may have no question left."""
    try:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        return [KnowledgeEntry(tuple(map(str, record["questions"])), str(record["answer"])) for record in records]
    except OSError as error:
        raise RunError(f"{path}: cannot read the knowledge base ({error.strerror})") from None
    except (ValueError, KeyError, TypeError):
        raise RunError(f"{path}: damaged; take it from a copy of the run, or fill it anew by --replace") from None
