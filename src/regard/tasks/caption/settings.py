"""Settings of captions: the section [caption] of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from regard.config.ranges import CheckedSettings, Count, require


@dataclass(frozen=True)
class CaptionSettings(CheckedSettings):
    """The languages of the captions, and how many pictures are computed together."""

    section: ClassVar[str] = "caption"

    languages: tuple[str, ...] = ()
    """Languages to learn, e.g. ["en", "de"]; empty: all in the data. The first one is the default of a trained run."""
    batch_pictures: Count = 64
    """Number of pictures that are captioned together."""
    retrieval_pictures: Count = 300
    """Largest number of pictures per language among which a caption is to find its own (recall@1, 5 and 10)."""

    def check(self) -> None:
        different = len(set(self.languages)) == len(self.languages) and all(self.languages)
        require(different, f"caption.languages must be different codes, not {list(self.languages)}")
