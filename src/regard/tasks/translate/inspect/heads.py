"""The heads of a translator: what each does, how sure it is, and how much depends on it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.analysis.alignment import (
    AlignmentHeads,
    AlignmentScores,
    Links,
    RankedHead,
    choose_heads,
    read_gold,
    score_choice,
)
from regard.analysis.head_roles import (
    HeadLook,
    HeadStatistics,
    Role,
    importance_by_ablation,
    importance_by_gradient,
    rarest,
)
from regard.config import Corpus
from regard.data.batches import Batch, make_batch
from regard.data.builtin import Phrase, Roles, corpus_of, part_of, read_phrases
from regard.data.conllu import Parse, read_conllu
from regard.data.pairs import Pair, read_corpus
from regard.errors import CorpusError, ModelError, SettingsError
from regard.files import read_lines
from regard.layers.hooks import taps, trace
from regard.models.base import Seq2Seq
from regard.run import Run
from regard.tasks.translate.alignment import Aligner
from regard.tasks.translate.data import TrainingPairs
from regard.tasks.translate.translator import Translator
from regard.text.tokenizer import Piece, Tokenizer
from regard.text.words import words

# Sentence pairs with what is known of their grammar and alignment: what head roles are judged by.
#
# Places are spans of characters, because models have tokens of their own. The phrasebook knows subject, verb, object
# and
# which words render which; a CoNLL-U file knows what depends on what; any other text knows nothing of the kind.


COUNTED = 30_000  # training pairs that tell how frequent a token is
UNTOLD = ("punct", "root")

Span = tuple[int, int]


class WordRelation(NamedTuple):
    """Words that stand in a relation to others, seen from the ones."""

    name: str
    looking: tuple[Span, ...]
    at: tuple[Span, ...]


@dataclass(frozen=True)
class AnnotatedExample:
    """A sentence pair and what is known of it."""

    source: str
    target: str
    source_relations: tuple[WordRelation, ...] = ()
    target_relations: tuple[WordRelation, ...] = ()
    links: tuple[tuple[Span, Span], ...] = ()
    """Which words of the source are rendered by which of the target."""
    source_words: tuple[Span, ...] = ()
    """The words of the source as a CoNLL-U file gives them; elsewhere none are given."""


def own_examples(run: Run, count: int) -> list[AnnotatedExample]:
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


def given_examples(run: Run, source: str, target: str, count: int) -> list[AnnotatedExample]:
    """The first pairs of files."""
    return list(islice(_reader(run)(Corpus(source, target)), count))


def parsed_examples(
    path: str, target: str, count: int, translate: Callable[[list[str]], list[str]]
) -> list[AnnotatedExample]:
    """The first sentences of a CoNLL-U file beside the lines of `target`, or beside their translations."""
    parses = list(islice(read_conllu(path), count))
    if not parses:
        raise CorpusError(path, "there is no sentence in it")
    if not target:
        targets = translate([parse.text for parse in parses])
    elif len(targets := list(islice(read_lines(target), count))) < len(parses):
        raise CorpusError(target, f"{len(targets):,} lines for the {len(parses):,} sentences of {path}")
    return [
        AnnotatedExample(parse.text, line, tuple(_dependencies(parse)), source_words=tuple(parse.spans))
        for parse, line in zip(parses, targets, strict=False)
    ]


def with_links(examples: Sequence[AnnotatedExample], path: str, first: int = 0) -> list[AnnotatedExample]:
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


def _read_links(
    example: AnnotatedExample, line: str, path: str, number: int, first: int
) -> tuple[tuple[Span, Span], ...]:
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


def _reader(run: Run) -> Callable[[Corpus], Iterator[AnnotatedExample]]:
    """Reads a corpus: the phrasebook with all that it knows, any other as it is."""
    languages = (run.recipe.data.source_language, run.recipe.data.target_language)

    def read(corpus: Corpus) -> Iterator[AnnotatedExample]:
        if corpus_of(corpus.source) == "phrasebook" and not corpus.target:
            return map(_annotate, read_phrases(part_of(corpus.source)))
        return map(_plain, read_corpus(corpus, *languages))

    return read


def _plain(pair: Pair) -> AnnotatedExample:
    return AnnotatedExample(*pair)


def _annotate(phrase: Phrase) -> AnnotatedExample:
    source, target = _spans(phrase.source), _spans(phrase.target)
    return AnnotatedExample(
        phrase.source,
        phrase.target,
        tuple(_grammar(phrase.source_roles, source)),
        tuple(_grammar(phrase.target_roles, target)),
        tuple((source[one], target[other]) for one, other in phrase.alignment),
    )


def _spans(text: str) -> list[Span]:
    return [(word.start, word.end) for word in words(text)]


def _grammar(roles: Roles, spans: Sequence[Span]) -> Iterator[WordRelation]:
    """Subject and verb, object and verb. A word that is both ("they're") stands in no relation to itself."""
    for name, part in (("subject", roles.subject), ("object", roles.object)):
        ones = tuple(spans[place] for place in part if place not in roles.verb)
        others = tuple(spans[place] for place in roles.verb if place not in part)
        if ones and others:
            yield from _both_ways(name, "verb", ones, others)


def _both_ways(one: str, other: str, ones: tuple[Span, ...], others: tuple[Span, ...]) -> Iterator[WordRelation]:
    yield WordRelation(f"{one} → {other}", ones, others)
    yield WordRelation(f"{other} → {one}", others, ones)


def _dependencies(parse: Parse) -> Iterator[WordRelation]:
    for dependent, head, relation in parse.arcs:
        ends = parse.spans[dependent], parse.spans[head]
        if relation not in UNTOLD and ends[0] != ends[1]:
            yield from _both_ways(relation, "head", (ends[0],), (ends[1],))


__all__ = ["HeadReport", "Role", "describe_heads", "text_batches", "token_frequencies"]

BATCH_PAIRS = 64
FEWEST_LINKED = 20  # pairs with gold links, half of them to choose heads and half to score the choice
WEIGHED = 200  # of the examples, for importance: each head costs a pass over them


@dataclass(frozen=True)
class HeadReport:
    """One head: its roles, the strongest first, how confident it is and how important."""

    attention: str
    head: int
    roles: tuple[Role, ...]
    confidence: float
    """Mean of its largest weight."""
    ablation: float
    """Rise of the loss a token without it."""
    gradient: float
    """Mean slope of the loss along its gate."""

    @property
    def kind(self) -> str:
        """Who looks at what: "encoder" and "decoder" at themselves, "cross" from the target at the source."""
        return _kind(self.attention)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"kind": self.kind, **asdict(self)}


def describe_heads(
    translator: Translator,
    examples: Sequence[AnnotatedExample],
    training: Sequence[Pair] = (),
    log: Callable[[str], None] = lambda doing: None,
) -> tuple[HeadReport, ...]:
    """Every head of a translator, judged by these examples, in the order of the layers.

    `training`: text that tells how frequent tokens are; without it the examples do. `tell` hears what is being done.
    """
    model, source, target = translator.model, translator.source, translator.target
    if not taps(model):
        raise SettingsError("this model has no attention, and so no heads to look at")
    examples = [example for example in examples if example.source.strip() and example.target.strip()]
    if not examples:
        raise SettingsError("no pair has text on both sides; heads are judged by what they do with some hundred pairs")
    counted = training or [Pair(example.source, example.target) for example in examples]
    frequencies = (
        token_frequencies((pair.source for pair in counted), source),
        token_frequencies((pair.target for pair in counted), target),
    )
    log("watching where they look")
    surveys = _survey(model, source, target, examples, frequencies)
    weighed = [Pair(example.source, example.target) for example in examples[:WEIGHED]]
    batches = text_batches(weighed, source, target)
    by_ablation = importance_by_ablation(model, batches, log)
    by_gradient = importance_by_gradient(model, batches)
    return tuple(
        HeadReport(name, head, roles, confidence, float(by_ablation[name][head]), float(by_gradient[name][head]))
        for name in by_ablation
        for head, (roles, confidence) in enumerate(surveys[name])
    )


def choose_alignment(
    translator: Translator, examples: Sequence[AnnotatedExample]
) -> tuple[RankedHead, AlignmentScores]:
    """The heads, shift and rule that align words best, and what they score beside the mean of all heads.

    They are chosen on every second example with gold links. The scores, of the choice and of the default, are on the
    other examples.
    """
    linked = [example for example in examples if example.links]
    gold = [_word_links(example) for example in linked]
    aligner = Aligner(translator.model, translator.source, translator.target)
    maps = aligner.word_maps([one.source for one in linked], [one.target for one in linked])
    usable = [place for place, found in enumerate(maps[False]) if found and _fits(gold[place], found)]
    if len(usable) < FEWEST_LINKED:
        problem = f"{len(usable)} sentence pairs with word alignments are too few to choose heads"
        raise SettingsError(f"{problem}; give at least {FEWEST_LINKED} with --source, --target and --links")

    def part(places: Sequence[int], shift: bool) -> list[dict[str, Tensor]]:
        return [maps[shift][place] for place in places]

    ones, others = usable[::2], usable[1::2]
    choice = choose_heads({shift: part(ones, shift) for shift in maps}, [gold[place] for place in ones])
    judged = [gold[place] for place in others]
    scores = score_choice(choice.choice, part(others, choice.choice.shift), judged)
    return choice._replace(scores=scores), score_choice(AlignmentHeads(), part(others, False), judged)


def _word_links(example: AnnotatedExample) -> Links:
    """Gold links, which are given as spans of the texts, between words as the aligner counts them."""
    source, target = words(example.source), words(example.target)
    return tuple(
        sorted(
            (s, t)
            for one, other in example.links
            for s, word in enumerate(source)
            if word.start < one[1] and one[0] < word.end
            for t, rendered in enumerate(target)
            if rendered.start < other[1] and other[0] < rendered.end
        )
    )


def _fits(links: Links, maps: Mapping[str, Tensor]) -> bool:
    """Whether the model counts at least as many words as the links do; normalization may join words."""
    rows, columns = next(iter(maps.values())).shape[1:]
    return all(s < columns and t < rows for s, t in links)


def text_batches(pairs: Sequence[Pair], source: Tokenizer, target: Tokenizer) -> list[Batch]:
    """Pairs as batches, those of similar length together; `index_B` tells which they are."""
    ids = list(
        zip(source.encode_many([p.source for p in pairs]), target.encode_many([p.target for p in pairs]), strict=True)
    )
    order = sorted(range(len(ids)), key=lambda place: (len(ids[place][0]), len(ids[place][1])))
    return [
        make_batch([ids[place] for place in places], source.pad, target.pad, np.array(places))
        for places in (order[first : first + BATCH_PAIRS] for first in range(0, len(order), BATCH_PAIRS))
    ]


def token_frequencies(texts: Iterable[str], tokenizer: Tokenizer) -> Tensor:
    """How often each token [V] stands in the texts."""
    counts = torch.zeros(tokenizer.size, dtype=torch.long)
    ids = [id for row in tokenizer.encode_many(list(texts)) for id in row]
    return counts + torch.bincount(torch.tensor(ids, dtype=torch.long), minlength=tokenizer.size)


# ---------------------------------------------------------------------------------------------------------------------
# What the heads could be looking for


class HeadsReport(NamedTuple):
    """What is asked about a sentence of all attentions with the same queries and keys."""

    seen_TS: Tensor
    right: dict[HeadLook, Tensor]


def _views(
    example: AnnotatedExample, source: Tokenizer, target: Tokenizer, frequencies: tuple[Tensor, Tensor]
) -> dict[str, HeadsReport]:
    """The questions to encoder, decoder and cross attention. The end and start tokens are nobody's answer."""
    heard, said = source.pieces(example.source), target.pieces(example.target)
    heard_S = torch.tensor([True] * len(heard) + [False])  # the end token comes last
    written_T = torch.tensor([True] * len(said) + [False])
    read_T = written_T.roll(1)  # the decoder reads the start token first
    frequency_S = _frequencies(heard, frequencies[0], after=1)
    frequency_T = _frequencies(said, frequencies[1], before=1)
    encoder_SS = heard_S[:, None] & heard_S
    decoder_TT = (read_T[:, None] & read_T).tril()
    cross_TS = written_T[:, None] & heard_S
    return {
        "encoder": HeadsReport(
            encoder_SS,
            _rare(encoder_SS, frequency_S) | _syntax(example.source_relations, heard, after=1),
        ),
        "decoder": HeadsReport(
            decoder_TT, _rare(decoder_TT, frequency_T) | _syntax(example.target_relations, said, before=1)
        ),
        "cross": HeadsReport(cross_TS, _rare(cross_TS, frequency_S) | _alignment(example, heard, said)),
    }


