"""The models of two Keras tutorials and Regard, trained with equal minutes: translation, IMDB, tokens per second.

`translation`: English to Spanish on the sentences of Tatoeba, split by the English sentence without case and
punctuation, so that none of the test is in training. Keras: one encoder and one decoder layer of keras-hub (width 256,
8 heads, inner 2,048), 15,000 words, 20 tokens, batches of 64, RMSprop, greedy search. Regard: `regard train --minutes`
with all other settings chosen by the plan, on the text as it is. Keras's vocabulary has neither case nor punctuation:
both outputs and the references are compared without them. Regard is also scored on the text as it is.

`imdb`: official split; both get the same 24,000 reviews, and the same 1,000 to select the best weights. Keras: one
encoder layer (width 32, 2 heads, inner 32), 20,000 words, the last 200 tokens, Adam, batches of 32. Regard: `regard
train --task classify --minutes`.

Keras's minutes are the time of its steps alone. Regard's minutes also contain its validations.

`speed`: the translation model of Keras and the same network in Regard (post-norm, ReLU, learned positions, separate
embeddings, output bias) on the same pairs, lower-cased, without punctuation, of at most 19 words; batches of 64 pairs,
in Regard on average. Each side has its own training loop; they take turns of a few seconds (train.py). Only real
target tokens are counted; the second figure also counts the padding. Keras pads every sentence to 20 tokens, as in the
tutorial; Regard puts pairs of similar length together. Regard has dropout in every sub-layer, clips gradients, uses
Adam, and averages the weights. Keras is measured as it is by default on a CPU, and compiled with XLA.

    make bench-lectures     (python benchmarks/lectures.py [--minutes 10] [--only translation|imdb|speed] [--out DIR])

Every side that has ended is stored in DIR/lectures.json, and is not run again with the same options.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import regard
from multi30k import HERE, OUT
from peers.environment import keras_python
from regard.data.batches import epoch_batches
from regard.run import Run
from regard.tasks.classify.document_text import plain
from regard.training.device import measure_machine
from regard.training.plan import BFLOAT16_PAYS
from train import PEERS, Side, read_lines

SEED = 1
VALID = 1000
LONGEST, BATCH, VOCABULARY = 19, 64, 15_000
NAMES = {"0": "negative", "1": "positive"}
SCRIPT = PEERS / "keras_tutorials.py"
LABELS = {
    "keras": "Keras",
    "keras-xla": "Keras, compiled with XLA",
    "regard": "**Regard**",
    "regard-float32": "Regard in float32",
}


class Pair(NamedTuple):
    english: str
    spanish: str


class Results:
    """The results in a JSON file, which is written after every side."""

    def __init__(self, path: Path):
        self._path = path
        self.parts: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8")) if path.is_file() else {}

    def need(self, part: str, side: str, options: dict[str, Any], measure: Callable[[], dict[str, Any]]) -> None:
        """Call `measure` unless there is a result of this side with these options."""
        rows = self.parts.setdefault(part, {})
        if rows.get(side, {}).get("options") == options:
            print(f"{part}: {side} is in {self._path}", flush=True)
            return
        print(f"{part}: {side}", flush=True)
        began = time.perf_counter()
        found = measure()
        rows[side] = {"options": options, "wall_seconds": time.perf_counter() - began, **found}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self.parts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


# ---------------------------------------------------------------------------------------------------------------------
# Translation


def bare(text: str) -> str:
    """The text in lower case and without punctuation, the only form that the vocabulary of the tutorial has."""
    kept = (character for character in text.lower() if unicodedata.category(character)[0] not in "PS")
    return " ".join("".join(kept).split())


def read_pairs(data: Path) -> list[Pair]:
    """All pairs of the corpus."""
    path = data / "tatoeba" / "en-es.tsv.gz"
    if not path.is_file():
        raise SystemExit(f"{path}: no such file; English-Spanish sentence pairs can be had from manythings.org/anki")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [Pair(*line.rstrip("\n").split("\t")[:2]) for line in file]


def split_pairs(pairs: Sequence[Pair], test_pairs: int) -> dict[str, list[Pair]]:
    """Divide into train, valid and test. Sources that differ only in case and punctuation go into the same part."""
    groups: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        groups[bare(pair.english)].append(pair)
    parts: dict[str, list[Pair]] = {"test": [], "valid": [], "train": []}
    chance = random.Random(SEED)
    for source in chance.sample(sorted(groups), len(groups)):
        full = [len(parts["test"]) >= test_pairs, len(parts["valid"]) >= VALID]
        parts["train" if all(full) else "valid" if full[0] else "test"] += groups[source]
    chance.shuffle(parts["train"])
    return parts


def write_pairs(folder: Path, parts: dict[str, list[Pair]]) -> None:
    """Write two files of lines per part."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, pairs in parts.items():
        for language, lines in zip(("en", "es"), zip(*pairs, strict=True), strict=True):
            (folder / f"{part}.{language}").write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def translation(options: argparse.Namespace, results: Results) -> None:
    """Train both sides and score them on the test pairs."""
    folder, parts = options.out / "lectures" / "translation", split_pairs(read_pairs(options.data), options.test_pairs)
    write_pairs(folder, parts)
    given = {"minutes": options.minutes, **{part: len(pairs) for part, pairs in parts.items()}}
    references = [pair.spanish for pair in parts["test"]]

    def keras() -> dict[str, Any]:
        found = run_keras("translation", folder, options.minutes)
        return found | scores(found.pop("texts"), references)

    def ours() -> dict[str, Any]:
        files = [("source", "train.en"), ("target", "train.es"), ("valid-source", "valid.en")]
        named = [f"--{option}={folder / file}" for option, file in [*files, ("valid-target", "valid.es")]]
        run = train_regard([*named, "--from=en", "--to=es"], folder / "run", options.minutes)
        translator, sources = regard.load(run.folder), [pair.english for pair in parts["test"]]
        texts, greedy = ([one.text for one in translator.translate(sources, **how)] for how in ({}, {"beam_size": 1}))
        return facts(run) | scores(texts, references) | {"greedy": scores(greedy, references)}

    results.need("translation", "keras", given, keras)
    results.need("translation", "regard", given, ours)


