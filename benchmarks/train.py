"""Whole training loops on the same work: Regard, Hugging Face's MarianMTModel in a plain loop, JoeyNMT.

Multi30k English to German, joint BPE of 8,000, Transformer of 3+3 layers, width 256, inner 1024, 4 heads, tied
embeddings, dropout 0.1, label smoothing 0.1, about 4,096 target tokens a batch. Each side trains for a while as a
process of its own, with its own loop, from the text or the ids on; they take turns, and each keeps its best turn. The
machine's matrix product is measured between the turns.

    make bench-train        (python benchmarks/train.py [--data DIR] [--rounds 3] [--updates 60] [--without joeynmt])
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from multi30k import BATCH_TOKENS, OUT, SEED, WORDS, Encoded, add_folder, check_folder
from peers import joey
from peers.environment import peer_python

SKIPPED = 20  # updates that warm up
PEERS = Path(__file__).parent / "peers"


def regard_speed(data: Path, scratch: Path, updates: int) -> float:
    """`regard train` on the raw text."""
    out = scratch / "run"
    settings = {
        "tokenizer.size": WORDS,
        "train.batch_tokens": BATCH_TOKENS,
        "train.seed": SEED,
        "train.max_steps": updates,
        "train.validate_every": updates + 1,
        "train.log_every": SKIPPED,
        "train.optimizer": "adam",
        "train.valid_sentences": 1,
    }
    sets = [argument for name, value in settings.items() for argument in ("--set", f"{name}={value}")]
    files = [f"--{side}={data / name}" for side, name in (
        ("source", "train.en"), ("target", "train.de"), ("valid-source", "val.en"), ("valid-target", "val.de"),
    )]  # fmt: skip
    command = [sys.executable, "-m", "regard", "train", *files, "--arch", "transformer-small", "--out", str(out), *sets]
    run(command)
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    made = {line["step"]: line for line in lines if line["kind"] == "update"}
    first, last = made[SKIPPED], made[max(made)]
    return (last["tokens"] - first["tokens"]) / (last["seconds"] - first["seconds"])


def marian_speed(python: Path, batches: Path, pad: int, scratch: Path, updates: int) -> float:
    """MarianMTModel in a plain loop on the same batches."""
    script = PEERS / "marian_loop.py"
    run([python, script, batches, "--pad", str(pad), "--out", scratch, "--updates", str(updates)])
    lines = [json.loads(line) for line in (scratch / "log.jsonl").read_text().splitlines()]
    tokens = sum(line["tokens"] for line in lines[SKIPPED:])
    return tokens / (lines[-1]["seconds"] - lines[SKIPPED - 1]["seconds"])


def joey_speed(python: Path, configuration: Path) -> float:
    """JoeyNMT by its own command."""
    return joey.read_speed(run([python, "-m", "joeynmt", "train", configuration, "--skip-test"]))


def matmul_peak() -> float:
    """The best large float32 matrix product, in a process of its own."""
    script = "from regard.training.machine import matmul_peak; print(matmul_peak())"
    return float(run([sys.executable, "-c", script]).split()[-1])


def run(command: list[str | Path]) -> str:
    """Run a side; what it printed, or leave with it where it failed."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=os.environ)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def flops_per_token(encoded: Encoded) -> float:
    """Arithmetic of one target token, padding included, over the batches of an epoch's beginning."""
    from regard.config import PRESETS
    from regard.models import build_model
    from regard.training.flops import count_cost

    cost = count_cost(build_model(PRESETS["transformer-small"], WORDS, WORDS, joint=True))
    flops = tokens = 0.0
    for position in range(50):
        index = encoded.stream.at(position)
        source, target = (max(len(side[place]) for place in index) + 1 for side in (encoded.source, encoded.target))
        flops += cost.training(len(index), source, target)
        tokens += sum(len(encoded.target[place]) + 1 for place in index)
    return flops / tokens


def main() -> None:
    """Measure in turns, print, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_folder(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=60, help="updates of a turn; the first 20 are not counted")
    parser.add_argument("--without", action="append", default=[], choices=["marian", "joeynmt"])
    options = parser.parse_args()
    check_folder(options.data)
    python = peer_python()
    encoded = Encoded(options.data)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        batches = scratch / "batches.jsonl"
        encoded.write_batches(batches, options.updates)
        sides: dict[str, Callable[[Path], float]] = {
            "Regard": lambda folder: regard_speed(options.data, folder, options.updates),
        }
        if "marian" not in options.without:
            sides["Hugging Face MarianMTModel, plain loop"] = lambda folder: marian_speed(
                python, batches, encoded.tokenizer.pad, folder, options.updates
            )
        if "joeynmt" not in options.without:
            sides["JoeyNMT 2.3.0"] = lambda folder: joey_speed(
                python, joey.write_inputs(encoded, folder, options.updates, BATCH_TOKENS)
            )
        speeds: dict[str, list[float]] = {side: [] for side in sides}
        peaks = [matmul_peak()]
        for turn in range(options.rounds):
            for number, (side, measure) in enumerate(sides.items()):
                folder = scratch / f"{turn}-{number}"
                folder.mkdir()
                speeds[side].append(measure(folder))
                print(f"round {turn + 1}: {side}: {speeds[side][-1]:,.0f} target tokens/s", flush=True)
            peaks.append(matmul_peak())
    report(speeds, max(peaks), flops_per_token(encoded))


def report(speeds: dict[str, list[float]], peak: float, flops: float) -> None:
    """The table, printed and kept."""
    ours = max(speeds["Regard"])
    rows = {
        side: {
            "tokens_per_second": round(max(turns)),
            "turns": [round(turn) for turn in turns],
            "share_of_peak": round(max(turns) * flops / peak, 3),
            "regard_is_faster": round(ours / max(turns), 2),
        }
        for side, turns in speeds.items()
    }
    print(f"\nmatmul peak {peak / 1e9:.0f} GFLOP/s; {flops / 1e6:.1f} MFLOP a target token; best turn of each")
    print(f"{'':40}{'tokens/s':>10}{'of peak':>9}{'Regard is':>11}")
    for side, row in rows.items():
        faster = f"{row['regard_is_faster']:.2f} x"
        print(f"{side:40}{row['tokens_per_second']:10,}{row['share_of_peak']:9.1%}{faster:>11}")
    OUT.mkdir(exist_ok=True)
    (OUT / "train.json").write_text(json.dumps({"peak": peak, "flops_per_token": flops, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
