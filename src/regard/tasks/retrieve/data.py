"""Knowledge bases: read from TSV, CSV, JSON lines and Markdown, changed, and prepared for training.

An entry is an answer with one or more questions. In all formats, rows with the same answer become one entry.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from regard.config import Corpus, DataSettings
from regard.data.pairs import Pair
from regard.data.records import read_objects, read_table
from regard.data.split import SHARE, held_out_sizes, normalize
from regard.errors import CorpusError, RunError, SettingsError
from regard.files import read_lines, split_suffix, write_atomically
from regard.tasks import single_file
from regard.tasks.dataset import FEWEST, HELD_OUT, PreparedData, describe_parts, require_train

KNOWLEDGE = "knowledge.jsonl"
"""File in a run folder with the knowledge base."""
FORMATS = ".tsv (question, tab, answer), .csv (with a header), .jsonl, .md (questions as headings or in bold)"
FORM = 'a line is {"question": "...", "answer": "..."}, or has a list of "questions"'
QUESTION_COLUMNS, ANSWER_COLUMNS = ("question", "text"), ("answer", "category", "label")


class KnowledgeEntry(NamedTuple):
    questions: tuple[str, ...]
    answer: str


def are_names(entries: Sequence[KnowledgeEntry]) -> bool:
    """Whether more than half of the answers are identifiers, such as `card_arrival`, and not sentences."""
    names = sum(re.fullmatch(r"[A-Za-z0-9_.:/-]{1,80}", entry.answer) is not None for entry in entries)
    return 2 * names > len(entries)


def texts_of(entry: KnowledgeEntry, *, answers: bool) -> tuple[str, ...]:
    """Return the texts of an entry to compare a user's question with: its questions and, if `answers`, its answer."""
    return (*entry.questions, entry.answer) if answers else entry.questions


# ---------------------------------------------------------------------------------------------------------------------
# Files


def read_knowledge(corpus: Corpus) -> list[KnowledgeEntry]:
    """Read a file of questions and answers; return one entry per answer, in the order in which the answers occur."""
    path = single_file(corpus, "questions and answers")
    entries = []
    for questions, answer, number in _read_rows(path):
        # JSON can contain halves of surrogate pairs, which are not characters.
        *asked, text = (text.encode(errors="replace").decode() for text in (*questions, answer.strip()))
        on_one_line = (" ".join(question.split()) for question in asked)
        entries.append(KnowledgeEntry(tuple(question for question in on_one_line if question), text))
        if not entries[-1].questions:
            raise CorpusError(path, "no question in this row; add one, or remove the row", line=number)
        if not text:
            problem = f'the question "{entries[-1].questions[0][:60]}" has no answer; add one, or remove the question'
            raise CorpusError(path, problem, line=number)
    if not entries:
        raise CorpusError(path, "the knowledge base is empty; give a file with questions and answers")
    return gather(entries)


def _read_rows(path: Path) -> Iterator[tuple[Sequence[str], str, int]]:
    """Yield (questions, answer, line number) for each row, JSON object or Markdown section of a file."""
    suffix = split_suffix(path)[0]
    if suffix in (".tsv", ".csv"):
        for number, (question, answer) in read_table(path, ("question", "answer"), (QUESTION_COLUMNS, ANSWER_COLUMNS)):
            yield [question], answer, number
    elif suffix == ".jsonl":
        for number, record in read_objects(path, FORM, text="answer"):
            questions = record.get("questions", [record.get("question")])
            if not isinstance(questions, list) or not all(isinstance(question, str) for question in questions):
                raise CorpusError(path, f"no question here, or it is not text; {FORM}", line=number)
            yield questions, record["answer"], number
    elif suffix in (".md", ".markdown"):
        yield from read_markdown(read_lines(path))
    else:
        raise CorpusError(
            path, f"not a knowledge base: unknown file format; use {FORMATS}, also compressed (.gz, .zst)"
        )


# ---------------------------------------------------------------------------------------------------------------------
# Markdown: a question is a heading or a line in bold, and its answer is the text below it.
#
# If there are lines in bold, they are the questions, and headings are section titles unless they end in a question
# mark. Otherwise headings are the questions, except the title: the only heading of the highest level, if it comes
# first. Questions of one level directly below each other share the answer. A heading without text below is a section.

