"""Sections of the report of a masked language model: perplexity of hidden tokens, and filled blanks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.run import Run
from regard.tasks.masked_language_model.filler import BlankFiller, FilledText
from regard.tasks.report import PART_NAMES, figures, last_part
from regard.tasks.text_training import TextData


def report(run: Run, filler: BlankFiller, data: TextData, samples: Sequence[tuple[str, FilledText]]) -> dict[str, Any]:
    part = last_part(run.card["scores"])
    scores, where = run.card["scores"][part], f"{PART_NAMES[part]} texts"
    share = f"{filler.settings.hidden_share:.0%} of the tokens hidden together"
    return {
        "title": f"Masked language model {run.folder.name}",
        "summary": figures(
            (f"perplexity on {scores['texts']:,} {where}", f"{scores['perplexity']:.2f}", f"per token; {share}"),
            ("correct", f"{scores['accuracy']:.1%}", "the most probable token is the right one"),
            ("training texts", f"{len(data.train):,}", f"{run.card['training']['tokens']:,} hidden tokens predicted"),
        ),
        "samples": [{"source": one.given, "output": one.text, "reference": text} for text, one in samples],
    }
