"""`regard fill` fills the blanks of texts; `regard evaluate` measures how well hidden tokens are predicted."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from regard.errors import SettingsError
from regard.files import chunks, read_input_lines, read_lines
from regard.run import Run
from regard.tasks.texts import configure_texts, texts_of
from regard.terminal import Command, Parser, printable, progress, show_table

CHUNK = 256
"""Number of texts that are computed together."""


def configure_fill(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument(
        "text", metavar="TEXT|FILE|-", nargs="?", default="-",
        help="a text with [MASK] in place of words, a file with one text per line, or - for standard input (default)",
    )  # fmt: skip
    parser.add_argument("--best", type=int, default=5, metavar="N", help="candidates per blank (default 5)")
    parser.add_argument("--json", action="store_true", help="print one JSON object per text")


def run_fill(options: argparse.Namespace) -> int:
    opened = Run.open(options.run).require("masked-language-model")
    if options.best < 1:
        raise SettingsError(f"--best must be at least 1, not {options.best}")
    texts = [options.text]
    if options.text == "-":
        texts = [line for line in read_input_lines() if line.strip()]
    elif len(options.text) < 256 and Path(options.text).is_file():
        texts = [line for line in read_lines(options.text) if line.strip()]
    from regard.tasks.masked_language_model.filler import load

    for one in load(opened.folder).fill(texts, best=options.best):
        if options.json:
            print(json.dumps(one.as_dict(), ensure_ascii=False))
            continue
        print(printable(one.text))
        for number, found in enumerate(one.blanks, 1):
            words = "  ".join(f"{printable(each.text)} {each.probability:.1%}" for each in found)
            print(f"  {number}:  {words}")
    return 0


def configure_evaluate(parser: Parser) -> None:
    configure_texts(parser)
    parser.add_argument(
        "--one-by-one", action="store_true", help="hide only one token at a time (pseudo-perplexity; slow)"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run_evaluate(options: argparse.Namespace) -> int:
    opened, texts = Run.open(options.run).require("masked-language-model"), texts_of(options)
    from regard.tasks.masked_language_model.filler import load
    from regard.tasks.masked_language_model.scores import MaskedScore, sum_scores

    filler, scores = load(opened.folder), list[MaskedScore]()
    with progress("texts", len(texts)) as advance:
        for some in chunks(texts, CHUNK):
            scores += filler.score(some, one_by_one=options.one_by_one)
            advance(len(some))
    result = sum_scores(scores).as_dict() | {"texts": len(texts)}
    if options.json:
        print(json.dumps(result))
        return 0
    share = "one at a time" if options.one_by_one else f"{filler.settings.hidden_share:.0%} of the tokens at a time"
    rows = [
        ("perplexity per token", f"{result['perplexity']:.2f}", f"{result['tokens']:,} tokens, hidden {share}"),
        ("correct", f"{result['accuracy']:.2%}", "the most probable token is the right one"),
    ]
    show_table(["", "", f"on {len(texts):,} texts"], rows)
    return 0


COMMANDS = {
    "fill": Command(
        "Fill the blanks of a text by a masked language model: print the text with the most probable tokens, and the\n"
        "most probable ones for each blank.",
        configure_fill,
        run_fill,
        examples=(
            'regard fill runs/captions "A man [MASK] a dog."',
            "regard fill runs/captions blanks.txt --best 10 --json",
        ),
    ),
    "evaluate": Command(
        "How well a masked language model predicts the tokens of a file. Each token is hidden once, together with\n"
        "others; with --one-by-one, alone.",
        configure_evaluate,
        run_evaluate,
        examples=("regard evaluate runs/captions --source test.txt",),
    ),
}
