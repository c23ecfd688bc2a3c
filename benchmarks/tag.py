"""Labels of words: chunks of CoNLL-2000 and parts of speech of the English Web Treebank, with the settings of the plan.

Only words are read: no column of parts of speech, no pretrained vectors. Training holds out a part of its own file to
decide when to stop (the treebank has one); the test part is scored once, at the end. F1 of spans is computed by Regard
and by seqeval's conlleval mode, which must agree.

    make bench-tag       (python benchmarks/tag.py [--tasks chunks] [--arch transformer-crf] [--minutes 10] [--no-test])
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

from multi30k import HERE, OUT
from regard.config import Corpus
from regard.models import presets
from regard.tasks import load
from regard.tasks.tag.conll import read_tagged
from regard.tasks.tag.tagger import Tagger
from regard.tasks.train import resolve, start

DATA = HERE.parent.parent / "shared" / "data"
TASKS = {
    "chunks": {"train": "conll2000/train.txt.gz", "test": "conll2000/test.txt.gz"},
    "parts of speech": {
        "train": "ud_english_ewt/train.conllu.gz",
        "valid": "ud_english_ewt/dev.conllu.gz",
        "test": "ud_english_ewt/test.conllu.gz",
    },
}


def main() -> None:
    """Train and score, print the table, write benchmarks/out/tag.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="the folder with both folders of data")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS, metavar="NAME")
    parser.add_argument("--arch", nargs="+", default=["bigru-crf"], choices=presets("tagger"), metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], metavar="N")
    parser.add_argument(
        "--minutes", type=float, default=0.0, metavar="N", help="minutes of training, at most; 0: no limit"
    )
    parser.add_argument("--no-test", action="store_true", help="do not use the test part, for tuning")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="a setting of Regard")
    options = parser.parse_args()
    rows = []
    for task in options.tasks:
        missing = [name for name in TASKS[task].values() if not (options.data / name).is_file()]
        if missing:
            print(f"{task}: left out, for {options.data / missing[0]} is not there")
            continue
        rows += [measure(task, arch, seed, options) for arch in options.arch for seed in options.seeds]
    show(rows)
    OUT.mkdir(exist_ok=True)
    (OUT / "tag.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def measure(task: str, arch: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train one model and score it."""
    folder = OUT / f"tag-{task.partition(' ')[0]}-{arch}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    parts: dict[str, Any] = {part: [{"source": str(options.data / name)}] for part, name in TASKS[task].items()}
    if options.no_test:
        del parts["test"]
        parts["test_size"] = 0
    train = {"seed": seed} | ({"max_minutes": options.minutes} if options.minutes else {})
    began = time.perf_counter()
    table = {"data": {"task": "tag", **parts}, "model": {"arch": arch}, "train": train}
    run = start(resolve(table, overrides=options.set), folder)
    minutes = (time.perf_counter() - began) / 60
    card = run.card
    part = "valid" if options.no_test else "test"
    tagger = load(run)
    assert isinstance(tagger, Tagger)
    theirs = None if options.no_test else seqeval_f1(tagger, options.data / TASKS[task]["test"])
    return {
        "task": task, "arch": arch, "seed": seed, "part": part, "minutes": minutes, "seqeval": theirs,
        "parameters": card["parameters"],
        "training": {key: card["training"][key] for key in ("seconds", "step", "best_step", "flops", "stopped")},
        **card["scores"][part],
    }  # fmt: skip


def seqeval_f1(tagger: Tagger, test: Path) -> float | None:
    """Span F1 of the same answers by seqeval; None if labels do not mark spans."""
    if tagger.scheme == "plain":
        return None
    from seqeval.metrics import f1_score

    sentences = list(read_tagged(Corpus(str(test)), tagger.recipe.task.column))
    given = [list(one.tags) for one in tagger.tag([sentence.tokens for sentence in sentences])]
    return float(f1_score([list(sentence.tags) for sentence in sentences], given))


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table."""
    print(f"\n{'':44}{'span F1':>9}{'seqeval':>9}{'accuracy':>10}{'minutes':>9}{'parameters':>12}")
    for row in rows:
        name = f"{row['task']}, {row['arch']}, seed {row['seed']}" + (" (valid)" if row["part"] == "valid" else "")
        spans = "".join(f"{row[key]:9.2%}" if row.get(key) is not None else f"{'':9}" for key in ("span_f1", "seqeval"))
        print(f"{name:44}{spans}{row['accuracy']:10.2%}{row['minutes']:9.1f}{row['parameters']:12,}")


if __name__ == "__main__":
    main()
