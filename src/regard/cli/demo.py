"""`regard demo`: the whole way, on the built-in corpus, in some minutes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from regard.errors import RunError

RECIPE: dict[str, Any] = {
    "data": {
        "train": [{"source": "phrasebook"}],
        "valid": [{"source": "phrasebook:valid"}],
        "test": [{"source": "phrasebook:test"}],
        "source_language": "en",
        "target_language": "it",
    },
    "tokenizer": {"size": 2000},
    "model": {
        "arch": "transformer-tiny",
        "encoder_layers": 3,
        "decoder_layers": 3,
        "dropout": 0.1,
        "inner": 512,
    },
    "train": {
        "max_steps": 1500,
        "batch_tokens": 2048,
        "learning_rate": 2e-3,
        "warmup": 300,
        "validate_every": 250,
        "state_every": 100,
        "valid_sentences": 200,
        "average": 0.99,
    },
}
SHOWN = 12


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Train a small Transformer on the built-in English-Italian phrasebook, score it on sentences it has never\n"
        "seen, show translations, and write a report page. Interrupted, it goes on when started again.\n\n"
        "  regard demo"
    )
    parser.add_argument("--out", default="runs/demo", metavar="DIR", help="the run folder (default: runs/demo)")


def run(options: argparse.Namespace) -> int:
    """Train, or go on; then show."""
    folder = Path(options.out)
    from regard.run import Run
    from regard.tasks.train import resolve, resume, start

    if (folder / "recipe.toml").is_file():
        opened = Run.open(folder)
        if not opened.card.get("scores"):
            opened = resume(folder)
    elif folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder}: exists and is not a demo run; choose another --out")
    else:
        print("The demo trains an English-Italian translator on the built-in phrasebook.", file=sys.stderr)
        opened = start(resolve(RECIPE), folder)
    show(opened)
    return 0


def show(run: Any) -> None:
    """Scores, a dozen translations beside their references, and what to do next."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from regard.data.phrasebook import phrasebook
    from regard.tasks.report import duration
    from regard.tasks.translate import load

    console = Console(highlight=False)
    card = run.card
    scores, training = card["scores"]["test"], card["training"]
    step = len(phrasebook().test) // SHOWN
    chosen = phrasebook().test[::step][:SHOWN]
    answers = load(run.folder).translate([phrase.source for phrase in chosen])
    table = Table(box=None, padding=(0, 2, 0, 0), title_justify="left", header_style="dim")
    table.add_column("", width=1)
    table.add_column("English")
    table.add_column("Italian, as translated", style="cyan")
    table.add_column("as it should be")
    for phrase, answer in zip(chosen, answers, strict=True):
        right = answer.text == phrase.target
        table.add_row(
            "[green]=[/]" if right else "[yellow]~[/]", escape(phrase.source), escape(answer.text),
            "" if right else escape(phrase.target),
        )  # fmt: skip
    console.print()
    console.print(table)
    console.print(
        f"\nBLEU [bold]{scores['bleu']:.1f}[/] on {scores['sentences']:,} sentences it has never seen, "
        f"after {duration(training['seconds'])} of training.\n[dim]{scores['signatures']['bleu']}[/]\n"
    )
    console.print(f"The report:      {run.folder / 'report.html'}   (open it in a browser)\n")
    console.print("Next:")
    console.print(f"  echo 'I take a shower' | regard translate {run.folder}")
    console.print(f"  regard info {run.folder}")
    console.print("  regard train --source train.en --target train.de --out runs/en-de")
