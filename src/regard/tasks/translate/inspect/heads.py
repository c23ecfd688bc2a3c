"""Attention heads of a translator: the role of each, how confident it is, and how important.

Roles are measured on annotated sentence pairs. Annotations are spans of characters, because models have different
tokens. The phrasebook has subject, verb, object and word alignment; a CoNLL-U file has dependencies; other text has no
annotations.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

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
from regard.data.pairs import Pair, read_corpus
from regard.data.records import Parse, read_conllu
from regard.errors import CorpusError, ModelError, SettingsError
from regard.files import read_lines
from regard.layers.hooks import attention_hooks, trace
from regard.models.base import Seq2Seq
from regard.run import Run
from regard.tasks.translate.alignment import Aligner
from regard.tasks.translate.data import PairExamples
from regard.tasks.translate.translator import Translator
from regard.text.tokenizer import Piece, Tokenizer
from regard.text.words import words

COUNTED = 30_000
"""Training pairs from which token frequencies are counted."""
IGNORED_RELATIONS = ("punct", "root")
BATCH_PAIRS = 64
FEWEST_LINKED = 20
"""Pairs with gold alignments that are needed to choose heads: half to choose, half to score the choice."""
WEIGHED = 200
"""Examples that importance is measured on: each head costs a pass over them."""

Span = tuple[int, int]


class WordRelation(NamedTuple):
    """A relation from some words to others."""

    name: str
    queries: tuple[Span, ...]
    keys: tuple[Span, ...]


@dataclass(frozen=True)
class AnnotatedExample:
    """A sentence pair with its annotations."""

    source: str
    target: str
    source_relations: tuple[WordRelation, ...] = ()
    target_relations: tuple[WordRelation, ...] = ()
    links: tuple[tuple[Span, Span], ...] = ()
    """Word alignment."""
    source_words: tuple[Span, ...] = ()
    """The words of the source in a CoNLL-U file; otherwise empty."""


def own_examples(run: Run, count: int) -> list[AnnotatedExample]:
    """At most `count` pairs that a run was not trained on.

    These are its held-out pairs or, for a run validated on the phrasebook, annotated phrases. A run without held-out
    pairs, such as an unfinished one, uses the validation data that its recipe names.
    """
    data = run.recipe.data
    is_book = bool(data.valid) and all(corpus_of(one.source) == "phrasebook" for one in data.valid)
    if not is_book and (kept := run.held_out()):
        return [AnnotatedExample(*pair) for pair in kept[:count]]
    try:
        if data.valid:
            return list(islice(_read(run, data.valid), count))
        held_out = PairExamples(data, run.recipe.train.seed).held_out("valid")
        return [AnnotatedExample(*pair) for pair in held_out[:count]]
    except (CorpusError, SettingsError) as error:
        what = f"{run.folder}: its validation data cannot be read ({error})"
        raise SettingsError(f"{what}; give other text with --source and --target") from None


def given_examples(run: Run, source: str, target: str, count: int) -> list[AnnotatedExample]:
    """The first pairs of the given files."""
    return list(islice(_read(run, [Corpus(source, target)]), count))


def parsed_examples(
    path: str, target: str, count: int, translate: Callable[[list[str]], list[str]]
) -> list[AnnotatedExample]:
    """The first sentences of a CoNLL-U file with the lines of `target`, or with their translations."""
    parses = list(islice(read_conllu(path), count))
    if not parses:
        raise CorpusError(path, "has no sentence")
    if not target:
        targets = translate([parse.text for parse in parses])
    elif len(targets := list(islice(read_lines(target), count))) < len(parses):
        raise CorpusError(target, f"{len(targets):,} lines for the {len(parses):,} sentences of {path}")
    return [
        AnnotatedExample(parse.text, line, tuple(_dependencies(parse)), source_words=tuple(parse.spans))
        for parse, line in zip(parses, targets, strict=False)
    ]


def with_links(examples: Sequence[AnnotatedExample], path: str, first: int = 0) -> list[AnnotatedExample]:
    """The examples with the word alignments of a file in the Pharaoh format ("0-0 1-2"), line by line.

    Words are separated by spaces, or are those of the CoNLL-U file, because alignments are made for tokenized text.
    `first` is the index of the first word of a sentence, 0 or 1.
    """
    lines = list(islice(read_lines(path), len(examples)))
    if len(lines) < len(examples):
        raise CorpusError(path, f"{len(lines):,} lines for {len(examples):,} pairs")
    linked = []
    for number, (example, line) in enumerate(zip(examples, lines, strict=True), 1):
        source, target = (
            [found.span() for found in re.finditer(r"[^ \t]+", text)] for text in (example.source, example.target)
        )
        source = list(example.source_words) or source
        try:
            links = read_gold(line)[1]
        except ModelError as error:
            raise CorpusError(path, str(error), line=number) from None
        for one, other in links:
            if not (0 <= one - first < len(source) and 0 <= other - first < len(target)):
                has = f"the pair has {len(source)} source and {len(target)} target words"
                hint = f"indices start at {first}; use --gold-from {1 - first} if yours start at {1 - first}"
                raise CorpusError(path, f"alignment {one}-{other} is out of range: {has} ({hint})", line=number)
        spans = tuple((source[one - first], target[other - first]) for one, other in links)
        linked.append(replace(example, links=spans))
    return linked


def training_text(run: Run) -> list[Pair]:
    """Some of the training pairs of a run; empty if they cannot be read."""
    try:
        examples = islice(_read(run, run.recipe.data.train), COUNTED)
        return [Pair(example.source, example.target) for example in examples]
    except CorpusError:
        return []


def _read(run: Run, corpora: Iterable[Corpus]) -> Iterator[AnnotatedExample]:
    """The pairs of corpora: the phrasebook with its annotations, others without."""
    data = run.recipe.data
    for corpus in corpora:
        if corpus_of(corpus.source) == "phrasebook" and not corpus.target:
            yield from map(_annotate, read_phrases(part_of(corpus.source)))
        else:
            pairs = read_corpus(corpus, data.source_language, data.target_language)
            yield from (AnnotatedExample(*pair) for pair in pairs)


def _annotate(phrase: Phrase) -> AnnotatedExample:
    source, target = ([(word.start, word.end) for word in words(text)] for text in (phrase.source, phrase.target))
    return AnnotatedExample(
        phrase.source,
        phrase.target,
        tuple(_grammar(phrase.source_roles, source)),
        tuple(_grammar(phrase.target_roles, target)),
        tuple((source[one], target[other]) for one, other in phrase.alignment),
    )


def _grammar(roles: Roles, spans: Sequence[Span]) -> Iterator[WordRelation]:
    """Subject and verb, object and verb. A word that is both ("they're") has no relation to itself."""
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
        one, other = parse.spans[dependent], parse.spans[head]
        if relation not in IGNORED_RELATIONS and one != other:
            yield from _both_ways(relation, "head", (one,), (other,))


@dataclass(frozen=True)
class HeadReport:
    """One head: its roles, strongest first, its confidence and its importance."""

    attention: str
    head: int
    roles: tuple[Role, ...]
    confidence: float
    """Mean of its largest weight."""
    ablation: float
    """Increase of the loss per token without it."""
    gradient: float
    """Mean gradient of the loss with respect to its gate."""

    @property
    def kind(self) -> str:
        return attention_kind(self.attention)

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}


def describe_heads(
    translator: Translator,
    examples: Sequence[AnnotatedExample],
    training: Sequence[Pair] = (),
    log: Callable[[str], None] = lambda message: None,
) -> tuple[HeadReport, ...]:
    """Every head of a translator, measured on these examples, in the order of the layers.

    Token frequencies are counted in `training` or, if it is empty, in the examples. `log` receives progress messages.
    """
    model, source, target = translator.model, translator.source, translator.target
    if not attention_hooks(model):
        raise SettingsError("this model has no attention, so it has no heads")
    examples = [example for example in examples if example.source.strip() and example.target.strip()]
    if not examples:
        raise SettingsError("no pair has text on both sides; heads are measured on a few hundred pairs")
    pairs = [Pair(example.source, example.target) for example in examples]
    texts = zip(*(training or pairs), strict=True)
    frequencies = (token_frequencies(next(texts), source), token_frequencies(next(texts), target))
    log("recording attention")
    roles_of = _head_roles(model, source, target, examples, frequencies)
    batches = text_batches(pairs[:WEIGHED], source, target)
    by_ablation = importance_by_ablation(model, batches, log)
    by_gradient = importance_by_gradient(model, batches)
    return tuple(
        HeadReport(name, head, roles, confidence, float(by_ablation[name][head]), float(by_gradient[name][head]))
        for name in by_ablation
        for head, (roles, confidence) in enumerate(roles_of[name])
    )


def choose_alignment(
    translator: Translator, examples: Sequence[AnnotatedExample]
) -> tuple[RankedHead, AlignmentScores]:
    """The heads, shift and rule that align words best, and the scores of the default, the mean of all heads.

    They are chosen on every second example with a gold alignment. Both scores are measured on the other examples.
    """
    linked = [example for example in examples if example.links]
    gold = [_word_links(example) for example in linked]
    aligner = Aligner(translator.model, translator.source, translator.target)
    maps = aligner.word_maps([one.source for one in linked], [one.target for one in linked])
    usable = []
    for place, found in enumerate(maps[False]):
        rows, columns = next(iter(found.values())).shape[1:] if found else (0, 0)
        if found and all(s < columns and t < rows for s, t in gold[place]):  # normalization may join words
            usable.append(place)
    if len(usable) < FEWEST_LINKED:
        problem = f"{len(usable)} sentence pairs with word alignments are too few to choose heads"
        raise SettingsError(f"{problem}; give at least {FEWEST_LINKED} with --source, --target and --alignments")

    def part(places: Sequence[int], shift: bool) -> list[dict[str, Tensor]]:
        return [maps[shift][place] for place in places]

    ones, others = usable[::2], usable[1::2]
    choice = choose_heads({shift: part(ones, shift) for shift in maps}, [gold[place] for place in ones])
    judged = [gold[place] for place in others]
    scores = score_choice(choice.choice, part(others, choice.choice.shift), judged)
    return choice._replace(scores=scores), score_choice(AlignmentHeads(), part(others, False), judged)


def _word_links(example: AnnotatedExample) -> Links:
    """Gold links between words as the aligner counts them; examples give them as spans of characters."""
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


def text_batches(pairs: Sequence[Pair], source: Tokenizer, target: Tokenizer) -> list[Batch]:
    """Pairs as batches of similar length; `index_B` has their indices."""
    ids = list(
        zip(source.encode_many([p.source for p in pairs]), target.encode_many([p.target for p in pairs]), strict=True)
    )
    order = sorted(range(len(ids)), key=lambda place: tuple(map(len, ids[place])))
    return [
        make_batch([ids[place] for place in places], source.pad, target.pad, np.array(places))
        for places in (order[first : first + BATCH_PAIRS] for first in range(0, len(order), BATCH_PAIRS))
    ]


def token_frequencies(texts: Iterable[str], tokenizer: Tokenizer) -> Tensor:
    """How often each token [V] occurs in the texts."""
    ids = [id for row in tokenizer.encode_many(list(texts)) for id in row]
    return torch.bincount(torch.tensor(ids, dtype=torch.long), minlength=tokenizer.size)


class RoleQuestions(NamedTuple):
    """Candidate roles for one sentence, shared by all layers with the same queries and keys."""

    seen_TS: Tensor
    """Positions that count: special tokens do not."""
    right: dict[HeadLook, Tensor]
    """For each role, the positions that a head with this role attends to."""


def _views(
    example: AnnotatedExample, source: Tokenizer, target: Tokenizer, frequencies: tuple[Tensor, Tensor]
) -> dict[str, RoleQuestions]:
    """Candidate roles for encoder, decoder and cross-attention. Start and end tokens do not count."""
    read, written = source.pieces(example.source), target.pieces(example.target)
    read_S = torch.tensor([True] * len(read) + [False])  # the end token comes last
    written_T = torch.tensor([True] * len(written) + [False])
    prefix_T = written_T.roll(1)  # the decoder reads the start token first
    frequency_S = pad(frequencies[0][[piece.id for piece in read]], (0, 1))
    frequency_T = pad(frequencies[1][[piece.id for piece in written]], (1, 0))
    encoder_SS = read_S[:, None] & read_S
    decoder_TT = (prefix_T[:, None] & prefix_T).tril()
    cross_TS = written_T[:, None] & read_S
    aligned_TS = torch.zeros_like(cross_TS)
    for one, other in example.links:
        aligned_TS[:-1, :-1] |= _tokens(written, [other])[:, None] & _tokens(read, [one])
    aligned = {HeadLook("alignment", "translated word"): aligned_TS} if example.links else {}
    in_source = _syntax(example.source_relations, read, (0, 1))
    in_target = _syntax(example.target_relations, written, (1, 0))
    rare = HeadLook("rare", "rarest token")
    return {
        "encoder": RoleQuestions(encoder_SS, {rare: rarest(encoder_SS, frequency_S)} | in_source),
        "decoder": RoleQuestions(decoder_TT, {rare: rarest(decoder_TT, frequency_T)} | in_target),
        "cross": RoleQuestions(cross_TS, {rare: rarest(cross_TS, frequency_S)} | aligned),
    }


def attention_kind(name: str) -> str:
    """Self-attention of the "encoder" or "decoder", or "cross"-attention."""
    return "encoder" if name.startswith("encoder.") else "decoder" if name.endswith(".self") else "cross"


def _syntax(
    relations: Sequence[WordRelation], pieces: Sequence[Piece], special: tuple[int, int]
) -> dict[HeadLook, Tensor]:
    """The right keys of each relation; `special` is the number of special tokens before and after the pieces."""
    right: dict[HeadLook, Tensor] = {}
    for name, queries, keys in relations:
        look = HeadLook("syntactic", name)
        pair_TS = pad(_tokens(pieces, queries)[:, None] & _tokens(pieces, keys), special * 2)
        right[look] = right[look] | pair_TS if look in right else pair_TS
    return right


def _tokens(pieces: Sequence[Piece], spans: Sequence[Span]) -> Tensor:
    """Which tokens overlap one of the spans. A lone space belongs to the word that follows it."""
    places = [(piece.start, max(piece.end, piece.start + 1)) for piece in pieces]
    return torch.tensor([any(start < b and a < end for a, b in spans) for start, end in places], dtype=torch.bool)


@torch.no_grad()
def _head_roles(
    model: Seq2Seq, source: Tokenizer, target: Tokenizer, examples: Sequence[AnnotatedExample],
    frequencies: tuple[Tensor, Tensor],
) -> dict[str, list[tuple[tuple[Role, ...], float]]]:  # fmt: skip
    """Roles and confidence of each head, by layer. Layers with the same queries and keys are measured together."""
    statistics: dict[str, HeadStatistics] = defaultdict(HeadStatistics)
    pairs = [Pair(example.source, example.target) for example in examples]
    for batch in text_batches(pairs, source, target):
        with trace(model) as tape:
            model.hidden(batch.source, batch.target_input_BT)
        layers: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for name in tape:
            layers[attention_kind(name)][name] = tape.steps(name)
        for row, place in enumerate(batch.index_B.tolist()):
            views = _views(examples[place], source, target, frequencies)
            for kind, weights in layers.items():
                queries, keys = views[kind].seen_TS.shape
                together = torch.cat([weights_BHTS[row, :, :queries, :keys] for weights_BHTS in weights.values()])
                statistics[kind].add(together, *views[kind])
    found = {}
    for kind, weights in layers.items():
        heads = zip(statistics[kind].roles(), statistics[kind].confidence().tolist(), strict=True)
        for name, weights_BHTS in weights.items():
            found[name] = list(islice(heads, weights_BHTS.shape[1]))
    return found
