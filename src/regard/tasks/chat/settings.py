"""Settings of conversations: the section [chat] of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from regard.config.ranges import Count
from regard.tasks.rewards import ObjectiveSettings


@dataclass(frozen=True)
class ChatSettings(ObjectiveSettings):
    """How many turns of a conversation a chat model reads, and what its training maximizes."""

    section: ClassVar[str] = "chat"

    context_turns: Count = 5
    """Maximum number of turns that the model reads to reply; 1: only the last turn."""
