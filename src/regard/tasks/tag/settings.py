"""Settings of tagging: the section [tag] of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from regard.config.ranges import CheckedSettings, Count, CountOrZero, Range


@dataclass(frozen=True)
class TagSettings(CheckedSettings):
    """How labeled words or frames are read from files, and how sentences and series are divided for the model."""

    section: ClassVar[str] = "tag"

    column: CountOrZero = 0
    """Column of the labels in a CoNLL file, counted from 1; 0: the last column (CoNLL-U: UPOS)."""
    scheme: Literal["BIO", "BIOES"] = "BIO"
    """Scheme of the predicted labels of spans. Training always uses BIOES; files may have BIO, IOB1 or BIOES."""
    max_word_pieces: Annotated[int, Range(2)] = 20
    """Maximum number of tokens (characters or subwords) of a word; a longer word loses tokens in the middle."""
    max_words: Annotated[int, Range(8)] = 150
    """A sentence with more words is read in overlapping windows of this many words."""
    max_frames: Annotated[int, Range(8)] = 400
    """A series of more frames is read in overlapping windows of this many frames."""
    gap: CountOrZero = 50
    """Frames that are left out at both ends of a held-out block, if blocks of a few long series are held out."""
    batch_words: Count = 4096
    """Number of words or frames per batch when a trained model labels sentences or series."""
