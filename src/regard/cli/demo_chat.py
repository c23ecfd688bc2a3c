"""`regard demo chat`: a model that talks, trained on the built-in small talk in some minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regard.data.dialogues import make_pairs, read_dialogues

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks.chat import Chatter

RECIPE: dict[str, Any] = {
    "data": {
        "task": "chat",
        "train": [{"source": "smalltalk"}],
        "valid": [{"source": "smalltalk:valid"}],
        "test": [{"source": "smalltalk:test"}],
        "source_language": "en",
        "target_language": "en",
    },
    "tokenizer": {"size": 1400, "sampling": 0.0},
    "model": {"arch": "transformer-tiny", "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.1},
    "train": {
        "max_steps": 900,
        "batch_tokens": 2048,
        "learning_rate": 3e-3,
        "warmup": 100,
        "schedule": "cosine",
        "validate_every": 150,
        "state_every": 150,
        "valid_sentences": 100,
        "average": 0.98,
    },
}
INTRODUCTION = "The demo trains a small model to talk, on small talk that a grammar writes."
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


def show(run: Run) -> None:
    """A conversation, what the context is worth, and what to do next."""
    from rich.console import Console

    from regard.cli.demo import command_name
    from regard.tasks.chat import load
    from regard.training.amounts import duration

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


def show_conversation(chatter: Chatter, console: Any) -> None:
    """One side is given, the other is the model's."""
    from rich.markup import escape

    turns: list[str] = []
    console.print()
    for said in SAID:
        turns.append(said)
        reply = chatter.reply(turns).text
        turns.append(reply)
        console.print(f"  [dim]you[/]    {escape(said)}\n  [dim]model[/]  [cyan]{escape(reply)}[/]")


def perplexity_of_last_turn(chatter: Chatter, run: Run) -> float:
    """Of the replies of the test part, each after the turn before it and nothing else."""
    from regard.tasks.conversation import perplexity
    from regard.tasks.translation import mean_loss

    dialogues = (dialogue for corpus in run.recipe.data.test for dialogue in read_dialogues(corpus))
    pairs = [pair for dialogue in dialogues for pair in make_pairs(dialogue, 1)]
    translator = chatter.translator
    return perplexity(mean_loss(translator.model, translator.source, translator.target, pairs))