def scores(texts: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """BLEU and chrF by sacreBLEU of the text as it is and without case and punctuation."""
    from sacrebleu import BLEU, CHRF

    found: dict[str, Any] = {}
    for form, change in (("raw", str), ("bare", bare)):
        for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
            score = metric.corpus_score([change(text) for text in texts], [[change(one) for one in references]])
            found[f"{name}_{form}"] = score.score
            found[f"{name}_signature"] = str(metric.get_signature())
    return found


# ---------------------------------------------------------------------------------------------------------------------
# IMDB


def imdb(options: argparse.Namespace, results: Results) -> None:
    """Train both sides and score them on the test reviews."""
    folder, parts = options.out / "lectures" / "imdb", split_reviews(options.data / "imdb", options.test_reviews)
    folder.mkdir(parents=True, exist_ok=True)
    for part, reviews in parts.items():
        lines = (json.dumps(review, ensure_ascii=False) + "\n" for review in reviews)
        (folder / f"{part}.jsonl").write_text("".join(lines), encoding="utf-8")
    given = {"minutes": options.minutes, **{part: len(reviews) for part, reviews in parts.items()}}

    def ours() -> dict[str, Any]:
        files = [folder / "train.jsonl", *(f"--{part}={folder / f'{part}.jsonl'}" for part in ("valid", "test"))]
        run = train_regard(["--task=classify", *files], folder / "run", options.minutes)
        return facts(run) | {"accuracy": run.card["scores"]["test"]["accuracy"]}

    results.need("imdb", "keras", given, lambda: run_keras("imdb", folder, options.minutes))
    results.need("imdb", "regard", given, ours)


def split_reviews(folder: Path, test_reviews: int) -> dict[str, list[dict[str, str]]]:
    """The reviews without markup in random order: the test, and train and valid from the official training part."""
    parts = {}
    for part in ("train", "test"):
        path = folder / f"{part}.jsonl.gz"
        if not path.is_file():
            raise SystemExit(f"{path}: no such file; the reviews: ai.stanford.edu/~amaas/data/sentiment")
        with gzip.open(path, "rt", encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        parts[part] = [{"label": NAMES[str(one["label"])], "text": plain(one["text"])} for one in records]
        random.Random(SEED).shuffle(parts[part])
    train, test = parts["train"], parts["test"]
    return {"valid": train[:VALID], "train": train[VALID:], "test": test[:test_reviews]}


# ---------------------------------------------------------------------------------------------------------------------
# Both sides


def run_keras(part: str, folder: Path, minutes: float) -> dict[str, Any]:
    """Train and score a model of Keras in its own environment."""
    subprocess.run([keras_python(), SCRIPT, part, folder, "--minutes", str(minutes)], check=True)
    return json.loads((folder / "keras.json").read_text(encoding="utf-8"))


def train_regard(arguments: Sequence[str | Path], folder: Path, minutes: float) -> Run:
    """Run `regard train` from the start; return the finished run."""
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "regard", "train", *arguments, "--minutes", str(minutes), "--out", folder]
    subprocess.run(list(map(str, command)), check=True)
    return Run.open(folder)


def facts(run: Run) -> dict[str, Any]:
    """What is reported beside the scores, and the validations."""
    training, lines = run.card["training"], [line for line in run.metrics() if line["kind"] == "validation"]
    for line in lines:
        line.pop("samples", None)
    best = next((line["seconds"] for line in lines if line["step"] == training["best_step"]), training["seconds"])
    return {
        "parameters": run.card["parameters"],
        "arch": run.recipe.model.arch,
        "steps": training["step"],
        "seconds": training["seconds"],
        "best_seconds": best,
        "epochs": lines,
    }


# ---------------------------------------------------------------------------------------------------------------------
# Speed


def speed(options: argparse.Namespace, results: Results) -> None:
    """Run all sides in turns, unless all are stored."""
    sides = ["keras", "keras-xla", "regard"]
    if measure_machine().bfloat16_speedup >= BFLOAT16_PAYS:
        sides.append("regard-float32")
    given = {"cycles": options.cycles, "turn": options.turn}
    if all(results.parts.get("speed", {}).get(side, {}).get("options") == given for side in sides):
        print("speed: all sides are stored")
        return
    results.parts["speed"] = {}
    found = measure_speeds(options, sides)
    for side in sides:
        results.need("speed", side, given, lambda side=side: found[side])


def measure_speeds(options: argparse.Namespace, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Train on the same pairs in turns; return tokens and positions per second."""
    pairs = short_pairs(read_pairs(options.data))
    lengths = tuple(np.array([len(side.split()) for side in sides]) for sides in zip(*pairs, strict=True))
    budget = choose_budget(lengths)
    running: dict[str, Side] = {}
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        write_pairs(data, {"train": pairs, "valid": pairs[:BATCH]})
        try:
            for name in names:
                folder = Path(scratch) / name
                folder.mkdir()
                running[name] = start_side(name, data, folder, budget)
                print(f"{name} is warm", flush=True)
            for _ in range(options.cycles):
                for side in running.values():
                    side.take_turn(options.turn)
            speeds = {name: side.speed() for name, side in running.items()}
            run = Run.open(Path(scratch) / "regard" / "run")
            parameters = sum(weight.numel() for weight in run.build_network().parameters())
            keras = json.loads((Path(scratch) / "keras" / "log.facts").read_text())
        finally:
            for side in running.values():
                side.end()
    batches = epoch_batches(lengths, budget, SEED, 0)
    positions = sum(len(batch) * (lengths[1][batch].max() + 1) for batch in batches)
    kinds = {
        "keras": {"parameters": keras["parameters"], "padded": BATCH * (LONGEST + 1) / keras["tokens_per_batch"]},
        "regard": {"parameters": parameters, "padded": float(positions / (lengths[1] + 1).sum())},
    }
    rows = {name: kinds[name.split("-")[0]] | {"tokens_per_second": value} for name, value in speeds.items()}
    return {
        name: row | {"positions_per_second": row["tokens_per_second"] * row["padded"]} for name, row in rows.items()
    }


def short_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs without case and punctuation whose sentences have 1 to 19 words, in random order."""
    changed = [Pair(bare(pair.english), bare(pair.spanish)) for pair in pairs]
    chosen = [pair for pair in changed if all(1 <= len(side.split()) <= LONGEST for side in pair)]
    random.Random(SEED).shuffle(chosen)
    return chosen


def choose_budget(lengths: tuple[np.ndarray, ...]) -> int:
    """The value of train.batch_tokens with which Regard's batches have 64 pairs on average."""
    budget = BATCH * float(np.mean(np.maximum(*lengths) + 1))
    for _ in range(3):
        budget *= BATCH / (len(lengths[0]) / len(epoch_batches(lengths, round(budget), SEED, 0)))
    return round(budget)


def start_side(name: str, data: Path, folder: Path, budget: int) -> Side:
    """Start a side, warm it up, and stop it until its first turn."""
    if name.startswith("keras"):
        log = folder / "log.jsonl"
        more = ["--xla"] if name == "keras-xla" else []
        command = [keras_python(), SCRIPT, "speed", data, "--log", log, *more]
        return Side(name, command, lambda: [line["tokens"] for line in read_lines(log)], folder)
    settings: dict[str, Any] = {
        "tokenizer.kind": "word", "tokenizer.vocab_size": VOCABULARY, "tokenizer.joint": "false",
        "model.encoder_layers": 1, "model.decoder_layers": 1, "model.width": 256, "model.heads": 8,
        "model.ffn_width": 2048, "model.norm": "post", "model.positional_encoding": "learned",
        "model.max_positions": LONGEST + 1, "model.tie_embeddings": "none", "model.output_bias": "true",
        "model.dropout": 0.1, "train.batch_tokens": budget, "train.optimizer": "adam", "train.label_smoothing": 0.0,
        "train.seed": SEED, "train.validate_every": 10**6, "train.checkpoint_every": 10**6, "train.log_every": 1,
    }  # fmt: skip
    if name == "regard-float32":
        settings["train.precision"] = "float32"
    sets = [argument for key, value in settings.items() for argument in ("--set", f"{key}={value}")]
    files = {"source": "train.en", "target": "train.es", "valid-source": "valid.en", "valid-target": "valid.es"}
    named = [f"--{option}={data / file}" for option, file in files.items()]
    run = folder / "run"
    command = [sys.executable, "-m", "regard", "train", *named, "--arch", "transformer-base", "--out", run, *sets]

    def done() -> list[float]:
        totals = [0.0, *(line["tokens"] for line in read_lines(run / "metrics.jsonl"))]
        return np.diff(totals).tolist()

    return Side(name, command, done, folder)


# ---------------------------------------------------------------------------------------------------------------------
# The tables


def markdown(results: Results) -> str:
    """All results as Markdown tables."""
    tables = {"translation": translation_table, "imdb": imdb_table, "speed": speed_table}
    return "\n\n".join(tables[part](rows) for part, rows in results.parts.items() if rows)


def translation_table(rows: dict[str, Any]) -> str:
    """BLEU and chrF of both sides, and the same of Regard with greedy search."""
    lines = ["| | BLEU, lower case, no punctuation | chrF, the same | BLEU of the text | minutes | parameters |"]
    lines.append("|---|---|---|---|---|---|")

    def add(name: str, found: dict[str, Any], raw: str, end: str) -> None:
        lines.append(f"| {name} | {found['bleu_bare']:.1f} | {found['chrf_bare']:.1f} | {raw} | {end} |")

    for side, row in rows.items():
        end = f"{row['seconds'] / 60:.1f} | {row['parameters']:,}"
        if side == "keras":
            add("Keras tutorial, greedy search", row, "", end)
        else:
            add(f"**Regard** (`{row['arch']}`)", row, f"{row['bleu_raw']:.1f}", end)
            add("the same, greedy search", row["greedy"], f"{row['greedy']['bleu_raw']:.1f}", "|")
    last = list(rows.values())[-1]
    size = f"{last['options']['test']:,} test pairs, {last['options']['train']:,} training pairs"
    return "\n".join([*lines, "", f"{size}; `{last['bleu_signature']}`, `{last['chrf_signature']}`."])


def imdb_table(rows: dict[str, Any]) -> str:
    """Accuracy of both sides, and the minute of the best validation."""
    lines = ["| | accuracy | best validation after | minutes | parameters |", "|---|---|---|---|---|"]
    for side, row in rows.items():
        name = f"**Regard** (`{row['arch']}`)" if side == "regard" else "Keras tutorial"
        minutes = f"{row['best_seconds'] / 60:.1f} min | {row['seconds'] / 60:.1f}"
        lines.append(f"| {name} | {row['accuracy']:.2%} | {minutes} | {row['parameters']:,} |")
    return "\n".join(lines)


def speed_table(rows: dict[str, Any]) -> str:
    """Tokens per second of all sides, and how much faster Regard is."""
    ours = rows["regard"]["tokens_per_second"]
    lines = ["| | target tokens/s | with padding | Regard is | parameters |", "|---|---|---|---|---|"]
    for side, row in rows.items():
        faster = "" if side == "regard" else f"{ours / row['tokens_per_second']:.2f} times as fast"
        counted = f"{row['tokens_per_second']:,.0f} | {row['positions_per_second']:,.0f}"
        lines.append(f"| {LABELS[side]} | {counted} | {faster} | {row['parameters']:,} |")
    return "\n".join(lines)


def main() -> None:
    """Run the chosen parts, print the tables, write DIR/lectures.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shared = HERE.parent.parent / "shared" / "data"
    measures = {"translation": translation, "imdb": imdb, "speed": speed}
    parser.add_argument("--data", type=Path, default=shared, metavar="DIR", help="the folder with tatoeba and imdb")
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help="minutes of training per side")
    parser.add_argument("--only", action="append", choices=list(measures), help="one part; may be repeated")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="folder of results, data and runs")
    parser.add_argument("--test-pairs", type=int, default=3000, metavar="N", help="test pairs, about")
    parser.add_argument("--test-reviews", type=int, default=25_000, metavar="N", help="test reviews")
    parser.add_argument("--cycles", type=int, default=15, help="turns of each side, for the speed")
    parser.add_argument("--turn", type=float, default=6.0, help="seconds of a turn")
    options = parser.parse_args()
    keras_python()
    results = Results(options.out / "lectures.json")
    for part in options.only or measures:
        measures[part](options, results)
    print(f"\n{markdown(results)}")


if __name__ == "__main__":
    main()
