"""Settings of masked language models: the section [masked-language-model] of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from regard.config.ranges import CheckedSettings, Range, Share, require


@dataclass(frozen=True)
class MaskedLanguageModelSettings(CheckedSettings):
    """Which tokens of a text are hidden in training."""

    section: ClassVar[str] = "masked-language-model"

    hidden_share: Annotated[float, Range(above=0, below=1)] = 0.15
    """Share of the tokens of a text that the model must predict, chosen again each time a text is used."""
    kept_share: Share = 0.1
    """Share of the chosen tokens that stay as they are, so that the states of visible tokens are useful, too."""
    random_share: Share = 0.1
    """Share of the chosen tokens that are replaced by random tokens instead of UNK."""
    whole_words: bool = False
    """Choose whole words instead of single subwords."""

    def check(self) -> None:
        require(
            self.kept_share + self.random_share <= 1,
            "masked-language-model.kept_share and masked-language-model.random_share are more than 1 together",
        )
