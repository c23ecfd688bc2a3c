"""Effect of context in conversation: perplexity and diversity on the Self-dialogue corpus at equal training time.

Three models are trained one after the other, each with the whole machine for the same number of minutes: a Transformer
that reads only the last turn; the same Transformer that reads the last five turns as one sequence; and HRAN, with
attention over words and turns. All learn the same replies with the same vocabulary, so perplexities can be compared;
whole dialogues are held out. Diversity is that of greedy replies to 500 contexts of the test part, and of the human
replies.

    make bench-chat         (python benchmarks/chat.py [--minutes 10] [--data FILE] [--sides single,multi,hran])

The corpus: repository jfainberg/self_dialogue_corpus on GitHub, as JSON lines {"turns": [...]}. Figures of models that
are not trained again are taken from benchmarks/out/chat.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from regard.data.pairs import Pair
from regard.run import Run
from regard.tasks.chat.chatbot import load
from regard.tasks.chat.data import split_turns
from regard.tasks.chat.training import distinct
from regard.tasks.seq2seq import mean_loss
from regard.training.loss import perplexity

HERE = Path(__file__).parent
OUT = HERE / "out"
FOLDER = OUT / "chat"
LABELS = {
    "single": "Transformer, last turn",
    "multi": "Transformer, last 5 turns",
    "hran": "HRAN, last 5 turns",
}
SHARED = [
    "tokenizer.vocab_size=8000",
    "tokenizer.subword_regularization=0",
    "model.dropout=0.1",
    "train.batch_tokens=4096",
    "train.validate_every=500",
    "train.validation_sentences=100",
    "train.regularization_warmup=0",
]
OWN = {
    "single": ["chat.context_turns=1", "model.arch=transformer-mini"],
    "multi": ["chat.context_turns=5", "model.arch=transformer-mini"],
    "hran": ["chat.context_turns=5", "model.arch=hran"],
}


def train(side: str, data: Path, minutes: float) -> dict[str, Any]:
    """Run `regard train --task chat` and return the figures of its card."""
    run = FOLDER / side
    shutil.rmtree(run, ignore_errors=True)
    settings = [word for setting in (*SHARED, *OWN[side]) for word in ("--set", setting)]
    command = [sys.executable, "-m", "regard", "train", "--task", "chat", "--source", str(data), "--out", str(run)]
    with (FOLDER / f"{side}.log").open("w") as log:
        done = subprocess.run([*command, "--minutes", str(minutes), *settings], stderr=log, stdout=log, check=False)
    if done.returncode:
        raise SystemExit((FOLDER / f"{side}.log").read_text()[-2000:])
    return judge(side, minutes)


def judge(side: str, minutes: float) -> dict[str, Any]:
    """Compute the figures of a finished run."""
    run = Run.open(FOLDER / side)
    card, chatter = run.card, load(run.folder)
    scores, training = card["scores"]["test"], card["training"]
    translator = chatter.translator
    held_out = run.held_out()
    people = [pair.target for pair in held_out]
    replies = [answer.text for answer in translator.translate([pair.source for pair in held_out], retry_failures=False)]
    last = [Pair(split_turns(pair.source)[-1], pair.target) for pair in held_out]
    with_all, with_last = (
        perplexity(mean_loss(translator.model, translator.source, translator.target, pairs))
        for pairs in (held_out, last)
    )
    return {
        "minutes": minutes,
        "perplexity": scores["perplexity"],
        "distinct_1": distinct(replies, 1),
        "distinct_2": distinct(replies, 2),
        "bleu": scores["bleu"],
        "replies": scores["sentences"],
        "updates": training["step"],
        "tokens": training["tokens"],
        "pairs": card["pairs"]["train"],
        "parameters": card["parameters"],
        "vocabulary": translator.target.hash(),
        "references": hashlib.sha256("\n".join(people).encode()).hexdigest(),
        "people": {"distinct_1": distinct(people, 1), "distinct_2": distinct(people, 2)},
        "held_out": {"replies": len(held_out), "all_turns": with_all, "last_turn": with_last},
    }


def check(found: dict[str, dict[str, Any]]) -> None:
    """Exit unless all models have the same vocabulary and replies, so that perplexities can be compared."""
    for name in ("vocabulary", "references", "replies"):
        if len({json.dumps(figures[name]) for figures in found.values()}) > 1:
            raise SystemExit(f"the sides differ in their {name}; train them anew")


def report(found: dict[str, dict[str, Any]]) -> None:
    """Print the table."""
    head = ("perplexity", "last turn alone", "distinct-1", "distinct-2", "BLEU", "updates", "tokens read", "parameters")
    print(f"\n{'':28}" + "".join(f"{name:>17}" for name in head))
    for side, figures in found.items():
        print(
            f"{LABELS[side]:28}{figures['perplexity']:17.2f}{figures['held_out']['last_turn']:17.2f}"
            f"{figures['distinct_1']:17.4f}{figures['distinct_2']:17.4f}{figures['bleu']:17.2f}"
            f"{figures['updates']:17,}{figures['tokens']:17,}{figures['parameters']:17,}"
        )
    people = next(iter(found.values()))["people"]
    print(f"{'people':28}{'':34}{people['distinct_1']:17.4f}{people['distinct_2']:17.4f}")
    print(f"\n{conclude(found)}")


def conclude(found: dict[str, dict[str, Any]]) -> str:
    """Return a sentence that says whether context helps."""
    if not {"single", "multi"} <= found.keys():
        return "both single and multi are needed to say whether context helps"
    single, multi = found["single"]["perplexity"], found["multi"]["perplexity"]
    says = "helps" if multi < single else "does not help"
    figures = f"perplexity {multi:.2f} with five turns, {single:.2f} with one"
    return f"context {says}: {figures} ({found['multi']['minutes']:g} minutes each)"


def main() -> None:
    """Train the requested sides, then show all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = HERE.parent.parent / "shared" / "data" / "self_dialogue" / "dialogues.jsonl.gz"
    parser.add_argument("--data", type=Path, default=default, metavar="FILE", help="the dialogues as JSON lines")
    parser.add_argument("--minutes", type=float, default=10.0, help="minutes of training per side")
    parser.add_argument("--sides", default=",".join(LABELS), help="which to train, separated by commas")
    options = parser.parse_args()
    if not options.data.is_file():
        raise SystemExit(f"{options.data}: no such file; it can be had from github.com/jfainberg/self_dialogue_corpus")
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = OUT / "chat.json"
    found: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.is_file() else {}
    for side in options.sides.split(",") if options.sides else []:
        found[side] = train(side, options.data, options.minutes)
        kept.write_text(json.dumps(found, indent=1, ensure_ascii=False))
    found = {side: found[side] for side in LABELS if side in found}
    check(found)
    report(found)


if __name__ == "__main__":
    main()
