"""`regard classify` for series of frames."""

from __future__ import annotations

import argparse
import json

from regard.errors import SettingsError
from regard.run import Run
from regard.tasks import load
from regard.tasks.classify.cli import COMMANDS as SHARED
from regard.terminal import Command, Parser, printable

FORMATS = "series as .npz, .parquet or .csv, or a folder of such files"


def configure(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("files", metavar="FILE", nargs="+", help=FORMATS)
    parser.add_argument("--explain", action="store_true", help="with --json: the attention weight of each frame")
    parser.add_argument("--json", action="store_true", help="print one JSON object per series")


def run(options: argparse.Namespace) -> int:
    if options.explain and not options.json:
        raise SettingsError("--explain is printed with --json; add --json")
    opened = Run.open(options.run).require("classify")

    from regard.data.series import read_series, require_width

    series = [one for file in options.files for one in read_series(file, opened.recipe.pictures)]
    require_width(series, opened.sizes["frame_width"], ", ".join(options.files), "the run")
    for found in load(opened).classify(series, explain=options.explain):
        if options.json:
            print(json.dumps(found.as_dict(), ensure_ascii=False))
        else:
            print(f"{printable(found.name)}\t{', '.join(found.labels) or '-'}\t{found.probability:.4f}")
    return 0


COMMANDS = {
    **SHARED,
    "classify": Command(
        "Label series of frames: prints the label of each series and its probability, or JSON lines.",
        configure,
        run,
        examples=(
            "regard classify runs/vowels series.npz",
            "regard classify runs/vowels recordings/ --json --explain",
        ),
    ),
}
