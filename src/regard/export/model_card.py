"""README.md of a published run: the model card that model hubs display, made from card.json.

Its head, between two lines of dashes, is YAML; every value is written as JSON, which YAML contains.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from regard import __version__
from regard.config import Recipe
from regard.config.recipe import find_task
from regard.languages import language_name

NAME = "README.md"
PLACE = "OWNER/NAME"
"""Stands for the repository while its name is not known."""
LICENCES = """
apache-2.0 mit bsd-2-clause bsd-3-clause mpl-2.0 gpl-2.0 gpl-3.0 lgpl-3.0 agpl-3.0 unlicense cc0-1.0 cc-by-3.0 cc-by-4.0
cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-4.0 cc-by-nc-sa-4.0 odc-by openrail afl-3.0
artistic-2.0 eupl-1.1 eupl-1.2 isc zlib pddl
"""
"""Names that hubs know as licences; any other name becomes the name of an "other" licence."""

Card = Mapping[str, Any]

_TRANSFORMERS = 'transformers (`AutoModelForSeq2SeqLM.from_pretrained(..., subfolder="{}")`)'
FORM_USES = {"marian": _TRANSFORMERS, "pegasus": f"{_TRANSFORMERS} and CTranslate2's converter"}


def write(recipe: Recipe, card: Card, licence: str, repository: str, forms: Sequence[str]) -> str:
    """The text of README.md. `repository`: OWNER/NAME on the hub; `forms`: folders with forms for other programs."""
    name = repository.rpartition("/")[2] or _title(recipe, card)
    head = _head(recipe, card, licence, name)
    lines = ["---", *(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()), "---", ""]
    lines += [f"# {name}", "", _summary(recipe, card), ""]
    lines += _section("Use", _use(recipe, repository or PLACE))
    lines += _section("Intended use and limits", _limits(recipe, card))
    lines += _section("Scores", _scores(recipe, card))
    lines += _section("Training", _training(card))
    lines += _section("Other programs", [_form(form) for form in forms])
    lines += _section("Licence", [licence or "No licence was stated: all rights are reserved by the author."])
    return "\n".join(lines)


def _section(title: str, lines: Iterable[str]) -> list[str]:
    content = list(lines)
    return [f"## {title}", "", *content, ""] if content else []


def _languages(recipe: Recipe) -> list[str]:
    codes = (recipe.data.source_language, recipe.data.target_language)
    return list(dict.fromkeys(code for code in codes if code))


def _title(recipe: Recipe, card: Card) -> str:
    return "-".join([*_languages(recipe), recipe.data.task if not _languages(recipe) else "", card["arch"]]).strip("-")


def _head(recipe: Recipe, card: Card, licence: str, name: str) -> dict[str, Any]:
    task = find_task(recipe.data.task)
    head: dict[str, Any] = {"library_name": "regard", "tags": ["regard", card["arch"], recipe.data.task]}
    if languages := _languages(recipe):
        head["language"] = languages
    if licence:
        head["license"] = licence.lower() if licence.lower() in LICENCES.split() else "other"
        if head["license"] == "other":
            head["license_name"] = licence
    if task.pipeline_tag:
        head["pipeline_tag"] = task.pipeline_tag
    if (results := _results(recipe, card)) and task.pipeline_tag:
        head["model-index"] = [{"name": name, "results": results}]
    return head


def _measured(recipe: Recipe, card: Card) -> tuple[str, dict[str, float], Mapping[str, str]]:
    """The part that was scored ("test" if there is one), its main scores by name, and their signatures."""
    scores = card.get("scores", {})
    part = next((part for part in ("test", "valid") if scores.get(part)), "")
    known = find_task(recipe.data.task).scores
    found = {key: value for key in known if isinstance(value := scores.get(part, {}).get(key), int | float)}
    return part, found, scores.get(part, {}).get("signatures", {})


def _results(recipe: Recipe, card: Card) -> list[dict[str, Any]]:
    """The entry `results` of the model index: scores that hubs show beside the model."""
    task = find_task(recipe.data.task)
    part, scores, signatures = _measured(recipe, card)
    metrics = []
    for key, value in scores.items():
        metric = {"type": key, "value": value, "name": task.scores[key].partition(" {")[0]}
        metrics.append(metric | ({"args": signatures[key]} if key in signatures else {}))
    if not metrics:
        return []
    files = [one["source"] for one in card.get("data", []) if one.get("part") == part]
    name = ", ".join(files) or f"held out from {', '.join(_training_files(card)) or 'the training data'}"
    dataset = {"name": name, "type": "custom", "split": part}
    return [{"task": {"type": task.pipeline_tag, "name": task.help}, "dataset": dataset, "metrics": metrics}]


def _training_files(card: Card) -> list[str]:
    return [one["source"] for one in card.get("data", []) if one.get("part") == "train"]


def _summary(recipe: Recipe, card: Card) -> str:
    source, target = recipe.data.source_language, recipe.data.target_language
    direction = f" from {language_name(source)} into {language_name(target)}" if source and target else ""
    does = find_task(recipe.data.task).does
    return (
        f"A model that {does}{direction}: architecture `{card['arch']}`, {card['parameters']:,} parameters, trained"
        f" with Regard {__version__}."
    )


def _use(recipe: Recipe, repository: str) -> list[str]:
    task = find_task(recipe.data.task)
    return [
        "```",
        'pip install "regard[hub]"',
        f"regard pull hf:{repository} --out {repository.rpartition('/')[2]}",
        f"regard {task.command} {repository.rpartition('/')[2]}",
        "```",
        "",
        f'In Python: `regard.load("hf:{repository}")`.',
    ]


def _limits(recipe: Recipe, card: Card) -> list[str]:
    sizes = {key: one for key, one in card.items() if isinstance(one, dict) and isinstance(one.get("train"), int)}
    what = " and ".join(f"{one['train']:,} {key}" for key, one in sizes.items()) or "its training data"
    return [
        f"The model was trained on {what}, listed below. Expect good results on text of the same kind, and errors on",
        "text of other domains, in other spelling, or much longer than the training examples. It has no knowledge",
        "beyond this data, and repeats its biases. Have important output checked by a person. The scores below hold",
        "for their test data only.",
    ]


def _scores(recipe: Recipe, card: Card) -> list[str]:
    part, scores, signatures = _measured(recipe, card)
    if not scores:
        return []
    known = find_task(recipe.data.task).scores
    rows = [
        f"| {known[key].format(value)} | {f'`{signatures[key]}`' if key in signatures else ''} |"
        for key, value in scores.items()
    ]
    where = {"test": "the test data", "valid": "the validation data, which also chose the weights"}[part]
    return [f"On {where}:", "", "| score | signature |", "|---|---|", *rows]


def _training(card: Card) -> list[str]:
    lines = ["| data | file | SHA-256 |", "|---|---|---|"]
    for one in card.get("data", []):
        files = ", ".join(filter(None, (one["source"], one.get("target", ""))))
        lines.append(f"| {one['part']} | {files} | `{one.get('sha256', '')}` |")
    lines = lines if card.get("data") else []
    if cost := card.get("training"):
        text = f"{cost['step']:,} steps in {cost['seconds'] / 60:.1f} minutes, {cost['flops']:.2e} FLOPs"
        lines += ["", f"{text}; ended by: {cost['stopped']}." if cost.get("stopped") else f"{text}."]
    if versions := card.get("versions"):
        lines += ["", "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + "."]
    if base := card.get("base") or card.get("imported"):
        lines += ["", f"It was made from `{base}`."]
    return lines


def _form(folder: str) -> str:
    use = FORM_USES.get(folder, "the program of this name").format(folder)
    return f"- `{folder}/`: for {use}"
