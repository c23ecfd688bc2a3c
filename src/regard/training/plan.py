"""The plan: what someone who knows would choose for this much data on this machine, each choice with its reason.

The plan sees only numbers: how many pairs, how long they are, how many cores. What the user has said is never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Choice:
    """One setting, its value, and why."""

    name: str
    value: Any
    reason: str


@dataclass(frozen=True)
class Corpus:
    """What the plan knows of the training data."""

    pairs: int
    characters: float
    """Mean length of a sentence, both sides."""


def make_plan(corpus: Corpus) -> list[Choice]:
    """Choose for this corpus."""
    pairs = corpus.pairs
    said = f"{pairs:,} pairs"
    if pairs < 100_000:
        arch, dropout = "transformer-tiny", 0.3 if pairs < 50_000 else 0.2
        why = f"{said}: a larger model would learn them by heart"
    elif pairs < 1_000_000:
        arch, dropout, why = "transformer-small", 0.1, f"{said} on a CPU: small enough to see each pair several times"
    else:
        arch, dropout, why = "transformer-base", 0.1, f"{said}: enough for the paper's base model"
    vocabulary = 2000 if pairs < 10_000 else 8000 if pairs < 500_000 else 32_000
    updates = max(pairs // 250, 1)
    every = min(max(updates, 50), 1000)
    return [
        Choice("model.arch", arch, why),
        Choice("model.dropout", dropout, "the less data, the more dropout"),
        Choice("tokenizer.size", vocabulary, f"{said}: each subword should be seen often"),
        Choice("train.validate_every", every, "about once an epoch"),
        Choice("train.state_every", every, "so little is lost when it is killed"),
    ]


def merge(plan: list[Choice], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Choice]]:
    """The plan under what the user has said: tables for a recipe, and the choices that took effect."""
    merged: dict[str, Any] = {key: dict(table) for key, table in given.items()}
    own_model = "arch" in merged.get("model", {})
    used = []
    for choice in plan:
        section, key = choice.name.split(".")
        if key in merged.get(section, {}) or (section == "model" and own_model):
            continue
        merged.setdefault(section, {})[key] = choice.value
        used.append(choice)
    return merged, used
