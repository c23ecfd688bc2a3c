"""`regard tag`: sentences in, a label for every word out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from regard.config import Corpus
from regard.errors import CorpusError, SettingsError
from regard.files import STDIN, first_of, is_typed, read_input_lines, read_lines, split_suffix
from regard.run import Run
from regard.tasks.tag.data import (
    FORMATS,
    LOOKED_AT,
    OF_WORDS,
    TaggedSentence,
    looks_like_columns,
    read_tagged,
    read_tagged_lines,
    read_words,
    words_of_lines,
    write_conll,
)
from regard.tasks.tag.spans import mark

if TYPE_CHECKING:
    from rich.text import Text

    from regard.tasks.tag.scores import TagScores
    from regard.tasks.tag.tagger import TaggedText, Tagger


TOGETHER = 256
"""Sentences that are read before the first is answered, where nobody waits for one."""
COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")
"""Of the types of spans, in turn."""
MATRIX_NAMES = 14
"""A confusion matrix of more types does not fit on a screen."""
SHOWN_WORDS = 3
"""Words that an explanation names."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Label the words of sentences: text, one sentence a line, or CoNLL files, a word a line.\n\n"
        "  echo 'He reckons the deficit will narrow.' | regard tag runs/chunks\n"
        "  regard tag runs/chunks letters.txt --conll > letters.conll\n"
        "  regard tag runs/chunks test.txt.gz --score\n"
        "  regard tag runs/names --json < lines.txt\n"
        "  zcat more.txt.gz | regard tag runs/chunks --words"
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        default="-",
        help="text, a sentence a line; .conll or .jsonl; - is standard input",
    )
    parser.add_argument("--words", action="store_true", help="the input is CoNLL, whatever its name: a word a line")
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
    if options.json and options.conll:
        raise SettingsError("--json and --conll are two ways to print; choose one")
    if options.score and options.file == "-" and is_typed():
        raise SettingsError(f"--score needs labelled words, in a file or a pipe: {FORMATS}")
    if options.explain and options.conll:
        raise SettingsError("--conll has no room for an explanation; leave out --explain, or take --json")
    if options.score:
        labelled = _labelled(options.file, opened.recipe.task.column)
    sentences = iter([]) if options.score else _sentences(options)
    first = first_of(sentences)  # a missing file is told before the model is loaded
    if not first and not options.score:
        return 0

    from regard.tasks.tag.tagger import load

    tagger = load(opened.folder)
    if options.score:
        show_scores(tagger.score(labelled), as_json=options.json)
        return 0
    waits = options.file == "-" and is_typed()
    chunk = first
    while chunk:
        show(tagger, tagger.tag(chunk, explain=options.explain), options)
        chunk = list(islice(sentences, 1 if waits else TOGETHER))
    return 0


def show(tagger: Tagger, sentences: Sequence[TaggedText], options: argparse.Namespace) -> None:
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
    print(f"words               {found.words:,} in {found.sentences:,} sentence{'s' * (found.sentences != 1)}")
    width = max((len(label) for label in (*found.by_label, "label")), default=5)
    print(f"\n{'label':<{width}}  precision  recall     F1     number")
    for label, values in found.by_label.items():
        figures = "  ".join(f"{values[name]:6.1%}" for name in ("precision", "recall", "f1"))
        print(f"{label:<{width}}     {figures}  {values['count']:>9,}")
    _show_matrix(found)


# ---------------------------------------------------------------------------------------------------------------------
# Input


def _labelled(file: str, column: int) -> list[TaggedSentence]:
    piped = file == "-"
    lines = read_input_lines(forgiving=True)
    found = list(read_tagged_lines(lines, STDIN, column) if piped else read_tagged(Corpus(file), column))
    if not found:
        raise CorpusError(STDIN if piped else file, "no word here")
    return found


def _sentences(options: argparse.Namespace) -> Iterator[str | Sequence[str]]:
    """Texts, or the words of sentences."""
    if options.file == "-":
        lines = read_input_lines(forgiving=True)
    elif options.words or split_suffix(options.file)[0] in OF_WORDS:
        return iter(read_words(options.file))
    else:
        lines = read_lines(options.file)
    if options.words:
        return iter(words_of_lines(lines))
    if options.spaces:
        return (line.split() for line in lines)
    return lines if options.file == "-" else _text(lines, options.file)


def _text(lines: Iterator[str], file: str) -> Iterator[str]:
    """The lines; if they seem to be no text, this is told."""
    first = list(islice(lines, LOOKED_AT))
    if looks_like_columns(first):
        print(f"regard: {file} looks like CoNLL but is read as text; --words reads it as words", file=sys.stderr)
    yield from chain(first, lines)


# ---------------------------------------------------------------------------------------------------------------------
# For people


def _coloured(sentence: TaggedText, tagger: Tagger) -> Text:
    """What `mark` writes, its spans in the colours of their types and plain labels dim."""
    from rich.text import Text

    if tagger.scheme == "plain":
        words = zip(sentence.tokens, sentence.tags, strict=True)
        return Text(" ").join(Text.assemble(token, (f"/{tag}", "dim")) for token, tag in words)
    types = sorted({label.partition("-")[2] for label in tagger.labels})
    parts: list[Text] = []
    after = 0
    for span in sentence.spans:
        parts += map(Text, sentence.tokens[after : span.first])
        colour = COLOURS[types.index(span.type) % len(COLOURS)]
        inside = (" ".join(sentence.tokens[span.first : span.last]), f"bold {colour}")
        parts.append(Text.assemble((f"[{span.type or 'span'} ", f"dim {colour}"), inside, (" ]", f"dim {colour}")))
        after = span.last
    return Text(" ").join([*parts, *map(Text, sentence.tokens[after:])])


def _because(sentence: TaggedText) -> Iterator[str]:
    """A line a word: its likeliest labels, and the words without which its own would be less likely."""
    width = max(map(len, sentence.tokens), default=0)
    for place, (token, labels) in enumerate(zip(sentence.tokens, sentence.top_labels or (), strict=False)):
        ranked = "  ".join(f"{label} {share:.1%}" for label, share in labels.items())
        helped = ", ".join(_helpers(sentence, place)) if sentence.influence is not None else ""
        yield f"  {token:<{width}}  {ranked}" + (f"   because of {helped}" if helped else "")


def _helpers(sentence: TaggedText, place: int) -> Iterable[str]:
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
