"""`regard tag` and `regard evaluate`: label every word of sentences."""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from regard.config import Corpus
from regard.errors import CorpusError, SettingsError
from regard.files import STDIN, first_of, is_typed, read_input_lines, read_lines, split_suffix
from regard.run import Run
from regard.tasks.tag import conll
from regard.tasks.tag.spans import mark
from regard.terminal import QUIET, Command, Parser, console, for_people, show_confusion, show_table

if TYPE_CHECKING:
    from rich.text import Text

    from regard.tasks.tag.tagger import TaggedText, Tagger


def configure(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default="-",
        help="text with one sentence per line, .conll or .jsonl; - is standard input (default)",
    )  # fmt: skip
    parser.add_argument(
        "--input-format", choices=("text", "conll", "tokens"), metavar="NAME",
        help="text, conll (one word per line), or tokens (words separated by spaces); default: by the ending",
    )  # fmt: skip
    parser.add_argument(
        "--output-format", choices=("text", "conll"), default="text", metavar="NAME",
        help="text (default), or conll: one word and its label per line",
    )  # fmt: skip
    parser.add_argument(
        "--explain", action="store_true", help="show the most probable labels, and the words that support them most"
    )
    parser.add_argument("--score", action="store_true", help=f"compare with the labels in the file: {conll.FORMATS}")
    parser.add_argument("--json", action="store_true", help="print one JSON object per sentence")


def run(options: argparse.Namespace) -> int:
    opened = Run.open(options.run).require("tag")
    writes_conll, typed = options.output_format == "conll", options.file == "-" and is_typed()
    if options.score and (options.explain or writes_conll):
        raise SettingsError("--score gives scores of all sentences together; leave out --explain and --output-format")
    if options.json and writes_conll:
        raise SettingsError("--json and --output-format conll are two output formats; choose one")
    if options.score and typed:
        raise SettingsError(f"--score needs labeled words, in a file or a pipe: {conll.FORMATS}")
    if options.explain and writes_conll:
        raise SettingsError("--output-format conll has no explanations; leave out --explain, or use --json")
    if options.score:
        return score(opened, options.file, as_json=options.json)
    sentences = _sentences(options)
    chunk = first_of(sentences)  # a missing file is reported before the model is loaded
    if not chunk:
        return 0

    from regard.tasks.tag.tagger import load

    tagger = load(opened.folder)
    while chunk:
        show(tagger, tagger.tag(chunk, explain=options.explain), options)
        chunk = list(islice(sentences, 1 if typed else 256))  # typed sentences are answered one by one
    return 0


def show(tagger: Tagger, sentences: Sequence[TaggedText], options: argparse.Namespace) -> None:
    """Print labeled sentences as `options` ask for: JSON, CoNLL, text with explanations, or text with marked spans."""
    for sentence in sentences:
        if options.json:
            print(json.dumps(sentence.as_dict(), ensure_ascii=False))
        elif options.output_format == "conll":
            print(*conll.write_conll([conll.TaggedSentence(sentence.tokens, sentence.tags)]), sep="\n")
        elif options.explain or for_people():
            console().print(_mark_in_color(sentence, tagger), soft_wrap=True)
            for line in _explain(sentence) if options.explain else ():
                console().print(line, markup=False, style=QUIET, soft_wrap=True)
        else:
            print(mark(sentence.tokens, sentence.tags, tagger.scheme))
    sys.stdout.flush()


def score(opened: Run, file: str, *, as_json: bool) -> int:
    """Compare the predictions of a run with the labels in a file (-: standard input), and print the scores."""
    column = opened.recipe.task.column
    if file != "-":
        labeled = conll.read_tagged(Corpus(file), column)
    elif not (labeled := list(conll.read_columns(read_input_lines(forgiving=True), STDIN, column))):
        raise CorpusError(STDIN, f"no words found; give {conll.FORMATS}")

    from regard.tasks.tag.tagger import load

    found = load(opened.folder).score(labeled)
    if as_json:
        print(json.dumps(found.as_dict(), ensure_ascii=False))
        return 0
    shares = {
        "span F1": found.span_f1,
        "precision": found.precision,
        "recall": found.recall,
        "accuracy": found.accuracy,
        "macro F1": found.f1,
        "calibration error": found.calibration_error,
    }
    figures = [(name, f"{share:.2%}") for name, share in shares.items() if share is not None]
    show_table([], [*figures, ("words", found.words), ("sentences", found.sentences)])
    print()
    columns = ("precision", "recall", "f1")
    rows = ([label, *(f"{one[name]:.1%}" for name in columns), one["count"]] for label, one in found.by_label.items())
    show_table(["label", "precision", "recall", "F1", "number"], rows)
    show_confusion(found.names, found.confusion)
    return 0


