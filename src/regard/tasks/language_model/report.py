"""Sections of the report of a language model: perplexity, and continuations of the first words of held-out texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.run import Run
from regard.tasks.language_model.generator import GeneratedText, TextGenerator
from regard.tasks.report import PART_NAMES, figures, last_part
from regard.tasks.text_training import TextData


def report(
    run: Run, generator: TextGenerator, data: TextData, samples: Sequence[tuple[str, GeneratedText]]
) -> dict[str, Any]:
    part = last_part(run.card["scores"])
    scores, where = run.card["scores"][part], f"{PART_NAMES[part]} texts"
    return {
        "title": f"Language model {run.folder.name}",
        "summary": figures(
            (f"perplexity on {scores['texts']:,} {where}", f"{scores['perplexity']:.2f}", "per token"),
            ("perplexity per word", f"{scores['word_perplexity']:.1f}", "words between spaces, and the end of a text"),
            ("perplexity per character", f"{scores['character_perplexity']:.3f}", "with the end of each text"),
            ("bits per byte", f"{scores['bits_per_byte']:.3f}", "comparable between vocabularies"),
            ("training texts", f"{len(data.train):,}", f"{run.card['training']['tokens']:,} tokens read"),
        ),
        "samples": [{"source": f"{one.beginning} ...", "output": one.text, "reference": text} for text, one in samples],
    }
