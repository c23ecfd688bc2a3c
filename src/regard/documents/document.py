"""A document between its source and its translation: texts to be translated, and everything else kept as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.documents.inline import Answer, Piece, fill

if TYPE_CHECKING:
    from regard.documents.segment import Draft


class Document:
    """A parsed document. Translate its `texts`, in whatever batches, and hand the answers to `rebuild`."""

    def __init__(self, name: str, pieces: Sequence[Piece], draft: Draft, *, as_bytes: bool):
        self.format = name
        self._pieces, self._segments, self._as_bytes = pieces, draft.segments, as_bytes

    @property
    def texts(self) -> list[str]:
        """What is to be translated, one text a paragraph or the like."""
        return [segment.marked.text for segment in self._segments]

    @property
    def needs_alignment(self) -> bool:
        """Whether marks inside texts are placed better with answers that say which words render which."""
        return any(segment.marked.needs_alignment for segment in self._segments)

    def rebuild(self, answers: Sequence[Answer]) -> str | bytes:
        """The translated document, of the type that the source had. Answers come in the order of `texts`.

        A text whose translation is empty or equal to it stays as it was, byte for byte.
        """
        self._check(answers)
        made = fill(self._pieces, answers)
        return made.encode("utf-8", "surrogatepass") if self._as_bytes else made

    def lost(self, answers: Sequence[Answer]) -> list[tuple[str, ...]]:
        """For each text, the addresses, placeholders, code and numbers that its translation does not hold.

        `rebuild` puts all of them back but the numbers, where the alignment says.
        """
        self._check(answers)
        return [segment.lost(answer) for segment, answer in zip(self._segments, answers, strict=True)]

    def _check(self, answers: Sequence[Answer]) -> None:
        if len(answers) != len(self._segments):
            raise ValueError(f"{len(answers)} answers for {len(self._segments)} texts")
