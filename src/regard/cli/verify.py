"""`regard verify`: compare the files of a run with their checksums."""

from __future__ import annotations

import argparse

from regard.export.folder import MARK, check_export
from regard.run import CHECKED, Run
from regard.terminal import Command, Parser


def configure(parser: Parser) -> None:
    """Add the options."""
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument(
        "--accept", action="store_true", help="store new checksums: you have changed the files of the run yourself"
    )


def run(options: argparse.Namespace) -> int:
    """Verify."""
    opened = Run.open(options.run)
    if options.accept:
        opened.checksums.accept(CHECKED)
    found = opened.checksums.check_all()
    for mark in sorted(opened.folder.glob(f"*/{MARK}")):
        found |= {f"{mark.parent.name}/{name}": wrong for name, wrong in check_export(mark.parent).items()}
    for name, wrong in found.items():
        print(f"{wrong or 'ok':<8} {name}")
    if not found:
        print(f"{opened.folder}: has no checksums")
    return 2 if any(found.values()) else 0


COMMANDS = {
    "verify": Command(
        "Compare the files of a run, and of the exports in its folder, with the checksums that were stored when they\n"
        "were written. Prints one line per file; the exit code is 2 if a file is damaged or missing.",
        configure,
        run,
        examples=("regard verify runs/en-de", "regard verify runs/en-de --accept"),
    )
}
