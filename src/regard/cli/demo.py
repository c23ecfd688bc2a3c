"""`regard demo`: train a small model on built-in data in a few minutes, score it and show its output."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, NamedTuple

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


TESTED = 120
"""Number of test pictures that are described after training."""


def configure(parser: Parser) -> None:
    parser.add_argument("what", nargs="?", choices=list(DEMOS), metavar="|".join(DEMOS), default=next(iter(DEMOS)),
                        help="the task (default: translate)")  # fmt: skip
    folders = ", ".join(map(default_folder, DEMOS))
    parser.add_argument("--out", metavar="DIR", help=f"the run folder (default: {folders})")


def run(options: argparse.Namespace) -> int:
    demo = DEMOS[options.what]
    folder = Path(options.out or default_folder(options.what))
    from regard.tasks.train import resolve, resume, start
    from regard.training.plan import duration

    if (folder / "recipe.toml").is_file():
        opened = Run.open(folder).require(demo.task)
        if not opened.is_finished:
            opened = resume(folder)
    elif folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder}: exists and is not a demo run; choose another --out")
    else:
        print(f"The demo trains {demo.model}.", file=sys.stderr)
        with as_file(files("regard") / "recipes" / f"demo-{options.what}.toml") as recipe:
            table = read_table(recipe)
        opened = start(resolve(table), folder)
    print()
    found = demo.show(opened)
    data, more = f"that are not in the training data, after {duration(opened.card['training']['seconds'])}", found[2:]
    console().print(f"\n{found[0]} on {found[1]} {data} of training.", *more, "", sep="\n", soft_wrap=True)
    command = "regard" if shutil.which("regard") else os.path.relpath(sys.argv[0])
    print(f"The report is {opened.folder / 'report.html'}; open it in a browser. Then try:\n")
    for line in demo.next:
        print("  " + line.format(regard=command, run=opened.folder))
    return 0


def default_folder(name: str) -> str:
    """The run folder of a demo: "runs/demo" for the first one, e.g. "runs/demo-chat" for another one."""
    return "runs/demo" if name == next(iter(DEMOS)) else f"runs/demo-{name}"


Conclusion = tuple[str, ...]
"""What a demo prints at the end: a score, on what it was measured, and further lines, in the markup of rich."""


def mark_rows(texts: Iterable[str], made: Iterable[str], wanted: Iterable[Sequence[str]]) -> list[list[Any]]:
    """Rows of a table: a mark, a text, what the model `made` of it and, if that is not `wanted`, a reference."""
    from rich.text import Text

    rows: list[list[Any]] = []
    for text, answer, references in zip(texts, made, wanted, strict=True):
        is_same = answer in references
        style, mark = ("cyan", "=") if is_same else ("yellow", "~")
        rows.append([Text(mark, "green" if is_same else style), text, Text(answer, style)])
        if not is_same:
            rows.append(["", "", Text(f"reference: {references[0]}", "dim")])
    return rows


def show_translations(run: Run) -> Conclusion:
    """Print test sentences with their translations and, where these differ, the references; then the BLEU score."""
    from regard.data.builtin import read_phrases
    from regard.tasks.translate.translator import load

    unseen = [phrase for phrase in read_phrases("test") if len(phrase.source) <= 42]
    chosen = unseen[:: len(unseen) // 12][:12]
    made = (answer.text for answer in load(run.folder).translate([phrase.source for phrase in chosen]))
    rows = mark_rows((phrase.source for phrase in chosen), made, ([phrase.target] for phrase in chosen))
    show_table(["", "English, not in the training data", "Italian"], rows)
    scores = run.card["scores"]["test"]
    counted, signature = f"{scores['sentences']:,} sentences", scores["signatures"]["bleu"]
    return f"BLEU [bold]{scores['bleu']:.1f}[/]", counted, f"[dim]{signature}[/]"


def show_conversation(run: Run) -> Conclusion:
    """Print the model's replies to `USER_TURNS`, then its perplexity given all earlier turns or only the last."""
    from rich.markup import escape

    from regard.tasks.chat.chatbot import load
    from regard.tasks.chat.data import make_pairs, read_dialogues
    from regard.tasks.seq2seq import mean_loss
    from regard.training.loss import perplexity

    screen, chatbot = console(), load(run.folder)
    turns: list[str] = []
    for said in USER_TURNS:
        turns.append(said)
        turns.append(chatbot.reply(turns).text)
        screen.print(f"  [dim]you[/]    {escape(said)}\n  [dim]model[/]  [cyan]{escape(turns[-1])}[/]", soft_wrap=True)
    scores, model = run.card["scores"]["test"], chatbot.translator
    dialogues = (dialogue for corpus in run.recipe.data.test for dialogue in read_dialogues(corpus))
    pairs = [pair for dialogue in dialogues for pair in make_pairs(dialogue, 1)]  # each reply, given one turn
    of_last_turn = perplexity(mean_loss(model.model, model.source, model.target, pairs))
    return (
        f"Perplexity [bold]{scores['perplexity']:.2f}[/]",
        f"{scores['sentences']:,} replies in conversations",
        f"The same model, given only the last turn: [bold]{of_last_turn:.2f}[/]. Earlier turns help.",
    )


