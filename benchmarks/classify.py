"""IMDB, official split: HAN and the Transformer encoder compared with TF-IDF and logistic regression, in one run.

All models read the same cleaned text of the same 25,000 training reviews; ours hold out a thousand of them to decide
when to stop. The test part is scored once, at the end. Then the deletion test: how much the probability of the
predicted label decreases when the five words with the largest attention shares are deleted from a review, compared with
five random other words; and which words are most often among these five, for each label.

The reviews (Maas et al. 2011) as JSON lines with "label" and "text": train.jsonl.gz and test.jsonl.gz in one folder.

    make bench-classify       (python benchmarks/classify.py [--minutes 18] [--share 0.1] [--models han])

Figures of models that are not trained again are taken from benchmarks/out/classify.json.
"""

from __future__ import annotations

import argparse
import gzip
import heapq
import json
import random
import shutil
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from multi30k import HERE, OUT
from regard.run import Run
from regard.tasks import load
from regard.tasks.classify.classifier import Classifier
from regard.tasks.classify.document_report import label_words
from regard.tasks.classify.document_text import plain
from regard.tasks.classify.documents import ClassifiedDocument, LabeledDocument
from regard.tasks.train import resolve, start
from regard.text.words import ShadedSentence, words

NAMES = {"0": "negative", "1": "positive"}
DELETED = 5
EXAMINED, OFTEN = 500, 20
RESAMPLED = 10_000
SEED = 1


def main() -> None:
    """Measure all sides, print the table, write benchmarks/out/classify.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = HERE.parent.parent / "shared" / "data" / "imdb"
    parser.add_argument("--data", type=Path, default=default, metavar="DIR", help="the folder of the reviews")
    parser.add_argument(
        "--minutes", type=float, default=18.0, metavar="N", help="minutes of training per model, at most"
    )
    parser.add_argument("--share", type=float, default=1.0, metavar="X", help="share of the reviews, for a quick test")
    parser.add_argument("--models", nargs="+", default=["han", "transformer-classifier"], metavar="NAME")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="a setting of Regard")
    options = parser.parse_args()
    if not (options.data / "train.jsonl.gz").is_file():
        raise SystemExit(f"{options.data}: no train.jsonl.gz; the reviews: ai.stanford.edu/~amaas/data/sentiment")
    train, test = (read(options.data / f"{part}.jsonl.gz", options.share) for part in ("train", "test"))
    print(f"{len(train):,} training reviews, {len(test):,} test reviews")
    OUT.mkdir(exist_ok=True)
    kept = OUT / "classify.json"
    found: dict[str, Any] = {"train": len(train), "test": len(test), "models": {}}
    if kept.is_file() and (before := json.loads(kept.read_text(encoding="utf-8")))["test"] == len(test):
        found["models"] = before["models"]
    rows = found["models"]
    rows |= baselines(train, test)
    for arch in options.models:
        rows[arch] = ours(arch, train, test, options)
        kept.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    show(rows)


def read(path: Path, share: float) -> list[LabeledDocument]:
    """Reviews without markup. A share is taken at regular intervals, so that label frequencies stay the same."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    chosen = records[:: round(1 / share)]
    return [LabeledDocument((NAMES[str(record["label"])],), plain(record["text"])) for record in chosen]


