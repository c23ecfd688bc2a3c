"""Language models compared with a modified Kneser-Ney 5-gram model, on the same tokens, in the same run.

For each corpus, a Transformer is trained for some minutes of CPU time (one thread). Its tokenizer then divides the same
training texts for the n-gram model, and both predict every token of the test texts and the end of each text. The n-gram
model has no settings but its order: the comparison is with order 5, and orders 3 to 6 are shown.

    make bench-lm       (python benchmarks/language_model.py [--corpora multi30k] [--minutes 6] [--set A.B=C])

Corpora: the English side of Multi30k (train, val and test_2016_flickr), and the turns of the self-dialogue corpus,
divided by conversation: every 20th is for the test, every 40th for validation. A corpus that is not there is left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kneser_ney import KneserNey
from multi30k import HERE, OUT
from regard.run import Run
from regard.tasks import load
from regard.tasks.text_scores import windows
from regard.tasks.train import resolve, start
from regard.text.tokenizer import EOS, Tokenizer

ORDERS, WANTED = (3, 4, 5, 6), 5
VALIDATED = 1_000
"""Number of validation turns of the self-dialogue corpus."""
SETTINGS: dict[str, list[str]] = {
    "multi30k": [
        "model.width=192", "model.layers=3", "model.ffn_width=768", "model.heads=3", "model.dropout=0.3",
    ],
    "self_dialogue": [
        "tokenizer.vocab_size=4000", "model.width=192", "model.layers=3", "model.ffn_width=768", "model.heads=3",
        "model.dropout=0.05", "train.batch_tokens=2048",
    ],
}  # fmt: skip
"""Chosen for the training time, not by the test texts; all other settings are those of the plan."""
MINUTES = {"multi30k": 6.0, "self_dialogue": 15.0}


def main() -> None:
    """Train, count, print the table, write benchmarks/out/language_model.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = HERE.parent.parent / "shared" / "data"
    parser.add_argument("--data", type=Path, default=default, metavar="DIR", help="the folder of the corpora")
    parser.add_argument("--corpora", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--minutes", type=float, default=0.0, metavar="N", help="minutes of CPU time per training")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="a setting of Regard")
    parser.add_argument("--finished", type=Path, metavar="RUN", help="compare this run, without training (one corpus)")
    options = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    kept = OUT / "language_model.json"
    found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    for corpus in options.corpora:
        parts = read(options.data, corpus)
        if not parts:
            print(f"{corpus}: not in {options.data}; left out")
            continue
        found[corpus] = compare(corpus, parts, options)
        kept.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        show(corpus, found[corpus])


def read(folder: Path, corpus: str) -> dict[str, list[str]]:
    """The texts of train, valid and test; empty if the corpus is not there."""
    if corpus == "multi30k":
        names = {"train": "train.en", "valid": "val.en", "test": "test_2016_flickr.en"}
        paths = {part: folder / corpus / name for part, name in names.items()}
        if not all(path.is_file() for path in paths.values()):
            return {}
        return {part: path.read_text(encoding="utf-8").splitlines() for part, path in paths.items()}
    path = folder / corpus / "dialogues.jsonl.gz"
    if not path.is_file():
        return {}
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file):
            part = "test" if number % 20 == 0 else "valid" if number % 40 == 1 else "train"
            turns = (" ".join(turn.split()) for turn in json.loads(line)["turns"])
            parts[part] += [turn for turn in turns if turn]
    return parts | {"valid": parts["valid"][:VALIDATED]}


def compare(corpus: str, parts: dict[str, list[str]], options: argparse.Namespace) -> dict[str, Any]:
    """Train (or open) the language model, and score both models on the test texts."""
    run = Run.open(options.finished) if options.finished else train(corpus, parts, options)
    model = load(run)
    score = [0.0, 0, 0]
    for one in model.score(parts["test"]):
        score = [score[0] + one.negative_log_likelihood, score[1] + one.tokens, score[2] + one.bytes]
    loss, tokens, size = score
    training = run.card["training"]
    rows = {"Transformer": figures(loss, tokens, size) | {"minutes": training["seconds"] / 60}}
    tokenizer, longest = model.tokenizer, run.recipe.data.max_length
    encoded = {part: list(encode(texts, tokenizer, longest)) for part, texts in parts.items()}
    for order in ORDERS:
        began = time.process_time()
        counted = KneserNey(encoded["train"], tokenizer.size, order)
        valid, test = (-counted.log_probabilities(encoded[part]) for part in ("valid", "test"))
        if len(test) != tokens:
            raise SystemExit(f"{len(test)} tokens for the n-gram model, {tokens} for the Transformer")
        minutes = (time.process_time() - began) / 60
        rows[f"Kneser-Ney, order {order}"] = figures(float(test.sum()), len(test), size) | {
            "minutes": minutes,
            "valid_perplexity": math.exp(float(valid.mean())),
        }
    settings = {"parameters": run.card["parameters"], "vocabulary": tokenizer.size, "steps": training["step"]}
    return {"texts": {part: len(texts) for part, texts in parts.items()}, "tokens": tokens, "rows": rows} | settings


def train(corpus: str, parts: dict[str, list[str]], options: argparse.Namespace) -> Run:
    folder = OUT / f"language-model-{corpus}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for part, texts in parts.items():
        (folder / f"{part}.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    table = {
        "data": {
            "task": "language-model",
            **{part: [{"source": str(folder / f"{part}.txt")}] for part in ("train", "valid", "test")},
        },
        "train": {"max_minutes": options.minutes or MINUTES[corpus], "clock": "processor"},
    }
    return start(resolve(table, overrides=[*SETTINGS[corpus], *options.set]), folder / "run")


def encode(texts: list[str], tokenizer: Tokenizer, longest: int) -> Iterator[list[int]]:
    """The tokens that the language model predicts: those of each window of a text, and EOS."""
    for ids in tokenizer.encode_many(texts):
        for window in windows(ids, longest) or [()]:
            yield [*window, EOS]


def figures(loss: float, tokens: int, size: int) -> dict[str, float]:
    return {"perplexity": math.exp(loss / tokens), "bits_per_byte": loss / math.log(2) / size}


def show(corpus: str, found: dict[str, Any]) -> None:
    texts, rows = found["texts"], found["rows"]
    print(f"{corpus}: {texts['train']:,} training texts, {texts['test']:,} test texts, {found['tokens']:,} tokens")
    print(f"  {'':24}  {'perplexity':>10}  {'bits per byte':>13}  CPU minutes")
    for name, row in rows.items():
        print(f"  {name:24}  {row['perplexity']:10.2f}  {row['bits_per_byte']:13.3f}  {row['minutes']:.1f}")
    ours, theirs = rows["Transformer"]["perplexity"], rows[f"Kneser-Ney, order {WANTED}"]["perplexity"]
    print(
        f"  {'below' if ours < theirs else 'NOT below'} the {WANTED}-gram model: {ours / theirs:.2f} of its perplexity"
    )


if __name__ == "__main__":
    main()
