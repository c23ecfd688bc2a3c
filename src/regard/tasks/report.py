"""The report of a run: what happened, as data, and the page that draws it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard import __version__
from regard.analysis.trace import Trace
from regard.config.recipe import to_table
from regard.languages import language_name
from regard.pages import render_page
from regard.run import Run
from regard.tasks.chat.data import TURN, readable
from regard.tasks.translate.translator import Translator
from regard.training.plan import amount, duration

SHOWN_SAMPLES = 40


@dataclass(frozen=True)
class Sample:
    """A held-out sentence, what the model made of it, and what it should have been."""

    source: str
    translation: str
    reference: str
    score: float


def write_report(run: Run, translator: Translator, samples: Sequence[Sample], lengths: tuple[Any, Any]) -> Path:
    """Collect the report of a run and write its page."""
    return run.write_report(render_page("report", report_data(run, translator, samples, lengths)))


def report_data(
    run: Run, translator: Translator, samples: Sequence[Sample], lengths: tuple[Any, Any]
) -> dict[str, Any]:
    """Everything the page shows, ready for JSON."""
    card = run.card
    return run_data(run) | {
        "title": title(run),
        "languages": card["languages"],
        "summary": summary(card),
        "samples": [
            asdict(sample) | {"source": readable(sample.source), "correct": sample.translation == sample.reference}
            for sample in samples[:SHOWN_SAMPLES]
        ],
        "attention": attention_data(translator.trace(_typical(samples).source)) if samples else {},
        "lengths": dict(zip(("source", "target"), map(_histogram, lengths), strict=True)),
        "score_histogram": _histogram(round(sample.score, 1) for sample in samples),
    }


def run_data(run: Run) -> dict[str, Any]:
    """What the report of every kind of run shows: how it was learnt, with which settings and why."""
    card, metrics = run.card, run.metrics()
    drop = {"kind", "samples", "flops"}
    lines = {
        kind: [
            {key: value for key, value in line.items() if key not in drop} for line in metrics if line["kind"] == kind
        ]
        for kind in ("step", "validation")
    }
    return {
        "run": run.folder.name,
        "created": card["created"],
        "version": __version__,
        "steps": lines["step"],
        "validations": lines["validation"],
        "plan": [{**choice, "value": str(choice["value"])} for choice in card["plan"]],
        "settings": to_table(run.recipe),
        "card": {key: value for key, value in card.items() if key != "plan"},
    }


def title(run: Run) -> str:
    """E.g. English to Italian, or the name of the run where the languages are not known."""
    codes = (run.recipe.data.source_language, run.recipe.data.target_language)
    return " to ".join(map(language_name, codes)) if all(codes) else run.folder.name


def summary(card: dict[str, Any]) -> list[dict[str, str]]:
    """The figures at the top of the page."""
    part = "test" if "test" in card["scores"] else "valid"
    scores, training = card["scores"][part], card["training"]
    named = {"test": "unseen sentences", "valid": "held-out sentences"}[part]
    unsure = f"{scores['perplexity']:.1f}" if "perplexity" in scores else ""
    return [
        {"label": label, "value": value, "note": note}
        for label, value, note in (
            ("perplexity", unsure, "how many tokens it wavers between, on average"),
            (f"BLEU on {scores['sentences']:,} {named}", f"{scores['bleu']:.1f}", scores["signatures"]["bleu"]),
            ("chrF", f"{scores['chrf']:.1f}", scores["signatures"]["chrf"]),
            (
                "of training",
                duration(training["seconds"]),
                f"{training['step']:,} steps, {amount(training['flops'])}FLOP",
            ),
            ("parameters", amount(card["parameters"]), card["arch"]),
            ("training pairs", f"{card['pairs']['train']:,}", f"{training['tokens']:,} target tokens read"),
        )
        if value
    ]


def attention_data(trace: Trace) -> dict[str, Any]:
    """Words and all maps from target to source, rounded to what an eye can see."""
    trace = trace.by_words()
    maps = [
        {"name": name, "heads": [[[round(w, 3) for w in row] for row in head] for head in weights.tolist()]}
        for name, weights in trace.weights.items()
        if name.endswith("cross")
    ]
    return {"source": _readable(trace.source.words), "target": _readable(trace.target.words), "maps": maps}


def _readable(tokens: Iterable[str]) -> list[str]:
    return [{"</s>": "end", TURN: "/"}.get(token, token) for token in tokens]


def _typical(samples: Sequence[Sample]) -> Sample:
    """A sentence that is neither short nor long, for the picture."""
    return min(samples, key=lambda sample: (abs(len(sample.source.split()) - 9), sample.source))


def _histogram(values: Iterable[float]) -> list[list[float]]:
    return [[float(value), count] for value, count in sorted(Counter(values).items())]
