"""Export to a folder for a model hub: the run without its text, a model card, and the forms that other programs read.

The folder can be uploaded as it is (`hf upload OWNER/NAME FOLDER`), and it remains a run: every command accepts it.
What could hold sentences of the user is left out: held-out examples, samples in the metrics, the report, and paths of
files. Only files that are known to hold none are copied. The card, README.md, is made from card.json: languages,
licence, scores with their signatures, data with hashes, cost of training. Other forms are written where the model
allows it.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.config import Corpus, Recipe
from regard.config.recipe import find_task
from regard.errors import SettingsError
from regard.export import Log, Option, export_folder, export_format, folder_name, model_card
from regard.files import write_atomically
from regard.registry import EXPORTS
from regard.run import CARD, DICTIONARY, HELD_OUT, LABELS, METRICS, REPORT, TOKENIZERS, WEIGHTS, Run, read_metrics

NEEDS: tuple[str, ...] = ()
OPTIONS = {
    "licence": Option((), "licence of the weights, e.g. cc-by-4.0 or apache-2.0"),
    "repository": Option((), "OWNER/NAME of the model on the hub, for the instructions in the card"),
    "with-samples": Option(("no", "yes"), "also publish held-out examples, samples and the report"),
}

FORMS: Mapping[str, Mapping[str, str]] = {"marian": {}, "pegasus": {}, "ctranslate2": {"quantization": "int8"}}
"""The export formats that are written into the folder if the model allows it, with their options."""
WITHOUT_TEXT = (LABELS, WEIGHTS, DICTIONARY, *TOKENIZERS)
"""Files of a run that hold words at most."""
WITH_TEXT = (HELD_OUT, REPORT)
"""Files of a run that hold sentences, and are published only with the option `with-samples`."""


def obstacle(recipe: Recipe) -> str:
    return ""


def write(run: Run, folder: Path, log: Log, **options: str) -> None:
    with_text = options["with-samples"] == "yes"
    task = find_task(run.recipe.data.task)
    if task.text_files and not with_text:
        names = ", ".join(task.text_files)
        raise SettingsError(f"{run.folder}: answers with the text in {names}; add --with-samples to publish this text")
    run.require_weights()
    with export_folder(run, folder, {"format": "hub"}) as draft:
        published = Run(draft)
        published.write_recipe(_without_paths(run.recipe), run.sizes)
        optional = (*task.text_files, *WITH_TEXT) if with_text else ()
        _copy(run, published, (*WITHOUT_TEXT, *task.files, *optional))
        published.write_card(card := _public_card(run.card))
        _write_metrics(run, draft / METRICS, with_text=with_text)
        forms = _write_forms(run, draft, log)
        text = model_card.write(run.recipe, card, options["licence"], options["repository"], forms)
        (draft / model_card.NAME).write_text(text, encoding="utf-8")
    _tell_text(run, with_text, log)
    if not options["licence"]:
        log("no licence is given, so nobody may use the model; add --licence, e.g. --licence cc-by-4.0")


def _copy(run: Run, published: Run, names: Iterable[str]) -> None:
    for name in names:
        if (run.folder / name).is_file():
            run.checksums.check(name)
            content = (run.folder / name).read_bytes()
            if name in run.checksums.read():
                published.checksums.write(name, content)
            else:
                write_atomically(published.folder / name, content)


def _without_paths(recipe: Recipe) -> Recipe:
    """The recipe with the names of its data files and of its pictures, without their folders."""

    def named(corpora: Iterable[Corpus]) -> tuple[Corpus, ...]:
        return tuple(replace(one, source=Path(one.source).name, target=Path(one.target).name) for one in corpora)

    data = recipe.data
    shown = replace(data, train=named(data.train), valid=named(data.valid), test=named(data.test))
    return replace(recipe, data=shown, pictures=replace(recipe.pictures, images=Path(recipe.pictures.images).name))


def _public_card(card: Mapping[str, Any]) -> dict[str, Any]:
    """The card with names of files and folders instead of their paths."""
    shown = dict(card)
    shown["data"] = [
        {key: Path(value).name if key in ("source", "target") else value for key, value in one.items()}
        for one in card.get("data", [])
    ]
    for key in ("base", "imported"):
        if card.get(key):
            shown[key] = Path(card[key]).name
    shown["plan"] = [
        one | {"value": Path(one["value"]).name} if one["name"] == "pictures.images" else one
        for one in card.get("plan", [])
    ]
    shown["plugins"] = [Path(path).name for path in card.get("plugins", [])]
    return shown


def _write_metrics(run: Run, path: Path, *, with_text: bool) -> None:
    """Write metrics.jsonl: the numbers, and with `with_text` the samples."""
    kept = [
        {key: value for key, value in line.items() if with_text or isinstance(value, int | float) or key == "kind"}
        for line in read_metrics(run.folder / METRICS)
    ]
    write_atomically(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept).encode())


def _write_forms(run: Run, draft: Path, log: Log) -> list[str]:
    """Write the run in each format of FORMS that the model allows; the names of their folders."""
    made = []
    for name, options in FORMS.items():
        module = export_format(name)
        if name not in EXPORTS or module.obstacle(run.recipe):
            continue
        if missing := [library for library in module.NEEDS if importlib.util.find_spec(library) is None]:
            log(f'without the form {name}, which needs {missing[0]}: pip install "regard[{name}]"')
            continue
        module.write(run, draft / (place := folder_name(name, options)), log, **options)
        made.append(place)
    return made


def _tell_text(run: Run, with_text: bool, log: Log) -> None:
    """Say which text of the data the run holds, and whether it is in the export."""
    held_out = len(run.held_out_records())
    samples = sum(len(line.get("samples", ())) for line in read_metrics(run.folder / METRICS))
    found = [f"{held_out:,} held-out examples ({HELD_OUT})"] if held_out else []
    found += [f"{samples:,} samples ({METRICS}, {CARD})"] if samples else []
    found += [f"the samples in {REPORT}"] if (run.folder / REPORT).is_file() else []
    if found:
        verb = "published" if with_text else "left out (--with-samples publishes them)"
        log(f"text of your data, {verb}: {', '.join(found)}")
