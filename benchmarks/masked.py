"""IMDB with 1,000 labels: a classifier that starts from a masked language model, and the same classifier from scratch.

The masked language model is trained on the training reviews without their labels, also those of the validation part.
For each seed, 1,000 training reviews keep their labels; 500 others, the same for all seeds, are the validation part,
which decides when to stop. The settings of both sides were chosen on it (docs/log.md). The test part is scored once.

    make bench-masked     (python benchmarks/masked.py [--minutes 2.25] [--masked RUN] [--seeds 1 2 3] [--tested 2500])

The reviews (Maas et al. 2011) as JSON lines with "label" and "text": train.jsonl.gz and test.jsonl.gz in one folder.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
from pathlib import Path
from statistics import mean
from typing import Any

from multi30k import HERE, OUT
from regard.run import Run
from regard.tasks.classify.document_text import plain
from regard.tasks.train import resolve, start

LABELED, VALIDATED, UNLABELED = 1_000, 500, 24_000
SEED = 1
MASKED = [
    "tokenizer.kind=word", "tokenizer.lowercase=true", "tokenizer.vocab_size=10000", "model.width=128",
    "model.encoder_layers=2", "model.ffn_width=256", "model.heads=4", "model.dropout=0.1",
    "train.batch_tokens=4096", "train.validate_every=400", "masked-language-model.hidden_share=0.2",
]  # fmt: skip
CLASSIFIER = ["classify.max_tokens=250", "train.validate_every=50", "train.max_steps=300", "train.precision=bfloat16"]
"""Settings of both sides."""
SIDES = {
    "from scratch": ["model.encoder_layers=1", "model.pool=mean"],
    "from the masked language model": ["model.pool=mean"],
}
"""Settings of each side, chosen on the validation part."""


def main() -> None:
    """Train, print the table, write masked.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = HERE.parent.parent / "shared" / "data" / "imdb"
    parser.add_argument("--data", type=Path, default=default, metavar="DIR", help="the folder of the reviews")
    parser.add_argument("--minutes", type=float, default=2.25, metavar="N", help="CPU minutes of the masked training")
    parser.add_argument("--masked", type=Path, metavar="RUN", help="start from this run, without training it")
    parser.add_argument("--out", type=Path, default=OUT / "masked", metavar="DIR", help="folder for data and runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="N")
    parser.add_argument(
        "--tested", type=int, default=2_500, metavar="N", help="number of test reviews (at most 25,000)"
    )
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="a setting of all classifiers")
    options = parser.parse_args()
    if not (options.data / "train.jsonl.gz").is_file():
        raise SystemExit(f"{options.data}: no train.jsonl.gz; the reviews: ai.stanford.edu/~amaas/data/sentiment")
    folder = options.out
    folder.mkdir(parents=True, exist_ok=True)
    write_parts(options, folder)
    masked = options.masked or pretrain(folder, options.minutes)
    rows: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for seed in options.seeds:
        for side, settings in SIDES.items():
            origin = masked if side != "from scratch" else None
            rows[side].append(classify(folder, seed, origin, [*settings, *options.set]))
            print(f"seed {seed}, {side}: {rows[side][-1]}", flush=True)
    found = {"masked": Run.open(masked).card["scores"], "tested": options.tested, "rows": rows}
    (folder / "masked.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for side, scores in rows.items():
        each = " ".join(f"{one['test']:.2%}" for one in scores)
        print(f"{side:32}  validation {mean(one['valid'] for one in scores):.2%}  test {each}")
    first, second = (mean(one["test"] for one in scores) for scores in rows.values())
    print(f"mean accuracy {first:.2%} and {second:.2%}: {100 * (second - first):+.1f} points")


def write_parts(options: argparse.Namespace, folder: Path) -> None:
    """Write the texts without labels, the labeled reviews of each seed, the validation part and the test part."""
    reviews, tests = (read(options.data / f"{part}.jsonl.gz") for part in ("train", "test"))
    order = list(range(len(reviews)))
    random.Random(SEED).shuffle(order)
    for name, chosen in (("texts", order[:UNLABELED]), ("texts-held-out", order[UNLABELED : UNLABELED + 100])):
        lines = (" ".join(reviews[place]["text"].split()) + "\n" for place in chosen)
        (folder / f"{name}.txt").write_text("".join(lines), encoding="utf-8")
    parts = {"valid": [reviews[place] for place in order[20_000 : 20_000 + VALIDATED]]}
    parts["test"] = random.Random(SEED).sample(tests, min(options.tested, len(tests)))
    for seed in options.seeds:
        places = order[:20_000]
        random.Random(100 * seed).shuffle(places)
        parts[f"train-{seed}"] = [reviews[place] for place in places[:LABELED]]
    for name, chosen_reviews in parts.items():
        text = "".join(json.dumps(one) + "\n" for one in chosen_reviews)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def read(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    return [{"label": str(record["label"]), "text": plain(record["text"])} for record in records]


def pretrain(folder: Path, minutes: float) -> Path:
    """Train the masked language model; its held-out texts are not among those that it reads."""
    held_out = [{"source": str(folder / "texts-held-out.txt")}]
    table = {
        "data": {
            "task": "masked-language-model",
            "train": [{"source": str(folder / "texts.txt")}],
            "valid": held_out,
            "test": held_out,
        },
        "train": {"max_minutes": minutes, "clock": "processor"},
    }
    shutil.rmtree(folder / "run", ignore_errors=True)
    return start(resolve(table, overrides=MASKED), folder / "run").folder


def classify(folder: Path, seed: int, origin: Path | None, settings: list[str]) -> dict[str, Any]:
    """Train a classifier on the labeled reviews of this seed, and return its accuracies."""
    out = folder / f"classifier-{seed}-{'started' if origin else 'scratch'}"
    shutil.rmtree(out, ignore_errors=True)
    corpora = {part: [{"source": str(folder / f"{part}.jsonl")}] for part in ("valid", "test")}
    table: dict[str, dict[str, Any]] = {
        "data": {"task": "classify", "train": [{"source": str(folder / f"train-{seed}.jsonl")}], **corpora},
        "model": {"arch": "transformer-classifier"},
        "train": {"seed": seed, "clock": "processor"},
    }
    if origin:
        table["train"]["start_from"] = str(origin)
    run = start(resolve(table, overrides=[*CLASSIFIER, *settings]), out)
    scores, training = run.card["scores"], run.card["training"]
    accuracies = {part: scores[part]["accuracy"] for part in ("valid", "test")}
    return accuracies | {"minutes": training["seconds"] / 60, "best_step": training["best_step"]}


if __name__ == "__main__":
    main()
