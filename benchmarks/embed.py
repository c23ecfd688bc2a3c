"""Word vectors beside gensim's word2vec, and translators that start from word vectors.

The texts are the English sides of Tatoeba English-Spanish and English-Italian (training part), each sentence once,
without the sentences of the English-Italian development and test parts. Both programs read the same tokens and have the
same settings: skip-gram, width 100, window 5, 5 noise words, subsampling 1e-3, words that occur five times, 10 epochs.

    vectors   accuracy on analogies.txt, which was written before any result was seen; neighbours of a few words
    speed     words per CPU second of training, alternating
    start     a recurrent translator, English to Italian, 10,000 pairs, a vocabulary of words: random embeddings,
              embeddings of the source from the vectors, and frozen ones; minutes of CPU time

    make bench-embed       (python benchmarks/embed.py [--parts vectors speed start] [--seeds 1 2 3] [--minutes 0.5])
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from multi30k import HERE, OUT
from peers.environment import gensim_python
from regard.data.vectors import read_vectors
from regard.text.tokenizer import SPACE_MARK, normalize, split_tokens

DATA = HERE.parent.parent / "shared" / "data" / "tatoeba"
FOLDER = OUT / "embed"
EPOCHS, SPEED_EPOCHS, ROUNDS = 10, 2, 3
SHOWN = ("monday", "dog", "france", "walked", "beautiful", "three")
PAIRS, TESTED = 10_000, 500
ANALOGIES = HERE / "analogies.txt"
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="the folder of Tatoeba")
    parser.add_argument("--parts", nargs="+", default=["vectors", "speed", "start"], metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], metavar="N")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS, metavar="NAME", help="of part start")
    parser.add_argument("--minutes", type=float, default=0.5, metavar="N", help="CPU minutes per translator")
    options = parser.parse_args()
    if not (options.data / "en-es.tsv.gz").is_file():
        raise SystemExit(f"{options.data}: no en-es.tsv.gz; it can be had from tatoeba.org through manythings.org/anki")
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_texts(options.data)
    results = FOLDER / "results.json"
    found = json.loads(results.read_text()) if results.is_file() else {}
    measures = {"vectors": measure_vectors, "speed": measure_speed, "start": measure_start}
    for part in options.parts:
        found[part] = measures[part](options)
        results.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


# ---------------------------------------------------------------------------------------------------------------------
# Data


def read_pairs(path: Path) -> list[tuple[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        return [(cells[0], cells[1]) for line in file if len(cells := line.rstrip("\n").split("\t")) > 1]


def write_texts(folder: Path) -> None:
    """Write the texts as lines and as tokens, and the corpora of the translators."""
    parts = {part: read_pairs(folder / f"en-it.{part}.tsv") for part in ("train", "dev", "test")}
    left_out = {source for part in ("dev", "test") for source, _ in parts[part]}
    sources = [source for source, _ in (*read_pairs(folder / "en-es.tsv.gz"), *parts["train"])]
    texts = [text for text in dict.fromkeys(sources) if text not in left_out]
    random.Random(1).shuffle(texts)
    write_lines("valid.txt", texts[:1000])
    write_lines("train.txt", texts[1000:])
    write_lines(
        "tokens.txt", (" ".join(split_tokens("word", normalize(text, lowercase=True))) for text in texts[1000:])
    )
    pairs = list(dict.fromkeys(pair for pair in parts["train"] if pair[0] not in left_out))
    random.Random(1).shuffle(pairs)
    for name, some in (("train", pairs[:PAIRS]), ("valid", parts["dev"][:500]), ("test", parts["test"][:TESTED])):
        write_lines(f"{name}.tsv", ("\t".join(pair) for pair in some))


def write_lines(name: str, lines: Any) -> None:
    (FOLDER / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


# ---------------------------------------------------------------------------------------------------------------------
# Vectors


def train_ours(name: str, epochs: int, seed: int, threads: int) -> Row:
    """Train by `regard train` with the settings of the plan; words per second as gensim counts them: all tokens."""
    tokens = sum(len(line.split()) for line in (FOLDER / "tokens.txt").open(encoding="utf-8"))
    run = FOLDER / name
    shutil.rmtree(run, ignore_errors=True)
    options = ["--task", "embed", "train.txt", "--valid-source", "valid.txt", "--out", name, "--seed", str(seed)]
    few = {"validate_every": 100_000, "checkpoint_every": 100_000, "clock": "processor"}
    regard("train", *options, *settings("train", few), *steps_of(epochs), threads=threads)
    seconds = json.loads((run / "card.json").read_text())["training"]["seconds"]  # of the training loop, per thread
    return {"words": tokens * epochs, "processor": seconds * threads}


def steps_of(epochs: int) -> list[str]:
    """The number of steps in these epochs: a batch of 4,096 counts the words and the end of each text."""
    lines = (FOLDER / "tokens.txt").read_text(encoding="utf-8").splitlines()
    return settings("train", {"max_steps": round(epochs * sum(len(line.split()) + 1 for line in lines) / 4096)})


def train_theirs(name: str, epochs: int, seed: int, threads: int) -> Row:
    command = [gensim_python(), HERE / "peers" / "word2vec.py", FOLDER / "tokens.txt", "--epochs", str(epochs)]
    more = ["--threads", str(threads), "--seed", str(seed), "--out", FOLDER / f"{name}.txt"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([*command, *more], env=environment, check=True, capture_output=True, text=True)
    row: Row = json.loads(done.stdout)
    return row


def regard(*arguments: str, threads: int = 1) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "regard", *arguments]
    done = subprocess.run(command, env=environment, cwd=FOLDER, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}\n{done.stderr}")
    return done.stdout


def settings(section: str, values: Row) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{section}.{key}={value}")]


def measure_vectors(options: argparse.Namespace) -> Row:
    """Accuracy on the analogies, for each seed, by the same function."""
    rows: Row = {"regard": [], "gensim": []}
    for seed in options.seeds:
        train_ours(f"vectors-{seed}", EPOCHS, seed, threads=1)
        regard("export", f"vectors-{seed}", "--to", "word2vec", "--out", f"exported-{seed}")
        train_theirs(f"gensim-{seed}", EPOCHS, seed, threads=1)
        for name, file in (("regard", f"exported-{seed}/vectors.txt"), ("gensim", f"gensim-{seed}.txt")):
            rows[name].append(score_vectors(FOLDER / file))
            print(f"{name}, seed {seed}: {rows[name][-1]['correct']} of {rows[name][-1]['questions']}", flush=True)
    for word in SHOWN:
        for name, found in rows.items():
            print(f"{word:10} {name:7} {', '.join(found[0]['neighbours'][word])}")
    return rows


def score_vectors(path: Path) -> Row:
    """Analogies and neighbours from a file of vectors, in the same way for both programs."""
    import numpy as np

    found = read_vectors(path)
    words: dict[str, Any] = {}
    for word, vector in found.vectors.items():  # gensim's tokens have the mark of a space
        words.setdefault(word.removeprefix(SPACE_MARK), vector / np.linalg.norm(vector))
    names, matrix = list(words), np.stack(list(words.values()))

    def nearest(vector: Any, left_out: Any, count: int) -> list[str]:
        order = np.argsort(-(matrix @ vector))
        return [names[place] for place in order if names[place] not in left_out][:count]

    questions = [line.split() for line in ANALOGIES.read_text().splitlines() if not line.startswith(":")]
    answers = {
        " ".join(one): nearest(words[one[1]] - words[one[0]] + words[one[2]], one[:3], 1)[0] for one in questions
    }
    correct = sum(answer == question.split()[3] for question, answer in answers.items())
    neighbours = {word: nearest(words[word], [word], 5) for word in SHOWN}
    return {"correct": correct, "questions": len(questions), "answers": answers, "neighbours": neighbours}


def measure_speed(options: argparse.Namespace) -> Row:
    """Words per CPU second of training, which other programs on the machine hardly change; the programs take turns.

    Regard has one thread, gensim two. If both cores gave gensim twice the rate of one, and Regard no more than one core
    gives, Regard would have the share that is printed.
    """
    rows: Row = {"regard": [], "gensim": []}
    for number in range(ROUNDS):
        for name, train, threads in (("regard", train_ours, 1), ("gensim", train_theirs, 2)):
            row = train(f"speed-{name}", SPEED_EPOCHS, number + 1, threads=threads)
            row["rate"] = row["words"] / row["processor"]
            rows[name].append(row)
            print(f"{name}: {row['rate']:,.0f} words per CPU second", flush=True)
    ours, theirs = (statistics.median(row["rate"] for row in rows[name]) for name in ("regard", "gensim"))
    print(
        f"medians {ours:,.0f} and {theirs:,.0f}: {ours / theirs:.2f} per core, at least {ours / theirs / 2:.2f} on two"
    )
    return rows


# ---------------------------------------------------------------------------------------------------------------------
# Translators that start from vectors

SMALL = {"embedding_width": 100, "width": 128, "encoder_layers": 1, "decoder_layers": 1}
WAYS: dict[str, Row] = {
    "random": {},
    "vectors": {"embeddings": "vectors-1"},
    "frozen": {"embeddings": "vectors-1", "freeze_embeddings": "true"},
}


def measure_start(options: argparse.Namespace) -> Row:
    """BLEU and chrF on 500 test sentences, for each seed and each way to start."""
    if not (FOLDER / "vectors-1" / "report.html").is_file():
        train_ours("vectors-1", EPOCHS, 1, threads=1)
    rows: Row = {way: [] for way in options.ways}
    for seed in options.seeds:
        for way in options.ways:
            name = f"start-{way}-{seed}"
            shutil.rmtree(FOLDER / name, ignore_errors=True)
            train = {
                "clock": "processor",
                "max_minutes": options.minutes,
                "seed": seed,
                "patience": 0,
                "batch_tokens": 1024,
                **WAYS[way],
            }
            data = ["train.tsv", "--valid-source", "valid.tsv", "--test-source", "test.tsv"]
            words = settings("tokenizer", {"kind": "word", "joint": "false", "vocab_size": 5000})
            given = [*words, *settings("model", SMALL), *settings("train", train)]
            regard("train", "--source", *data, "--arch", "luong-dot", "--out", name, *given)
            card = json.loads((FOLDER / name / "card.json").read_text())
            scores = card["scores"]["test"]
            row = {key: scores[key] for key in ("bleu", "chrf")} | {"steps": card["training"]["step"]}
            rows[way].append(row | {"embeddings": card.get("embeddings", {})})
            print(f"{way}, seed {seed}: BLEU {row['bleu']:.2f}, chrF {row['chrf']:.2f}", flush=True)
    for way, found in rows.items():
        means = {key: statistics.mean(one[key] for one in found) for key in ("bleu", "chrf")}
        print(f"{way}: BLEU {means['bleu']:.2f}, chrF {means['chrf']:.2f} (means of {len(found)})")
    return rows


if __name__ == "__main__":
    main()
