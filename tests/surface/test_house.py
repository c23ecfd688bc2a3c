"""The shape of the source: short functions, nothing written twice, and names of presets only where they belong."""

import ast
from collections import defaultdict
from pathlib import Path

from regard.registry import ARCHITECTURES
from tests.surface.test_closures import ROOT

LONGEST_FUNCTION = 60
LONGEST_RUN = 11
"""Lines that may stand in two places in the same order, blank lines not counted."""
MAY_NAME_PRESETS = ("models/", "registry.py", "tasks/")
"""Model files, the registry, and the facts and plans of tasks."""
NO_PRESETS = {
    ("config/__init__.py", "transformer-small"),  # the architecture of a recipe that names none
    ("config/__init__.py", "gnmt"),  # a form of the length penalty
    ("decoding/penalties.py", "gnmt"),
    ("export/marian_import.py", "transformer-base"),  # the preset that published Marian models start from
}
"""Other places of the same words, with the reason."""


def sources():
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}


def test_functions_fit_a_screen():
    long = {
        f"{name}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for name, text in sources().items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno >= LONGEST_FUNCTION
    }
    assert not long


def test_nothing_is_written_twice():
    places = defaultdict(list)
    for name, text in sources().items():
        lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        for start in range(len(lines) - LONGEST_RUN):
            run = lines[start : start + LONGEST_RUN + 1]
            places[tuple(line for _, line in run)].append(f"{name}:{run[0][0]}")
    assert not [found for found in places.values() if len(found) > 1]


def test_presets_are_named_only_in_models_the_registry_and_plans():
    found = {
        (name, node.value)
        for name, text in sources().items()
        if not name.startswith(MAY_NAME_PRESETS)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and node.value in ARCHITECTURES
    }
    assert found == NO_PRESETS
    files = {
        Path(name).name
        for name, text in sources().items()
        if name.startswith("tasks/") and any(f'"{preset}"' in text for preset in ARCHITECTURES)
    }
    assert files <= {"__init__.py", "training.py", "plan.py", "rewards.py"}  # the last names GNMT's objective
