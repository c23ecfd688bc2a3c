"""Sections of the report of word vectors: scores, and the plane of words."""

from __future__ import annotations

from typing import Any

from regard.run import Run
from regard.tasks.embed.data import EmbedData
from regard.tasks.embed.plane import plane_of
from regard.tasks.embed.vectors import WordVectors
from regard.tasks.report import PART_NAMES, figures, last_part

WORDS = 400
"""Number of words in the plane: the most frequent ones, without those that occur everywhere."""
EVERYWHERE = 0.004
"""Words with a larger share of the text, such as "the", have no neighbours of their own."""
NEIGHBOURS = 6


def report(run: Run, vectors: WordVectors, data: EmbedData, answers: object) -> dict[str, Any]:
    part = last_part(run.card["scores"])
    scores, where = run.card["scores"][part], f"{PART_NAMES[part]} texts"
    return {
        "title": f"Word vectors {run.folder.name}",
        "summary": figures(
            (f"accuracy on pairs of {where}", f"{scores['pair_accuracy']:.1%}", "neighbours above noise words"),
            ("loss per pair", f"{scores['loss']:.3f}", "negative sampling"),
            ("words with a vector", f"{len(vectors):,}", f"{vectors.matrix.shape[1]} numbers each"),
            ("training texts", f"{run.card['texts']['train']:,}", f"{run.card['words']:,} words"),
        ),
        "plane": word_plane(vectors, data),
    }


def word_plane(vectors: WordVectors, data: EmbedData) -> list[dict[str, Any]]:
    """The words of the plane, each with its place, its count and its neighbours among all words."""
    total = max(int(data.counts.sum()), 1)
    counts = {word: int(data.counts[id]) for word, id in vectors.rows.items()}
    shown = [word for word in vectors.words if word.isalpha() and counts[word] <= EVERYWHERE * total][:WORDS]
    if not shown:
        return []
    places = plane_of(vectors.directions[[vectors.number(word) for word in shown]])
    return [
        {
            "word": word,
            "x": round(float(x), 4),
            "y": round(float(y), 4),
            "count": counts[word],
            "neighbours": [[one.word, round(one.similarity, 3)] for one in vectors.neighbours(word, NEIGHBOURS)],
        }
        for word, (x, y) in zip(shown, places, strict=True)
    ]
