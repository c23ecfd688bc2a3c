"""Role, confidence and importance of each attention head of a translator.

Roles are measured on sentence pairs with annotations of words: the phrasebook (a built-in corpus) has subject, verb,
object and word alignment; a CoNLL-U file has dependencies; other text has none. Words are given as spans of characters,
because models have different tokens.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
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
    HeadStatistics,
    Role,
    RoleName,
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
from regard.files import chunks, read_lines
from regard.layers.hooks import attention_hooks, trace
from regard.models.base import Seq2Seq
from regard.run import Run
from regard.tasks.translate.alignment import Aligner
from regard.tasks.translate.data import PairExamples
from regard.tasks.translate.translator import Translator
from regard.text.tokenizer import Piece, Tokenizer
from regard.text.words import words

FEWEST_LINKED = 20
"""Minimum number of pairs with gold alignments to choose heads: half to choose them, half to score the choice."""

Span = tuple[int, int]


class WordRelation(NamedTuple):
    """A grammatical relation in a sentence, e.g. "subject → verb". `queries` and `keys` are character spans of words.

    A head with this role attends from the words `queries` (the subject) to the words `keys` (the verb).
    """

    name: str
    queries: tuple[Span, ...]
    keys: tuple[Span, ...]


class AnnotatedExample(NamedTuple):
    """A sentence pair and, if known, its grammatical relations and word alignment. Words are character spans."""

    source: str
    target: str
    source_relations: tuple[WordRelation, ...] = ()
    target_relations: tuple[WordRelation, ...] = ()
    links: tuple[tuple[Span, Span], ...] = ()
    """Word alignment: pairs of a source word and a target word."""
    source_words: tuple[Span, ...] = ()
    """The words of the source in a CoNLL-U file; otherwise empty."""


def own_examples(run: Run, count: int) -> list[AnnotatedExample]:
    """Return at most `count` pairs that a run was not trained on.

    Usually these are the held-out pairs that are stored in the run. The validation data of the recipe is read instead
    in two cases: the run has no stored pairs, or its validation data is the phrasebook, a corpus with annotations.
    """
    data = run.recipe.data
    is_book = bool(data.valid) and all(corpus_of(one.source) == "phrasebook" for one in data.valid)
    if not is_book and (kept := run.held_out()):
        return [AnnotatedExample(*pair) for pair in kept[:count]]
    try:
        if data.valid:
            return read_examples(run, data.valid, count)
        held_out = PairExamples(data, run.recipe.train.seed).held_out("valid")
        return [AnnotatedExample(*pair) for pair in held_out[:count]]
    except (CorpusError, SettingsError) as error:
        what = f"{run.folder}: the validation data of the run cannot be read ({error})"
        raise SettingsError(f"{what}; give other text with --source and --target") from None


def parsed_examples(
    path: str, target: str, count: int, translate: Callable[[list[str]], list[str]]
) -> list[AnnotatedExample]:
    """Return the first `count` sentences of the CoNLL-U file `path`, with their dependencies and translations.

    The translations are the lines of the file `target` or, if it is empty, made by `translate`.
    """
    parses = list(islice(read_conllu(path), count))
    if not parses:
        raise CorpusError(path, "contains no sentences; give another CoNLL-U file")
    if not target:
        targets = translate([parse.text for parse in parses])
    elif len(targets := list(islice(read_lines(target), count))) < len(parses):
        problem = f"{len(targets):,} lines for the {len(parses):,} sentences of {path}"
        raise CorpusError(target, f"{problem}; give one line for each sentence")
    return [
        AnnotatedExample(parse.text, line, tuple(_dependencies(parse)), source_words=tuple(parse.spans))
        for parse, line in zip(parses, targets, strict=False)
    ]


def with_links(examples: Sequence[AnnotatedExample], path: str, first: int = 0) -> list[AnnotatedExample]:
    """Return the examples with the word alignments in the file `path`: a line such as "0-0 1-2" for each example.

    Indices start at `first` (0 or 1). They count words separated by spaces or, if the examples are from a CoNLL-U file,
    its source words.
    """
    lines = list(islice(read_lines(path), len(examples)))
    if len(lines) < len(examples):
        raise CorpusError(
            path, f"{len(lines):,} lines for {len(examples):,} pairs; give one line of word alignments for each pair"
        )
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
        linked.append(example._replace(links=spans))
    return linked


def training_text(run: Run) -> list[AnnotatedExample]:
    """Return the first 30,000 training pairs of a run, to count token frequencies; [] if the files cannot be read."""
    try:
        return read_examples(run, run.recipe.data.train, 30_000)
    except CorpusError:
        return []


def read_examples(run: Run, corpora: Iterable[Corpus], count: int) -> list[AnnotatedExample]:
    """Read the first `count` sentence pairs of the corpora; pairs of the built-in phrasebook have annotations."""
    data = run.recipe.data

    def read(corpus: Corpus) -> Iterable[AnnotatedExample]:
        if corpus_of(corpus.source) == "phrasebook" and not corpus.target:
            return map(_annotate, read_phrases(part_of(corpus.source)))
        return (AnnotatedExample(*pair) for pair in read_corpus(corpus, data.source_language, data.target_language))

    return list(islice(chain.from_iterable(map(read, corpora)), count))


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
    """Yield the relations between subject and verb, and between object and verb, in both directions.

    `roles` has word indices, and `spans` has the character span of each word. A word that is in both parts of a
    relation ("they're" is subject and verb) is left out.
    """
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
        if relation not in ("punct", "root") and one != other:
            yield from _both_ways(relation, "head", (one,), (other,))


@dataclass(frozen=True)
class HeadReport:
    """Roles, confidence (mean largest attention weight) and importance (effect on the loss) of one attention head."""

    attention: str
    """Name of the layer, e.g. "encoder.0.self"."""
    head: int
    roles: tuple[Role, ...]
    """Strongest role first."""
    confidence: float
    """Mean over queries of the largest attention weight."""
    ablation: float
    """Increase of the loss per token if the head is removed."""
    gradient: float
    """Mean gradient of the loss with respect to a gate on the head."""

    @property
    def kind(self) -> str:
        return attention_kind(self.attention)

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}


def describe_heads(
    translator: Translator,
    examples: Sequence[AnnotatedExample],
    training: Sequence[AnnotatedExample] = (),
    log: Callable[[str], None] = lambda message: None,
) -> tuple[HeadReport, ...]:
    """Measure on `examples` the roles, confidence and importance of every attention head, in the order of the layers.

    Token frequencies, which define the role of attending to rare tokens, are counted in `training` or, if it is
    empty, in the examples. `log` receives progress messages.
    """
    model, source, target = translator.model, translator.source, translator.target
    if not attention_hooks(model):
        raise SettingsError("this model has no attention heads to measure; choose a run with attention")
    examples = [example for example in examples if example.source.strip() and example.target.strip()]
    if not examples:
        raise SettingsError("no sentence pair has both source and target text; give other pairs, at best a few hundred")
    counted = training or examples
    frequencies = (
        token_frequencies([one.source for one in counted], source),
        token_frequencies([one.target for one in counted], target),
    )
    log("recording attention")
    roles_of = _head_roles(model, source, target, examples, frequencies)
    batches = text_batches(examples[:200], source, target)  # few, because ablation needs a pass over them for each head
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
    """Choose the cross-attention heads that align words best, and how to use them (see `AlignmentHeads`).

    Returns the choice with its scores and, for comparison, the scores of the mean of all heads. The choice is made on
    every second example with a gold alignment; both scores are measured on the other examples.
    """
    linked = [example for example in examples if example.links]
    gold = [_word_links(example) for example in linked]
    aligner = Aligner(translator.model, translator.source, translator.target)
    maps = aligner.word_maps([one.source for one in linked], [one.target for one in linked])
    usable = []
    for place, found in enumerate(maps[False]):
        rows, columns = next(iter(found.values())).shape[1:] if found else (0, 0)
        if found and all(s < columns and t < rows for s, t in gold[place]):  # false if normalization joins words
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
    """Convert the gold alignment of an example from character spans to pairs of word indices (source, target)."""
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


def text_batches(pairs: Sequence[Pair | AnnotatedExample], source: Tokenizer, target: Tokenizer) -> list[Batch]:
    """Tokenize sentence pairs and batch those of similar length; `index_B` of a batch has their indices in `pairs`."""
    ids = list(
        zip(source.encode_many([p.source for p in pairs]), target.encode_many([p.target for p in pairs]), strict=True)
    )
    order = sorted(range(len(ids)), key=lambda place: tuple(map(len, ids[place])))
    return [
        make_batch([ids[place] for place in places], source.pad, target.pad, np.array(places))
        for places in chunks(order, 64)
    ]


def token_frequencies(texts: list[str], tokenizer: Tokenizer) -> Tensor:
    """Count how often each token of the vocabulary occurs in the texts. Returns a tensor [V]."""
    ids = [id for row in tokenizer.encode_many(texts) for id in row]
    return torch.bincount(torch.tensor(ids, dtype=torch.long), minlength=tokenizer.size)


class CandidateRoles(NamedTuple):
    """The roles to test on a sentence pair, for the heads of one kind of attention (encoder, decoder or cross)."""

    seen_TS: Tensor
    """Mask of the queries and keys that are used: all except start and end tokens."""
    right: dict[RoleName, Tensor]
    """For each role, a mask [T, S] of the keys that a head with this role attends to."""


def _candidate_roles(
    example: AnnotatedExample, source: Tokenizer, target: Tokenizer, frequencies: tuple[Tensor, Tensor]
) -> dict[str, CandidateRoles]:
    """Return the roles to test on one sentence pair, for each of the keys "encoder", "decoder" and "cross".

    `frequencies` are the counts [V] of the source tokens and of the target tokens; they define the rarest token.
    """
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
    aligned = {RoleName("alignment", "translated word"): aligned_TS} if example.links else {}
    in_source = _syntax(example.source_relations, read, (0, 1))
    in_target = _syntax(example.target_relations, written, (1, 0))
    rare = RoleName("rare", "rarest token")
    return {
        "encoder": CandidateRoles(encoder_SS, {rare: rarest(encoder_SS, frequency_S)} | in_source),
        "decoder": CandidateRoles(decoder_TT, {rare: rarest(decoder_TT, frequency_T)} | in_target),
        "cross": CandidateRoles(cross_TS, {rare: rarest(cross_TS, frequency_S)} | aligned),
    }


def attention_kind(name: str) -> str:
    """Return the kind of the attention layer `name`, e.g. "encoder.0.self": "encoder", "decoder" or "cross"."""
    return "encoder" if name.startswith("encoder.") else "decoder" if name.endswith(".self") else "cross"


def _syntax(
    relations: Sequence[WordRelation], pieces: Sequence[Piece], special: tuple[int, int]
) -> dict[RoleName, Tensor]:
    """Return, for each relation, a mask [T, S] that is true where it connects a query token with a key token.

    `pieces` are the tokens of one sentence (T = S); `special` has the numbers of special tokens before and after them.
    """
    right: dict[RoleName, Tensor] = {}
    for name, queries, keys in relations:
        look = RoleName("syntactic", name)
        pair_TS = pad(_tokens(pieces, queries)[:, None] & _tokens(pieces, keys), special * 2)
        right[look] = right[look] | pair_TS if look in right else pair_TS
    return right


def _tokens(pieces: Sequence[Piece], spans: Sequence[Span]) -> Tensor:
    """Return a mask over the tokens `pieces`: true if a token overlaps one of the character spans.

    A token that is only a space counts as part of the next word.
    """
    places = [(piece.start, max(piece.end, piece.start + 1)) for piece in pieces]
    return torch.tensor([any(start < b and a < end for a, b in spans) for start, end in places], dtype=torch.bool)


@torch.no_grad()
def _head_roles(
    model: Seq2Seq, source: Tokenizer, target: Tokenizer, examples: Sequence[AnnotatedExample],
    frequencies: tuple[Tensor, Tensor],
) -> dict[str, list[tuple[tuple[Role, ...], float]]]:  # fmt: skip
    """Return, by the name of each attention layer, the roles and the confidence of each of its heads.

    `frequencies` are the counts [V] of the source tokens and of the target tokens.
    """
    statistics: dict[str, HeadStatistics] = defaultdict(HeadStatistics)
    for batch in text_batches(examples, source, target):
        with trace(model) as tape:
            model.hidden(batch.source, batch.target_input_BT)
        layers: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for name in tape:
            layers[attention_kind(name)][name] = tape.steps(name)
        for row, place in enumerate(batch.index_B.tolist()):
            candidates = _candidate_roles(examples[place], source, target, frequencies)
            for kind, weights in layers.items():
                queries, keys = candidates[kind].seen_TS.shape
                together = torch.cat([weights_BHTS[row, :, :queries, :keys] for weights_BHTS in weights.values()])
                statistics[kind].add(together, *candidates[kind])
    found = {}
    for kind, weights in layers.items():
        heads = zip(statistics[kind].roles(), statistics[kind].confidence().tolist(), strict=True)
        for name, weights_BHTS in weights.items():
            found[name] = list(islice(heads, weights_BHTS.shape[1]))
    return found
