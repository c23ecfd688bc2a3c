"""The heads of a translator: what each does, how sure it is, and how much depends on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.analysis.alignment import AlignmentScores, Choice, Links, Ranked, choose_heads, score_choice
from regard.analysis.heads import Look, Role, Survey, rarest
from regard.analysis.importance import importance_by_ablation, importance_by_gradient
from regard.data.batch import Batch, make_batch
from regard.data.corpus import Pair
from regard.data.tokenizer import Piece, Tokenizer
from regard.data.words import words
from regard.errors import SettingsError
from regard.layers.taps import taps, trace
from regard.models.base import Seq2Seq
from regard.tasks.align import Aligner
from regard.tasks.annotated import Example, Relation, Span
from regard.tasks.translate import Translator

__all__ = ["Head", "Role", "describe_heads", "text_batches", "token_frequencies"]

BATCH_PAIRS = 64
FEWEST_LINKED = 20  # pairs with gold links, half of them to choose heads and half to score the choice
WEIGHED = 200  # of the examples, for importance: each head costs a pass over them


@dataclass(frozen=True)
class Head:
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
    examples: Sequence[Example],
    training: Sequence[Pair] = (),
    tell: Callable[[str], None] = lambda doing: None,
) -> tuple[Head, ...]:
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
    tell("watching where they look")
    surveys = _survey(model, source, target, examples, frequencies)
    weighed = [Pair(example.source, example.target) for example in examples[:WEIGHED]]
    batches = text_batches(weighed, source, target)
    by_ablation = importance_by_ablation(model, batches, tell)
    by_gradient = importance_by_gradient(model, batches)
    return tuple(
        Head(name, head, roles, confidence, float(by_ablation[name][head]), float(by_gradient[name][head]))
        for name in by_ablation
        for head, (roles, confidence) in enumerate(surveys[name])
    )


def choose_alignment(translator: Translator, examples: Sequence[Example]) -> tuple[Ranked, AlignmentScores]:
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
    return choice._replace(scores=scores), score_choice(Choice(), part(others, False), judged)


def _word_links(example: Example) -> Links:
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


class View(NamedTuple):
    """What is asked about a sentence of all attentions with the same queries and keys."""

    seen_TS: Tensor
    right: dict[Look, Tensor]


def _views(
    example: Example, source: Tokenizer, target: Tokenizer, frequencies: tuple[Tensor, Tensor]
) -> dict[str, View]:
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
        "encoder": View(
            encoder_SS,
            _rare(encoder_SS, frequency_S) | _syntax(example.source_relations, heard, after=1),
        ),
        "decoder": View(decoder_TT, _rare(decoder_TT, frequency_T) | _syntax(example.target_relations, said, before=1)),
        "cross": View(cross_TS, _rare(cross_TS, frequency_S) | _alignment(example, heard, said)),
    }


def _kind(attention: str) -> str:
    """See `Head.kind`."""
    return "encoder" if attention.startswith("encoder.") else "decoder" if attention.endswith(".self") else "cross"


def _rare(seen_TS: Tensor, frequency_S: Tensor) -> dict[Look, Tensor]:
    return {Look("rare", "rarest token"): rarest(seen_TS, frequency_S)}


def _syntax(
    relations: Sequence[Relation], pieces: Sequence[Piece], before: int = 0, after: int = 0
) -> dict[Look, Tensor]:
    right: dict[Look, Tensor] = {}
    for name, looking, at in relations:
        look = Look("syntactic", name)
        pair_TS = _tokens(pieces, looking, before, after)[:, None] & _tokens(pieces, at, before, after)
        right[look] = right[look] | pair_TS if look in right else pair_TS
    return right


def _alignment(example: Example, heard: Sequence[Piece], said: Sequence[Piece]) -> dict[Look, Tensor]:
    if not example.links:
        return {}
    right_TS = torch.zeros(len(said) + 1, len(heard) + 1, dtype=torch.bool)
    for one, other in example.links:
        right_TS |= _tokens(said, [other], after=1)[:, None] & _tokens(heard, [one], after=1)
    return {Look("alignment", "translated word"): right_TS}


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
    model: Seq2Seq, source: Tokenizer, target: Tokenizer, examples: Sequence[Example],
    frequencies: tuple[Tensor, Tensor],
) -> dict[str, list[tuple[tuple[Role, ...], float]]]:  # fmt: skip
    """Roles and confidence of each head, by attention. Attentions that look at the same things are watched together."""
    surveys: dict[str, Survey] = defaultdict(Survey)
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
