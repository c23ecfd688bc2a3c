"""`regard classify`: documents in, labels out."""

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
from regard.tasks.classify.data import FORMATS, read_documents
from regard.terminal import show_weights

if TYPE_CHECKING:
    from rich.console import Console

    from regard.tasks.classify.classifier import Classification, Classifier
    from regard.tasks.labels import LabelScores


TOGETHER = 256
"""Documents that are read before the first is answered, where nobody waits for one."""
SHOWN_LABELS, SHOWN_WORDS = 5, 5
MATRIX_LABELS = 12
"""A confusion matrix of more labels does not fit on a screen."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Label documents: a line each, or a file of labelled ones (their text is taken, and with --score compared).\n\n"
        "  echo 'What a lovely film.' | regard classify runs/reviews\n"
        "  regard classify runs/reviews letters.txt --explain\n"
        "  regard classify runs/reviews --whole essay.txt\n"
        "  regard classify runs/reviews test.tsv --score"
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default="-", help=f"text, one a line, or {FORMATS}; - is standard input"
    )
    parser.add_argument("--whole", action="store_true", help="the whole file is one document")
    parser.add_argument("--explain", action="store_true", help="show words and sentences shaded by attention")
    parser.add_argument("--score", action="store_true", help="compare with the labels in the file: accuracy, F1, ...")
    parser.add_argument("--json", action="store_true", help="print one JSON object a document")


def run(options: argparse.Namespace) -> int:
    """Classify."""
    opened = Run.open(options.run).require("classify")
    labelled = split_suffix(options.file)[0] in (".tsv", ".jsonl", ".csv") and not options.whole
    if options.score and not labelled:
        raise SettingsError(f"--score needs a file of labelled documents: {FORMATS}")
    if options.score and options.explain:
        raise SettingsError("--score looks at all documents together; leave out --explain")
    texts = iter([]) if options.score else _texts(options, labelled)
    first = first_of(texts)  # a missing file is told before the model is loaded
    if not first and not options.score:
        return 0

    from regard.tasks.classify.classifier import load

    classifier = load(opened.folder)
    if options.score:
        return score(classifier, options)
    waits = options.file == "-" and is_typed()
    for chunk in _chunks(first, texts, 1 if waits else TOGETHER):
        show(classifier.classify(chunk, explain=options.explain), options)
    return 0


def score(classifier: Classifier, options: argparse.Namespace) -> int:
    """Compare with the right labels."""
    found = classifier.score(list(read_documents(Corpus(options.file))))
    if options.json:
        print(json.dumps(found.as_dict(), ensure_ascii=False))
        return 0
    print(f"accuracy            {found.accuracy:.2%}")
    print(f"macro F1            {found.f1:.2%}")
    print(f"calibration error   {found.calibration_error:.2%}")
    print(f"documents           {found.documents:,}")
    _show_matrix(found)
    return 0


def show(verdicts: Iterable[Classification], options: argparse.Namespace) -> None:
    """Print verdicts: JSON, a shaded text, or label, tab, probability."""
    if options.json:
        for verdict in verdicts:
            print(json.dumps(verdict.as_dict(), ensure_ascii=False))
    elif options.explain:
        from rich.console import Console

        console = Console(highlight=False)
        for verdict in verdicts:
            _explain(verdict, console)
    else:
        for verdict in verdicts:
            print(f"{', '.join(verdict.labels) or '-'}\t{verdict.probability:.4f}")
    sys.stdout.flush()


# ---------------------------------------------------------------------------------------------------------------------
# Input


def _texts(options: argparse.Namespace, labelled: bool) -> Iterator[str]:
    if labelled:
        return (document.text for document in read_documents(Corpus(options.file)))
    lines = read_input_lines(forgiving=True) if options.file == "-" else read_lines(options.file)
    return _joined(lines) if options.whole else lines


def _joined(lines: Iterator[str]) -> Iterator[str]:
    """All lines as one document, if there are any."""
    if found := list(lines):
        yield "\n".join(found)


def _chunks(first: list[str], rest: Iterator[str], size: int) -> Iterator[list[str]]:
    chunk = first
    while chunk:
        yield chunk
        chunk = list(islice(rest, size))


# ---------------------------------------------------------------------------------------------------------------------
# For people


def _explain(verdict: Classification, console: Console) -> None:
    """Labels with probabilities; then a line a sentence: its weight as a bar, its words the brighter the heavier."""
    from rich.text import Text

    ranked = sorted(verdict.probabilities.items(), key=lambda entry: -entry[1])[:SHOWN_LABELS]
    line = Text()
    for label, probability in ranked:
        line.append(f"{label} {probability:.1%}   ", style="bold" if label in verdict.labels else "dim")
    console.print(line)
    show_weights(verdict.sentences or (), console)
    heavy = heapq.nlargest(SHOWN_WORDS, verdict.shares(), key=lambda entry: entry[1])
    if heavy:
        named = ", ".join(f"{word.text} {share:.1%}" for word, share in heavy)
        console.print(Text(f"most looked at: {named}", style="dim"))
    if verdict.truncated_tokens:
        cut = f"{verdict.truncated_tokens:,} tokens were not read: the document is longer than the limit"
        console.print(f"[dim]{cut}[/]")
    console.print()


def _show_matrix(found: LabelScores) -> None:
    labels = list(found.by_label)
    width = max(map(len, labels))
    print(f"\n{'label':<{width}}  precision  recall     F1  documents")
    for label, values in found.by_label.items():
        figures = "  ".join(f"{values[name]:6.1%}" for name in ("precision", "recall", "f1"))
        print(f"{label:<{width}}     {figures}  {values['documents']:>9,}")
    if found.confusion is None or len(labels) > MATRIX_LABELS:
        return
    print("\nrow: the right label, column: the one given")
    size = max(6, *(len(label) for label in labels)) + 1
    print(f"{'':<{width}} {''.join(f'{label:>{size}}' for label in labels)}")
    for label, row in zip(labels, found.confusion, strict=True):
        print(f"{label:<{width}} {''.join(f'{count:>{size},}' for count in row)}")