def show_texts(run: Run) -> Conclusion:
    """Print texts and next tokens that a language model predicts, then its perplexity on test sentences.

    The perplexity is also that of the same sentences with their words in random order.
    """
    import math
    import random

    from rich.text import Text

    from regard.data.builtin import read_texts
    from regard.tasks.language_model.generator import load
    from regard.tasks.text_scores import sum_scores

    generator = load(run.folder)
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
    return (
        f"Perplexity [bold]{scores['word_perplexity']:.1f}[/] per word",
        f"{len(test):,} sentences",
        f"The same sentences with their words in random order: [bold]{of_mixed:,.0f}[/].",
    )


def show_captions(run: Run) -> Conclusion:
    """Print captions of test pictures, and write these pictures beside the run; then how many captions are right.

    The last line says how often the model looked at the right thing (`regard.tasks.caption.pointing`).
    """
    import numpy as np

    from regard.data.drawings import read_drawings
    from regard.data.pictures import to_png
    from regard.files import write_atomically
    from regard.tasks.caption.captioner import load, texts_of
    from regard.tasks.caption.pointing import measure_pointing

    captioner, drawings = load(run.folder), read_drawings("test")[:TESTED]
    made = texts_of(captioner.caption_pixels(np.stack([one.draw() for one in drawings]), beam_size=1))
    right = [[caption.text for caption in one.captions[captioner.language("")]] for one in drawings]
    shown, folder = slice(0, TESTED, TESTED // 12), run.folder.with_name(f"{run.folder.name}-pictures")
    folder.mkdir(exist_ok=True)
    names = [f"{number}.png" for number in range(1, TESTED + 1)]
    for name, drawing in zip(names[shown], drawings[shown], strict=True):
        write_atomically(folder / name, to_png(drawing.draw()))
    show_table(["", f"in {folder}", "caption"], mark_rows(names[shown], made[shown], right[shown]))
    equal = sum(text in wanted for text, wanted in zip(made, right, strict=True))
    bleu = run.card["scores"]["test"]["bleu"]
    return (
        f"[bold]{equal}[/] of {TESTED} captions are right, and BLEU is [bold]{bleu:.1f}[/],",
        "pictures with combinations of shapes and colors",
        str(measure_pointing(captioner, 50)),
    )


class Demo(NamedTuple):
    """A demo: its task, and what is printed before and after training. Its recipe is recipes/demo-<name>.toml."""

    task: str
    model: str
    """What is trained, on which data."""
    show: Callable[[Run], Conclusion]
    """Prints results of the model, and returns what is printed at the end."""
    next: tuple[str, ...]
    """Commands to try after the demo."""


DEMOS = {
    "translate": Demo(
        "translate",
        "an English-Italian translator on the built-in phrasebook",
        show_translations,
        (
            "{regard} translate {run} 'I take a shower'",
            "{regard} inspect {run} 'I am trendy'",
            "{regard} train --source YOUR.en --target YOUR.de --out runs/en-de",
        ),
    ),
    "chat": Demo(
        "chat",
        "a small chat model on built-in small talk",
        show_conversation,
        (
            "{regard} chat {run}",
            "{regard} chat {run} --explain --sample",
            "{regard} train --task chat YOUR.jsonl --arch hran --out runs/chat",
        ),
    ),
    "lm": Demo(
        "language-model",
        "a language model on the English sentences of the built-in phrasebook",
        show_texts,
        (
            "{regard} write {run} 'The old woman' --count 5",
            "echo 'The dog is in the kitchen.' | {regard} score {run}",
            "{regard} train --task language-model YOUR.txt --out runs/texts",
        ),
    ),
    "caption": Demo(
        "caption",
        "a model that describes the built-in drawings",
        show_captions,
        (
            "{regard} inspect {run} {run}-pictures/1.png",
            "{regard} caption {run} {run}-pictures --nbest 3",
            "{regard} train --task caption YOUR.tsv --images YOUR.zip --out runs/captions",
        ),
    ),
}

COMMANDS = {
    "demo": Command(
        "Train a small Transformer on built-in data, score it on data that it was not trained on, show what it does,\n"
        "and write a report page. An interrupted demo continues when it is started again.",
        configure,
        run,
        examples=("regard demo", *(f"regard demo {name}" for name in list(DEMOS)[1:])),
    )
}
