"""BANKING77, official split: questions of bank customers, each with one of 77 intents; ten stored questions per intent.

The encoder is trained on train.csv; a tenth of it is held out to decide when to stop, and to tune the weight of the two
methods and the threshold. The knowledge base has ten questions per intent, drawn by seed from those that the encoder
was trained on. Every question of test.csv is used once, at the end: with BM25, with the encoder, and with both. Then
come unrelated questions, first turns of the Self-dialogue corpus, which should be refused; 95 % of the held-out
questions reach the threshold.

The questions (Casanueva et al. 2020) as train.csv and test.csv with the columns text and category in one folder.

    make bench-retrieve       (python benchmarks/retrieve.py [--known 10] [--minutes 5] [--valid] [--set A.B=C])
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import time
from pathlib import Path
from typing import Any

from multi30k import HERE, OUT
from regard.config import Corpus
from regard.data.pairs import Pair
from regard.run import Run
from regard.tasks.retrieve.data import KnowledgeEntry, TrainingKnowledge, read_knowledge
from regard.tasks.retrieve.index import change
from regard.tasks.retrieve.retriever import load
from regard.tasks.train import resolve, start

SEED = 1
STRANGERS = 2000
METHODS = ("bm25", "dense", "hybrid")


def main() -> None:
    """Train, index, ask; print the table, write benchmarks/out/retrieve.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shared = HERE.parent.parent / "shared" / "data"
    parser.add_argument("--data", type=Path, default=shared / "banking77", metavar="DIR", help="train.csv and test.csv")
    parser.add_argument(
        "--strangers", type=Path, default=shared / "self_dialogue" / "dialogues.jsonl.gz", metavar="FILE"
    )
    parser.add_argument("--known", type=int, default=10, metavar="N", help="stored questions per intent")
    parser.add_argument("--minutes", type=float, default=5.0, metavar="N", help="minutes of training, at most")
    parser.add_argument(
        "--valid", action="store_true", help="use the held-out questions instead of test.csv, for tuning"
    )
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="a setting of Regard")
    options = parser.parse_args()
    if not (options.data / "train.csv").is_file():
        raise SystemExit(f"{options.data}: no train.csv; it is in PolyAI-LDN/task-specific-datasets on GitHub")
    began = time.perf_counter()
    run = train(options)
    minutes = (time.perf_counter() - began) / 60
    entries = few(run, options.known)
    change(run, [], entries)
    asked = run.held_out() if options.valid else questions(options.data / "test.csv")
    found: dict[str, Any] = {
        "entries": len(entries),
        "known": sum(len(entry.questions) for entry in entries),
        "asked": len(asked),
        "minutes": minutes,
        "parameters": run.card["parameters"],
        "training": {key: run.card["training"][key] for key in ("seconds", "step", "best_step", "flops", "stopped")},
        "tuned": run.card["tuned"],
        "whole": run.card["scores"]["valid"]["methods"],
        "methods": ask(run, asked, strangers(options.strangers)),
    }
    show(found)
    OUT.mkdir(exist_ok=True)
    (OUT / "retrieve.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def train(options: argparse.Namespace) -> Run:
    """Train an encoder on the questions in train.csv."""
    folder = OUT / "retrieve"
    shutil.rmtree(folder, ignore_errors=True)
    table = {
        "data": {"task": "retrieve", "train": [{"source": str(options.data / "train.csv")}], "test_size": 0},
        "train": {"max_minutes": options.minutes},
    }
    return start(resolve(table, overrides=options.set), folder)


def few(run: Run, count: int) -> list[KnowledgeEntry]:
    """Draw `count` questions per intent from those that the encoder was trained on."""
    learnt = TrainingKnowledge(run.recipe.data, run.recipe.train.seed).train
    chance = random.Random(SEED)
    return [
        entry._replace(questions=tuple(chance.sample(entry.questions, min(count, len(entry.questions)))))
        for entry in learnt
    ]


def questions(path: Path) -> list[Pair]:
    """Read questions with their intents."""
    return [Pair(question, entry.answer) for entry in read_knowledge(Corpus(str(path))) for question in entry.questions]


def strangers(path: Path) -> list[str]:
    """Read unrelated questions: first turns of conversations about films, sports and music."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        first = [json.loads(line)["turns"][0] for line in file]
    return random.Random(SEED).sample(first, min(STRANGERS, len(first)))


def ask(run: Run, asked: list[Pair], foreign: list[str]) -> dict[str, Any]:
    """Score every method on the same questions."""
    rows = {}
    for method in METHODS:
        retriever = load(run.folder, method=method)
        began = time.perf_counter()
        row = retriever.score(asked).as_dict()
        row["milliseconds"] = 1000 * (time.perf_counter() - began) / len(asked)
        threshold = retriever.settings.threshold
        refused = [not found or found[0].score < threshold for found in retriever.search(foreign, k=1)]
        rows[method] = row | {"threshold": retriever.settings.threshold, "strangers": sum(refused) / len(refused)}
    return rows


def show(found: dict[str, Any]) -> None:
    """Print the table."""
    print(
        f"\n{found['known']:,} known questions with {found['entries']} answers, {found['asked']:,} asked; "
        f"{found['parameters']:,} parameters, {found['minutes']:.1f} minutes"
    )
    print(f"\n{'':8}{'recall@1':>10}{'recall@5':>10}{'MRR':>8}{'answered':>10}{'strangers refused':>19}{'ms':>7}")
    for name, row in found["methods"].items():
        print(
            f"{name:8}{row['recall_1']:10.2%}{row['recall_5']:10.2%}{row['mrr']:8.4f}{row['answered']:10.2%}"
            f"{row['strangers']:19.2%}{row['milliseconds']:7.2f}"
        )


if __name__ == "__main__":
    main()
