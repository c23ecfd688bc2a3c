"""Handwritten digits (load_digits of scikit-learn): a picture classifier beside logistic regression and an RBF SVM.

The 1,797 pictures of 8 x 8 pixels are written as PNG files, with a list for each part. The split is fixed: 1,257 for
training, 180 for validation, 360 for the test. All models are trained on the same pictures. What is tuned (the number
of epochs, the calibration temperature; C and gamma of the linear model and of the SVM) is tuned on the validation part;
the test part is scored once, at the end.

    make bench-digits         (python benchmarks/digits.py [--seeds 1 2 3] [--validation] [--set A.B=C])

With --validation, only the scores on the validation part are computed: use it to choose settings. The figures are in
benchmarks/out/digits.json.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import time
from typing import Any

import numpy as np
from PIL import Image

from multi30k import OUT
from regard.config import Corpus
from regard.data.pictures import PictureSource
from regard.tasks import load
from regard.tasks.classify.classifier import Classifier
from regard.tasks.classify.pictures.data import read_labeled
from regard.tasks.labels import to_probabilities
from regard.tasks.train import resolve, start

SPLIT = 1
COUNTS = {"train": 1257, "valid": 180, "test": 360}
FOLDER = OUT / "digits"

Parts = dict[str, tuple[np.ndarray, np.ndarray]]
"""For each part: pixels [N, 64] from 0 to 16, and labels [N]."""


def main() -> None:
    """Measure all sides, print the table, write benchmarks/out/digits.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="N", help="seeds of the training")
    parser.add_argument("--validation", action="store_true", help="score only the validation part")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="a setting of Regard")
    options = parser.parse_args()
    parts = split_digits()
    write_pictures(parts)
    part = "valid" if options.validation else "test"
    rows = baselines(parts, part)
    for seed in options.seeds:
        rows[f"regard, seed {seed}"] = ours(seed, part, options.set)
    show(rows, part)
    if not options.validation:
        (OUT / "digits.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def split_digits() -> Parts:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SPLIT).permutation(len(labels))
    ends = np.cumsum(list(COUNTS.values()))
    assert ends[-1] == len(labels)
    return {part: (pixels[rows], labels[rows]) for part, rows in zip(COUNTS, np.split(order, ends[:-1]), strict=True)}


def write_pictures(parts: Parts) -> None:
    """Write the pictures of all parts into one folder, and a list for each part."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "pictures").mkdir(parents=True)
    for part, (pixels, labels) in parts.items():
        rows = ["label\tpicture"]
        for number, (values, label) in enumerate(zip(pixels, labels, strict=True)):
            name = f"{part}-{number:04}.png"
            shades = np.rint(values.reshape(8, 8) * 255 / 16).astype(np.uint8)
            Image.fromarray(shades).save(FOLDER / "pictures" / name)
            rows.append(f"{label}\t{name}")
        (FOLDER / f"{part}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def baselines(parts: Parts, part: str) -> dict[str, Any]:
    """scikit-learn's logistic regression and SVM with an RBF kernel, each with its best settings on the validation."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC

    scaled = {name: pixels / 16 for name, (pixels, _) in parts.items()}
    tried = {
        "logistic regression": [LogisticRegression(C=c, max_iter=5000) for c in (0.01, 0.1, 1, 10, 100)],
        "SVM with an RBF kernel": [SVC(C=c, gamma=g) for c in (1, 10, 100) for g in ("scale", 0.02, 0.05, 0.1)],
    }
    rows = {}
    for name, models in tried.items():
        began = time.perf_counter()
        fitted = [model.fit(scaled["train"], parts["train"][1]) for model in models]
        best = max(fitted, key=lambda model: model.score(scaled["valid"], parts["valid"][1]))
        right = best.predict(scaled[part]) == parts[part][1]
        rows[name] = accuracy_row(right, time.perf_counter() - began)
        rows[name]["settings"] = {key: best.get_params()[key] for key in ("C", "gamma") if key in best.get_params()}
    return rows


def ours(seed: int, part: str, settings: list[str]) -> dict[str, Any]:
    """Train a classifier by its plan and score it."""
    data = {name: [{"source": str(FOLDER / f"{name}.tsv")}] for name in ("train", "valid")}
    table = {
        "data": {"task": "classify", **data, "test_size": 0},
        "pictures": {"images": str(FOLDER / "pictures")},
        "train": {"seed": seed},
    }
    shutil.rmtree(FOLDER / f"run-{seed}", ignore_errors=True)
    began, processor = time.perf_counter(), time.process_time()
    run = start(resolve(table, overrides=settings), FOLDER / f"run-{seed}")
    seconds, cpu = time.perf_counter() - began, time.process_time() - processor
    classifier = load(run)
    assert isinstance(classifier, Classifier)
    with PictureSource(FOLDER / "pictures") as source:
        examples = read_labeled(Corpus(str(FOLDER / f"{part}.tsv")), source)
    contents = [FOLDER / "pictures" / example.picture for example in examples]
    logits_BL = classifier.logits(contents)
    truth = np.array([classifier.labels.index(example.labels[0]) for example in examples])
    right = logits_BL.argmax(1).numpy() == truth
    temperature = run.recipe.task.temperature
    return accuracy_row(right, seconds) | {
        "processor": cpu,
        "ece_before": calibration_error(to_probabilities(logits_BL, 1.0, several=False).numpy(), right),
        "ece_after": calibration_error(to_probabilities(logits_BL, temperature, several=False).numpy(), right),
        "temperature": temperature,
        "parameters": run.card["parameters"],
        "steps": run.card["training"]["step"],
        "stopped": run.card["training"]["stopped"],
    }


def calibration_error(probability_BL: np.ndarray, right: np.ndarray) -> float:
    from regard.tasks.labels import reliability

    return reliability(probability_BL.max(1), right)[0]


def accuracy_row(right: np.ndarray, seconds: float) -> dict[str, Any]:
    """Accuracy, its standard error, the number of errors, and the seconds of training."""
    share = float(right.mean())
    return {
        "accuracy": share,
        "standard_error": math.sqrt(share * (1 - share) / len(right)),
        "errors": int((~right).sum()),
        "pictures": len(right),
        "seconds": seconds,
    }


def show(rows: dict[str, Any], part: str) -> None:
    print(f"{part} part, {next(iter(rows.values()))['pictures']} pictures")
    print(f"{'':26}{'accuracy':>9}{'errors':>8}{'ECE before':>12}{'after':>8}{'seconds':>9}{'of CPU':>8}")
    for name, row in rows.items():
        before, after = (f"{row[key]:.2%}" if key in row else "" for key in ("ece_before", "ece_after"))
        errors = f"{before:>12}{after:>8}"
        cpu = f"{row['processor']:>8.0f}" if "processor" in row else ""
        print(f"{name:26}{row['accuracy']:>9.2%}{row['errors']:>8}{errors}{row['seconds']:>9.1f}{cpu}")


if __name__ == "__main__":
    main()
