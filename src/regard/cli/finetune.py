"""`regard finetune`: a trained run, other data."""

from __future__ import annotations

import argparse

from regard.cli.train import add_data, add_run, follow, given_table, started_by_torchrun
from regard.errors import SettingsError
from regard.run import Run


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Go on from a trained run with another corpus, into a new run folder. Architecture and vocabulary stay; the\n"
        "schedule starts anew.\n\n"
        "  regard finetune runs/en-de --source ours.en --target ours.de --out runs/en-de-ours"
    )
    parser.add_argument("base", metavar="RUN", help="the run to start from")
    add_data(parser)
    add_run(parser)


def run(options: argparse.Namespace) -> int:
    """Fine-tune."""
    table = given_table(options)
    if "train" not in table["data"]:
        raise SettingsError('nothing to train on: give --source and --target (see "regard finetune --help")')

    if options.out and not started_by_torchrun():
        Run.refuse_existing(options.out)

    from regard.tasks.train import resolve_finetune

    return follow(resolve_finetune(options.base, table, options.set), options)