BOLD = 7
"""Level of a line in bold. Headings have the levels 1 to 6."""

# All patterns take linear time: possessive quantifiers ("*+") never backtrack.
_HEADING = re.compile(r"\s{0,3}(#{1,6})\s++(.*)")
_BOLD_LINE = re.compile(r"\s*(?:[-*+]\s+|\d{1,3}[.)]\s+)?(?:\*\*(?P<stars>[^*]+)\*\*|__(?P<bars>[^_]+)__)\s*+:?\s*+$")
_UNDERLINE = re.compile(r"\s{0,3}(=+|-+)\s*$")
_FENCE = re.compile(r"\s{0,3}(```+|~~~+)")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^)]*\)")
_NUMBER = re.compile(r"\A(?:\d{1,3}[.)]\s+|[Qq](?:uestion)?\s*+\d*+\s*+:\s*)")
_ANSWER = re.compile(r"\A\**[Aa](?:nswer)?\s*:\**\s+")


class _Line(NamedTuple):
    number: int
    text: str
    level: int
    """1 to 6 for a heading, `BOLD` for a line in bold, 0 for text."""
    raw: str


def read_markdown(lines: Iterable[str]) -> Iterator[tuple[list[str], str, int]]:
    """Yield (questions, answer, line number of the first question) for each answer in the lines of a Markdown file."""
    marked = list(_mark(lines))
    asked = _find_questions(marked)
    level = first = 0
    questions: list[str] = []
    text: list[str] = []
    for line in [*marked, _Line(0, "", -1, "")]:  # the added line ends the last answer
        if not line.level or (line.level == BOLD and line.number not in asked):
            text.append(line.raw)
            continue
        answer = _ANSWER.sub("", "\n".join(text).strip(), count=1)
        if line.level != level or any(map(str.strip, text)):
            if questions and answer:
                yield questions, answer, first
            level, first, questions, text = line.level, line.number, [], []
        if line.number in asked:
            questions.append(_NUMBER.sub("", line.text, count=1))
            text = []


def _mark(lines: Iterable[str]) -> Iterator[_Line]:
    """Yield each line with its level: 1 to 6 for a heading, `BOLD` for a line in bold, 0 for text and code.

    Front matter (metadata between two lines "---" at the start) is left out.
    """
    numbered = list(enumerate(lines, 1))
    if numbered and numbered[0][1].strip() == "---":
        end = next((place for place, (_, text) in enumerate(numbered) if place and text.strip() == "---"), 0)
        numbered = numbered[end + 1 :]
    fence = ""  # the first characters of the open code block
    is_underline = False
    for (number, text), (_, below) in pairwise([*numbered, (0, "")]):
        code = _FENCE.match(text)
        if is_underline:
            is_underline = False
        elif fence or code:
            closed = bool(code and code[1].startswith(fence))
            fence = "" if fence and closed else fence or (code[1] if code else "")
            yield _Line(number, text, 0, text)
        elif heading := _HEADING.match(text):
            words = heading[2].rstrip()
            bare = words.rstrip("#")  # a heading may end in "##"
            yield _Line(number, _inline(bare if bare[-1:].isspace() else words), len(heading[1]), text)
        elif bold := _BOLD_LINE.match(text):
            yield _Line(number, _inline(bold["stars"] or bold["bars"]), BOLD, text)
        elif text.strip() and (line := _UNDERLINE.match(below)):
            is_underline = True
            yield _Line(number, _inline(text), 1 if line[1].startswith("=") else 2, text)
        else:
            yield _Line(number, text, 0, text)


def _inline(text: str) -> str:
    """Remove the Markdown syntax for emphasis, code and links from the text of a heading; keep the text of links."""
    end = text.rfind(")") + 1  # no link ends after this; searching for the end of each "](" would be quadratic
    text = _LINK.sub(r"\1", text[:end]) + text[end:]
    return re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", text).strip()


