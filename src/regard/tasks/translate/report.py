"""Sections of a translator's report: scores, samples, the attention of one sentence, lengths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from regard.analysis.trace import Trace
from regard.languages import language_name
from regard.run import Run
from regard.tasks.report import PART_NAMES, figures, last_part
from regard.tasks.seq2seq import PairData
from regard.tasks.translate.training import Sample
from regard.tasks.translate.translator import Translator


def report(run: Run, translator: Translator, data: PairData, samples: Sequence[Sample]) -> dict[str, Any]:
    # A sentence of medium length suits the picture of attention.
    medium = min((sample.source for sample in samples), key=lambda text: (abs(len(text.split()) - 9), text), default="")
    codes = (run.recipe.data.source_language, run.recipe.data.target_language)
    card, part = run.card, last_part(run.card["scores"])
    scores, where = card["scores"][part], f"{PART_NAMES[part]} sentences"
    summary = figures(
        (f"BLEU on {scores['sentences']:,} {where}", f"{scores['bleu']:.1f}", scores["signatures"]["bleu"]),
        ("chrF", f"{scores['chrf']:.1f}", scores["signatures"]["chrf"]),
        ("training pairs", f"{card['pairs']['train']:,}", f"{card['training']['tokens']:,} target tokens read"),
    )
    return {
        "title": " to ".join(map(language_name, codes)) if all(codes) else run.folder.name,
        "languages": card["languages"],
        "summary": summary,
        "samples": [sample._asdict() | {"correct": sample.output == sample.reference} for sample in samples[:40]],
        "attention": _attention(translator.trace(medium)) if samples else {},
        "lengths": dict(zip(("source", "target"), map(_histogram, data.train.lengths), strict=True)),
        "score_histogram": _histogram(round(sample.score, 1) for sample in samples),
    }


def _attention(trace: Trace) -> dict[str, Any]:
    """Return source and target words and the cross-attention weights between them, by layer and head, for the page."""
    trace = trace.by_words()
    maps = [
        {"name": name, "heads": [[[round(w, 3) for w in row] for row in head] for head in weights.tolist()]}
        for name, weights in trace.weights.items()
        if name.endswith("cross")
    ]
    source, target = (
        ["end" if token == "</s>" else token for token in side.words] for side in (trace.source, trace.target)
    )
    return {"source": source, "target": target, "maps": maps}


def _histogram(values: Iterable[float]) -> list[list[float]]:
    return [[float(value), count] for value, count in sorted(Counter(values).items())]