def _sentences(options: argparse.Namespace) -> Iterator[str | Sequence[str]]:
    """Yield the sentences of the input: texts, or lists of words if the input is CoNLL, JSON lines or "tokens".

    Prints a warning if a file that looks like CoNLL is read as text.
    """
    file, kind = options.file, options.input_format
    is_file = file != "-"
    if kind == "conll" or (kind is None and is_file and split_suffix(file)[0] in conll.OF_WORDS):
        yield from conll.read_words(file) if is_file else conll.words_of_lines(read_input_lines(forgiving=True))
        return
    lines = read_lines(file) if is_file else read_input_lines(forgiving=True)
    if kind == "tokens":
        yield from (line.split() for line in lines)
    else:
        first = list(islice(lines, conll.LOOKED_AT)) if is_file and not kind else []
        if conll.looks_like_columns(first):
            warning = f"{file} looks like CoNLL but is read as text; --input-format conll reads it as words"
            print(f"regard: {warning}", file=sys.stderr)
        yield from first
        yield from lines


def _mark_in_color(sentence: TaggedText, tagger: Tagger) -> Text:
    """Format a labeled sentence like `spans.mark`, in color: one color per type of span; plain labels are dim."""
    from rich.text import Text

    if tagger.scheme == "plain":
        words = zip(sentence.tokens, sentence.tags, strict=True)
        return Text(" ").join(Text.assemble(token, (f"/{tag}", "dim")) for token, tag in words)
    types = sorted({label.partition("-")[2] for label in tagger.labels})
    colors = ("cyan", "green", "yellow", "magenta", "blue", "red")
    parts = list(map(Text, sentence.tokens))
    for span in reversed(sentence.spans):
        color = colors[types.index(span.type) % len(colors)]  # colors repeat if there are more types
        inside = (" ".join(sentence.tokens[span.first : span.last]), f"bold {color}")
        marked = Text.assemble((f"[{span.type or 'span'} ", f"dim {color}"), inside, (" ]", f"dim {color}"))
        parts[span.first : span.last] = [marked]
    return Text(" ").join(parts)


def _explain(sentence: TaggedText) -> Iterator[str]:
    """Yield a line per word: its most probable labels, and the words that raised the probability of its label most."""
    width = max(map(len, sentence.tokens), default=0)
    for place, (token, labels) in enumerate(zip(sentence.tokens, sentence.top_labels or (), strict=False)):
        ranked = "  ".join(f"{label} {share:.1%}" for label, share in labels.items())
        row = sentence.influence[place] if sentence.influence is not None else ()
        best = heapq.nlargest(3, range(len(row)), key=row.__getitem__)
        helped = ", ".join(f"{sentence.tokens[other]} {row[other]:+.2f}" for other in best if row[other] > 0.005)
        yield f"  {token:<{width}}  {ranked}" + (f"   because of {helped}" if helped else "")


def configure_evaluate(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--source", required=True, metavar="FILE", help=f"labeled words: {conll.FORMATS}")
    parser.add_argument("--json", action="store_true", help="print the scores as a JSON object")


def run_evaluate(options: argparse.Namespace) -> int:
    return score(Run.open(options.run).require("tag"), options.source, as_json=options.json)


COMMANDS = {
    "tag": Command(
        "Label the words of sentences: text with one sentence per line, or CoNLL files with one word per line.",
        configure,
        run,
        examples=(
            "echo 'He reckons the deficit will narrow.' | regard tag runs/chunks",
            "regard tag runs/chunks letters.txt --output-format conll > letters.conll",
            "regard tag runs/chunks test.txt.gz --score",
            "zcat more.txt.gz | regard tag runs/chunks --input-format conll",
        ),
    ),
    "evaluate": Command(
        "Score a tagger on labeled words: F1 of spans, accuracy, scores of each label, calibration.",
        configure_evaluate,
        run_evaluate,
        examples=("regard evaluate runs/chunks --source test.txt.gz --json",),
    ),
}
