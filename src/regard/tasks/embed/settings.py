"""Settings of word vectors: the section [embed] of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from regard.config.ranges import CheckedSettings, NotNegative, Range


@dataclass(frozen=True)
class EmbedSettings(CheckedSettings):
    """Which pairs of words skip-gram learns from."""

    section: ClassVar[str] = "embed"

    window: Annotated[int, Range(1, 50)] = 5
    """Largest distance of two words of a pair; for each center, a random number from 1 to this (dynamic window)."""
    negatives: Annotated[int, Range(1, 100)] = 5
    """Number of noise words per pair; the words of a block share them, with the same sum of weights."""
    subsample: NotNegative = 1e-3
    """Words with a larger share of the text than this are left out at random (Mikolov et al. 2013); 0: all are kept."""
    noise_power: Annotated[float, Range(0, 1)] = 0.75
    """Noise words are drawn in proportion to their counts to this power; 0: all words are equally likely."""
