"""Sections of the report of a chatbot: as for a translator, with perplexity and readable contexts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.run import Run
from regard.tasks.chat import TURN
from regard.tasks.chat.chatbot import Chatbot
from regard.tasks.chat.data import readable
from regard.tasks.report import figures, last_part
from regard.tasks.seq2seq import PairData
from regard.tasks.translate import report as translate
from regard.tasks.translate.training import Sample


def report(run: Run, chatbot: Chatbot, data: PairData, samples: Sequence[Sample]) -> dict[str, Any]:
    sections = translate.report(run, chatbot.translator, data, samples)
    scores = run.card["scores"][last_part(run.card["scores"])]
    perplexity = ("perplexity", f"{scores['perplexity']:.1f}", "equally likely next tokens, on average")
    sections["summary"] = [*figures(perplexity), *sections["summary"]]
    sections["samples"] = [one | {"source": readable(one["source"])} for one in sections["samples"]]
    if attention := sections["attention"]:
        attention["source"] = ["/" if token == TURN else token for token in attention["source"]]
    return sections
