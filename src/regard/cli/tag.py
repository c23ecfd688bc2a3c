"""`regard tag`: sentences in, a label for every word out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from regard.config import Corpus
from regard.data.conll import FORMATS, TaggedSentence, read_tagged, read_words, write_conll
from regard.data.corpus import read_lines
from regard.data.files import split_suffix
from regard.data.spans import mark
from regard.errors import SettingsError
from regard.run import Run

if TYPE_CHECKING:
    from rich.text import Text

    from regard.tasks.span_scores import TagScores
    from regard.tasks.tag import Tagged, Tagger

TOGETHER = 256
"""Sentences that are read before the first is answered, where nobody waits for one."""
COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")
"""Of the types of spans, in turn."""
MATRIX_NAMES = 14
"""A confusion matrix of more types does not fit on a screen."""
SHOWN_WORDS = 3
"""Words that an explanation names."""
COLUMNS = (".conll", ".conllu", ".bio", ".iob", ".iob2")
"""Suffixes of files that hold a word a line, whatever is asked."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Label the words of sentences: text, one sentence a line, or CoNLL files, a word a line.\n\n"
        "  echo 'He reckons the deficit will narrow.' | regard tag runs/chunks\n"
        "  regard tag runs/chunks letters.txt --conll > letters.conll\n"
        "  regard tag runs/chunks test.txt.gz --score\n"
        "  regard tag runs/names --json < lines.txt"
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default="-", help="text, a sentence a line, or .conll; - is standard input"
    )
    parser.add_argument("--words", action="store_true", help="the file is CoNLL, whatever its name: a word a line")
    parser.add_argument("--spaces", action="store_true", help="words are divided by spaces already, as in CoNLL data")
    parser.add_argument("--conll", action="store_true", help="print CoNLL: a word and its label a line")
    parser.add_argument("--explain", action="store_true", help="show the likeliest labels and the words that mattered")
    parser.add_argument("--score", action="store_true", help=f"compare with the labels in the file: {FORMATS}")
    parser.add_argument("--json", action="store_true", help="print one JSON object a sentence")


def run(options: argparse.Namespace) -> int:
    """Tag."""
    opened = Run.open(options.run).require("tag")
    if options.score and (options.explain or options.conll):
        raise SettingsError("--score looks at all sentences together; leave out --explain and --conll")
    if options.score and options.file == "-":
        raise SettingsError(f"--score needs a file of labelled words: {FORMATS}")
    if options.explain and options.conll:
        raise SettingsError("--conll has no room for an explanation; leave out --explain, or take --json")
    if options.score:
        labelled = list(read_tagged(Corpus(options.file), opened.recipe.tag.column))
    sentences = iter([]) if options.score else _sentences(options)
    first = list(islice(sentences, 1))  # a missing file is told before the model is loaded

    from regard.tasks.tag import load

    tagger = load(opened.folder)
    if options.score:
        show_scores(tagger.score(labelled), as_json=options.json)
        return 0
    waits = options.file == "-" and sys.stdin.isatty()
    chunk = first
    while chunk:
        show(tagger, tagger.tag(chunk, explain=options.explain), options)
        chunk = list(islice(sentences, 1 if waits else TOGETHER))
    return 0


def show(tagger: Tagger, sentences: Sequence[Tagged], options: argparse.Namespace) -> None:
    """Print sentences: JSON, CoNLL, an explanation, or the text with its spans marked."""
    if options.json:
        for sentence in sentences:
            print(json.dumps(sentence.as_dict(), ensure_ascii=False))
    elif options.conll:
        for line in write_conll(TaggedSentence(one.tokens, one.tags) for one in sentences):
            print(line)
    elif options.explain or sys.stdout.isatty():
        from rich.console import Console

        console = Console(highlight=False, soft_wrap=True)
        for sentence in sentences:
            console.print(_coloured(sentence, tagger))
            for line in _because(sentence) if options.explain else ():
                console.print(line, markup=False, style="dim")
    else:
        for sentence in sentences:
            print(mark(sentence.tokens, sentence.tags, tagger.scheme))
    sys.stdout.flush()


