"""`regard translate`: lines in, lines out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import islice

from regard.cli.settings import add_setting, given_settings
from regard.data.corpus import read_lines
from regard.errors import SettingsError
from regard.run import Run

CHUNK_LINES = 2000


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Translate a file, or standard input, line by line.\n\n"
        "  echo 'I am trendy' | regard translate runs/demo\n"
        "  regard translate runs/en-de news.en > news.de"
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default="-", help="text, one sentence a line; - is standard input"
    )
    add_setting(parser, "--beam", "search.beam", "N")
    parser.add_argument("--nbest", type=int, default=1, metavar="N", help="print the N best translations of each line")
    parser.add_argument("--scores", action="store_true", help="print the score before each translation")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object a line, with everything that is known"
    )


def run(options: argparse.Namespace) -> int:
    """Translate."""
    search = given_settings(options).get("search", {})
    if options.nbest < 1 or search.get("beam", 1) < 1:
        raise SettingsError("--nbest and --beam must be at least 1")
    if options.nbest > search.get("beam", options.nbest):
        raise SettingsError(f"--nbest {options.nbest} needs a --beam of at least as many")
    Run.open(options.run)  # a mistyped name is told before anything is read
    lines = _standard_input() if options.file == "-" else read_lines(options.file)
    first = next(lines, None)  # a missing file is told before the model is loaded
    if first is None:
        return 0
    from regard.tasks.translate import load

    translator = load(options.run)
    chunk = [first, *islice(lines, CHUNK_LINES - 1)]
    while chunk:
        for answer in translator.translate(chunk, nbest=options.nbest, **search):
            if options.json:
                print(json.dumps(answer.as_dict(), ensure_ascii=False))
                continue
            for choice in (answer, *answer.alternatives):
                print(f"{choice.score:.4f}\t{choice.text}" if options.scores else choice.text)
        sys.stdout.flush()
        chunk = list(islice(lines, CHUNK_LINES))
    return 0


def _standard_input() -> Iterator[str]:
    for number, raw in enumerate(sys.stdin.buffer, 1):
        try:
            yield raw.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise SettingsError(f"standard input, line {number}: not UTF-8") from None
