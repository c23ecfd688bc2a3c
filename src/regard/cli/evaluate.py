"""`regard evaluate`: a run against a test set."""

from __future__ import annotations

import argparse
import json

from regard.cli.search_options import add_search, search_settings
from regard.config import Corpus
from regard.data.corpus import read_corpus


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Translate the source side of a test set and score it against the target side.\n\n"
        "  regard evaluate runs/en-de --source test.en --target test.de"
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--source", required=True, metavar="FILE", help="source sentences, or one file with both sides")
    parser.add_argument("--target", default="", metavar="FILE", help="reference translations, line by line")
    parser.add_argument(
        "--json", action="store_true", help="print JSON: bleu, chrf, ter, their signatures, and how often each flag"
    )
    add_search(parser)


def run(options: argparse.Namespace) -> int:
    """Score."""
    from regard.run import Run

    search = search_settings(options)
    data = Run.open(options.run).recipe.data
    corpus = Corpus(options.source, options.target)
    pairs = list(read_corpus(corpus, data.source_language, data.target_language))

    from regard.tasks.evaluate import count_flags, score_translations
    from regard.tasks.translate import load, texts_of

    answers = load(options.run, *options.ensemble).translate([pair.source for pair in pairs], **search)
    scores = score_translations(texts_of(answers), [pair.target for pair in pairs])
    flags = count_flags(answers)
    if options.json:
        print(json.dumps(scores.as_dict() | {"flags": flags}, indent=2))
        return 0
    for name, label in (("bleu", "BLEU"), ("chrf", "chrF"), ("ter", "TER")):
        print(f"{label:<5} {getattr(scores, name):6.2f}   {scores.signatures[name]}")
    if flags:
        print("flags " + ", ".join(f"{name}: {count}" for name, count in flags.items()))
    return 0
