"""`regard demo`: the whole way, on the built-in corpus, in some minutes."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli import demo as demo_chat
from regard.errors import RunError
from regard.tasks.chat.data import make_pairs, read_dialogues

if TYPE_CHECKING:
    from rich.console import Console

    from regard.run import Run
    from regard.tasks.chat.chatbot import Chatbot


# `regard demo chat`: a model that talks, trained on the built-in small talk in some minutes.


RECIPE_demo_chat: dict[str, Any] = {
    "data": {
        "task": "chat",
        "train": [{"source": "smalltalk"}],
        "valid": [{"source": "smalltalk:valid"}],
        "test": [{"source": "smalltalk:test"}],
        "source_language": "en",
        "target_language": "en",
    },
    "tokenizer": {"vocab_size": 1400, "subword_regularization": 0.0},
    "model": {"arch": "transformer-tiny", "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.1},
    "train": {
        "max_steps": 900,
        "batch_tokens": 2048,
        "learning_rate": 3e-3,
        "warmup_steps": 100,
        "schedule": "cosine",
        "validate_every": 150,
        "checkpoint_every": 150,
        "validation_sentences": 100,
        "ema_decay": 0.98,
    },
}
INTRODUCTION_demo_chat = "The demo trains a small model to talk, on small talk that a grammar writes."
SAID = (
    "Hello!",
    "My name is Anna.",
    "Tomorrow I am going to the beach.",
    "What is my name?",
    "Should I take an umbrella?",
    "The sun is shining.",
    "Should I take an umbrella?",
    "thanks",
    "Goodbye.",
)
"""One side of a conversation in which nearly every reply needs what was said before."""


def show_demo_chat(run: Run) -> None:
    """A conversation, what the context is worth, and what to do next."""
    from rich.console import Console

    from regard.tasks.chat.chatbot import load
    from regard.training.plan import duration

    console = Console(highlight=False, soft_wrap=True)
    chatter = load(run.folder)
    show_conversation(chatter, console)
    scores, seconds = run.card["scores"]["test"], run.card["training"]["seconds"]
    alone = perplexity_of_last_turn(chatter, run)
    console.print(
        f"\nPerplexity [bold]{scores['perplexity']:.2f}[/] on {scores['sentences']:,} replies of conversations that it "
        f"has never seen, after {duration(seconds)} of training.\nThe same model, shown the last turn alone: "
        f"[bold]{alone:.2f}[/]. What was said before helps.\n"
    )
    command = command_name()
    console.print(f"The report is {run.folder / 'report.html'}; open it in a browser. Then try:\n")
    console.print(f"  {command} chat {run.folder}")
    console.print(f"  {command} chat {run.folder} --explain --sample")
    console.print(f"  {command} train --task chat YOUR.jsonl --arch hran --out runs/chat")


def show_conversation(chatter: Chatbot, console: Any) -> None:
    """One side is given, the other is the model's."""
    from rich.markup import escape

    turns: list[str] = []
    console.print()
    for said in SAID:
        turns.append(said)
        reply = chatter.reply(turns).text
        turns.append(reply)
        console.print(f"  [dim]you[/]    {escape(said)}\n  [dim]model[/]  [cyan]{escape(reply)}[/]")


def perplexity_of_last_turn(chatter: Chatbot, run: Run) -> float:
    """Of the replies of the test part, each after the turn before it and nothing else."""
    from regard.tasks.chat.training import perplexity
    from regard.tasks.seq2seq import mean_loss

    dialogues = (dialogue for corpus in run.recipe.data.test for dialogue in read_dialogues(corpus))
    pairs = [pair for dialogue in dialogues for pair in make_pairs(dialogue, 1)]
    translator = chatter.translator
    return perplexity(mean_loss(translator.model, translator.source, translator.target, pairs))


