"""The speed of two checkouts of Regard, to show that a change makes nothing slower.

Each figure is measured in a separate process with PYTHONPATH set to one checkout. Old and new take turns in pairs, and
the order within a pair alternates, so that both are measured under the same conditions. The output is the median of the
ratios new / old and their range. For rates (tokens, sentences, answers per second) more than 1 is faster; for times,
less than 1 is faster.

    python benchmarks/same_speed.py OLD_SRC NEW_SRC [--renames FILE.json] [--pairs 7] [--only TEXT]

The settings below are those of the new checkout. `--renames` is a JSON object {"section.old": "section.new"} of those
that have another name in the old one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SETTINGS = {
    "model.arch": "transformer-small",
    "tokenizer.vocab_size": 1000,
    "train.batch_tokens": 1024,
    "train.log_every": 1,
    "train.device": "cpu",
    "train.precision": "float32",
}
"""Settings of the model that is trained and then translates: 3+3 layers, width 256, as in benchmarks/step.py."""
DATA = """[data]
train = [{ source = "train.en", target = "train.de" }]
valid = [{ source = "few.en", target = "few.de" }]
test = [{ source = "few.en", target = "few.de" }]
source_language = "en"
target_language = "de"
"""
STEPS, SKIPPED = 32, 2
"""Number of steps of a measured training, and of warm-up steps among them."""
LEARNING_STEPS = 30
"""Number of training steps of the run that translates."""
SENTENCES, CLIENTS, REQUESTS = 300, 8, 320
STARTS = 7
"""Number of processes whose fastest is the time of a command: of such short times the rest is noise."""
WORKER = """
import sys, time
from regard.cli import main
short, whole = sys.argv[1:3]
arguments = sys.argv[3:]
def seconds(file):
    began = time.perf_counter()
    code = main([file if word == "FILE" else word for word in arguments])
    if code:
        sys.exit(code)
    return time.perf_counter() - began
seconds(short)
opening = seconds(short)
print(seconds(whole) - opening, file=sys.stderr)
"""
"""Translates a short and a long file in one process; the difference of the times excludes start-up and loading."""


class Checkout:
    """One of the two versions of Regard, with its own run, because file and field names may differ."""

    def __init__(self, name: str, source: Path, folder: Path, renames: Mapping[str, str]):
        self.name, self.folder, self.renames = name, folder, renames
        # Compiled modules are kept, as in an installed package.
        self.environment = os.environ | {"PYTHONPATH": str(source.resolve()), "PYTHONDONTWRITEBYTECODE": ""}
        self.turn = 0
        (folder / name).mkdir()

    def regard(self, *arguments: str, stdin: str = "") -> float:
        """Run a command and return the seconds that it takes."""
        return self.python("-m", "regard", *arguments, stdin=stdin)[0]

    def python(self, *arguments: str, stdin: str = "") -> tuple[float, str]:
        """Run a Python process and return its seconds and standard error."""
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *arguments], input=stdin, capture_output=True, text=True, check=False,
            cwd=self.folder, env=self.environment,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"same_speed: {self.name}: {' '.join(arguments[-12:])}:\n{done.stderr}")
        return time.perf_counter() - began, done.stderr

    def train(self, run: str, steps: int) -> None:
        """Train into a new folder."""
        recipe = self.folder / self.name / "recipe.toml"
        recipe.write_text(DATA, encoding="utf-8")
        table = SETTINGS | {"train.max_steps": steps}
        named = {self.renames.get(name, name): value for name, value in table.items()}
        overrides = [word for name, value in named.items() for word in ("--set", f"{name}={value}")]
        self.regard("train", str(recipe), "--out", run, *overrides)

    @property
    def run(self) -> str:
        """The folder of the run that translates."""
        return f"{self.name}/run"


def training(checkout: Checkout) -> float:
    """Measure target tokens per second, without the warm-up steps."""
    checkout.turn += 1
    run = f"{checkout.name}/turn-{checkout.turn}"
    checkout.train(run, STEPS)
    lines = [json.loads(line) for line in (checkout.folder / run / "metrics.jsonl").read_text().split("\n") if line]
    steps = {line["step"]: line for line in reversed(lines)}  # of each step the first line: validation comes after it
    first, last = steps[SKIPPED], steps[STEPS]
    return (last["tokens"] - first["tokens"]) / (last["seconds"] - first["seconds"])


def decoding(*engine: str) -> Callable[[Checkout], float]:
    """Return a function that measures sentences per second with these engine options."""

    def measure(checkout: Checkout) -> float:
        files = ["one.en", "many.en"]
        command = ["translate", checkout.run, "FILE", *engine]
        _, said = checkout.python("-c", WORKER, *files, *command)
        return (SENTENCES - 1) / float(said.split()[-1])

    return measure


def serving(checkout: Checkout) -> float:
    """Measure answers per second with several clients."""
    sentences = (checkout.folder / "many.en").read_text(encoding="utf-8").splitlines()
    with served(checkout) as address, ThreadPoolExecutor(CLIENTS) as clients:

        def ask(place: int) -> None:
            body = {"q": sentences[place % len(sentences)], "source": "en", "target": "de"}
            head = {"Content-Type": "application/json"}
            request = urllib.request.Request(f"{address}/translate", json.dumps(body).encode(), head)
            with urllib.request.urlopen(request, timeout=120) as answer:
                answer.read()

        list(clients.map(ask, range(CLIENTS)))
        began = time.perf_counter()
        list(clients.map(ask, range(REQUESTS)))
        return REQUESTS / (time.perf_counter() - began)


@contextlib.contextmanager
def served(checkout: Checkout) -> Iterator[str]:
    """Start a server; the address is given when the server is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "regard", "serve", checkout.run, "--port", str(port)]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=checkout.folder, env=checkout.environment, **quiet) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            for _ in range(1200):
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=5):
                    break
                if server.poll() is not None:
                    raise SystemExit(f"same_speed: {checkout.name}: the server ended with {server.returncode}")
                time.sleep(0.1)
            yield address
        finally:
            server.terminate()


