"""`regard score`: what a run thinks of given translations."""

from __future__ import annotations

import argparse
import json
from itertools import islice

from regard.cli.search_options import add_scoring, search_settings
from regard.config import Corpus
from regard.data.corpus import read_corpus

CHUNK_PAIRS = 2000


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Score given translations: for each pair the log-probability of the target given the source, the same for\n"
        "each of its tokens, and the score that a search would have given it.\n\n"
        "  regard score runs/en-de --source test.en --target test.de\n"
        "  regard score runs/en-de --source pairs.tsv --json"
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--source", required=True, metavar="FILE", help="source sentences, or one file with both sides")
    parser.add_argument("--target", default="", metavar="FILE", help="the translations to score, line by line")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object a pair, with the log-probability of each token"
    )
    add_scoring(parser)


def run(options: argparse.Namespace) -> int:
    """Score."""
    from regard.run import Run

    recipe = Run.open(options.run).require("translate").recipe
    search, data = search_settings(options, recipe.search), recipe.data
    pairs = iter(read_corpus(Corpus(options.source, options.target), data.source_language, data.target_language))
    chunk = list(islice(pairs, CHUNK_PAIRS))  # a missing file is told before the model is loaded

    from regard.tasks.translate import load

    translator = load(options.run, *options.ensemble)
    if not options.json:
        print("log-probability\tper token\tscore\ttarget")
    while chunk:
        for answer in translator.score([pair.source for pair in chunk], [pair.target for pair in chunk], **search):
            if options.json:
                print(json.dumps(answer.as_dict(), ensure_ascii=False))
                continue
            each = answer.log_prob / len(answer.log_probs)
            print(f"{answer.log_prob:.4f}\t{each:.4f}\t{answer.score:.4f}\t{answer.text}")
        chunk = list(islice(pairs, CHUNK_PAIRS))
    return 0
