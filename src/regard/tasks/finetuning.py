"""Fine-tuning must not make a run worse silently: its base is scored before and after, and new data is checked.

Before training, the held-out examples of the base are scored, and stored with the counts of each example in base.json.
After training, the new weights are scored on the same examples with the same settings. card.json gets the difference,
its confidence interval, and whether the run is worse, i.e. whether the whole interval is on the wrong side of 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from regard import tasks
from regard.config import Recipe
from regard.config.recipe import make_recipe, to_table
from regard.errors import RunError
from regard.languages import common_scripts, language_name
from regard.run import BASE, Run
from regard.tasks.bootstrap import FEW, Metric, interval, score_all
from regard.tasks.training import Json, Log, Training, training_of_run
from regard.text.tokenizer import UNK, Tokenizer

CHECKED_EXAMPLES = 1000
"""Number of training examples whose texts are compared with the vocabulary and the languages of the base."""
MOST_UNKNOWN, TIMES_UNKNOWN = 0.02, 2.0
"""A vocabulary does not fit a text if more tokens are unknown: this share, and this many times that of the base."""
TIMES_TOKENS = 1.5
"""A vocabulary does not fit a text if it needs this many times as many tokens per character as for that of the base."""
_BYTE = re.compile("<0x[0-9A-F]{2}>")


# Scores before and after


def score_base(run: Run, base: Run, log: Log) -> None:
    """Score the held-out examples of `base`, which is fine-tuned, and store everything for `compare_with_base`."""
    training, task = training_of_run(base), tasks.find(base.recipe.data.task)
    records = base.held_out_records()
    context = training.comparison_context(base)
    metric = _measure(training, base, records, context) if records else None
    if metric is None:
        log(f"note: {base.folder} stores no held-out examples: what fine-tuning costs cannot be measured")
        return
    score = task.scores[metric.name].format(metric.score())
    log(f"held-out examples of {base.folder}: {score} before fine-tuning  on {len(metric.counts_NC):,} examples")
    stored = {
        "settings": {section: to_table(base.recipe).get(section, {}) for section in _sections(base.recipe)},
        "examples": records,
        "context": context,
        "counts": metric.counts_NC.tolist(),
    }
    run.checksums.write(BASE, (json.dumps(stored, ensure_ascii=False) + "\n").encode())


def compare_with_base(run: Run) -> Json:
    """Score a fine-tuned run on the held-out examples of its base, and compare; the entry "comparison" of card.json.

    The result is empty if the run has no stored examples of a base.
    """
    path = run.folder / BASE
    if not path.is_file():
        return {}
    run.checksums.check(BASE)
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        settings, records, context = stored["settings"], stored["examples"], stored["context"]
        counts_NC = np.array(stored["counts"], dtype=np.float64)
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"cannot read the scores of the base ({error})"
        raise RunError(f"{path}: {problem}; take the file from a copy of the run") from None
    table = {name: section for name, section in to_table(run.recipe).items() if name not in _sections(run.recipe)}
    view = run.with_recipe(make_recipe(table | settings, where=str(path)))
    after = _measure(training_of_run(run), view, records, context)
    if after is None or after.counts_NC.shape != counts_NC.shape:
        return {}
    return compare(after._replace(counts_NC=counts_NC), after)


def compare(before: Metric, after: Metric) -> Json:
    """Compare two metrics of the same examples: scores, difference, its 95 % interval, and whether `after` is worse."""
    first, second = score_all([{"": before}, {"": after}])
    between = interval(second[""].resampled_R - first[""].resampled_R)
    difference = second[""].score - first[""].score
    is_worse = between is not None and (between[0] > 0 if after.lower_is_better else between[1] < 0)
    return {
        "score": after.name,
        "before": first[""].score,
        "after": second[""].score,
        "difference": difference,
        "interval": between,
        "examples": len(after.counts_NC),
        "is_worse": is_worse,
    }


def describe(run: Run) -> list[str]:
    """Lines for the user about the comparison of a fine-tuned run with its base; [] if there is none."""
    found, base = run.card.get("comparison"), run.card.get("base", "")
    if not found:
        return []
    task = tasks.find(run.recipe.data.task)
    number = number_format(task.scores[found["score"]])
    before, after = task.scores[found["score"]].format(found["before"]), number.format(found["after"])
    where = f"on {found['examples']:,} examples"
    if found["interval"] is None:
        where += f"; fewer than {FEW} are too few to compare"
    else:
        low, high = (_signed(number, end) for end in found["interval"])
        where += f"; difference {_signed(number, found['difference'])}, 95 % interval {low} to {high}"
    lines = [f"held-out examples of {base}: {before} before, {after} after fine-tuning  {where}"]
    if found["is_worse"]:
        lines.append(
            f"warning: fine-tuning made the run worse on what {base} was trained for; add data of {base} to the new"
            " data, or lower train.learning_rate or train.max_steps; --force accepts the run as it is"
        )
    return lines


def number_format(shown: str) -> str:
    """The format of the number in a format of `Task.scores`: "{:.1f}" of "BLEU {:.1f}"."""
    return shown[shown.index("{") : shown.index("}") + 1]


def _signed(number: str, value: float) -> str:
    return ("+" if value > 0 else "") + number.format(value)


def _sections(recipe: Recipe) -> list[str]:
    """The sections of a recipe that decide how a trained model is used."""
    task = tasks.find(recipe.data.task)
    return [*(["search"] if task.writes else []), *([task.name] if task.settings else [])]


def _measure(training: Training[Any, Any], run: Run, records: Sequence[Json], context: Json) -> Metric | None:
    """The main score of a run on held-out examples; None if the task does not measure one."""
    examples = training.from_records(records)
    return training.score(training.comparison_predictor(run, context), examples).metric if examples else None


# Does the new data fit?


class Coverage(NamedTuple):
    """How well a vocabulary fits some texts."""

    unknown: float
    """Share of the tokens that are unknown, or single bytes of an unknown character."""
    density: float
    """Tokens per character."""
    unseen: tuple[str, ...]
    """Characters that are not in the vocabulary, most frequent first."""


def misfits(base: Run, recipe: Recipe, examples: Any) -> Iterator[str]:
    """Warnings if the language or the characters of new training data differ from those that `base` was trained on."""
    training = training_of_run(base)
    for side in ("source", "target"):
        name = f"{side}_language"
        before, now = getattr(base.recipe.data, name), getattr(recipe.data, name)
        if before and now and before != now:
            names = f"{language_name(before)}, that of the new data is {language_name(now)}"
            yield f"the {side} language of {base.folder} is {names}; train a new run for another language"
    new = [*zip(*map(training.texts, islice(training.train_examples(examples), CHECKED_EXAMPLES)), strict=True)]
    old = [*zip(*map(training.texts, training.from_records(base.held_out_records())), strict=True)] or [()] * len(new)
    kinds = ("sources", "targets") if len(new) > 1 else ("texts",)
    tokenizers = base.tokenizers if new else ()  # a run that reads frames has none
    for kind, texts, known, tokenizer in zip(kinds, new, old, tokenizers, strict=False):
        yield from misfits_of(f"the new {kind}", str(base.folder), texts, known, tokenizer)


def misfits_of(what: str, base: str, new: Sequence[str], known: Sequence[str], tokenizer: Tokenizer) -> Iterator[str]:
    """Warnings about the texts `new`, by comparison with `known`, held-out texts of the base, if there are any."""
    scripts = common_scripts(new) - common_scripts(known) if known else frozenset()
    if scripts:
        written = " and ".join(sorted(script.capitalize() for script in scripts))
        usual = " and ".join(sorted(script.capitalize() for script in common_scripts(known))) or "no letters"
        yield f"{what} are written in {written}, the held-out texts of {base} in {usual}"
    now = coverage(tokenizer, new)
    before = coverage(tokenizer, known) if known else Coverage(0.0, 0.0, ())
    if now.unknown > max(MOST_UNKNOWN, TIMES_UNKNOWN * before.unknown):
        unseen = f', e.g. "{"".join(now.unseen[:10])}"' if now.unseen else ""
        usual = f" (in its held-out texts: {before.unknown:.1%})" if known else ""
        share = f"{now.unknown:.1%} of the tokens of {what} are not in the vocabulary of {base}"
        yield f"{share}{usual}{unseen}; train a new run for them"
    elif before.density and now.density > TIMES_TOKENS * before.density:
        times = f"{now.density / before.density:.1f} times as many tokens per character as its held-out texts"
        yield f"{what} do not fit the vocabulary of {base}: they have {times}; are they in another language?"


def coverage(tokenizer: Tokenizer, texts: Iterable[str]) -> Coverage:
    """How well the vocabulary of a tokenizer fits some texts."""
    texts = list(map(tokenizer.normalize, texts))
    unknown = {id for id in range(tokenizer.size) if id == UNK or _BYTE.fullmatch(tokenizer.token(id))}
    encoded = tokenizer.encode_many(texts)
    tokens, missing = sum(map(len, encoded)), sum(id in unknown for ids in encoded for id in ids)
    counts: dict[str, int] = {}
    for character in "".join(texts):
        counts[character] = counts.get(character, 0) + 1
    unseen = [one for one in counts if tokenizer.kind != "word" and unknown.intersection(tokenizer.encode(one))]
    ordered = tuple(sorted(unseen, key=lambda one: (-counts[one], one)))
    return Coverage(missing / max(tokens, 1), tokens / max(sum(counts.values()), 1), ordered)


# Intervals of the scores of any run


def with_interval(scores: Mapping[str, Any], metric: Metric | None) -> Json:
    """Add the 95 % interval of the main score, as "intervals": by name; None if there are too few examples."""
    if metric is None:
        return dict(scores)
    [found] = score_all([{"": metric}])
    return dict(scores) | {"intervals": {metric.name: interval(found[""].resampled_R)}}


def describe_interval(task: str, scores: Mapping[str, Any]) -> str:
    """Text after the line with the scores: the 95 % interval of the main score, or that there are too few examples."""
    for name, found in scores.get("intervals", {}).items():
        if found is None:
            return f"  (fewer than {FEW} examples: not reliable)"
        shown = tasks.find(task).scores[name]
        low, high = map(number_format(shown).format, found)
        return f"  (95 % interval of {shown.partition(' {')[0]}: {low} to {high})"
    return ""
