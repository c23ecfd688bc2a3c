"""From raw text to a good translator: BLEU by training time, on Multi30k English to German.

Sides: `regard train` with all settings chosen by the plan, until it stops by itself, and with 20 minutes in total;
Hugging Face's MarianMTModel (3+3 layers, width 256) in a plain loop until it reaches the BLEU below; `regard train`
with half of the time of this loop; `regard train --arch bahdanau` and `luong-general` with 10 minutes. They run one
after the other, each with the whole machine.

Regard's time starts with the command, and includes preparation and validations; that of the plain loop includes only
its updates. Each validation that is the best so far leaves weights, which are used to translate (beam 5) after
training. Training and the plan use train and val; test_2016_flickr is scored only here.

    make bench-quality      (python benchmarks/quality.py [--data DIR] [--sides regard,marian,...] [--pass 35.5])

Figures of sides that are not run again are taken from benchmarks/out/quality.json. The run until it stops takes hours;
`--sides "" --finished RUN` scores one that was made before, also in several sessions.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from multi30k import OUT, Encoded, add_folder, check_folder, read_pairs
from peers.environment import peer_python

TEST = "test_2016_flickr"
LABELS = {
    "regard": "Regard, until it stops",
    "regard-20": "Regard, 20 minutes in all",
    "marian": "MarianMTModel 3+3, plain loop",
    "regard-half": "Regard, half of the loop's minutes",
    "bahdanau": "Regard --arch bahdanau --minutes 10",
    "luong-general": "Regard --arch luong-general --minutes 10",
}
AROUND = 0.5
"""Minutes reserved for reading the data and for the last validation, which `--minutes` does not include."""
OPTIONS = {
    "regard-20": ["--minutes", str(20 - AROUND)],
    "bahdanau": ["--arch", "bahdanau", "--minutes", "10"],
    "luong-general": ["--arch", "luong-general", "--minutes", "10"],
}
COLOURS = {
    "regard": "#134e4a",
    "regard-20": "#0f766e",
    "marian": "#64748b",
    "regard-half": "#2dd4bf",
    "bahdanau": "#b45309",
    "luong-general": "#6d28d9",
}
FOLDER = OUT / "quality"


def options_of(side: str, curves: dict[str, list[dict[str, Any]]], goal: float) -> list[str]:
    """The options of `regard train` for a side."""
    if side != "regard-half":
        return OPTIONS.get(side, [])
    needed = passed(curves.get("marian", []), goal)
    if needed is None:
        raise SystemExit(f"regard-half: the plain loop has not passed {goal:g} yet; train the side marian first")
    return ["--minutes", f"{needed / 2 - AROUND:.1f}"]


def train_regard(data: Path, name: str, extra: list[str]) -> list[dict[str, Any]]:
    """Run `regard train`, keep the weights of each improvement, and score them."""
    run, kept = FOLDER / name, FOLDER / f"{name}-kept"
    for folder in (run, kept):
        shutil.rmtree(folder, ignore_errors=True)
    kept.mkdir(parents=True)
    files = [
        f"--{side}={data / file}"
        for side, file in (
            ("source", "train.en"), ("target", "train.de"), ("valid-source", "val.en"), ("valid-target", "val.de"),
        )
    ]  # fmt: skip
    began = time.time()
    with (FOLDER / f"{name}.log").open("w") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "regard", "train", *files, "--out", str(run), *extra], stderr=log, stdout=log
        )
        seen = 0.0
        while child.poll() is None:
            time.sleep(0.5)
            seen = keep_weights(run / "weights.safetensors", kept, seen, began)
    if child.returncode:
        raise SystemExit((FOLDER / f"{name}.log").read_text()[-2000:])
    return [score_kept(data, run, weights) for weights in sorted(kept.iterdir())]


def keep_weights(weights: Path, kept: Path, seen: float, began: float) -> float:
    """Keep a link to new weights, named by the seconds since `began`; return the time at which they were written."""
    try:
        written = weights.stat().st_mtime
    except FileNotFoundError:
        return seen
    if written > seen:
        os.link(weights, kept / f"{written - began:08.1f}.safetensors")
    return written


def score_kept(data: Path, run: Path, weights: Path) -> dict[str, Any]:
    """Return BLEU of a run with these weights."""
    (run / "weights.safetensors").unlink()
    os.link(weights, run / "weights.safetensors")
    return score_run(data, run, float(weights.stem) / 60)


def score_finished(data: Path, run: Path) -> dict[str, Any]:
    """Return BLEU of a run that was trained before; its card has the minutes."""
    card = json.loads((run / "card.json").read_text(encoding="utf-8"))
    return score_run(data, run, card["training"]["seconds"] / 60)


def score_run(data: Path, run: Path, minutes: float) -> dict[str, Any]:
    """Return BLEU of a run; the length penalty is tuned on val, as at the end of `regard train`."""
    import regard
    from regard.tasks.translate.training import tune_penalty

    pairs, translator = read_pairs(data, TEST), regard.load(run)
    tuned = tune_penalty(translator, read_pairs(data, "val"))
    penalty = tuned["search.length_penalty"] if tuned else translator.search.length_penalty
    answers = translator.translate([pair.source for pair in pairs], length_penalty=penalty)
    texts = [answer.text for answer in answers]
    point = {"minutes": minutes} | scores(texts, [pair.target for pair in pairs])
    print(f"{run.name}: {minutes:5.1f} min  BLEU {point['bleu']:.2f}", flush=True)
    return point


def train_marian(data: Path, goal: float, most_minutes: float) -> list[dict[str, Any]]:
    """Run the plain loop until it reaches the BLEU or the time is over."""
    folder = FOLDER / "marian"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    python, encoded, pairs = peer_python(), Encoded(data), read_pairs(data, TEST)
    encoded.write_batches(folder / "batches.jsonl", 3000)
    (folder / "test.json").write_text(json.dumps(encoded.tokenizer.encode_many([pair.source for pair in pairs])))
    script = Path(__file__).parent / "peers" / "marian_loop.py"
    arguments = ["--pad", encoded.tokenizer.pad, "--out", folder, "--test", folder / "test.json"]
    child = subprocess.Popen(list(map(str, [python, script, folder / "batches.jsonl", *arguments])))
    points: list[dict[str, Any]] = []
    try:
        while not points or (points[-1]["bleu"] < goal and points[-1]["minutes"] < most_minutes):
            if child.poll() is not None:
                raise SystemExit("the peer's loop ended by itself")
            time.sleep(1)
            for path in sorted(folder.glob("[0-9]*.json"))[len(points) :]:
                found = json.loads(path.read_text())
                texts = [encoded.tokenizer.decode(ids) for ids in found["ids"]]
                points.append({"minutes": found["seconds"] / 60} | scores(texts, [pair.target for pair in pairs]))
                print(f"marian: {points[-1]['minutes']:5.1f} min  BLEU {points[-1]['bleu']:.2f}", flush=True)
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait()
    return points


def scores(texts: list[str], references: list[str]) -> dict[str, Any]:
    """Return BLEU by sacreBLEU with default settings, and in lower case, with the signatures."""
    from sacrebleu import BLEU

    cased, lower = BLEU(), BLEU(lowercase=True)
    found = {
        "bleu": cased.corpus_score(texts, [references]).score,
        "bleu_lower": lower.corpus_score(texts, [references]).score,
    }
    signatures = {"bleu": str(cased.get_signature()), "bleu_lower": str(lower.get_signature())}
    return found | {"signatures": signatures}


def at(points: list[dict[str, Any]], minutes: float) -> float:
    """Return the best BLEU up to this time, with a tolerance of three seconds."""
    return max((point["bleu"] for point in points if point["minutes"] <= minutes + 0.05), default=0.0)


def passed(points: list[dict[str, Any]], goal: float) -> float | None:
    """Return the minute at which a side reached the goal, by linear interpolation; None if it did not."""
    for before, after in itertools.pairwise([{"minutes": 0.0, "bleu": 0.0}, *points]):
        if after["bleu"] >= goal:
            share = (goal - before["bleu"]) / (after["bleu"] - before["bleu"])
            return before["minutes"] + share * (after["minutes"] - before["minutes"])
    return None


def report(curves: dict[str, list[dict[str, Any]]], goal: float) -> None:
    """Print the table."""
    print(f"\n{'':42}{f'passes {goal:g}':>14}{'10 min':>9}{'20 min':>9}{'last':>8}{'lower':>8}{'after':>10}")
    for side, points in curves.items():
        reached = passed(points, goal)
        when = f"{reached:.1f} min" if reached else "-"
        last = points[-1]
        print(
            f"{LABELS[side]:42}{when:>14}{at(points, 10):9.1f}{at(points, 20):9.1f}"
            f"{last['bleu']:8.1f}{last['bleu_lower']:8.1f}{last['minutes']:6.1f} min"
        )


def draw(curves: dict[str, list[dict[str, Any]]], goal: float, path: Path) -> None:
    """Draw BLEU over minutes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for side, points in curves.items():
        minutes, bleu = [point["minutes"] for point in points], [point["bleu"] for point in points]
        if len(points) == 1:  # made before: only the end is known
            after = f"{LABELS[side]} ({minutes[0] / 60:.1f} hours)"
            axes.axhline(bleu[0], color=COLOURS[side], linewidth=1.5, linestyle="--", label=after)
            continue
        axes.plot(minutes, bleu, color=COLOURS[side], linewidth=2, marker="o", markersize=3.5, label=LABELS[side])
    axes.axhline(goal, color="#94a3b8", linewidth=1, linestyle=":")
    axes.annotate(f"{goal:g}", (0, goal), xytext=(4, 3), textcoords="offset points", color="#64748b", fontsize=9)
    axes.legend(loc="lower right", frameon=False)
    axes.set(xlabel="minutes on two cores", ylabel="BLEU, test_2016_flickr", ylim=(0, None), xlim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Train the requested sides, then show all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_folder(parser)
    parser.add_argument("--sides", default=",".join(LABELS), help="which to train, separated by commas")
    parser.add_argument("--pass", dest="goal", type=float, default=35.5, help="BLEU at which the plain loop stops")
    parser.add_argument("--most", type=float, default=60.0, help="minutes after which the plain loop is stopped")
    parser.add_argument("--finished", type=Path, metavar="RUN", help="a run of ours that was left to its end before")
    options = parser.parse_args()
    check_folder(options.data)
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = OUT / "quality.json"
    curves: dict[str, list[dict[str, Any]]] = json.loads(kept.read_text()) if kept.is_file() else {}
    for side in options.sides.split(",") if options.sides else []:
        if side == "marian":
            curves[side] = train_marian(options.data, options.goal, options.most)
        else:
            curves[side] = train_regard(options.data, side, options_of(side, curves, options.goal))
        kept.write_text(json.dumps(curves, indent=1))
    if options.finished:
        curves["regard"] = [score_finished(options.data, options.finished)]
        kept.write_text(json.dumps(curves, indent=1))
    curves = {side: curves[side] for side in LABELS if side in curves}
    report(curves, options.goal)
    draw(curves, options.goal, OUT / "quality.png")


if __name__ == "__main__":
    main()
