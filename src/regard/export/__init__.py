"""Models of other programs: ours written in their formats, theirs read into run folders.

`support.py` says what can go where, without importing torch; each format has a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from regard.config import Recipe
from regard.errors import SettingsError
from regard.models.transformer_settings import TransformerSettings

# What can go where: asked before an export, and before a training whose result somebody may want to export.


Reason = str
"""Why something cannot be done, as the rest of a line; empty when it can."""


def exportable(recipe: Recipe) -> dict[str, Reason]:
    """For each format, why a run of this recipe cannot be exported to it; an empty string where it can."""
    return {name: reason(recipe) for name, reason in FORMATS.items()}


def require_exportable(recipe: Recipe, name: str, *, where: str | Path = "this recipe") -> TransformerSettings:
    """The settings of the model, or an error that says what stands in the way."""
    if reason := FORMATS[name](recipe):
        raise SettingsError(f"{where}: cannot be exported to {name}: {reason}")
    assert isinstance(recipe.model, TransformerSettings)  # no format takes anything else
    return recipe.model


def _marian(recipe: Recipe) -> Reason:
    model, tokenizer = recipe.model, recipe.tokenizer
    if not isinstance(model, TransformerSettings):
        return f"Marian's layout is a Transformer's, and {model.arch} is recurrent"
    obstacles = {
        f'model.norm = "{model.norm}"; Marian\'s stands after each sub-layer': model.norm == "before",
        f'model.positions = "{model.positions}"; Marian adds sinusoids': model.positions != "sinusoidal",
        f'model.join = "{model.join}"; Marian adds positions': model.join != "add",
        f'model.activation = "{model.activation}"; Marian has no gated layer': model.activation == "swiglu",
        f"model.window = {model.window}; Marian sees the whole sentence": model.window > 0,
        f"model.head_width = {model.head_width}; Marian's heads share the width evenly": not _even_heads(model),
        f"tokenizer.kind = \"{tokenizer.kind}\"; Marian's tokens are SentencePiece's": tokenizer.kind
        in ("word", "character"),
        "tokenizer.lowercase = true; nothing in Marian's folder can fold case": tokenizer.lowercase,
    }
    return _first(obstacles)


def _ctranslate2(recipe: Recipe) -> Reason:
    model = recipe.model
    if not isinstance(model, TransformerSettings):
        return f"CTranslate2 runs Transformers, and {model.arch} is recurrent"
    return _first({f"model.window = {model.window}; CTranslate2's encoder sees the whole sentence": model.window > 0})


def _onnx(recipe: Recipe) -> Reason:
    model = recipe.model
    if not isinstance(model, TransformerSettings):
        return f"the loop over words of {model.arch} has no fixed graph"
    return _first({f"model.window = {model.window}; blocks of neighbours have no fixed graph": model.window > 0})


def _even_heads(model: TransformerSettings) -> bool:
    return model.head_width in (0, model.width / model.heads)


def _first(obstacles: Mapping[Reason, bool]) -> Reason:
    return next((reason for reason, stands in obstacles.items() if stands), "")


FORMATS: Mapping[str, Callable[[Recipe], Reason]] = {"ctranslate2": _ctranslate2, "marian": _marian, "onnx": _onnx}
