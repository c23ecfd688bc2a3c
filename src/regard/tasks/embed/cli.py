"""`regard neighbours` shows similar words, `regard analogies` answers analogies, `regard evaluate` scores texts."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from regard.config import Corpus
from regard.errors import SettingsError
from regard.run import Run
from regard.tasks.embed.analogies import by_category, read_analogies, summarize
from regard.tasks.texts import FORMATS, read_texts
from regard.terminal import Command, Parser, printable, show_table

SIGNS = ("+", "-")


def configure_neighbours(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("words", metavar="WORD", nargs="+", help="words; or a sum: king - man + woman")
    parser.add_argument("--count", type=int, default=10, metavar="N", help="neighbours per word (default 10)")
    parser.add_argument("--json", action="store_true", help="print one JSON object per word")


def queries(words: Sequence[str]) -> list[str]:
    """What the user asks for: each word, or one sum if there is a plus or minus sign among the arguments."""
    return [" ".join(words)] if any(word in SIGNS for word in words) else list(words)


def run_neighbours(options: argparse.Namespace) -> int:
    opened = Run.open(options.run).require("embed")
    if options.count < 1:
        raise SettingsError(f"--count must be at least 1, not {options.count}")
    from regard.tasks.embed.vectors import load

    vectors = load(opened)
    found = [(query, vectors.neighbours(query, options.count)) for query in queries(options.words)]
    for number, (query, neighbours) in enumerate(found):
        if options.json:
            print(json.dumps({"query": query, "neighbours": [one._asdict() for one in neighbours]}, ensure_ascii=False))
            continue
        if number:
            print()
        rows = [(printable(one.word), f"{one.similarity:.3f}") for one in neighbours]
        show_table([printable(query), "cosine"], rows)
    return 0


def configure_analogies(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("file", metavar="FILE", help="four words per line; a line such as : plural begins a category")
    parser.add_argument("--json", action="store_true", help="print a JSON object, with all answers")


def run_analogies(options: argparse.Namespace) -> int:
    opened, questions = Run.open(options.run).require("embed"), read_analogies(options.file)
    from regard.tasks.embed.vectors import load

    answers = load(opened).analogies(questions)
    total, categories = summarize(answers), by_category(answers)
    if options.json:
        shown = [{**vars(one), "correct": one.is_correct} for one in answers]
        print(json.dumps({**total, "categories": categories, "answers": shown}, ensure_ascii=False))
        return 0
    named = {**(categories if list(categories) != [""] else {}), "all": total}
    rows = [
        (printable(name), f"{one['accuracy']:.1%}", f"{one['correct']:,}", f"{one['known']:,}", f"{one['questions']:,}")
        for name, one in named.items()
    ]
    show_table(["", "accuracy", "correct", "all words known", "questions"], rows)
    return 0


def configure_evaluate(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--source", required=True, metavar="FILE", help=FORMATS)
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run_evaluate(options: argparse.Namespace) -> int:
    opened, texts = Run.open(options.run).require("embed"), read_texts(Corpus(options.source))
    from regard.tasks.embed.vectors import load

    found = load(opened).score(texts)
    if not found["pairs"]:
        raise SettingsError(f"{options.source}: no text has two words with a vector; give other texts")
    if options.json:
        print(json.dumps(found))
        return 0
    rows = [
        ("neighbours above noise words", f"{found['pair_accuracy']:.2%}", f"{found['pairs']:,} pairs"),
        ("loss per pair", f"{found['loss']:.3f}", "negative sampling"),
        ("words with a vector", f"{found['known_words'] / found['words']:.1%}", f"{found['words']:,} words"),
    ]
    show_table(["", "", f"on {len(texts):,} texts"], rows)
    return 0


COMMANDS = {
    "neighbours": Command(
        "Show the words with the most similar vectors: to each word, or to a sum of vectors.",
        configure_neighbours,
        run_neighbours,
        examples=("regard neighbours runs/vectors tea monday", "regard neighbours runs/vectors king - man + woman"),
    ),
    "analogies": Command(
        'Answer analogies, "walk is to walked as play is to?", by the word nearest to walked - walk + play. The file\n'
        "has the format of the word2vec program.",
        configure_analogies,
        run_analogies,
        examples=(
            "regard analogies runs/vectors questions-words.txt",
            "regard analogies runs/vectors inflection.txt --json > answers.json",
        ),
    ),
    "evaluate": Command(
        "How well word vectors predict the words around each word of a file: how often a word within the window has a\n"
        "higher score than a noise word, and the loss of training.",
        configure_evaluate,
        run_evaluate,
        examples=("regard evaluate runs/vectors --source test.txt",),
    ),
}
