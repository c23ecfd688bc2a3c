"""Whole training loops on the same work: Regard, Hugging Face's MarianMTModel in a plain loop, JoeyNMT.

Multi30k English to German, joint BPE of 8,000, Transformer of 3+3 layers, width 256, inner 1024, 4 heads, tied
embeddings, dropout 0.1, label smoothing 0.1, about 4,096 target tokens per batch. Each side is a process with its own
training loop. They take turns of a few seconds: all but one are stopped (SIGSTOP), so that changes in the speed of the
machine affect all sides equally. A large float32 matrix product takes turns with them: that is the peak.

If the processor is much faster in bfloat16, Regard uses it by itself. Then Regard is also measured in float32, and the
plain loop also under PyTorch's autocast.

    make bench-train        (python benchmarks/train.py [--data DIR] [--cycles 15] [--turn 6] [--without joeynmt])
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from multi30k import BATCH_TOKENS, OUT, SEED, WORDS, Encoded, add_folder, check_folder
from peers import joey
from peers.environment import peer_python
from regard.training.device import measure_machine
from regard.training.plan import BFLOAT16_PAYS

WARM = 10  # steps before the first turn
PEERS = Path(__file__).parent / "peers"


class Side:
    """A training process that runs for a few seconds at a time."""

    def __init__(self, name: str, command: Sequence[str | Path], done: Callable[[], list[float]], folder: Path):
        """`done` is a function that reads the amount of work per step from the log."""
        self.name, self._done, self._log = name, done, folder / "output.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                list(map(str, command)), stdout=log, stderr=log, start_new_session=True, env=os.environ
            )
        while len(self.done()) < WARM:
            time.sleep(0.2)
        self._signal(signal.SIGSTOP)
        self._before, self.seconds = sum(self.done()), 0.0

    def done(self) -> list[float]:
        """The amount of work of each step so far."""
        if self._process.poll() is not None:
            raise SystemExit(f"{self.name} ended by itself:\n{self._log.read_text()[-2000:]}")
        return self._done()

    def take_turn(self, seconds: float) -> None:
        """Run alone for a while."""
        self._signal(signal.SIGCONT)
        began = time.perf_counter()
        time.sleep(seconds)
        self._signal(signal.SIGSTOP)
        self.seconds += time.perf_counter() - began

    def speed(self) -> float:
        """Amount of work per second over all turns."""
        return (sum(self.done()) - self._before) / self.seconds

    def end(self) -> None:
        """End the process."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: int) -> None:
        os.killpg(self._process.pid, number)


def regard_side(data: Path, folder: Path, name: str = "Regard", **more: str) -> Side:
    """Start `regard train` on the raw text."""
    settings = {
        "tokenizer.vocab_size": WORDS, "tokenizer.subword_regularization": 0.0, "train.batch_tokens": BATCH_TOKENS,
        "train.seed": SEED,
        "train.optimizer": "adam", "train.validate_every": 10**6, "train.checkpoint_every": 10**6, "train.log_every": 1,
    }  # fmt: skip
    settings |= {f"train.{key}": value for key, value in more.items()}
    sets = [argument for key, value in settings.items() for argument in ("--set", f"{key}={value}")]
    files = {"source": "train.en", "target": "train.de", "valid-source": "val.en", "valid-target": "val.de"}
    named = [f"--{option}={data / file}" for option, file in files.items()]
    run = folder / "run"
    command = [sys.executable, "-m", "regard", "train", *named, "--arch", "transformer-small", "--out", run, *sets]

    def done() -> list[float]:
        totals = [0, *(line["tokens"] for line in read_lines(run / "metrics.jsonl"))]
        return [float(after - before) for before, after in itertools.pairwise(totals)]

    return Side(name, command, done, folder)


def marian_side(python: Path, encoded: Encoded, folder: Path, *options: str) -> Side:
    """Start MarianMTModel in a plain loop on the same batches."""
    encoded.write_batches(folder / "batches.jsonl", 300)
    arguments = [folder / "batches.jsonl", "--pad", encoded.tokenizer.pad, "--out", folder, *options]
    command = [python, PEERS / "marian_loop.py", *arguments]
    name = "Hugging Face MarianMTModel, " + ("bfloat16" if options else "plain loop")
    return Side(name, command, lambda: [float(line["tokens"]) for line in read_lines(folder / "log.jsonl")], folder)