def show_scores(found: TagScores, *, as_json: bool) -> None:
    """Print scores."""
    if as_json:
        print(json.dumps(found.as_dict(), ensure_ascii=False))
        return
    if found.span_f1 is not None:
        print(f"span F1             {found.span_f1:.2%}")
        print(f"precision           {found.precision:.2%}")
        print(f"recall              {found.recall:.2%}")
    print(f"accuracy            {found.accuracy:.2%}")
    print(f"macro F1            {found.f1:.2%}")
    print(f"calibration error   {found.calibration_error:.2%}")
    print(f"words               {found.words:,} in {found.sentences:,} sentences")
    width = max((len(label) for label in (*found.by_label, "label")), default=5)
    print(f"\n{'label':<{width}}  precision  recall     F1     number")
    for label, values in found.by_label.items():
        figures = "  ".join(f"{values[name]:6.1%}" for name in ("precision", "recall", "f1"))
        print(f"{label:<{width}}     {figures}  {values['count']:>9,}")
    _show_matrix(found)


# ---------------------------------------------------------------------------------------------------------------------
# Input


def _sentences(options: argparse.Namespace) -> Iterator[str | Sequence[str]]:
    """Texts, or the words of sentences."""
    if options.words or split_suffix(options.file)[0] in COLUMNS:
        if options.file == "-":
            raise SettingsError("--words needs a file; standard input is text, a sentence a line")
        is_conllu = split_suffix(options.file)[0] == ".conllu"
        found = read_tagged(Corpus(options.file)) if is_conllu else read_words(options.file)
        return (sentence.tokens for sentence in found)
    lines = _standard_input() if options.file == "-" else read_lines(options.file)
    return (line.split() for line in lines) if options.spaces else lines


def _standard_input() -> Iterator[str]:
    for raw in sys.stdin.buffer:
        yield raw.decode("utf-8", errors="replace").rstrip("\r\n")


# ---------------------------------------------------------------------------------------------------------------------
# For people


def _coloured(sentence: Tagged, tagger: Tagger) -> Text:
    """The text as it was written, its spans in the colours of their types; plain labels stand behind their words."""
    from rich.text import Text

    if tagger.scheme == "plain":
        words = [(token, f"/{tag} ") for token, tag in zip(sentence.tokens, sentence.tags, strict=True)]
        return Text.assemble(*((part, "dim" if place % 2 else "") for word in words for place, part in enumerate(word)))
    types = sorted({label.partition("-")[2] for label in tagger.labels})
    line, end = Text(), 0
    for span in sentence.spans:
        line.append(sentence.text[end : span.start])
        colour = COLOURS[types.index(span.type) % len(COLOURS)]
        line.append(f"[{span.type} ", style=f"dim {colour}").append(span.text, style=f"bold {colour}")
        line.append("]", style=f"dim {colour}")
        end = span.end
    return line.append(sentence.text[end:])


def _because(sentence: Tagged) -> Iterator[str]:
    """A line a word: its likeliest labels, and the words without which its own would be less likely."""
    width = max(map(len, sentence.tokens), default=0)
    for place, (token, labels) in enumerate(zip(sentence.tokens, sentence.likeliest or (), strict=False)):
        ranked = "  ".join(f"{label} {share:.1%}" for label, share in labels.items())
        helped = ", ".join(_helpers(sentence, place)) if sentence.influence is not None else ""
        yield f"  {token:<{width}}  {ranked}" + (f"   because of {helped}" if helped else "")


def _helpers(sentence: Tagged, place: int) -> Iterable[str]:
    assert sentence.influence is not None
    row = sentence.influence[place]
    best = sorted(range(len(row)), key=lambda other: -row[other])[:SHOWN_WORDS]
    return (f"{sentence.tokens[other]} {row[other]:+.2f}" for other in best if row[other] > 0.005)


def _show_matrix(found: TagScores) -> None:
    names = found.names
    if len(names) > MATRIX_NAMES:
        return
    width = max(map(len, names), default=0)
    size = max(6, width) + 1
    print("\nwords by row: what is right, column: what was given")
    print(f"{'':<{width}} {''.join(f'{name:>{size}}' for name in names)}")
    for name, row in zip(names, found.confusion, strict=True):
        print(f"{name:<{width}} {''.join(f'{count:>{size},}' for count in row)}")
