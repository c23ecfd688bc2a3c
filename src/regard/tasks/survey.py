"""What only many sentences can tell of a model: which explanation to trust, and how far states lead back to tokens.

The results are kept in the run's folder, and every page that `regard inspect` makes from then on shows them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from regard.analysis.attribution import METHODS
from regard.analysis.faithfulness import EVERY_WAY, Faithfulness, Ways
from regard.analysis.identifiability import Identifiability
from regard.convert.folder import fingerprint
from regard.data.formats import Pair
from regard.durable import write_atomically
from regard.errors import ModelError, SettingsError
from regard.run import Run
from regard.tasks.explain import Example, compare_explanations, explain
from regard.tasks.identify import identify
from regard.tasks.translate import Translator, load

FAITHFULNESS, IDENTIFIABILITY, HEADS = "faithfulness.json", "identifiability.json", "heads.json"
SENTENCES = 30


@dataclass(frozen=True)
class Survey:
    """What was found."""

    faithfulness: Faithfulness
    identifiability: Identifiability

    def __str__(self) -> str:
        return f"{self.faithfulness}\n\n{self.identifiability}"


def survey(
    run: Run,
    pairs: Sequence[Pair] = (),
    *,
    sentences: int = SENTENCES,
    tell: Callable[[str], None] = lambda doing: None,
) -> Survey:
    """Look at these pairs, or at those that the run has kept, and keep what was found in the run's folder.

    Explanations are compared on the first `sentences`; tokens are traced in all source sentences.
    """
    pairs = [pair for pair in pairs or run.held_out() if pair.source.strip() and pair.target.strip()]
    if not pairs:
        raise SettingsError(
            f"{run.folder}: keeps no held-out pairs; give some with --pairs (TSV, JSON lines, TMX, PO or Parquet)"
        )
    tell("loading the model")
    translator = load(run.folder)
    tell(f"taking words out of {min(sentences, len(pairs))} sentences")
    examples = [Example(pair.source, pair.target) for pair in pairs[:sentences]]
    trusted = compare_explanations(translator, examples, ways_of(translator, examples[0]))
    tell("tracing states to their tokens")
    traced = identify(translator, [pair.source for pair in pairs], whole_vocabulary=True)
    for name, found in ((FAITHFULNESS, trusted.as_dict()), (IDENTIFIABILITY, traced.as_dict())):
        keep(run, name, found)
    return Survey(trusted, traced)


def keep(run: Run, name: str, found: dict[str, Any]) -> None:
    """Put what was found into the run's folder, with the weights that it was found in."""
    content = json.dumps(found | {"weights": fingerprint(run)}, ensure_ascii=False)
    write_atomically(run.folder / name, content.encode())


def ways_of(translator: Translator, example: Example) -> Ways:
    """The methods that this architecture allows, found by asking each for one sentence."""
    allowed = {}
    for method in METHODS:
        try:
            explain(
                translator, example.source, example.target, method, **({"steps": 2} if method == "integrated" else {})
            )
        except ModelError:
            continue
        allowed[method] = EVERY_WAY[method]
    return allowed