def baselines(train: list[LabeledDocument], test: list[LabeledDocument]) -> dict[str, Any]:
    """scikit-learn's TF-IDF and logistic regression with default settings, and with pairs of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    kinds = {
        "TF-IDF + logistic regression": TfidfVectorizer(),
        "the same with word pairs": TfidfVectorizer(ngram_range=(1, 2), min_df=3, sublinear_tf=True),
    }
    rows = {}
    for name, vectorizer in kinds.items():
        began = time.perf_counter()
        known = vectorizer.fit_transform([document.text for document in train])
        model = LogisticRegression(max_iter=1000).fit(known, [document.labels[0] for document in train])
        given = model.predict(vectorizer.transform([document.text for document in test]))
        right = [label == document.labels[0] for label, document in zip(given, test, strict=True)]
        rows[name] = {"accuracy": sum(right) / len(right), "minutes": (time.perf_counter() - began) / 60}
        print(f"{name}: {rows[name]['accuracy']:.2%}", flush=True)
    return rows


def ours(
    arch: str, train: list[LabeledDocument], test: list[LabeledDocument], options: argparse.Namespace
) -> dict[str, Any]:
    """Train a classifier with this architecture and score it."""
    folder = OUT / f"classify-{arch}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for part, documents in (("train", train), ("test", test)):
        lines = (json.dumps({"label": one.labels[0], "text": one.text}) + "\n" for one in documents)
        (folder / f"{part}.jsonl").write_text("".join(lines), encoding="utf-8")
    table = {
        "data": {
            "task": "classify",
            "train": [{"source": str(folder / "train.jsonl")}],
            "test": [{"source": str(folder / "test.jsonl")}],
        },
        "model": {"arch": arch},
        "train": {"max_minutes": options.minutes},
    }
    began = time.perf_counter()
    run: Run = start(resolve(table, overrides=options.set), folder / "run")
    return judge(run, test, (time.perf_counter() - began) / 60)


def judge(run: Run, test: list[LabeledDocument], minutes: float) -> dict[str, Any]:
    """Compute the figures of a finished run."""
    classifier = load(run)
    assert isinstance(classifier, Classifier)
    card = run.card
    scores = card["scores"]["test"]
    return {
        "accuracy": scores["accuracy"],
        "f1": scores["f1"],
        "calibration_error": scores["calibration_error"],
        "confusion": scores["confusion"],
        "minutes": minutes,
        "training": {key: card["training"][key] for key in ("seconds", "step", "best_step", "flops", "stopped")},
        "parameters": card["parameters"],
        "deletion": deletion(classifier, test),
    }


def deletion(classifier: Classifier, test: list[LabeledDocument]) -> dict[str, Any]:
    """Run the deletion test: mean decreases of the probability, interval of their difference, top words per label."""
    texts = [document.text for document in test[:: max(len(test) // EXAMINED, 1)][:EXAMINED]]
    verdicts = classifier.classify(texts, explain=True)
    chance = random.Random(SEED)
    whole, shaded, others = [], [], []
    heavy: dict[str, Counter[str]] = defaultdict(Counter)
    for verdict in verdicts:
        shares = verdict.shares()
        places = [place for place, (word, _) in enumerate(shares) if any(map(str.isalpha, word.text))]
        heaviest = heapq.nlargest(DELETED, places, key=lambda place, shares=shares: shares[place][1])
        heavy[verdict.label].update({shares[place][0].text.lower() for place in heaviest})
        whole.append(without(verdict, set()))
        shaded.append(without(verdict, set(heaviest)))
        others.append(without(verdict, set(chance.sample(places, min(DELETED, len(places))))))
    labels = [verdict.label for verdict in verdicts]
    kept, top, rest = (label_probabilities(classifier, changed, labels) for changed in (whole, shaded, others))
    differences = rest - top
    draws = np.random.default_rng(SEED).integers(0, len(texts), (RESAMPLED, len(texts)))
    low, high = np.quantile(differences[draws].mean(1), [0.025, 0.975])
    return {
        "documents": len(texts),
        "fall": float((kept - top).mean()),
        "fall_at_random": float((kept - rest).mean()),
        "difference": float(differences.mean()),
        "interval": [float(low), float(high)],
        "often": {label: [word for word, _ in counts.most_common(OFTEN)] for label, counts in heavy.items()},
        "words": {one["label"]: [word["text"] for word in one["words"]] for one in label_words(verdicts)},
    }


def without(verdict: ClassifiedDocument, places: set[int]) -> str:
    """Return the text of a classified document without the words at these positions."""
    lines, first = [], 0
    for sentence in verdict.sentences or ():
        lines.append(_cut(sentence, {place - first for place in places}))
        first += len(sentence.words)
    return "\n".join(lines)


def _cut(sentence: ShadedSentence, places: set[int]) -> str:
    text, end, kept = sentence.text, 0, []
    for place, word in enumerate(words(text)):
        if place in places:
            kept.append(text[end : word.start])
            end = word.end
    return "".join([*kept, text[end:]])


def label_probabilities(classifier: Classifier, texts: list[str], labels: list[str]) -> np.ndarray:
    """Return the probability of `labels[i]` for `texts[i]`, for each i."""
    verdicts = classifier.classify(texts)
    return np.array([verdict.probabilities[label] for verdict, label in zip(verdicts, labels, strict=True)])


def show(rows: dict[str, Any]) -> None:
    """Print the table."""
    print(f"\n{'':32}{'accuracy':>10}{'ECE':>8}{'minutes':>9}{'parameters':>12}")
    for name, row in rows.items():
        error = f"{row['calibration_error']:.2%}" if "calibration_error" in row else ""
        size = f"{row['parameters']:,}" if "parameters" in row else ""
        print(f"{name:32}{row['accuracy']:10.2%}{error:>8}{row['minutes']:9.1f}{size:>12}")
    for name, row in rows.items():
        if found := row.get("deletion"):
            low, high = found["interval"]
            print(
                f"\n{name}: without its {DELETED} heaviest words the winning probability falls by {found['fall']:.3f},"
                f" without {DELETED} at random by {found['fall_at_random']:.3f}; difference {found['difference']:.3f}"
                f" (95 %: {low:.3f} to {high:.3f}), {found['documents']} reviews"
            )
            for label, often in found["often"].items():
                print(f"  {label}, most often among the {DELETED} heaviest: {', '.join(often)}")
            shared = set.intersection(*map(set, found["often"].values()))
            print(f"  of {OFTEN} words each, {len(shared)} are the same: {', '.join(sorted(shared))}")
            for label, apart in found["words"].items():
                print(f"  {label}, looked at more than under the other label: {', '.join(apart)}")


if __name__ == "__main__":
    main()
