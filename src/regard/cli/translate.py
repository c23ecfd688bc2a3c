"""`regard translate`: lines in, lines out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from regard.cli.search_options import add_search, search_settings
from regard.data.corpus import read_lines
from regard.errors import SettingsError
from regard.run import Run

if TYPE_CHECKING:
    from regard.tasks.answer import Answer

CHUNK_LINES = 2000


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Translate a file, or standard input, line by line.\n\n"
        "  echo 'I am trendy' | regard translate runs/demo\n"
        "  regard translate runs/en-de news.en > news.de\n"
        "  regard translate runs/en-de news.en --ensemble runs/en-de-2 --beam 8 --nbest 3 --json"
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default="-", help="text, one sentence a line; - is standard input"
    )
    parser.add_argument("--nbest", type=int, default=1, metavar="N", help="print the N best translations of each line")
    parser.add_argument("--prefix", default="", metavar="TEXT", help="what every translation begins with")
    parser.add_argument(
        "--scores", action="store_true", help="print the score and the flags of each translation before it"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object a line, with everything that is known"
    )
    parser.add_argument("--tree", action="store_true", help="with --json: all that the beam search tried, as data")
    add_search(parser)


def run(options: argparse.Namespace) -> int:
    """Translate."""
    search = search_settings(options)
    recipe = Run.open(options.run).recipe  # a mistyped name is told before anything is read
    beam = search.get("beam", recipe.search.beam)
    if options.nbest < 1:
        raise SettingsError("--nbest must be at least 1")
    if options.nbest > beam and not search.get("sample", recipe.search.sample):
        raise SettingsError(f"--nbest {options.nbest} needs a --beam of at least as many, not {beam}")
    if options.tree and not options.json:
        raise SettingsError("--tree is shown as data: add --json")
    lines = _standard_input() if options.file == "-" else read_lines(options.file)
    first = next(lines, None)  # a missing file is told before the model is loaded
    if first is None:
        return 0
    from regard.tasks.translate import load

    translator = load(options.run, *options.ensemble)
    chunk = [first, *islice(lines, CHUNK_LINES - 1)]
    while chunk:
        answers = translator.translate(chunk, nbest=options.nbest, prefix=options.prefix, tree=options.tree, **search)
        for answer in answers:
            show(answer, options)
        sys.stdout.flush()
        chunk = list(islice(lines, CHUNK_LINES))
    return 0


def show(answer: Answer, options: argparse.Namespace) -> None:
    """Print one answer in the form asked for."""
    if options.json:
        print(json.dumps(answer.as_dict(), ensure_ascii=False))
        return
    for choice in (answer, *answer.alternatives):
        notes = f"{choice.score:.4f}\t{', '.join(choice.flags) or '-'}\t" if options.scores else ""
        print(f"{notes}{choice.text}")


def _standard_input() -> Iterator[str]:
    for number, raw in enumerate(sys.stdin.buffer, 1):
        try:
            yield raw.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise SettingsError(f"standard input, line {number}: not UTF-8") from None
