"""A text as the pieces that are translated, and the way back: lines stay lines, and the space around them is kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from regard.config import Search
from regard.data.tokenizer import Tokenizer
from regard.tasks.answer import Alignment, Answer
from regard.tasks.long import join, pieces_of

_LINE = re.compile(r"\S(?:[^\r\n]*\S)?")


class Pieces:
    """A text, cut into lines, and lines that are too long into sentences, as `regard translate` cuts them."""

    def __init__(self, text: str, tokenizer: Tokenizer, settings: Search):
        self.text = text
        self._lines: list[list[str]] = []
        self._before: list[str] = []  # the space before each line
        end = 0
        for line in _LINE.finditer(text):
            self._before.append(text[end : line.start()])
            self._lines.append(pieces_of(line[0], tokenizer, settings))
            end = line.end()
        self._after = text[end:]

    @property
    def texts(self) -> list[str]:
        """What to translate, in order."""
        return [piece for line in self._lines for piece in line]

    def join(self, answers: Sequence[Answer]) -> Answer:
        """One answer of those to the pieces. Alternatives are kept where there is only one piece, and differ in text:
        other tokens may spell the same.
        """
        if not answers:
            return Answer(self.text, self.text, 0.0, (), (), True)
        if len(answers) == 1:
            one, before = answers[0], self._before[0]
            return self._framed(
                replace(one, alternatives=tuple(self._framed(other, before) for other in one.others)), before
            )
        left = iter(answers)
        lines = [join("", [next(left) for _ in line]) for line in self._lines]
        text = "".join(before + line.text for before, line in zip(self._before, lines, strict=True)) + self._after
        known = [answer.alignment for answer in answers if answer.alignment]
        alignment = Alignment.joined(known) if len(known) == len(answers) else None
        whole = replace(join(self.text, answers), text=text, alignment=alignment)
        if len(lines) == len(answers):  # the lines were given, and none of them was cut
            whole = replace(whole, flags=tuple(flag for flag in whole.flags if flag != "split"))
        return whole

    def _framed(self, answer: Answer, before: str) -> Answer:
        return replace(answer, source=self.text, text=before + answer.text + self._after)