def _kind(attention: str) -> str:
    """See `Head.kind`."""
    return "encoder" if attention.startswith("encoder.") else "decoder" if attention.endswith(".self") else "cross"


def _rare(seen_TS: Tensor, frequency_S: Tensor) -> dict[HeadLook, Tensor]:
    return {HeadLook("rare", "rarest token"): rarest(seen_TS, frequency_S)}


def _syntax(
    relations: Sequence[WordRelation], pieces: Sequence[Piece], before: int = 0, after: int = 0
) -> dict[HeadLook, Tensor]:
    right: dict[HeadLook, Tensor] = {}
    for name, looking, at in relations:
        look = HeadLook("syntactic", name)
        pair_TS = _tokens(pieces, looking, before, after)[:, None] & _tokens(pieces, at, before, after)
        right[look] = right[look] | pair_TS if look in right else pair_TS
    return right


def _alignment(example: AnnotatedExample, heard: Sequence[Piece], said: Sequence[Piece]) -> dict[HeadLook, Tensor]:
    if not example.links:
        return {}
    right_TS = torch.zeros(len(said) + 1, len(heard) + 1, dtype=torch.bool)
    for one, other in example.links:
        right_TS |= _tokens(said, [other], after=1)[:, None] & _tokens(heard, [one], after=1)
    return {HeadLook("alignment", "translated word"): right_TS}


