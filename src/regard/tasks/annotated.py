"""Sentence pairs with what is known of their grammar and alignment: what head roles are judged by.

Places are spans of characters, because models have tokens of their own. The phrasebook knows subject, verb, object and
which words render which; a CoNLL-U file knows what depends on what; any other text knows nothing of the kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import NamedTuple

from regard.analysis.alignment import read_gold
from regard.config import Corpus
from regard.data.builtin import Phrase, Roles, corpus_of, part_of, read_phrases
from regard.data.conllu import Parse, read_conllu
from regard.data.corpus import Pair, read_corpus, read_lines
from regard.data.words import words
from regard.errors import CorpusError, ModelError, SettingsError
from regard.run import Run
from regard.tasks.prepare import TrainingPairs

COUNTED = 30_000  # training pairs that tell how frequent a token is
UNTOLD = ("punct", "root")

Span = tuple[int, int]


class Relation(NamedTuple):
    """Words that stand in a relation to others, seen from the ones."""

    name: str
    looking: tuple[Span, ...]
    at: tuple[Span, ...]


@dataclass(frozen=True)
class Example:
    """A sentence pair and what is known of it."""

    source: str
    target: str
    source_relations: tuple[Relation, ...] = ()
    target_relations: tuple[Relation, ...] = ()
    links: tuple[tuple[Span, Span], ...] = ()
    """Which words of the source are rendered by which of the target."""
    source_words: tuple[Span, ...] = ()
    """The words of the source as a CoNLL-U file gives them; elsewhere none are given."""


def own_examples(run: Run, count: int) -> list[Example]:
    """Pairs that a run was not trained on, at most so many.

    These are the pairs that it keeps; for a run validated on the phrasebook, phrases with all that is known of them.
    A run that keeps none, such as an unfinished one, is validated on text that its recipe may still lead to.
    """
    data = run.recipe.data
    is_book = bool(data.valid) and all(corpus_of(one.source) == "phrasebook" for one in data.valid)
    if not is_book and (kept := run.held_out()):
        return list(map(_plain, kept[:count]))
    try:
        if data.valid:
            return list(islice(chain.from_iterable(map(_reader(run), data.valid)), count))
        return list(map(_plain, TrainingPairs(data, run.recipe.train.seed).held_out("valid")[:count]))
    except (CorpusError, SettingsError) as error:
        what = f"{run.folder}: the text that it was validated on is out of reach ({error})"
        raise SettingsError(f"{what}; give other with --source and --target") from None


def given_examples(run: Run, source: str, target: str, count: int) -> list[Example]:
    """The first pairs of files."""
    return list(islice(_reader(run)(Corpus(source, target)), count))


def parsed_examples(path: str, target: str, count: int, translate: Callable[[list[str]], list[str]]) -> list[Example]:
    """The first sentences of a CoNLL-U file beside the lines of `target`, or beside their translations."""
    parses = list(islice(read_conllu(path), count))
    if not parses:
        raise CorpusError(path, "there is no sentence in it")
    if not target:
        targets = translate([parse.text for parse in parses])
    elif len(targets := list(islice(read_lines(target), count))) < len(parses):
        raise CorpusError(target, f"{len(targets):,} lines for the {len(parses):,} sentences of {path}")
    return [
        Example(parse.text, line, tuple(_dependencies(parse)), source_words=tuple(parse.spans))
        for parse, line in zip(parses, targets, strict=False)
    ]


def with_links(examples: Sequence[Example], path: str, first: int = 0) -> list[Example]:
    """The same with the word alignments of a file in the Pharaoh format ("0-0 1-2"), line by line.

    Words are those of the text as it is written, divided by spaces, or those of its CoNLL-U file: alignments are made
    for a text that was divided into words before. `first` is the index of a sentence's first word, 0 or 1.
    """
    lines = list(islice(read_lines(path), len(examples)))
    if len(lines) < len(examples):
        raise CorpusError(path, f"{len(lines):,} lines for {len(examples):,} pairs")
    return [
        replace(example, links=_read_links(example, line, path, number, first))
        for number, (example, line) in enumerate(zip(examples, lines, strict=True), 1)
    ]


def _read_links(example: Example, line: str, path: str, number: int, first: int) -> tuple[tuple[Span, Span], ...]:
    source = list(example.source_words) or _written_words(example.source)
    target = _written_words(example.target)
    try:
        links = read_gold(line)[1]
    except ModelError as error:
        raise CorpusError(path, str(error), line=number) from None
    for one, other in links:
        if not (0 <= one - first < len(source) and 0 <= other - first < len(target)):
            has = f"the pair has {len(source)} source and {len(target)} target words"
            hint = f"indices start at {first}; use --gold-from {1 - first} if yours start at {1 - first}"
            raise CorpusError(path, f"alignment {one}-{other} is out of range: {has} ({hint})", line=number)
    return tuple((source[one - first], target[other - first]) for one, other in links)


def _written_words(text: str) -> list[Span]:
    """The words of a text that was divided into words before, with spaces between them."""
    return [found.span() for found in re.finditer(r"[^ \t]+", text)]


def training_text(run: Run) -> list[Pair]:
    """Some of what a run learnt from; nothing if that is out of reach."""
    try:
        examples = chain.from_iterable(map(_reader(run), run.recipe.data.train))
        return [Pair(example.source, example.target) for example in islice(examples, COUNTED)]
    except CorpusError:
        return []


def _reader(run: Run) -> Callable[[Corpus], Iterator[Example]]:
    """Reads a corpus: the phrasebook with all that it knows, any other as it is."""
    languages = (run.recipe.data.source_language, run.recipe.data.target_language)

    def read(corpus: Corpus) -> Iterator[Example]:
        if corpus_of(corpus.source) == "phrasebook" and not corpus.target:
            return map(_annotate, read_phrases(part_of(corpus.source)))
        return map(_plain, read_corpus(corpus, *languages))

    return read


def _plain(pair: Pair) -> Example:
    return Example(*pair)


def _annotate(phrase: Phrase) -> Example:
    source, target = _spans(phrase.source), _spans(phrase.target)
    return Example(
        phrase.source,
        phrase.target,
        tuple(_grammar(phrase.source_roles, source)),
        tuple(_grammar(phrase.target_roles, target)),
        tuple((source[one], target[other]) for one, other in phrase.alignment),
    )


def _spans(text: str) -> list[Span]:
    return [(word.start, word.end) for word in words(text)]


def _grammar(roles: Roles, spans: Sequence[Span]) -> Iterator[Relation]:
    """Subject and verb, object and verb. A word that is both ("they're") stands in no relation to itself."""
    for name, part in (("subject", roles.subject), ("object", roles.object)):
        ones = tuple(spans[place] for place in part if place not in roles.verb)
        others = tuple(spans[place] for place in roles.verb if place not in part)
        if ones and others:
            yield from _both_ways(name, "verb", ones, others)


def _both_ways(one: str, other: str, ones: tuple[Span, ...], others: tuple[Span, ...]) -> Iterator[Relation]:
    yield Relation(f"{one} → {other}", ones, others)
    yield Relation(f"{other} → {one}", others, ones)


def _dependencies(parse: Parse) -> Iterator[Relation]:
    for dependent, head, relation in parse.arcs:
        ends = parse.spans[dependent], parse.spans[head]
        if relation not in UNTOLD and ends[0] != ends[1]:
            yield from _both_ways(relation, "head", (ends[0],), (ends[1],))