def command(*arguments: str, stdin: str = "") -> Callable[[Checkout], float]:
    """Return a function that measures the seconds of a whole process."""
    return lambda checkout: min(
        checkout.regard(*(checkout.run if word == "RUN" else word for word in arguments), stdin=stdin)
        for _ in range(STARTS)
    )


MEASURES: dict[str, Callable[[Checkout], float]] = {
    "training, tokens/s": training,
    "decoding by torch, sentences/s": decoding("--engine", "torch", "--workers", "1"),
    "decoding by CTranslate2, sentences/s": decoding("--engine", "ctranslate2"),
    "serving, answers/s": serving,
    "regard --help, s": command("--help"),
    "first translation of a process, s": command("translate", "RUN", stdin="w1 w2 w3\n"),
}


def write_data(folder: Path) -> None:
    """Write sentences of invented words, each with its own translation."""
    chance = random.Random(1)
    words = ["".join(chance.choice("bdfgklmnprst") + chance.choice("aeiou") for _ in range(3)) for _ in range(500)]
    weights = [1 / (rank + 5) for rank in range(len(words))]
    rows = [chance.choices(words, weights, k=chance.randint(5, 22)) for _ in range(4000)]
    parts = {"train": rows[:3800], "few": rows[3800:3808], "many": rows[-SENTENCES:], "one": rows[-1:]}
    for part, chosen in parts.items():
        for language, side in (("en", lambda word: word), ("de", lambda word: word[::-1])):
            lines = [" ".join(map(side, row)) + "\n" for row in chosen]
            (folder / f"{part}.{language}").write_text("".join(lines), encoding="utf-8")


def compare(checkouts: tuple[Checkout, Checkout], pairs: int, only: str) -> None:
    """Measure in turns and print a line for each figure."""
    print(f"{'':38}{'old':>9}{'new':>9}{'new/old':>9}   range of {pairs}", flush=True)
    for name, measure in MEASURES.items():
        if only not in name:
            continue
        found: dict[str, list[float]] = {"old": [], "new": []}
        for turn in range(pairs):
            for checkout in checkouts[:: -1 if turn % 2 else 1]:
                found[checkout.name].append(measure(checkout))
        ratios = [new / old for old, new in zip(found["old"], found["new"], strict=True)]
        old, new, ratio = map(statistics.median, (found["old"], found["new"], ratios))
        spread = f"{min(ratios):.3f}..{max(ratios):.3f}"
        print(f"{name:38}{old:9,.4g}{new:9,.4g}{ratio:9.3f}   {spread}", flush=True)


def main() -> None:
    """Measure both checkouts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, metavar="OLD_SRC", help="the folder that contains the package, usually src")
    parser.add_argument("new", type=Path, metavar="NEW_SRC")
    parser.add_argument("--renames", type=Path, metavar="FILE.json", help="settings: old names -> new names")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--only", default="", help="only figures whose name contains this text")
    options = parser.parse_args()
    for place in (options.old, options.new):
        if not (place / "regard" / "__init__.py").is_file():
            parser.error(f"{place}: holds no package regard; name the src folder of a checkout")
    table = json.loads(options.renames.read_text(encoding="utf-8")) if options.renames else {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_data(folder)
        old = Checkout("old", options.old, folder, {new: before for before, new in table.items()})
        new = Checkout("new", options.new, folder, {})
        for checkout in (old, new):
            checkout.train(checkout.run, LEARNING_STEPS)
            checkout.regard("translate", checkout.run, stdin="w1\n")  # converts the model for CTranslate2
        compare((old, new), options.pairs, options.only)


if __name__ == "__main__":
    main()
