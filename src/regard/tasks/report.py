"""The report of a run (report.html): training curves, plan, settings and cost, which all tasks share.

The report.py of a task adds its scores, samples and other sections: `report(run, predictor, data, answers)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from regard import __version__, tasks
from regard.config.recipe import to_table
from regard.pages import render_page
from regard.run import Run
from regard.training.plan import amount, duration

Json = dict[str, Any]

PART_NAMES = {"test": "unseen", "valid": "held-out"}
"""How the examples of a part are called on the page."""


def write_report(run: Run, predictor: Any, data: Any, answers: Any) -> Path:
    """Collect the report of a finished run and write its page. `answers` are those to the part that is reported."""
    card, task = run.card, run.recipe.data.task
    own: Json = {}
    if tasks.has_part(task, "report"):
        own = tasks.part(task, "report").report(run, predictor, data, answers)
    lines: dict[str, list[Json]] = {"step": [], "validation": []}
    for line in run.metrics():
        if line["kind"] in lines:
            shown = {key: value for key, value in line.items() if key not in ("kind", "samples", "flops")}
            lines[line["kind"]].append(shown)
    training = card["training"]
    cost = figures(
        ("of training", duration(training["seconds"]), f"{training['step']:,} steps, {amount(training['flops'])}FLOP"),
        ("parameters", amount(card["parameters"]), card["arch"]),
    )
    shared = {
        "run": run.folder.name,
        "created": card["created"],
        "version": __version__,
        "steps": lines["step"],
        "validations": lines["validation"],
        "plan": [{**choice, "value": str(choice["value"])} for choice in card["plan"]],
        "settings": to_table(run.recipe),
        "card": {key: value for key, value in card.items() if key != "plan"},
        "title": run.folder.name,
    }
    page = shared | own | {"summary": [*own.get("summary", ()), *cost]}
    return run.write_report(render_page("report", page))


def figures(*rows: tuple[str, str, str]) -> list[dict[str, str]]:
    """Rows of the summary: label, value and note each."""
    return [{"label": label, "value": value, "note": note} for label, value, note in rows]


def last_part(scores: Iterable[str]) -> str:
    """The part whose scores count: the test part, if there is one."""
    return "test" if "test" in scores else "valid"
