"""`regard tag` and `regard evaluate` for runs that read frames: label every frame of series."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.config import Corpus
from regard.errors import SettingsError
from regard.run import Run
from regard.tasks import single_file
from regard.terminal import Command, Parser, for_people, show_confusion, show_table

if TYPE_CHECKING:
    from regard.tasks.tag.frames.tagger import TaggedSeries

FORMATS = "series as .npz, .parquet or .csv, or a folder of such files or of numbered pictures"


def configure(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("file", metavar="FILE", nargs="?", default="", help=FORMATS)
    parser.add_argument(
        "--output-format", choices=("frames", "segments"), default="", metavar="NAME",
        help="frames (a line per frame), or segments (a line per segment; default on a terminal)",
    )  # fmt: skip
    parser.add_argument(
        "--explain", action="store_true", help="with --json: the influence of each number of the frames"
    )
    parser.add_argument("--score", action="store_true", help="compare with the labels in the file")
    parser.add_argument("--json", action="store_true", help="print one JSON object per series")


def run(options: argparse.Namespace) -> int:
    if not options.file:
        raise SettingsError(f"give the file to label: {FORMATS}")
    if options.score:
        if options.explain or options.output_format:
            raise SettingsError("--score gives scores of all series together; leave out --explain and --output-format")
        return score(options.run, options.file, as_json=options.json)
    if options.explain and not options.json:
        raise SettingsError("--explain is printed with --json; add --json, or use regard inspect")
    if options.json and options.output_format:
        raise SettingsError("--json and --output-format are two output formats; choose one")
    opened = Run.open(options.run).require("tag")

    from regard.tasks.tag.frames.tagger import load

    tagger = load(opened.folder)
    tagged = tagger.tag(options.file, explain=options.explain)
    by_segment = (options.output_format or ("segments" if for_people() else "frames")) == "segments"
    if options.json:
        for one in tagged:
            print(json.dumps(one.as_dict(), ensure_ascii=False))
    else:
        print(*(segment_lines(tagged) if by_segment else frame_lines(tagged)), sep="\n")
    sys.stdout.flush()
    return 0


def frame_lines(tagged: Sequence[TaggedSeries]) -> list[str]:
    """The lines of a TSV file with the label of each frame."""
    rows = (
        (one.name, place, label, f"{probability:.4f}")
        for one in tagged
        for place, (label, probability) in enumerate(zip(one.labels, one.probabilities, strict=True))
    )
    return ["series\tframe\tlabel\tprobability", *("\t".join(map(str, row)) for row in rows)]


def segment_lines(tagged: Sequence[TaggedSeries]) -> list[str]:
    """The lines of a TSV file with the segments; `end` is the index after the last frame."""
    rows = (
        (one.name, each.start, each.end, each.label, f"{each.probability:.4f}")
        for one in tagged
        for each in one.segments
    )
    return ["series\tstart\tend\tlabel\tprobability", *("\t".join(map(str, row)) for row in rows)]


def score(folder: str, file: str, *, as_json: bool) -> int:
    """Compare the predictions of a run with the labels in a file, and print the scores."""
    opened = Run.open(folder).require("tag")

    from regard.data.series import read_series, require_width
    from regard.tasks.tag.frames.tagger import load

    labeled = read_series(single_file(Corpus(file), "frames and labels"), opened.recipe.pictures, labeled="frames")
    tagger = load(opened.folder)
    require_width(labeled, tagger.width, file, "the run")
    found = tagger.score(labeled)
    if as_json:
        print(json.dumps(found.as_dict(), ensure_ascii=False))
        return 0
    shares = {
        "accuracy": found.accuracy,
        "macro F1": found.f1,
        "segment F1@10": found.segment_f1_10,
        "segment F1@25": found.segment_f1_25,
        "segment F1@50": found.segment_f1,
        "edit score": found.edit,
        "calibration error": found.calibration_error,
    }
    counts = [("frames", found.frames), ("series", found.series)]
    counts += [("segments", found.segments), ("predicted segments", found.predicted_segments)]
    show_table([], [*((name, f"{share:.2%}") for name, share in shares.items()), *counts])
    print()
    columns = ("precision", "recall", "f1")
    rows = ([label, *(f"{one[name]:.1%}" for name in columns), one["count"]] for label, one in found.by_label.items())
    show_table(["label", "precision", "recall", "F1", "frames"], rows)
    show_confusion(found.names, found.confusion)
    return 0


def configure_evaluate(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--source", required=True, metavar="FILE", help=f"labeled {FORMATS}")
    parser.add_argument("--json", action="store_true", help="print the scores as a JSON object")


def run_evaluate(options: argparse.Namespace) -> int:
    return score(options.run, options.source, as_json=options.json)


COMMANDS = {
    "tag": Command(
        "Label every frame of series: prints a table of frames or segments, or JSON lines.",
        configure,
        run,
        examples=(
            "regard tag runs/motions walk.npz",
            "regard tag runs/motions walks/ --output-format segments > segments.tsv",
            "regard tag runs/motions walk.npz --json --explain",
            "regard tag runs/motions labeled.npz --score",
        ),
    ),
    "evaluate": Command(
        "Score a tagger of frames on labeled series: accuracy, F1 of labels and segments, edit score, calibration.",
        configure_evaluate,
        run_evaluate,
        examples=("regard evaluate runs/motions --source labeled.npz",),
    ),
}
