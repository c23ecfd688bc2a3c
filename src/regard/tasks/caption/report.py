"""Sections of the report of a caption model: scores, and held-out pictures with captions, references and shading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.data.pictures import to_data_url
from regard.run import Run
from regard.tasks.caption.captioner import Captioner
from regard.tasks.caption.inspect import look_at
from regard.tasks.report import PART_NAMES, figures, last_part

if TYPE_CHECKING:
    from regard.tasks.caption.data import CaptionData
    from regard.tasks.caption.training import Sample

SHOWN = 24
"""Number of pictures in a report."""


def report(run: Run, captioner: Captioner, data: CaptionData, samples: Sequence[Sample]) -> dict[str, Any]:
    card, part = run.card, last_part(run.card["scores"])
    scores = card["scores"][part]
    counted = f"{scores['pictures']:,} {PART_NAMES[part]} pictures"
    languages = ", ".join(captioner.languages)
    found = "how often a caption finds its own picture first, by its probability"
    summary = figures(
        (f"BLEU on {counted}", f"{scores['bleu']:.1f}", scores["signatures"]["bleu"]),
        ("chrF", f"{scores['chrf']:.1f}", scores["signatures"]["chrf"]),
        ("CIDEr-D", f"{scores['cider']:.2f}", scores["signatures"]["cider"]),
        ("recall@1", f"{scores['recall_1']:.1%}", found),
        ("training captions", f"{card['captions']['train']:,}", f"languages: {languages}" if languages else ""),
    )
    step = max(1, len(samples) // SHOWN) | 1  # odd, so that it meets all of two languages
    return {
        "title": f"Captions by {run.folder.name}",
        "summary": summary,
        "captioned": [_shown(captioner, data, one) for one in samples[::step][:SHOWN]],
    }


def _shown(captioner: Captioner, data: CaptionData, sample: Sample) -> dict[str, Any]:
    """A picture as a data URL, its caption with the attention for each word, and its references."""
    [pixels] = (data.test if len(data.test) else data.valid).gallery.pixels([sample.picture])
    shape = pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))
    look = look_at(captioner, shape, sample.caption.text, sample.caption.language)
    return {"picture": to_data_url(pixels), "look": look, "references": list(sample.references)}