def _tokens(pieces: Sequence[Piece], spans: Sequence[Span], before: int = 0, after: int = 0) -> Tensor:
    """Which tokens touch one of the spans; none of the special ones before and after does."""
    ends = [max(piece.end, piece.start + 1) for piece in pieces]  # a lone space belongs to the word that follows it
    touch = [any(piece.start < b and a < end for a, b in spans) for piece, end in zip(pieces, ends, strict=True)]
    return torch.tensor([False] * before + touch + [False] * after)


def _frequencies(pieces: Sequence[Piece], frequency_V: Tensor, before: int = 0, after: int = 0) -> Tensor:
    ids = torch.tensor([piece.id for piece in pieces], dtype=torch.long)
    return torch.nn.functional.pad(frequency_V[ids], (before, after))


# ---------------------------------------------------------------------------------------------------------------------
# Watching them


@torch.no_grad()
def _survey(
    model: Seq2Seq, source: Tokenizer, target: Tokenizer, examples: Sequence[AnnotatedExample],
    frequencies: tuple[Tensor, Tensor],
) -> dict[str, list[tuple[tuple[Role, ...], float]]]:  # fmt: skip
    """Roles and confidence of each head, by attention. Attentions that look at the same things are watched together."""
    surveys: dict[str, HeadStatistics] = defaultdict(HeadStatistics)
    names: dict[str, list[tuple[str, int]]] = {}
    pairs = [Pair(example.source, example.target) for example in examples]
    for batch in text_batches(pairs, source, target):
        with trace(model) as tape:
            model.hidden(batch.source, batch.target_input_BT)
        weights = {name: tape.steps(name) for name in tape}
        for row, place in enumerate(batch.index_B.tolist()):
            views = _views(examples[place], source, target, frequencies)
            for kind, view in views.items():
                of_kind = [name for name in weights if _kind(name) == kind]
                if not of_kind:
                    continue
                names[kind] = [(name, weights[name].shape[1]) for name in of_kind]
                queries, keys = view.seen_TS.shape
                together = torch.cat([weights[name][row, :, :queries, :keys] for name in of_kind])
                surveys[kind].add(together, *view)
    found: dict[str, list[tuple[tuple[Role, ...], float]]] = {}
    for kind, survey in surveys.items():
        heads: Iterator[tuple[tuple[Role, ...], float]] = zip(survey.roles(), survey.confidence().tolist(), strict=True)
        for name, count in names[kind]:
            found[name] = [next(heads) for _ in range(count)]
    return found