def _find_questions(lines: list[_Line]) -> set[int]:
    """Return the line numbers of the headings and lines in bold that are questions.

    If there are lines in bold, they are the questions, as a rule; otherwise the headings are, without the title. The
    comment above `BOLD` has the rules.
    """
    headings = [line for line in lines if 0 < line.level < BOLD]
    bold = [line for line in lines if line.level == BOLD]
    asked = {line.number for line in (*headings, *bold) if line.text.endswith(("?", "？", "؟"))}
    if bold and (asked & {line.number for line in bold} or not asked):
        return asked | {line.number for line in bold}
    top = min((line.level for line in headings), default=0)
    has_title = len(headings) > 1 and headings[0].level == top and sum(line.level == top for line in headings) == 1
    return {line.number for line in headings[has_title:]} | asked


# ---------------------------------------------------------------------------------------------------------------------
# Changes


def gather(entries: Iterable[KnowledgeEntry]) -> list[KnowledgeEntry]:
    """Merge entries whose normalized answers are equal into one entry, which has each of their questions once."""
    questions: dict[str, dict[str, str]] = {}
    answers: dict[str, str] = {}
    for entry in entries:
        key = normalize(entry.answer)
        answers.setdefault(key, entry.answer)
        known = questions.setdefault(key, {})
        for question in entry.questions:
            known.setdefault(normalize(question), question)
    return [KnowledgeEntry(tuple(known.values()), answers[key]) for key, known in questions.items()]


def add(entries: Sequence[KnowledgeEntry], new: Sequence[KnowledgeEntry]) -> list[KnowledgeEntry]:
    """Return `entries` and `new` as one list. A question that is in both keeps only its answer in `new`."""
    answer_of = {normalize(question): normalize(entry.answer) for entry in new for question in entry.questions}
    kept = []
    for entry in entries:
        own = normalize(entry.answer)
        stay = tuple(question for question in entry.questions if answer_of.get(normalize(question), own) == own)
        kept += [KnowledgeEntry(stay, entry.answer)] if stay else []
    return gather([*kept, *new])


def remove(entries: Sequence[KnowledgeEntry], texts: Iterable[str]) -> tuple[list[KnowledgeEntry], list[str]]:
    """Remove the questions in `texts`, and the entries whose answers are in `texts`; return the remaining entries.

    Entries that have no question left are removed too. The second result is the list of those `texts` that are neither
    a question nor an answer of `entries`.
    """
    wanted = {normalize(text): text for text in texts}
    known = {normalize(text) for entry in entries for text in (*entry.questions, entry.answer)}
    left = (without(entry, wanted) for entry in entries if normalize(entry.answer) not in wanted)
    return [entry for entry in left if entry.questions], [text for key, text in wanted.items() if key not in known]


def without(entry: KnowledgeEntry, keys: Container[str]) -> KnowledgeEntry:
    """Return the entry without the questions whose normalized form (`normalize`) is in `keys`."""
    return entry._replace(questions=tuple(text for text in entry.questions if normalize(text) not in keys))


# ---------------------------------------------------------------------------------------------------------------------
# In a run folder


def write_entries(path: Path, entries: Iterable[KnowledgeEntry]) -> None:
    lines = (json.dumps({"questions": one.questions, "answer": one.answer}, ensure_ascii=False) for one in entries)
    write_atomically(path, "".join(line + "\n" for line in lines).encode())


def read_entries(path: Path) -> list[KnowledgeEntry]:
    """Read the entries from a JSON lines file that `write_entries` wrote. An entry may have no questions."""
    try:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        return [KnowledgeEntry(tuple(map(str, record["questions"])), str(record["answer"])) for record in records]
    except OSError as error:
        raise RunError(f"{path}: the knowledge base cannot be read ({error.strerror}); check the file") from None
    except (ValueError, KeyError, TypeError):
        remedy = 'take it from a copy of the run, or build it again with "regard index RUN FILE --replace"'
        raise RunError(f"{path}: the knowledge base is damaged; {remedy}") from None


# ---------------------------------------------------------------------------------------------------------------------
# Training data


