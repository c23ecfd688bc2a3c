"""What the report of a chatbot shows: the sections of a translator's, of contexts and replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.run import Run
from regard.tasks.chat.chatbot import Chatbot
from regard.tasks.translate import report as translate
from regard.tasks.translate.data import PreparedPairs


def report(run: Run, chatbot: Chatbot, data: PreparedPairs, samples: Sequence[translate.Sample]) -> dict[str, Any]:
    """The sections of a chatbot's report."""
    return translate.report(run, chatbot.translator, data, samples)
