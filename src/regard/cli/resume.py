"""`regard resume`: go on exactly where a run stopped."""

from __future__ import annotations

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Continue a run from its last state, with the very same arithmetic, whatever stopped it.\n\n"
        "  regard resume runs/en-de\n"
        "  regard resume runs/en-de --set train.max_steps=20000"
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=C",
        help="change a setting of the training itself, e.g. a later end; may be repeated",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Go on."""
    from regard.tasks.train import resume, tell_result

    tell_result(resume(options.run, options.set))
    return 0
