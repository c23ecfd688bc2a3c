"""Settings of translation: the section [translate] of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from regard.tasks.rewards import ObjectiveSettings


@dataclass(frozen=True)
class TranslateSettings(ObjectiveSettings):
    """What the training of a translator maximizes."""

    section: ClassVar[str] = "translate"