RECIPE: dict[str, Any] = {
    "data": {
        "train": [{"source": "phrasebook"}],
        "valid": [{"source": "phrasebook:valid"}],
        "test": [{"source": "phrasebook:test"}],
        "source_language": "en",
        "target_language": "it",
    },
    "tokenizer": {"vocab_size": 2000},
    "model": {
        "arch": "transformer-tiny",
        "encoder_layers": 3,
        "decoder_layers": 3,
        "dropout": 0.1,
    },
    "train": {
        "max_steps": 900,
        "batch_tokens": 2048,
        "learning_rate": 3e-3,
        "warmup_steps": 200,
        "schedule": "cosine",
        "validate_every": 180,
        "checkpoint_every": 100,
        "validation_sentences": 200,
        "ema_decay": 0.98,
    },
}
INTRODUCTION = "The demo trains an English-Italian translator on the built-in phrasebook."
SHOWN, LONGEST_SHOWN = 12, 42


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Train a small Transformer on built-in data, score it on what it has never seen, show what it does, and write\n"
        "a report page: translation from an English-Italian phrasebook, or chat from small talk. Interrupted, it goes\n"
        "on when started again.\n\n"
        "  regard demo\n"
        "  regard demo chat"
    )
    parser.add_argument("what", nargs="?", choices=["translate", "chat"], default="translate", help="what to learn")
    parser.add_argument("--out", metavar="DIR", help="the run folder (default: runs/demo, or runs/demo-chat)")


def run(options: argparse.Namespace) -> int:
    """Train, or go on; then show."""
    is_chat = options.what == "chat"
    folder = Path(options.out or ("runs/demo-chat" if is_chat else "runs/demo"))
    from regard.run import Run
    from regard.tasks.train import resolve, resume, start

    if (folder / "recipe.toml").is_file():
        opened = Run.open(folder).require(options.what)
        if not opened.is_finished:
            opened = resume(folder)
    elif folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder}: exists and is not a demo run; choose another --out")
    else:
        print(demo_chat.INTRODUCTION_demo_chat if is_chat else INTRODUCTION, file=sys.stderr)
        opened = start(resolve(demo_chat.RECIPE_demo_chat if is_chat else RECIPE), folder)
    (demo_chat.show_demo_chat if is_chat else show)(opened)
    return 0


def show(run: Run) -> None:
    """Scores, a dozen translations beside their references, and what to do next."""
    from rich.console import Console

    from regard.training.plan import duration

    console = Console(highlight=False, soft_wrap=True)
    scores, training = run.card["scores"]["test"], run.card["training"]
    console.print()
    show_translations(run, Console(highlight=False))
    console.print(
        f"\nBLEU [bold]{scores['bleu']:.1f}[/] on {scores['sentences']:,} sentences it has never seen, "
        f"after {duration(training['seconds'])} of training.\n[dim]{scores['signatures']['bleu']}[/]\n"
    )
    command = command_name()
    console.print(f"The report is {run.folder / 'report.html'}; open it in a browser. Then try:\n")
    console.print(f"  echo 'I take a shower' | {command} translate {run.folder}")
    console.print(f"  {command} info {run.folder}")
    console.print(f"  {command} train --source YOUR.en --target YOUR.de --out runs/en-de")


def show_translations(run: Run, console: Console) -> None:
    """Test sentences from all over the phrasebook, what the model makes of them, and what would be better."""
    from rich.markup import escape
    from rich.table import Table

    from regard.data.builtin import read_phrases
    from regard.tasks.translate.translator import load

    unseen = [phrase for phrase in read_phrases("test") if len(phrase.source) <= LONGEST_SHOWN]
    chosen = unseen[:: len(unseen) // SHOWN][:SHOWN]
    answers = load(run.folder).translate([phrase.source for phrase in chosen])
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    table.add_column("English, never seen before")
    table.add_column("Italian")
    for phrase, answer in zip(chosen, answers, strict=True):
        if answer.text == phrase.target:
            table.add_row("[green]=[/]", escape(phrase.source), f"[cyan]{escape(answer.text)}[/]")
        else:
            table.add_row("[yellow]~[/]", escape(phrase.source), f"[yellow]{escape(answer.text)}[/]")
            table.add_row("", "", f"[dim]better: {escape(phrase.target)}[/]")
    console.print(table)


def command_name() -> str:
    """How this program can be called from here: by its name, or by its place where it is not on the path."""
    return "regard" if shutil.which("regard") else os.path.relpath(sys.argv[0])
