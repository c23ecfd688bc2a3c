"""Knowledge bases for tests: the questions that a bakery hears, as a FAQ, and in many forms to learn from."""

from __future__ import annotations

import json
import random
from pathlib import Path

FAQ = """# The bakery

Everything people ask us.

## When do you open?

At six in the morning, from Tuesday to Saturday.

## Do you sell bread without gluten?

Yes, on *Fridays*:

- buckwheat loaf
- rice rolls

## How can I order a birthday cake?

Call us three days before, or write to cakes@bakery.example.

## Can I pay by card?

Cards are welcome from five euros on.
"""

ENTRIES = {
    "At six in the morning, from Tuesday to Saturday.": ("open", "opening hours", "start in the morning", "unlock"),
    "Yes, on Fridays we bake without gluten.": ("gluten", "wheat free bread", "coeliac rolls", "buckwheat loaf"),
    "Call us three days before the party.": ("birthday cake", "order a cake", "wedding cake", "cake for a party"),
    "Cards are welcome from five euros on.": ("pay by card", "credit card", "contactless payment", "cash only"),
    "We deliver within the old town.": ("deliver", "bring it home", "courier", "send rolls to my office"),
    "The dough rests for two days.": ("sourdough", "how long the dough rests", "yeast", "ferment the dough"),
}
FORMS = (
    "what about {}", "can you tell me about {}", "please explain {}", "I want to know about {}", "a question on {}",
    "is it true what they say about {}", "{} please", "any news on {}", "how about {}", "my friend asked for {}",
    "who knows something about {}", "tell us of {}", "a word on {}", "we talked of {} today",
)  # fmt: skip

SMALL = [
    "tokenizer.vocab_size=300",
    "model.width=32",
    "model.heads=2",
    "model.ffn_width=32",
    "model.vector_size=32",
    "train.batch_tokens=512",
    "train.learning_rate=0.01",
    "train.warmup_steps=5",
    "train.ema_decay=0.9",
    "train.log_every=2",
    "train.validate_every=10",
    "train.checkpoint_every=5",
]
"""Settings of a run that learns it in seconds."""


def questions(words_each: int = 4) -> list[tuple[str, str]]:
    """Questions with their answers, shuffled; an answer is asked for by so many different words."""
    rows = [
        (form.format(words), answer)
        for answer, known in ENTRIES.items()
        for words in known[:words_each]
        for form in FORMS
    ]
    random.Random(1).shuffle(rows)
    return rows


def write_faq(path: Path) -> Path:
    """The FAQ as Markdown."""
    path.write_text(FAQ, encoding="utf-8")
    return path


def write_questions(path: Path, rows: list[tuple[str, str]] | None = None) -> Path:
    """Questions as TSV, or as JSON lines, by the name of the file."""
    rows = questions() if rows is None else rows
    if path.suffix == ".jsonl":
        lines = [json.dumps({"question": question, "answer": answer}) for question, answer in rows]
    else:
        lines = [f"{question}\t{answer}" for question, answer in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def train_arguments(data: Path, out: Path, *settings: str) -> list[str]:
    """Arguments of `regard train` for such a run."""
    arguments = ["train", "--task", "retrieve", str(data), "--out", str(out)]
    return arguments + [word for setting in (*SMALL, *settings) for word in ("--set", setting)]
