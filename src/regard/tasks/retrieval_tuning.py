"""Weight and threshold of a run's knowledge base, found on questions that the encoder has never seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from regard.config import Retrieve
from regard.run import Run
from regard.tasks.index import Index
from regard.tasks.retrieval_scores import tune


def tune_run(run: Run, index: Index, tell: Callable[[str], None]) -> Retrieve:
    """Put what the held-out questions ask for into the recipe and the card, and give the settings.

    What the user has set stays; what was found before is found anew. Few questions leave everything as it is. That the
    knowledge base may hold these very questions is not made use of.
    """
    settings = run.recipe.retrieve
    pairs = run.held_out()
    found = tune(index.without(pair.source for pair in pairs), pairs) if pairs else {}
    if not found:
        return settings
    before = run.card.get("tuned", {}).get(settings.method, {})
    own: dict[str, Any] = {
        name: value
        for name, value in found[settings.method].items()
        if getattr(settings, name) in (getattr(Retrieve(), name), before.get(name))
    }
    run.write_card(run.card | {"tuned": found})
    if own:
        settings = replace(settings, **own)
        run.write_recipe(replace(run.recipe, retrieve=settings))
        named = " and ".join(f"{name} {value:g}" for name, value in sorted(own.items(), reverse=True))
        tell(f"{named}, found on {len(pairs):,} held-out questions")
    return settings
