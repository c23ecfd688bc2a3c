"""Reward fine-tuning of a trained run on Multi30k English to German: quality before and after, with several seeds.

Takes a run that was trained on train and val, fine-tunes it by `regard finetune RUN --objective reward` with its
defaults, once per seed, and translates with the search settings of each run (beam 5). GLEU is the mean over the
sentences of val, chrF and BLEU are those of sacreBLEU. Settings are chosen on val; test_2016_flickr is scored only
here. The differences have 95 % intervals and p-values from the paired bootstrap on the same resampled test sets; those
of several seeds are of the mean score.

    python benchmarks/reward.py RUN [--data DIR] [--seeds 1 2 3] [--minutes N] [--set translate.reward=chrf ...]

The figures are written to benchmarks/out/reward.json. A side that is finished is not trained again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import regard
from multi30k import OUT, add_folder, check_folder, read_pairs
from regard.data.pairs import Pair
from regard.run import Run
from regard.tasks.bootstrap import BootstrapScore, score_all
from regard.tasks.rewards import gleu, mean_reward
from regard.tasks.translate.evaluate import compare, measure

FOLDER = OUT / "reward"
PARTS = {"val": ("gleu", "chrf", "bleu"), "test_2016_flickr": ("bleu", "chrf", "gleu")}
GOALS = {("val", "gleu"): 0.5, ("val", "chrf"): 0.5, ("test_2016_flickr", "bleu"): -0.2}
"""Smallest differences that reward fine-tuning should reach, in points."""


def finetune(data: Path, base: Path, seed: int, options: Sequence[str]) -> Path:
    """Fine-tune the run with this seed, unless it is finished already; return the folder of the new run."""
    out = FOLDER / f"{base.name}-{seed}"
    if (out / "card.json").is_file() and Run.open(out).is_finished:
        return out
    files = [
        f"--{side}={data / file}"
        for side, file in (
            ("source", "train.en"), ("target", "train.de"), ("valid-source", "val.en"), ("valid-target", "val.de"),
        )
    ]  # fmt: skip
    command = ["finetune", base, "--objective", "reward", "--seed", seed, "--out", out, *files, *options]
    subprocess.run([sys.executable, "-m", "regard", *map(str, command)], check=True)
    return out


def translate(run: Path, parts: dict[str, list[Pair]]) -> dict[str, list[str]]:
    """The translations of all parts by a run."""
    translator = regard.load(run)
    return {
        part: [one.text for one in translator.translate([pair.source for pair in pairs])]
        for part, pairs in parts.items()
    }


def score(texts: Sequence[Sequence[str]], pairs: Sequence[Pair]) -> list[dict[str, BootstrapScore]]:
    """Scores of several systems on the same resampled test sets; GLEU has no resamples."""
    references = [pair.target for pair in pairs]
    found = score_all([measure(one, references) for one in texts])
    for scores, outputs in zip(found, texts, strict=True):
        scores["gleu"] = BootstrapScore(100 * mean_reward(gleu, outputs, references), np.empty(0))
    return found


def report(parts: dict[str, list[Pair]], texts: dict[str, dict[str, list[str]]]) -> dict[str, Any]:
    """Print and return the scores of the base and of each seed, and the differences."""
    results: dict[str, Any] = {}
    _, *tuned = texts
    for part, names in PARTS.items():
        before, *after = score([texts[name][part] for name in texts], parts[part])
        for name in names:
            mean = BootstrapScore(
                float(np.mean([one[name].score for one in after])), np.mean([one[name].resampled_R for one in after], 0)
            )
            difference = compare(name, mean, before[name]) if name != "gleu" else None
            gain, goal = mean.score - before[name].score, GOALS.get((part, name))
            row: dict[str, Any] = {
                "before": before[name].score,
                "after": {seed: one[name].score for seed, one in zip(tuned, after, strict=True)},
                "gain": gain,
                "interval": difference.interval if difference else None,
                "p": difference.p if difference else None,
                "goal": goal,
                "reached": None if goal is None else bool(gain >= goal),
            }
            results.setdefault(part, {})[name] = row
            seeds = "  ".join(f"{value:6.2f}" for value in row["after"].values())
            sure = (
                f"  95 % {row['interval'][0]:+.2f} to {row['interval'][1]:+.2f}, p {row['p']:.3f}" if difference else ""
            )
            asked = "" if goal is None else f"  (goal {goal:+.1f}: {'reached' if row['reached'] else 'missed'})"
            print(f"{part:17} {name:5} {row['before']:6.2f} -> {seeds}   mean {gain:+.2f}{sure}{asked}", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the trained run to fine-tune")
    add_folder(parser)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--minutes", type=float, help="limit of each fine-tuning")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="a setting of the fine-tuning")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS, help="parts to score")
    options = parser.parse_args()
    check_folder(options.data)
    FOLDER.mkdir(parents=True, exist_ok=True)
    more = [word for setting in options.set for word in ("--set", setting)]
    more += ["--minutes", str(options.minutes)] if options.minutes else []
    for part in [part for part in PARTS if part not in options.parts]:
        del PARTS[part]
    parts = {part: read_pairs(options.data, part) for part in PARTS}
    texts = {"before": translate(options.run, parts)}
    seconds = {}
    for seed in options.seeds:
        run = finetune(options.data, options.run, seed, more)
        texts[str(seed)] = translate(run, parts)
        seconds[str(seed)] = Run.open(run).card["training"]["seconds"]
    results = report(parts, texts)
    found = {"run": options.run.name, "settings": options.set, "seconds": seconds, "scores": results}
    (OUT / "reward.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
