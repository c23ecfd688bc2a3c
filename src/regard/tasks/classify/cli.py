"""`regard classify`: labels documents."""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from regard.config import Corpus
from regard.errors import SettingsError
from regard.files import first_of, is_typed, read_input_lines, read_lines, split_suffix
from regard.run import Run
from regard.tasks import load
from regard.tasks.classify.documents import FORMATS, read_documents
from regard.terminal import Command, Parser, console, show_confusion, show_note, show_table, show_weights, status

if TYPE_CHECKING:
    from regard.tasks.classify.documents import ClassifiedDocument
    from regard.tasks.labels import LabelScores

SHOWN_LABELS, SHOWN_WORDS = 5, 5


def configure(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    about = f"text with one document per line, or {FORMATS}; - is standard input"
    parser.add_argument("file", metavar="FILE", nargs="?", default="-", help=about)
    parser.add_argument("--whole-file", action="store_true", help="the whole file is one document")
    parser.add_argument("--explain", action="store_true", help="show words and sentences shaded by attention")
    parser.add_argument(
        "--score", action="store_true", help="compare with the labels in the file: accuracy, F1, confusion matrix"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per document")


def run(options: argparse.Namespace) -> int:
    opened = Run.open(options.run).require("classify")
    labeled = split_suffix(options.file)[0] in (".tsv", ".jsonl", ".csv") and not options.whole_file
    if options.score and not labeled:
        raise SettingsError(f"--score needs a file of labeled documents, not {options.file}; the formats are {FORMATS}")
    if options.score and options.explain:
        raise SettingsError("--score and --explain cannot be used together; leave one of them out")
    if options.score:
        show_scores(load(opened).score(list(read_documents(Corpus(options.file)))), options)
        return 0
    texts = _texts(options, labeled)
    size = 1 if options.file == "-" and is_typed() else 256  # typed documents are answered one by one
    chunk = first_of(texts)  # a missing file is reported before the model is loaded
    if not chunk:
        return 0
    classifier = load(opened)
    while chunk:
        show(classifier.classify(chunk, explain=options.explain), options)
        chunk = list(islice(texts, size))
    return 0


def configure_evaluate(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    about = "labeled documents or pictures; of pictures also a folder with a subfolder per label"
    parser.add_argument("--source", required=True, metavar="FILE", help=about)
    parser.add_argument("--images", metavar="DIR|ZIP", default="", help="the pictures that the file names")
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run_evaluate(options: argparse.Namespace) -> int:
    opened = Run.open(options.run).require("classify")
    from regard.tasks.classify.inputs import kind_of_run

    examples = kind_of_run(opened).read_scored(Corpus(options.source), options.images, opened)
    with status("classifying"):
        found = load(opened).score(examples)
    show_scores(found, options)
    return 0


def show_scores(found: LabelScores, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(found.as_dict(), ensure_ascii=False))
        return
    shares = {"accuracy": found.accuracy, "macro F1": found.f1, "calibration error": found.calibration_error}
    show_table([], [*((name, f"{share:.2%}") for name, share in shares.items()), ("examples", found.examples)])
    print()
    rows = (
        [label, *(f"{one[name]:.1%}" for name in ("precision", "recall", "f1")), one["count"]]
        for label, one in found.by_label.items()
    )
    show_table(["label", "precision", "recall", "F1", "examples"], rows)
    if found.confusion is not None:
        show_confusion(list(found.by_label), found.confusion)


def show(results: Iterable[ClassifiedDocument], options: argparse.Namespace) -> None:
    """Print each result as JSON (--json), shaded text (--explain), or a line with labels and the best probability."""
    for result in results:
        if options.json:
            print(json.dumps(result.as_dict(), ensure_ascii=False))
        elif options.explain:
            _explain(result)
        else:
            print(f"{', '.join(result.labels) or '-'}\t{result.probability:.4f}")
    sys.stdout.flush()


def _texts(options: argparse.Namespace, labeled: bool) -> Iterator[str]:
    """Yield the documents of the input: the texts of a file of labeled documents, if `labeled`; otherwise, each line.

    With --whole-file, all lines together are one document.
    """
    if labeled:
        yield from (document.text for document in read_documents(Corpus(options.file)))
        return
    lines = read_input_lines(forgiving=True) if options.file == "-" else read_lines(options.file)
    if not options.whole_file:
        yield from lines
    elif found := list(lines):
        yield "\n".join(found)


def _explain(result: ClassifiedDocument) -> None:
    """Print labels with probabilities, then each sentence with its weight as a bar and its words shaded by weight."""
    from rich.text import Text

    line = Text()
    for label, probability in heapq.nlargest(SHOWN_LABELS, result.probabilities.items(), key=lambda entry: entry[1]):
        line.append(f"{label} {probability:.1%}   ", style="bold" if label in result.labels else "dim")
    console().print(line)
    show_weights(result.sentences or ())
    if heavy := heapq.nlargest(SHOWN_WORDS, result.shares(), key=lambda entry: entry[1]):
        named = ", ".join(f"{word.text} {share:.1%}" for word, share in heavy)
        show_note(f"highest attention: {named}")
    if result.truncated_tokens:
        show_note(f"{result.truncated_tokens:,} tokens were not read: the document is longer than classify.max_tokens")
    print()


COMMANDS = {
    "evaluate": Command(
        "Compare the labels that a run assigns with the right ones: accuracy, F1, calibration, confusion matrix.",
        configure_evaluate,
        run_evaluate,
        examples=(
            "regard evaluate runs/reviews --source test.tsv",
            "regard evaluate runs/digits --source test.tsv --images pictures.zip",
            "regard evaluate runs/photos --source photos/test",
        ),
    ),
    "classify": Command(
        "Label documents: one per line, or a file of labeled documents (only --score uses their labels).\n"
        "With a run that reads pictures: picture files, folders or ZIP files.",
        configure,
        run,
        examples=(
            "echo 'What a lovely film.' | regard classify runs/reviews",
            "regard classify runs/reviews letters.txt --explain",
            "regard classify runs/reviews --whole-file essay.txt",
            "regard classify runs/reviews test.tsv --score",
            "regard classify runs/digits picture.png --explain",
        ),
    ),
}
