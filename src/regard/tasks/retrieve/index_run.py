"""Runs that answer from a knowledge base, made and changed without training."""

from __future__ import annotations

import dataclasses
import datetime
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard import __version__
from regard.config.recipe import make_recipe, with_overrides
from regard.data.split import normalise
from regard.errors import RunError, SettingsError
from regard.run import RECIPE, Run
from regard.tasks.retrieve.data import KnowledgeEntry, are_names
from regard.tasks.retrieve.index import known_entries, store_entries
from regard.tasks.retrieve.scores import tune_run

CHANGEABLE = ("retrieve.threshold", "retrieve.fallback_text", "retrieve.matches", "retrieve.dense_weight")
"""Settings that may change after a run was made."""


@dataclass(frozen=True)
class IndexChange:
    """How many answers came, changed (also: another one to a known question), and went; and what there is now."""

    added: int
    changed: int
    removed: int
    answers: int
    questions: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def make_run(
    folder: str | Path, entries: Sequence[KnowledgeEntry], encoder: str = "", overrides: Iterable[str] = ()
) -> IndexChange:
    """A new run that answers from these entries: by words alone, or also by the model in the folder `encoder`."""
    retrieve: dict[str, Any] = {"method": "bm25", "match_answers": not are_names(entries)}
    if encoder:
        retrieve |= {"method": "both", "encoder": str(Path(encoder).resolve())}
    table = {"data": {"task": "retrieve"}, "model": {"arch": "text-encoder"}, "retrieve": retrieve}
    recipe = make_recipe(with_overrides(table, overrides), where="options")
    if recipe.data != make_recipe(table).data:
        raise SettingsError("--set data.: a run that is not trained has no data but its knowledge base")
    if (Path(folder) / RECIPE).is_file():
        hint = f'"regard index {folder} FILE" adds to it, and with --replace replaces what it knows'
        raise RunError(f"{folder}: exists already; {hint}")
    run = Run.create(folder)
    try:
        run.write_recipe(recipe)
        run.write_card(
            {
                "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "arch": recipe.task.method,
                "task": "retrieve",
                "versions": {"regard": __version__, "python": platform.python_version()},
            }
        )
        return change(run, [], entries)
    except BaseException:
        run.discard()
        raise


def change(run: Run, before: Sequence[KnowledgeEntry], entries: Sequence[KnowledgeEntry]) -> IndexChange:
    """Make these entries the knowledge base, which had those before; weight and threshold are found anew."""
    index = store_entries(run, entries, log)
    tune_run(run, index, log)
    made = compare(before, entries)
    run.write_card(run.card | {"knowledge": {"answers": made.answers, "questions": made.questions}})
    return made


def compare(before: Sequence[KnowledgeEntry], entries: Sequence[KnowledgeEntry]) -> IndexChange:
    """What is new. An answer that takes the place of another, for the same question, is that one changed."""
    old, new = ({normalise(entry.answer): entry for entry in some} for some in (before, entries))
    gone = {normalise(question): key for key in old.keys() - new.keys() for question in old[key].questions}
    added = 0
    replaced: set[str] = set()
    for key in new.keys() - old.keys():
        known = {gone[asked] for question in new[key].questions if (asked := normalise(question)) in gone} - replaced
        replaced |= set(sorted(known)[:1])
        added += not known
    return IndexChange(
        added=added,
        changed=len(replaced)
        + sum(set(old[key].questions) != set(new[key].questions) for key in old.keys() & new.keys()),
        removed=len(old.keys() - new.keys()) - len(replaced),
        answers=len(entries),
        questions=sum(len(entry.questions) for entry in entries),
    )


def configure(run: Run, overrides: Iterable[str]) -> list[str]:
    """Change how a run judges its scores; the settings that are new, as text. Its encoder stays as it is."""
    before = run.recipe
    table = with_overrides({}, overrides)
    names = [f"{group}.{name}" for group, found in table.items() if isinstance(found, dict) for name in found]
    for name in names:
        if name not in CHANGEABLE:
            raise SettingsError(f"{name}: what a run is does not change; there is {', '.join(CHANGEABLE)}")
    given = table.get("retrieve", {})
    checked = make_recipe({"data": {"task": "retrieve"}, "retrieve": given}, where="options").task
    after = dataclasses.replace(before.task, **{name: getattr(checked, name) for name in given})
    run.write_recipe(dataclasses.replace(before, task=after))
    return [f"retrieve.{name} = {getattr(after, name)}" for name in given]


def count(run: Run) -> IndexChange:
    """What there is, unchanged."""
    entries = known_entries(run)
    return IndexChange(0, 0, 0, len(entries), sum(len(entry.questions) for entry in entries))


def log(message: str) -> None:
    """A line about what is going on."""
    print(message, file=sys.stderr, flush=True)
