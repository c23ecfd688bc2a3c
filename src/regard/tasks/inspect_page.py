"""The inspection of a run as a page: what is known of the run joins what is known of the sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from regard.convert.folder import fingerprint
from regard.durable import write_atomically
from regard.errors import RunError, SettingsError
from regard.pages import PAGES, render_page
from regard.run import Run
from regard.tasks.inspect import Json, Tell, inspection
from regard.tasks.survey import FAITHFULNESS, HEADS, IDENTIFIABILITY
from regard.tasks.translate import Translator, load

MARK = f'<meta name="generator" content="{PAGES["inspect"].command}">'.encode()
"""By this line in its head a page of ours is known."""
KEPT = {
    HEADS: {"heads"},
    FAITHFULNESS: {"rows", "sentences", "verdict"},
    IDENTIFIABILITY: {"places", "curves", "chance"},
}
"""What may have been measured before and kept in the run's folder, and what must be in it."""


def inspect_run(
    run: Run,
    text: str,
    target: str | None = None,
    *,
    quick: bool = False,
    tell: Tell = lambda doing: None,
    translator: Translator | None = None,
    measured: Mapping[str, Json] | None = None,
) -> Json:
    """The inspection of a sentence by the model of a run.

    What was measured over many sentences joins it, if it was kept in the run's folder and the weights are still the
    same: roles of heads (`regard heads RUN --keep`), the worth of explanations and how far states lead back to tokens
    (`regard inspect RUN --survey`). Who has opened the run already gives its `translator`, and what was `measured`.
    """
    measured = read_measured(run) if measured is None else measured
    heads, faithfulness, identifiability = (measured[name] for name in KEPT)
    tell("loading the model")
    data = inspection(
        translator or load(run.folder),
        text,
        target,
        heads=heads.get("heads", ()),
        faithfulness=faithfulness,
        quick=quick,
        tell=tell,
    )
    data["model"]["arch"] = run.recipe.model.arch
    languages = {"source": run.recipe.data.source_language, "target": run.recipe.data.target_language}
    return data | {"run": run.folder.name, "languages": languages, "identifiability": identifiability or None}


def write_inspection(page: str, data: Json, path: str | Path, *, force: bool = False) -> Path:
    """Write the page of this name: "inspect", "document" or "tags". An earlier inspection is replaced.

    Another file that stands there is replaced only by force.
    """
    path = Path(path)
    refuse_other(path, force=force)
    write_atomically(path, render_page(page, data).encode())
    return path


def refuse_other(path: Path, *, force: bool = False) -> None:
    """Complain if the page cannot be written here, or should not because a file of another kind stands there."""
    if path.is_dir():
        raise SettingsError(f"{path}: a folder; give the name of a file")
    if not path.parent.is_dir():
        raise SettingsError(f"{path}: there is no folder {path.parent}; make it first")
    if path.exists() and not force:
        with path.open("rb") as file:
            if MARK not in file.read(1024):
                raise SettingsError(f"{path}: exists and is not an inspection; choose another --out, or add --force")


def read_measured(run: Run) -> dict[str, Json]:
    """What was measured over many sentences and kept in the run's folder, by file; empty where it was not."""
    return {name: _kept(run, name) for name in KEPT}


def _kept(run: Run, name: str) -> Json:
    path = run.folder / name
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot read it as JSON ({error}); make it again, or remove it") from None
    if found is None:
        return {}
    if not isinstance(found, dict) or not found.keys() >= KEPT[name]:
        raise RunError(f"{path}: lacks {' or '.join(sorted(KEPT[name]))}; make it again, or remove it")
    return found if found.get("weights") in (None, fingerprint(run)) else {}
