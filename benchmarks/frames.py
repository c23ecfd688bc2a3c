"""Labels of frames and of whole series, beside classifiers of scikit-learn on the same files, in one run.

The series are inside the package aeon. Labels of frames: activities of BasicMotions joined end to end, beside a
classifier of windows. Labels of series: speakers of JapaneseVowels, beside a classifier of statistics. Train and test
parts are those of aeon; a part of the training series is held out for validation, on which both sides choose: Regard
its number of steps, scikit-learn the window, the model and the filter. Then both are trained once more, with the
held-out part, and label the test part once. Frames are scored by Regard's scores on both sides.

    make bench-frames       (python benchmarks/frames.py [--series motions] [--minutes 1] [--no-test])
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from multi30k import HERE, OUT
from peers.environment import series_python
from regard.config import PictureSettings
from regard.data.series import Series, read_series
from regard.run import Run
from regard.tasks import load
from regard.tasks.tag.frames.scores import score_frames
from regard.tasks.tag.frames.tagger import FrameTagger
from regard.tasks.train import resolve, start

NAMES = ("motions", "vowels")
SHOWN = ("accuracy", "f1", "segment_f1", "edit")


def main() -> None:
    """Train and score, print the table, write benchmarks/out/frames.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT / "frames", metavar="DIR", help="for the series and the runs")
    parser.add_argument("--series", nargs="+", default=NAMES, choices=NAMES, metavar="NAME")
    parser.add_argument("--minutes", type=float, default=0.4, metavar="N", help="minutes of CPU time of a training")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--no-test", action="store_true", help="score the validation part, for tuning")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="a setting of Regard")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    facts = peer("write", options.out)
    print(f"aeon {facts['aeon']}; its Daphnet_S06R02E0 has {facts['daphnet']}: with one label, nothing can be learned")
    rows = compare("motions", options) if "motions" in options.series else []
    show(rows)
    if "vowels" in options.series:
        rows += classify("vowels", options)
    (options.out / "frames.json").write_text(json.dumps([facts, *rows], indent=1) + "\n", encoding="utf-8")


def peer(*arguments: Any) -> Any:
    """The result of a command of peers/series.py."""
    command = [series_python(), HERE / "peers" / "series.py", *arguments]
    done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of one data set: both sides and their scores."""
    part = "valid" if options.no_test else "test"
    series = read_series(options.out / f"{name}-{part}.npz", PictureSettings(), labeled="frames")
    rows = [regard_side(name, series, options)]
    if options.no_test:
        return rows
    began = time.perf_counter()
    chosen = peer("tag", options.out, name)
    seconds = time.perf_counter() - began
    about = f"{chosen['model']}, {chosen['features']} of {chosen['window']} frames"
    names = {"plain": about, "filtered": f"the same, majority of {chosen['filter']} frames"}
    with np.load(options.out / f"{name}-baseline.npz") as file:
        for key, label in names.items():
            given = np.split(file[key], np.cumsum([len(one.frames) for one in series])[:-1])
            rows.append(scored(name, label, series, [one.tolist() for one in given]) | {"seconds": seconds} | chosen)
    return rows


def regard_side(name: str, series: list[Series], options: argparse.Namespace) -> dict[str, Any]:
    """Train by the plan, and label the frames of the series."""
    run = train("tag", name, options)
    tagger = load(run)
    assert isinstance(tagger, FrameTagger)
    given = [list(one.labels) for one in tagger.tag(series)]
    about = f"Regard, {run.card['arch']}, {run.card['parameters']:,} parameters"
    training = {key: run.card["training"][key] for key in ("seconds", "step", "best_step")}
    return scored(name, about, series, given) | training


def train(task: str, name: str, options: argparse.Namespace) -> Run:
    """Train by the plan, to find the best number of steps on `valid`; then so many steps on train and valid."""
    files = {part: {"source": str(options.out / f"{name}-{part}.npz")} for part in ("train", "valid")}
    parts: dict[str, Any] = {"task": task, "train": [files["train"]], "valid": [files["valid"]]}
    settings = {"seed": options.seed, "max_minutes": options.minutes, "clock": "processor"}
    run = _train({"data": parts, "train": settings}, options.out / f"run-{name}", options.set)
    if options.no_test:
        return run
    parts["train"] = list(files.values())
    settings = {"seed": options.seed, "max_steps": run.card["training"]["best_step"], "patience": 0}
    return _train({"data": parts, "train": settings}, options.out / f"run-{name}-again", options.set)


def _train(table: dict[str, Any], folder: Path, overrides: list[str]) -> Run:
    shutil.rmtree(folder, ignore_errors=True)
    return start(resolve(table, overrides=overrides), folder)


def classify(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of both sides for labels of whole series."""
    run = train("classify", name, options)
    part = "valid" if options.no_test else "test"
    series = read_series(options.out / f"{name}-{part}.npz", PictureSettings(), labeled="series")
    given = [one.label for one in load(run).classify(series)]
    accuracy = sum(one.labels == (label,) for one, label in zip(series, given, strict=True)) / len(series)
    about = f"Regard, {run.card['arch']}, {run.card['parameters']:,} parameters"
    rows: list[dict[str, Any]] = [{"series": name, "system": about, "accuracy": accuracy}]
    if not options.no_test:
        found = peer("classify", options.out, name)
        rows.append({"series": name, "system": f"{found['model']} of statistics", **found})
    print(f"\n{'':12}{'':58}{'accuracy':>9}")
    for row in rows:
        print(f"{name:12}{row['system']:58}{row['accuracy']:9.1%}")
    return rows


def scored(name: str, system: str, series: list[Series], given: list[list[str]]) -> dict[str, Any]:
    found = score_frames([one.labels for one in series], given)
    counts = {"segments": found.segments, "predicted_segments": found.predicted_segments}
    by_label = {label: one["f1"] for label, one in found.by_label.items()}
    return {
        "series": name,
        "system": system,
        **{key: getattr(found, key) for key in SHOWN},
        **counts,
        "by_label": by_label,
    }


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table."""
    print(f"\n{'':12}{'':58}{'accuracy':>9}{'macro F1':>10}{'F1@50':>8}{'edit':>8}{'segments':>14}")
    for row in rows:
        shares = "".join(f"{row[key]:{width}.1%}" for key, width in zip(SHOWN, (9, 10, 8, 8), strict=True))
        print(f"{row['series']:12}{row['system']:58}{shares}{row['predicted_segments']:8} of {row['segments']}")


if __name__ == "__main__":
    main()
