"""What can go where."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from regard.config.recipe import make_recipe
from regard.errors import SettingsError
from regard.export import exportable, require_exportable

EVERYWHERE = {"ctranslate2": "", "marian": "", "onnx": ""}

REFUSED: dict[str, tuple[dict[str, Any], set[str]]] = {
    "norm before": ({"model": {"norm": "before"}}, {"marian"}),
    "rotary": ({"model": {"positions": "rotary"}}, {"marian"}),
    "learned": ({"model": {"positions": "learned"}}, {"marian"}),
    "concatenate": ({"model": {"join": "concatenate"}}, {"marian"}),
    "swiglu": ({"model": {"activation": "swiglu"}}, {"marian"}),
    "wide heads": ({"model": {"head_width": 96}}, {"marian"}),
    "words": ({"tokenizer": {"kind": "word"}}, {"marian"}),
    "lowercase": ({"tokenizer": {"lowercase": True}}, {"marian"}),
    "window": ({"model": {"window": 8}}, {"marian", "ctranslate2", "onnx"}),
    "recurrent": ({"model": {"arch": "bahdanau"}}, {"marian", "ctranslate2", "onnx"}),
}


@pytest.mark.parametrize("arch", ["transformer-small", "transformer-base", "transformer-big"])
def test_the_papers_transformer_goes_everywhere(arch: str) -> None:
    assert exportable(make_recipe({"model": {"arch": arch}})) == EVERYWHERE


@pytest.mark.parametrize("case", REFUSED)
def test_what_stands_in_the_way(case: str) -> None:
    table, formats = REFUSED[case]
    recipe = make_recipe(table)
    reasons = exportable(recipe)
    assert {name for name, reason in reasons.items() if reason} == formats
    with pytest.raises(SettingsError, match="cannot be exported to marian: "):
        require_exportable(recipe, "marian")


def test_a_head_width_that_changes_nothing_is_no_obstacle() -> None:
    assert exportable(make_recipe({"model": {"width": 256, "heads": 4, "head_width": 64}})) == EVERYWHERE


@pytest.mark.parametrize("module", ["regard.export", "regard.export.folder"])
def test_asking_imports_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