@dataclass(frozen=True)
class KnowledgeFacts:
    """Statistics of the training data, from which `make_retrieval_plan` chooses settings."""

    texts: int
    """Number of questions and, if the answers are not names, of answers: the texts that a question is compared with."""
    words: float
    """Mean number of words (separated by spaces) per text."""
    names: bool
    """Whether the answers are names, such as `card_arrival`, and not sentences."""

    @property
    def tokens(self) -> float:
        """Estimated mean number of subword tokens per text: 1.5 per word, plus 1 for the end token."""
        return 1.5 * self.words + 1


PreparedKnowledge = PreparedData[list[KnowledgeEntry], Pair]
"""Entries without held-out questions (some have no question left), and pairs of a held-out question and its answer."""


class TrainingKnowledge:
    """The knowledge base of the recipe, divided into training, validation and test questions.

    `train` has the entries without the held-out questions; `held_out` has (question, answer) pairs by part.
    """

    def __init__(self, data: DataSettings, seed: int):
        require_train(data, "a knowledge base")
        where = data.train[0].source
        for corpus in (*data.train, *data.valid, *data.test):
            if corpus.weight != 1:
                raise SettingsError(f"data: knowledge bases cannot have a weight; remove the weight of {corpus.source}")
        self.entries = gather(entry for corpus in data.train for entry in read_knowledge(corpus))
        """All entries, including held-out questions. The trained run answers from all of them."""
        total = sum(len(entry.questions) for entry in self.entries)
        if total < FEWEST or len(self.entries) < 2:
            hint = f'"regard index --create RUN {where}" answers from it without training'
            raise CorpusError(
                where, f"{total} questions with {len(self.entries)} answers are too few to train on; {hint}"
            )
        self.held_out = {part: self._given(part, data) for part in HELD_OUT}
        self.train = self._hold_out(data, total, random.Random(seed))

    def __len__(self) -> int:
        return sum(len(entry.questions) for entry in self.train)

    def describe(self) -> str:
        held_out = (len(self.held_out[part]) for part in HELD_OUT)
        return f"{describe_parts('questions', len(self), *held_out)}; {len(self.entries):,} answers"

    @cached_property
    def facts(self) -> KnowledgeFacts:
        names = are_names(self.entries)
        texts = [text for entry in self.train for text in texts_of(entry, answers=not names)]
        return KnowledgeFacts(len(texts), sum(len(text.split()) for text in texts) / len(texts), names)

    def _given(self, part: str, data: DataSettings) -> list[Pair]:
        """Read (question, answer) pairs from the files of `part`, "valid" or "test"; [] if it has no files.

        An answer that is not in the training data is an error.
        """
        answers = {normalize(entry.answer): entry.answer for entry in self.entries}
        pairs = []
        for corpus in getattr(data, part):
            for entry in read_knowledge(corpus):
                if normalize(entry.answer) not in answers:
                    problem = f'the answer "{entry.answer[:60]}" of the {part} data is not in the training data'
                    raise CorpusError(corpus.source, f"{problem}; add it there, or remove its questions here")
                pairs += [Pair(question, answers[normalize(entry.answer)]) for question in entry.questions]
        return pairs

    def _hold_out(self, data: DataSettings, total: int, chance: random.Random) -> list[KnowledgeEntry]:
        """Move random questions to `held_out` for each part without files; return the entries with the other questions.

        `total` is the number of questions in all entries, and `chance` is the random generator. If there are enough
        questions, each answer keeps at least one for training.
        """
        wanted = dict(zip(HELD_OUT, held_out_sizes(data, max(total // SHARE, 1)), strict=True))
        spare = sum(len(entry.questions) - 1 for entry in self.entries)
        keep = 1 if spare >= 2 * sum(wanted.values()) else 0
        places = [(number, question) for number, entry in enumerate(self.entries) for question in entry.questions]
        chance.shuffle(places)
        known = {normalize(pair.source) for pairs in self.held_out.values() for pair in pairs}
        left = [dict.fromkeys(without(entry, known).questions) for entry in self.entries]
        for part, count in wanted.items():
            for number, question in places:
                if len(self.held_out[part]) >= count:
                    break
                if question in left[number] and len(left[number]) > keep:
                    left[number].pop(question)
                    self.held_out[part].append(Pair(question, self.entries[number].answer))
        return [KnowledgeEntry(tuple(found), entry.answer) for found, entry in zip(left, self.entries, strict=True)]
