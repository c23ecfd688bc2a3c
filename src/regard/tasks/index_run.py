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
from regard.data.fingerprints import normalise
from regard.data.knowledge import Entry, are_names
from regard.errors import SettingsError
from regard.recipe import make_recipe, with_overrides
from regard.run import Run
from regard.tasks.index import known_entries, store_entries
from regard.tasks.retrieval_tuning import tune_run


@dataclass(frozen=True)
class Change:
    """How many answers came, changed their questions, and went; and what there is now."""

    added: int
    changed: int
    removed: int
    answers: int
    questions: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def make_run(folder: str | Path, entries: Sequence[Entry], encoder: str = "", overrides: Iterable[str] = ()) -> Change:
    """A new run that answers from these entries: by words alone, or also by the model in the folder `encoder`."""
    retrieve: dict[str, Any] = {"method": "bm25", "answers": not are_names(entries)}
    if encoder:
        retrieve |= {"method": "both", "encoder": str(Path(encoder).resolve())}
    table = {"data": {"task": "retrieve"}, "model": {"arch": "dense"}, "retrieve": retrieve}
    recipe = make_recipe(with_overrides(table, overrides), where="options")
    if recipe.data != make_recipe(table).data:
        raise SettingsError("--set data.: a run that is not trained has no data but its knowledge base")
    run = Run.create(folder)
    try:
        run.write_recipe(recipe)
        run.write_card(
            {
                "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "arch": recipe.retrieve.method,
                "task": "retrieve",
                "versions": {"regard": __version__, "python": platform.python_version()},
            }
        )
        return change(run, [], entries)
    except BaseException:
        run.discard()
        raise


def change(run: Run, before: Sequence[Entry], entries: Sequence[Entry]) -> Change:
    """Make these entries the knowledge base, which had those before; weight and threshold are found anew."""
    index = store_entries(run, entries, tell)
    tune_run(run, index, tell)
    old, new = ({normalise(entry.answer): entry for entry in some} for some in (before, entries))
    made = Change(
        added=len(new.keys() - old.keys()),
        changed=sum(set(old[key].questions) != set(new[key].questions) for key in old.keys() & new.keys()),
        removed=len(old.keys() - new.keys()),
        answers=len(entries),
        questions=sum(len(entry.questions) for entry in entries),
    )
    run.write_card(run.card | {"knowledge": {"answers": made.answers, "questions": made.questions}})
    return made


def count(run: Run) -> Change:
    """What there is, unchanged."""
    entries = known_entries(run)
    return Change(0, 0, 0, len(entries), sum(len(entry.questions) for entry in entries))


def tell(message: str) -> None:
    """A line about what is going on."""
    print(message, file=sys.stderr, flush=True)
