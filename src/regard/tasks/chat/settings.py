"""Settings of conversations: the section [chat] of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from regard.config.ranges import CheckedSettings, Count


@dataclass(frozen=True)
class ChatSettings(CheckedSettings):
    """How many turns of a conversation a chat model reads."""

    section: ClassVar[str] = "chat"

    context_turns: Count = 5
    """Maximum number of turns that the model reads to reply; 1: only the last turn."""
