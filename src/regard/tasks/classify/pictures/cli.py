"""`regard classify` for pictures."""

from __future__ import annotations

import argparse
import heapq
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from regard.data.pictures import PictureSource
from regard.errors import SettingsError
from regard.files import chunks
from regard.run import Run
from regard.tasks import load
from regard.tasks.classify.cli import COMMANDS as SHARED
from regard.tasks.classify.cli import SHOWN_LABELS
from regard.tasks.classify.inputs import is_collection
from regard.terminal import Command, Parser, console, printable

if TYPE_CHECKING:
    from regard.tasks.classify.classifier import Classifier
    from regard.tasks.classify.pictures.data import ClassifiedPicture, NamedPicture

TOGETHER = 64
"""Number of pictures that are classified together."""


def configure(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("pictures", metavar="PICTURE", nargs="+", help="a picture, or a folder or ZIP file of pictures")
    parser.add_argument("--explain", action="store_true", help="show which patches the model looked at")
    parser.add_argument("--json", action="store_true", help="print one JSON object per picture")


def run(options: argparse.Namespace) -> int:
    opened = Run.open(options.run).require("classify")
    classifier = load(opened)
    for some in chunks(_read(options.pictures, classifier), TOGETHER):
        for found in classifier.classify(list(some), explain=options.explain):
            show(found, options)
    return 0


def show(found: ClassifiedPicture, options: argparse.Namespace) -> None:
    """Print a result as JSON (--json), with a map of its patches (--explain), or as a line."""
    if options.json:
        print(json.dumps(found.as_dict(), ensure_ascii=False))
        return
    if not options.explain:
        print(f"{printable(found.picture)}\t{', '.join(found.labels) or '-'}\t{found.probability:.4f}")
        return
    from rich.text import Text

    best = heapq.nlargest(SHOWN_LABELS, found.probabilities.items(), key=lambda entry: entry[1])
    line = Text(f"{printable(found.picture)}\n")
    for label, probability in best:
        line.append(f"{label} {probability:.1%}   ", style="bold" if label in found.labels else "dim")
    console().print(line)
    assert found.patches is not None
    rows = found.patches.rollout or found.patches.attention
    most = max(map(max, rows))
    for row in rows:
        print("  " + "".join(SHADES[min(int(weight / most * len(SHADES)), len(SHADES) - 1)] * 2 for weight in row))
    print()


SHADES = " ░▒▓█"


def _read(paths: list[str], classifier: Classifier) -> Iterator[NamedPicture]:
    """Yield all pictures in the given files, folders and ZIP files."""
    from regard.data.pictures import SUFFIXES
    from regard.tasks.classify.pictures.data import NamedPicture

    for path in paths:
        if not is_collection(path):
            yield NamedPicture(path, classifier.reader.encode([path])[0])
            continue
        with PictureSource(path) as source:
            names = [name for name in source.names() if name.lower().endswith(SUFFIXES)]
            if not names:
                raise SettingsError(f"{path}: there is no picture in it (files with the endings {', '.join(SUFFIXES)})")
            for name in names:
                yield NamedPicture(name, source.read(name, path, classifier.recipe.pictures))


COMMANDS = {
    **SHARED,
    "classify": Command(
        "Label pictures: PNG, JPEG, GIF, WebP or BMP files, or all pictures in a folder or ZIP file.",
        configure,
        run,
        examples=(
            "regard classify runs/digits picture.png",
            "regard classify runs/digits picture.png --explain",
            "regard classify runs/digits pictures.zip --json",
        ),
    ),
}
