"""The report of a run (report.html): the sections that all tasks share: training curves, plan, settings and cost.

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
"""The word that the page uses for the examples of each part."""


def write_report(run: Run, predictor: Any, data: Any, answers: Any) -> Path:
    """Write report.html of a finished run and return its path. `data` is the result of `Training.open_data`.

    `answers` are the outputs of the model for the test examples or, if there are none, for the validation examples.
    """
    card, task = run.card, run.recipe.data.task
    has_own = tasks.has_part(task, "report")
    own: Json = tasks.part_of_run(run, "report").report(run, predictor, data, answers) if has_own else {}
    lines: dict[str, list[Json]] = {"step": [], "validation": []}
    for line in run.metrics():
        if line["kind"] in lines:
            hidden = ("kind", "samples", "flops")
            lines[line["kind"]].append({key: value for key, value in line.items() if key not in hidden})
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
    """Make the rows of the summary at the top of the report. Each argument is a tuple (label, value, note)."""
    return [{"label": label, "value": value, "note": note} for label, value, note in rows]


def label_section(scores: Json) -> Json:
    """Select from `scores` what the report shows: scores by label, confusion matrix, reliability diagram, ECE."""
    shown = {name: scores[name] for name in ("confusion", "by_label", "reliability")}
    return shown | {"error": scores["calibration_error"]}


def last_part(scores: Iterable[str]) -> str:
    """The held-out part that the report shows: "test" if `scores` (scores by part) has it, otherwise "valid"."""
    return "test" if "test" in scores else "valid"
