"""Real series of the package aeon, and classifiers of scikit-learn for them. Runs in an environment of its own.

    series.py write FOLDER          write the series as .npz files, each with train, valid and test
    series.py tag FOLDER NAME       label frames by a classifier of windows; its window and model are chosen on `valid`
    series.py classify FOLDER NAME  label series by a classifier of statistics, chosen on `valid`

The chosen classifier is fitted once more on train and valid, and then labels `test`, once.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

WINDOWS = (1, 11, 21, 31, 51)
LARGEST_RAW = 31
"""Windows up to this size are also given to the classifiers as they are, larger ones only as statistics."""
FILTERS = (11, 21, 41)
"""Widths of the majority filter that smooths the labels."""
Arrays = dict[str, Any]


# ---------------------------------------------------------------------------------------------------------------------
# The series


def write(folder: Path) -> None:
    import aeon
    from aeon.datasets import load_basic_motions, load_japanese_vowels

    inside = Path(aeon.__file__).parent / "datasets" / "data"
    chance = np.random.default_rng(1)
    for name, load in (("motions", load_basic_motions), ("vowels", load_japanese_vowels)):
        (series, labels), (held_out, answers) = load(split="train"), load(split="test")
        rest, valid = divide(labels, 0.3, chance)
        parts = {
            "train": ([series[n].T for n in rest], labels[rest]),
            "valid": ([series[n].T for n in valid], labels[valid]),
            "test": ([one.T for one in held_out], answers),
        }
        for part, (frames, names) in parts.items():
            made = one_each(frames, names) if name == "vowels" else joined(frames, names, 1 + (part != "test"), chance)
            np.savez(folder / f"{name}-{part}.npz", **made)
    rows = read_csv(inside / "Daphnet_S06R02E0" / "S06R02E0.csv")
    anomalies = int((rows[:, -1] == 1).sum())
    print(json.dumps({"daphnet": {"frames": len(rows), "anomalies": anomalies}, "aeon": aeon.__version__}))


def divide(labels: Any, share: float, chance: np.random.Generator) -> tuple[Any, Any]:
    """Indices of training and validation series, with the same share of every label."""
    drawn = [chance.permutation(np.flatnonzero(labels == label)) for label in sorted(set(labels))]
    valid = np.concatenate([own[: round(share * len(own))] for own in drawn])
    return np.setdiff1d(np.arange(len(labels)), valid), valid


def joined(series: Sequence[Any], labels: Sequence[str], times: int, chance: np.random.Generator) -> Arrays:
    """All series one after another, in `times` random orders; each order becomes one long series."""
    orders = [chance.permutation(len(series)) for _ in range(times)]
    places = [place for order in orders for place in order]
    return {
        "frames": np.concatenate([series[place] for place in places]).astype(np.float32),
        "labels": np.concatenate([[labels[place]] * len(series[place]) for place in places]),
        "lengths": np.array([sum(map(len, series))] * times),
    }


def one_each(series: Sequence[Any], labels: Sequence[str]) -> Arrays:
    frames = np.concatenate(series).astype(np.float32)
    return {"frames": frames, "labels": np.array(labels), "lengths": np.array(list(map(len, series)))}


def read_csv(path: Path) -> Any:
    """The numbers of a table, without its header and its first column, the time."""
    with path.open() as file:
        return np.array([row[1:] for row in list(csv.reader(file))[1:]], np.float64)


def read(folder: Path, name: str, part: str) -> list[tuple[Any, Any]]:
    """The series of a part with their labels."""
    with np.load(folder / f"{name}-{part}.npz") as file:
        frames, labels = file["frames"], file["labels"]
        ends = np.cumsum(file["lengths"]) if "lengths" in file.files else np.array([len(frames)])
    cuts = ends[:-1]
    own = np.split(labels, cuts) if len(labels) == len(frames) else [labels[n : n + 1] for n in range(len(ends))]
    return list(zip(np.split(frames, cuts), own, strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# Classifiers


def models() -> dict[str, Callable[[], Any]]:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return {
        "random forest": lambda: RandomForestClassifier(100, n_jobs=1, random_state=1),
        "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
    }


def features(frames: Any, window: int, *, raw: bool) -> Any:
    """For each frame [T, F], the frames of the window around it, or their statistics."""
    padded = np.pad(frames, ((window // 2, window // 2), (0, 0)), mode="edge")
    views = np.lib.stride_tricks.sliding_window_view(padded, window, axis=0)
    if raw:
        return views.reshape(len(frames), -1)
    changes = np.abs(np.diff(views, axis=2)).mean(2) if window > 1 else np.zeros_like(frames)
    return np.concatenate([frames, views.mean(2), views.std(2), views.min(2), views.max(2), changes], axis=1)


def macro_f1(right: Any, given: Any) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(right, given, average="macro"))


def choices() -> Iterator[tuple[int, bool, str]]:
    for window in WINDOWS:
        for model in models():
            yield window, False, model
            if 1 < window <= LARGEST_RAW and model == "random forest":
                yield window, True, model


def smooth(labels: Any, width: int) -> Any:
    """The most frequent label around each frame."""
    names, numbers = np.unique(labels, return_inverse=True)
    counts = [np.convolve(numbers == place, np.ones(width), mode="same") for place in range(len(names))]
    return names[np.argmax(counts, axis=0)]


def tag(folder: Path, name: str) -> None:
    train, valid, test = (read(folder, name, part) for part in ("train", "valid", "test"))
    right = np.concatenate([labels for _, labels in valid])

    def made(series: list[tuple[Any, Any]], window: int, raw: bool) -> tuple[Any, Any]:
        return (
            np.concatenate([features(frames, window, raw=raw) for frames, _ in series]),
            np.concatenate([labels for _, labels in series]),
        )

    best: tuple[float, Any] = (-1.0, None)
    for window, raw, model in choices():
        fitted = models()[model]().fit(*made(train, window, raw))
        found = [fitted.predict(features(frames, window, raw=raw)) for frames, _ in valid]
        best = max(best, (macro_f1(right, np.concatenate(found)), (window, raw, model)))
    window, raw, model = best[1]
    fitted = models()[model]().fit(*made(train, window, raw))
    found = [fitted.predict(features(frames, window, raw=raw)) for frames, _ in valid]
    filtered = [(macro_f1(right, np.concatenate([smooth(one, width) for one in found])), width) for width in FILTERS]
    score, width = max(filtered)
    fitted = models()[model]().fit(*made([*train, *valid], window, raw))
    given = [fitted.predict(features(frames, window, raw=raw)) for frames, _ in test]
    smoothed = [smooth(one, width) for one in given]
    np.savez(folder / f"{name}-baseline.npz", plain=np.concatenate(given), filtered=np.concatenate(smoothed))
    kind = "frames" if raw else "statistics"
    chosen = {"window": window, "features": kind, "model": model, "valid_f1": best[0]}
    print(json.dumps(chosen | {"filter": width, "filtered_valid_f1": score}))


def classify(folder: Path, name: str) -> None:
    train, valid, test = (read(folder, name, part) for part in ("train", "valid", "test"))

    def made(series: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        rows = []
        for frames, _ in series:
            ends = np.linspace(0, len(frames), 4).astype(int)
            thirds = [frames[start:end].mean(0) for start, end in pairwise(ends)]
            rows.append(np.concatenate([frames.mean(0), frames.std(0), frames.min(0), frames.max(0), *thirds]))
        return np.array(rows), np.array([labels[0] for _, labels in series])

    scores = {model: float(make().fit(*made(train)).score(*made(valid))) for model, make in models().items()}
    model = max(scores, key=scores.__getitem__)
    accuracy = float(models()[model]().fit(*made([*train, *valid])).score(*made(test)))
    print(json.dumps({"model": model, "valid_accuracy": scores[model], "accuracy": accuracy}))


if __name__ == "__main__":
    command, folder, *rest = sys.argv[1:]
    {"write": write, "tag": tag, "classify": classify}[command](Path(folder), *rest)
