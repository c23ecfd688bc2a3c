"""`regard demo`: train a small model on built-in data in a few minutes, score it and show its output."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple

from regard.config.recipe import read_table
from regard.errors import RunError
from regard.run import Run
from regard.terminal import Command, Parser, console, show_table

USER_TURNS = (
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
"""The turns of the user in a conversation. Nearly every reply depends on earlier turns."""

BEGINNINGS = ("The old man", "My sister never", "Why don't", "We", "Tomorrow the teacher will")
UNFINISHED = (
    "The animal didn't cross the street because it was too",
    "She cannot find her",
    "They are drinking a cup of",
    "Maria doesn't",
)
"""Beginnings of sentences, which a language model continues, and for which it predicts the next token."""


def configure(parser: Parser) -> None:
    parser.add_argument("what", nargs="?", choices=list(DEMOS), metavar="|".join(DEMOS), default=next(iter(DEMOS)),
                        help="the task (default: translate)")  # fmt: skip
    parser.add_argument(
        "--out", metavar="DIR", help="the run folder (default: runs/demo, runs/demo-chat or runs/demo-lm)"
    )


def run(options: argparse.Namespace) -> int:
    demo = DEMOS[options.what]
    folder = Path(options.out or demo.folder)
    from regard.tasks.train import resolve, resume, start
    from regard.training.plan import duration

    if (folder / "recipe.toml").is_file():
        opened = Run.open(folder).require(demo.task)
        if not opened.is_finished:
            opened = resume(folder)
    elif folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder}: exists and is not a demo run; choose another --out")
    else:
        print(demo.introduction, file=sys.stderr)
        with as_file(files("regard") / "recipes" / demo.recipe) as recipe:
            table = read_table(recipe)
        opened = start(resolve(table), folder)
    demo.show(opened, duration(opened.card["training"]["seconds"]))
    command = "regard" if shutil.which("regard") else os.path.relpath(sys.argv[0])
    print(f"The report is {opened.folder / 'report.html'}; open it in a browser. Then try:\n")
    for line in demo.next:
        print("  " + line.format(regard=command, run=opened.folder))
    return 0


def show_translations(run: Run, duration: str) -> None:
    """Print test sentences with their translations and, where these differ, the references; then the BLEU score.

    `duration` is the training time as text, e.g. "6.8 min".
    """
    from rich.text import Text

    from regard.data.builtin import read_phrases
    from regard.tasks.translate.translator import load

    unseen = [phrase for phrase in read_phrases("test") if len(phrase.source) <= 42]
    chosen = unseen[:: len(unseen) // 12][:12]
    rows = []
    for phrase, answer in zip(chosen, load(run.folder).translate([phrase.source for phrase in chosen]), strict=True):
        is_same = answer.text == phrase.target
        style, mark = ("cyan", "=") if is_same else ("yellow", "~")
        rows.append([Text(mark, "green" if is_same else style), phrase.source, Text(answer.text, style)])
        if not is_same:
            rows.append(["", "", Text(f"reference: {phrase.target}", "dim")])
    print()
    show_table(["", "English, not in the training data", "Italian"], rows)
    scores = run.card["scores"]["test"]
    console().print(
        f"\nBLEU [bold]{scores['bleu']:.1f}[/] on {scores['sentences']:,} sentences that are not in the training data, "
        f"after {duration} of training.\n[dim]{scores['signatures']['bleu']}[/]\n",
        soft_wrap=True,
    )


def show_conversation(run: Run, duration: str) -> None:
    """Print the model's replies to `USER_TURNS`, then its perplexity given all earlier turns and given only the last.

    `duration` is the training time as text, e.g. "6.8 min".
    """
    from rich.markup import escape

    from regard.tasks.chat.chatbot import load
    from regard.tasks.chat.data import make_pairs, read_dialogues
    from regard.tasks.seq2seq import mean_loss
    from regard.training.loss import perplexity

    screen, chatbot = console(), load(run.folder)
    turns: list[str] = []
    print()
    for said in USER_TURNS:
        turns.append(said)
        turns.append(chatbot.reply(turns).text)
        screen.print(f"  [dim]you[/]    {escape(said)}\n  [dim]model[/]  [cyan]{escape(turns[-1])}[/]", soft_wrap=True)
    scores, model = run.card["scores"]["test"], chatbot.translator
    dialogues = (dialogue for corpus in run.recipe.data.test for dialogue in read_dialogues(corpus))
    pairs = [pair for dialogue in dialogues for pair in make_pairs(dialogue, 1)]  # each reply, given one turn
    of_last_turn = perplexity(mean_loss(model.model, model.source, model.target, pairs))
    screen.print(
        f"\nPerplexity [bold]{scores['perplexity']:.2f}[/] on {scores['sentences']:,} replies in conversations that "
        f"are not in the training data, after {duration} of training.\nThe same model, given only the last turn: "
        f"[bold]{of_last_turn:.2f}[/]. Earlier turns help.\n",
        soft_wrap=True,
    )


def show_texts(run: Run, duration: str) -> None:
    """Print texts and next tokens that a language model predicts, then its perplexity on test sentences.

    The perplexity is also that of the same sentences with their words in random order. `duration` is the training time
    as text, e.g. "1.5 min".
    """
    import math
    import random

    from rich.text import Text

    from regard.data.builtin import read_texts
    from regard.tasks.language_model.generator import load
    from regard.tasks.text_scores import sum_scores

    generator = load(run.folder)
    print()
    for one in generator.write(BEGINNINGS):
        console().print(Text(f"  {one.beginning}", "dim") + Text(one.text.removeprefix(one.beginning), "cyan"))
    rows = []
    for beginning in UNFINISHED:
        *_, last = generator.predict_tokens(beginning, best=4)  # the last prediction is that after the beginning
        likely = (f"{generator.tokenizer.decode([id])} {math.exp(value):.0%}" for id, value in last.best)
        rows.append([f"{beginning} ...", Text("   ".join(likely), "cyan")])
    print()
    show_table(["beginning", "most probable next tokens"], rows)
    test = [text for corpus in run.recipe.data.test for text in read_texts(corpus.source)]
    scores, order = run.card["scores"]["test"], random.Random(1)
    mixed = [" ".join(order.sample(words := text.split(), len(words))) for text in test]
    of_mixed = sum_scores(generator.score(mixed)).as_dict()["word_perplexity"]
    console().print(
        f"\nPerplexity [bold]{scores['word_perplexity']:.1f}[/] per word on {len(test):,} sentences that are not in "
        f"the training data, after {duration} of training.\nThe same sentences with their words in random order: "
        f"[bold]{of_mixed:,.0f}[/].\n",
        soft_wrap=True,
    )


class Demo(NamedTuple):
    """A demo: its task and recipe, its default run folder, and what is printed before and after training."""

    task: str
    recipe: str
    """File name of the recipe."""
    folder: str
    introduction: str
    show: Callable[[Run, str], None]
    """Prints results of the model; called with the trained run and the duration of training, e.g. "6.8 min"."""
    next: tuple[str, ...]
    """Commands to try after the demo."""


DEMOS = {
    "translate": Demo(
        "translate",
        "demo-translate.toml",
        "runs/demo",
        "The demo trains an English-Italian translator on the built-in phrasebook.",
        show_translations,
        (
            "{regard} translate {run} 'I take a shower'",
            "{regard} inspect {run} 'I am trendy'",
            "{regard} train --source YOUR.en --target YOUR.de --out runs/en-de",
        ),
    ),
    "chat": Demo(
        "chat",
        "demo-chat.toml",
        "runs/demo-chat",
        "The demo trains a small chat model on built-in small talk.",
        show_conversation,
        (
            "{regard} chat {run}",
            "{regard} chat {run} --explain --sample",
            "{regard} train --task chat YOUR.jsonl --arch hran --out runs/chat",
        ),
    ),
    "lm": Demo(
        "language-model",
        "demo-lm.toml",
        "runs/demo-lm",
        "The demo trains a language model on the English sentences of the built-in phrasebook.",
        show_texts,
        (
            "{regard} write {run} 'The old woman' --count 5",
            "echo 'The dog is in the kitchen.' | {regard} score {run}",
            "{regard} train --task language-model YOUR.txt --out runs/texts",
        ),
    ),
}

COMMANDS = {
    "demo": Command(
        "Train a small Transformer on built-in data, score it on data that it was not trained on, show what it does,\n"
        "and write a report page. An interrupted demo continues when it is started again.",
        configure,
        run,
        examples=("regard demo", "regard demo chat", "regard demo lm"),
    )
}
