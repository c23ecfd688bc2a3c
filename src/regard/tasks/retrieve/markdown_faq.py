"""Questions and answers in Markdown: a question is a heading or a line in bold, and its answer is the text below it.

If questions are in bold, headings only divide them, unless one ends in a question mark. Otherwise the headings are the
questions, except the title: the only heading of the highest level, if it comes first. Questions of one kind directly
below each other share the answer. A heading with only smaller headings below it is the name of a section.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

BOLD = 7
"""The level of a line in bold: below all headings."""
QUESTION_MARKS = ("?", "？", "؟")

# All of these take linear time: possessive quantifiers ("*+") never backtrack.
_HEADING = re.compile(r"\s{0,3}(#{1,6})\s++(.*)")
_BOLD_LINE = re.compile(r"\s*(?:[-*+]\s+|\d{1,3}[.)]\s+)?(?:\*\*(?P<stars>[^*]+)\*\*|__(?P<bars>[^_]+)__)\s*+:?\s*+$")
_UNDERLINE = re.compile(r"\s{0,3}(=+|-+)\s*$")
_FENCE = re.compile(r"\s{0,3}(```+|~~~+)")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^)]*\)")
_NUMBER = re.compile(r"\A(?:\d{1,3}[.)]\s+|[Qq](?:uestion)?\s*+\d*+\s*+:\s*)")
_ANSWER = re.compile(r"\A\**[Aa](?:nswer)?\s*:\**\s+")


class FaqEntry(NamedTuple):
    """Questions with the text below them, and the line number of the first question."""

    questions: tuple[str, ...]
    answer: str
    line: int


class _Line(NamedTuple):
    number: int
    text: str
    level: int
    """1 to 6 for a heading; `BOLD`; 0 for text."""
    raw: str


def read_markdown(lines: Iterable[str]) -> Iterator[FaqEntry]:
    """The questions and answers of a document."""
    marked = list(_mark(lines))
    asked = _find_questions(marked)
    level = first = 0
    questions: list[str] = []
    text: list[str] = []
    for line in [*marked, _Line(0, "", -1, "")]:  # the last one ends the last answer
        if not line.level or (line.level == BOLD and line.number not in asked):
            text.append(line.raw)
            continue
        answer = _ANSWER.sub("", "\n".join(text).strip(), count=1)
        if line.level != level or any(map(str.strip, text)):
            if questions and answer:
                yield FaqEntry(tuple(questions), answer, first)
            level, first, questions, text = line.level, line.number, [], []
        if line.number in asked:
            questions.append(_NUMBER.sub("", line.text, count=1))
            text = []


def _mark(lines: Iterable[str]) -> Iterator[_Line]:
    """Lines with their levels; code is text, and front matter is left out."""
    numbered = list(enumerate(lines, 1))
    if numbered and numbered[0][1].strip() == "---":
        end = next((place for place, (_, text) in enumerate(numbered) if place and text.strip() == "---"), 0)
        numbered = numbered[end + 1 :]
    fence = ""  # that of the code block that is open
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
    """A heading without the marks of emphasis, code and links."""
    end = text.rfind(")") + 1  # no link ends after this; searching for the end of each "](" would be quadratic
    text = _LINK.sub(r"\1", text[:end]) + text[end:]
    return re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", text).strip()


def _find_questions(lines: list[_Line]) -> set[int]:
    """Numbers of the lines that are questions, by the style of this document."""
    headings = [line for line in lines if 0 < line.level < BOLD]
    bold = [line for line in lines if line.level == BOLD]
    asked = {line.number for line in (*headings, *bold) if line.text.endswith(QUESTION_MARKS)}
    if bold and (asked & {line.number for line in bold} or not asked):
        return asked | {line.number for line in bold}
    top = min((line.level for line in headings), default=0)
    has_title = len(headings) > 1 and headings[0].level == top and sum(line.level == top for line in headings) == 1
    return {line.number for line in headings[has_title:]} | asked