def joey_side(python: Path, encoded: Encoded, folder: Path) -> Side:
    """Start the training command of JoeyNMT."""
    configuration = joey.write_inputs(encoded, folder, BATCH_TOKENS)
    command = [python, "-m", "joeynmt", "train", configuration, "--skip-test"]
    return Side("JoeyNMT 2.3.0", command, lambda: joey.read_tokens(folder / "output.log"), folder)


def matmul_side(folder: Path) -> Side:
    """Start the loop of matrix products, the peak of the machine."""
    log = folder / "products"
    log.touch()
    command = [sys.executable, PEERS / "matmul_loop.py", log]
    return Side("matrix product", command, lambda: [float(line) for line in log.read_text().split()], folder)


def read_lines(path: Path) -> list[dict[str, float]]:
    """Complete JSON lines of a file; none if there is no file."""
    if not path.is_file():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [line for line in map(json.loads, lines) if line.get("kind", "step") == "step"]


def flops_per_token(encoded: Encoded) -> float:
    """FLOPs per target token, including padding, over the first batches of an epoch."""
    from regard.models import build, settings_of
    from regard.training.flops import count_cost, pair_amounts

    cost = count_cost(build(settings_of("transformer-small"), source_vocabulary=WORDS, target_vocabulary=WORDS))
    flops = tokens = 0.0
    for position in range(50):
        index = encoded.stream.at(position)
        source, target = (max(len(side[place]) for place in index) + 1 for side in (encoded.source, encoded.target))
        flops += cost.training(**pair_amounts(len(index), source, target))
        tokens += sum(len(encoded.target[place]) + 1 for place in index)
    return flops / tokens


def main() -> None:
    """Run all sides in turns, print and store the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_folder(parser)
    parser.add_argument("--cycles", type=int, default=15, help="turns of each side")
    parser.add_argument("--turn", type=float, default=6.0, help="seconds of a turn")
    parser.add_argument("--without", action="append", default=[], choices=["marian", "joeynmt"])
    options = parser.parse_args()
    check_folder(options.data)
    python, encoded = peer_python(), Encoded(options.data)
    sides: list[Side] = []
    with tempfile.TemporaryDirectory() as scratch:
        try:
            names = ["regard", "marian", "joeynmt", "matmul"]
            if measure_machine().bfloat16_speedup >= BFLOAT16_PAYS:
                names[1:1] = ["regard-float32", "marian-bfloat16"]
            for name in names:
                if name.split("-")[0] in options.without:
                    continue
                folder = Path(scratch) / name
                folder.mkdir()
                sides.append(make_side(name, options.data, python, encoded, folder))
                print(f"{sides[-1].name} is warm", flush=True)
            for _ in range(options.cycles):
                for side in sides:
                    side.take_turn(options.turn)
            speeds = {side.name: side.speed() for side in sides}
        finally:
            for side in sides:
                side.end()
    report(speeds, flops_per_token(encoded))


def make_side(name: str, data: Path, python: Path, encoded: Encoded, folder: Path) -> Side:
    """Start a side, warm it up, and stop it until its first turn."""
    if name == "regard":
        return regard_side(data, folder)
    if name == "regard-float32":
        return regard_side(data, folder, "Regard in float32", precision="float32")
    if name.startswith("marian"):
        return marian_side(python, encoded, folder, *(["--bfloat16"] if name == "marian-bfloat16" else []))
    return joey_side(python, encoded, folder) if name == "joeynmt" else matmul_side(folder)


def report(speeds: dict[str, float], flops: float) -> None:
    """Print and store the table."""
    peak, ours = speeds.pop("matrix product"), speeds["Regard"]
    rows = {
        side: {
            "tokens_per_second": round(speed),
            "share_of_peak": round(speed * flops / peak, 3),
            "regard_is_faster": round(ours / speed, 2),
        }
        for side, speed in speeds.items()
    }
    print(f"\nmatmul peak {peak / 1e9:.0f} GFLOP/s; {flops / 1e6:.1f} MFLOP a target token")
    print(f"{'':40}{'tokens/s':>10}{'of peak':>9}{'Regard is':>11}")
    for side, row in rows.items():
        faster = f"{row['regard_is_faster']:.2f} x"
        print(f"{side:40}{row['tokens_per_second']:10,}{row['share_of_peak']:9.1%}{faster:>11}")
    OUT.mkdir(exist_ok=True)
    (OUT / "train.json").write_text(json.dumps({"peak": peak, "flops_per_token": flops, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
