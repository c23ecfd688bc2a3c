"""Sections of the report of a retriever: recall, and held-out questions with the answers that were found."""

from __future__ import annotations

from typing import Any

from regard.run import Run
from regard.tasks.report import figures, last_part
from regard.tasks.retrieve.data import PreparedKnowledge
from regard.tasks.retrieve.retriever import Retriever


def report(run: Run, retriever: Retriever, data: PreparedKnowledge, answers: None = None) -> dict[str, Any]:
    card = run.card
    scores = card["scores"][last_part(card["scores"])]
    threshold = f"{scores['answered']:.1%} reach the threshold of {retriever.settings.threshold:g}"
    asked = [(pair, retriever.reply(pair.source)) for pair in (data.test or data.valid)[:40]]
    return {
        "summary": figures(
            (f"recall@1 on {scores['questions']:,} held-out questions", f"{scores['recall_1']:.1%}", threshold),
            ("recall@5", f"{scores['recall_5']:.1%}", f"MRR {scores['mrr']:.3f}"),
            ("answers", f"{card['answers']:,}", f"{card['questions']['train']:,} questions"),
        ),
        "samples": [
            {
                "source": pair.source,
                "output": reply.text,
                "reference": pair.target,
                "score": reply.score,
                "correct": reply.text == pair.target,
            }
            for pair, reply in asked
        ],
    }
