"""A trace: attention weights, hidden states and probabilities of one pass over a sentence pair, by token or word.

Also the entropy of attention weights, and next-token probabilities as a table of likely tokens.
"""

from __future__ import annotations

import difflib
import math
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.decoding.beam import SearchTree
from regard.errors import ModelError, nearest
from regard.layers.attention import CrossAttention, SelfAttention
from regard.layers.hooks import trace as record
from regard.layers.hooks import trace_states
from regard.models.base import Seq2Seq, Source

Span = tuple[int, int]


@dataclass(frozen=True)
class TraceSide:
    """The source or the target sentence of a trace: tokens, the words they form, positions in the original text."""

    tokens: tuple[str, ...]
    words: tuple[str, ...]  # as the model reads them: normalized, and lowercased if the tokenizer does that
    word_of: tuple[int, ...]  # for each token, the index of its word
    spans: tuple[Span, ...] = ()
    """For each token, start and end in the original `text`; a token that is not in the text has an empty span."""
    text: str = ""

    @property
    def word_spans(self) -> tuple[Span, ...]:
        """For each word, its span in the text: start of its first token, end of its last token."""
        found: dict[int, Span] = {}
        for word, (start, end) in zip(self.word_of, self.spans, strict=False):  # a side may have no spans
            first, last = found.get(word, (start, end))
            found[word] = first, max(last, end)
        return tuple(found.values())

    def merge(self, x: Tensor, dim: int, *, mean: bool) -> Tensor:
        """Along the axis `dim` of `x`, merge the entries of each word's tokens: the mean if `mean`, else the sum."""
        index = torch.tensor(self.word_of, device=x.device)
        shape = list(x.shape)
        shape[dim] = len(self.words)
        merged = x.new_zeros(shape).index_add_(dim, index, x)
        if not mean:
            return merged
        counts = torch.bincount(index, minlength=len(self.words)).to(x.dtype)
        return merged / counts.unsqueeze(-1 if dim == -2 else 0)

    def by_words(self) -> TraceSide:
        """The same sentence, with each word as one token."""
        return replace(self, tokens=self.words, word_of=tuple(range(len(self.words))), spans=self.word_spans)

    def shifted(self) -> TraceSide:
        """The decoder input for this target sentence: the start token, then all tokens but the end token."""
        return TraceSide(
            ("<s>", *self.tokens[:-1]),
            ("<s>", *self.words[:-1]),
            (0, *(place + 1 for place in self.word_of[:-1])),
            ((0, 0), *self.spans[:-1]) if self.spans else (),
            self.text,
        )


@dataclass(frozen=True)
class Trace:
    """Attention weights, hidden states and probabilities that a model computed for one sentence pair.

    The target tokens are the output tokens, the end token last; row t of a decoder attention, state or distribution
    belongs to the step that predicts token t.
    """

    source: TraceSide
    target: TraceSide
    weights: dict[str, Tensor]
    """Attention weights [heads, queries, keys] by the name of the attention; empty for a model without attention."""
    values: dict[str, Tensor] = field(default_factory=dict)  # [heads, keys, head width], by attention
    states: dict[str, Tensor] = field(default_factory=dict)
    """Hidden states [tokens, width] by name, "encoder.embed" to "decoder.top" (see layers/hooks.py)."""
    next: Tensor | None = None
    """[T, V]: row t has the log-probabilities of all V tokens of the vocabulary, given the target tokens before t."""
    tree: SearchTree | None = None  # the beam search that found the target, if there was one
    outward: dict[str, Tensor] = field(default_factory=dict)
    """Output projection of the heads of each attention, [heads, head width, width]; recurrent attention has none."""

    def __repr__(self) -> str:
        return f"<Trace: {' '.join(self.source.words)} | {' '.join(self.target.words)} | {', '.join(self.weights)}>"

    def attention(self, name: str) -> Tensor:
        """The weights [heads, queries, keys] of the attention layer `name`, e.g. "decoder.2.cross"."""
        if name in self.weights:
            return self.weights[name]
        guess = nearest(name, self.weights) or f"; there are {', '.join(self.weights) or 'none'}"
        raise ModelError(f'the trace has no attention layer "{name}"{guess}')

    def axes(self, name: str) -> tuple[TraceSide, TraceSide]:
        """The tokens of the queries and the tokens of the keys of the attention layer `name`, each as a `TraceSide`."""
        if name.startswith("encoder."):
            return self.source, self.source
        return self.target, self.target.shifted() if name.endswith(".self") else self.source

    def by_words(self) -> Trace:
        """The trace by word: weights are averaged over the tokens of a query word, and summed over those of a key word.

        States and values are averaged, for display: weights times values no longer give the exact output. `next` keeps
        the row of the first token of each word.
        """
        weights = {}
        for name, map_HTS in self.weights.items():
            rows, columns = self.axes(name)
            weights[name] = columns.merge(rows.merge(map_HTS, -2, mean=True), -1, mean=False)
        values = {name: self.axes(name)[1].merge(x_HSK, -2, mean=True) for name, x_HSK in self.values.items()}
        states = {}
        for name, state_TD in self.states.items():
            side = self.source if name.startswith("encoder.") else self.target
            if name == "decoder.embed":  # the decoder input; other states belong to the predicted tokens
                side = self.target.shifted()
            states[name] = side.merge(state_TD, -2, mean=True)
        begins = [self.target.word_of.index(word) for word in range(len(self.target.words))]
        return replace(
            self,
            source=self.source.by_words(),
            target=self.target.by_words(),
            weights=weights,
            values=values,
            states=states,
            next=None if self.next is None else self.next[begins],
        )


@torch.no_grad()
def record_trace(
    model: Seq2Seq, ids: Source, target_input_1T: Tensor, source: TraceSide, target: TraceSide, tree: SearchTree | None
) -> Trace:
    """Run a model once over one sentence pair, and record the trace.

    `ids` are the source tokens, `target_input_1T` is the decoder input; `source` and `target` are the texts of the
    tokens and words; `tree` is the beam search that found the target, if any.
    """
    with record(model) as tape, trace_states(model) as states:
        logits_1TV = model(ids, target_input_1T)
    outward = {}
    for module in model.modules():
        if isinstance(module, SelfAttention | CrossAttention) and module.tap.name in tape:
            outward[module.tap.name] = module.out.weight.detach().t().unflatten(0, (module.heads, -1))
    return Trace(
        source,
        target,
        {name: seen.weights_BHTS[0] for name, seen in tape.items()},
        {name: seen.value_BHSK[0] for name, seen in tape.items()},
        {name: state[0] for name, state in states.items()},
        logits_1TV[0].log_softmax(-1),
        tree,
        outward,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Entropy of attention weights, and likely next tokens


class AttentionEntropy(NamedTuple):
    """Entropy of the weights of one attention layer: one value per head, averaged over the queries."""

    bits_H: Tensor  # 0 if each row has all its weight on one key
    evenness_H: Tensor
    """Entropy divided by the maximum entropy, averaged over rows with two or more visible keys; 1 for equal weights."""


def attention_entropy(weights_HTS: Tensor) -> AttentionEntropy:
    """Entropy of the weights of each head, in bits and divided by the maximum for the visible keys.

    A key whose weight is exactly zero in every head counts as invisible.
    """
    bits_HT = _entropy(weights_HTS.double())
    seen_T = (weights_HTS != 0).any(0).sum(-1)
    has_choice_T = seen_T > 1
    evenness_HT = bits_HT[:, has_choice_T] / seen_T[has_choice_T].double().log2()
    evenness_H = evenness_HT.mean(-1) if has_choice_T.any() else torch.ones_like(bits_HT[:, 0])
    return AttentionEntropy(bits_HT.mean(-1), evenness_H)


def _entropy(probability: Tensor) -> Tensor:
    """Entropy in bits of the probabilities along the last axis."""
    return -torch.xlogy(probability, probability).sum(-1) / math.log(2)


def next_tokens(log_probs_TV: Tensor, token: Callable[[int], str], top: int = 5) -> dict[str, Any]:
    """A table for JSON of the `top` likeliest next tokens at each of T positions; `token` maps an id to its text.

    The table has one row per position, and one column for each token that is among the `top` likeliest of any position.
    For each row, "rest" is the probability of all tokens without a column, "best" lists the columns of the likeliest
    tokens, and "bits" is the entropy.
    """
    log_probs = log_probs_TV.double()
    likeliest = log_probs.topk(min(top, log_probs.shape[1]), dim=-1).indices.tolist()
    column_of = {id: column for column, id in enumerate(dict.fromkeys(id for row in likeliest for id in row))}
    probability_TC = log_probs[:, list(column_of)].exp()
    return {
        "ids": list(column_of),
        "tokens": [token(id) for id in column_of],
        "probability": probability_TC.round(decimals=4).tolist(),
        "rest": (1.0 - probability_TC.sum(-1)).clamp(min=0.0).round(decimals=4).tolist(),
        "best": [[column_of[id] for id in row] for row in likeliest],
        "bits": _entropy(log_probs.exp()).round(decimals=4).tolist(),
    }


# ---------------------------------------------------------------------------------------------------------------------
# Tokens, words, and the original text


def make_side(tokens: Sequence[str], spans: Sequence[Span], words: Sequence[tuple[str, int, int]]) -> TraceSide:
    """Build a `TraceSide`: assign each token to the word that it overlaps in the text that the tokens spell.

    `spans` are (start, end) of the tokens in this text; `words` are (word, start, end). A token that overlaps no word
    becomes a word of its own. Words that share a token are joined to one word, e.g. "l'amico".
    """
    homes = [  # the words that each token overlaps
        [k for k, (_, first, after) in enumerate(words) if first < max(end, start + 1) and start < after]
        for start, end in spans
    ]
    taken = {home[0] for home in homes if home}
    texts: list[str] = []
    word_of: list[int] = []
    last = None
    for token, home in zip(tokens, homes, strict=True):
        if not home or home[0] != last:
            texts.append("".join(words[k][0] for k in home if k == home[0] or k not in taken) or token)
        word_of.append(len(texts) - 1)
        last = home[0] if home else None
    return TraceSide(tuple(tokens), tuple(texts), tuple(word_of), tuple(spans))


def place_in_text(side: TraceSide, spelled: str, text: str) -> TraceSide:
    """Convert the spans of `side`, positions in the normalized text `spelled`, to positions in the original `text`."""
    origins = [*_origins(spelled, text), (len(text), len(text))]
    last = len(spelled)
    spans = []
    for start, end in side.spans:
        first = origins[min(start, last)][0]
        spans.append((first, origins[end - 1][1] if start < end <= last else first))
    return replace(side, spans=tuple(spans), text=text)


def _origins(spelled: str, text: str) -> list[Span]:
    """For each character of the normalized text `spelled`, the span of characters of `text` that it comes from.

    A composed character comes from all its parts, and each letter of a ligature comes from the ligature. If the texts
    differ in another way, each character of the differing part comes from the whole differing part of `text`.
    """
    if spelled == text:
        return [(place, place + 1) for place in range(len(text))]
    found: list[Span] = []
    keys = [_key(character) for character in text], [_key(character) for character in spelled]
    for kind, i, i_end, j, j_end in difflib.SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        if i_end - i == j_end - j:
            found += [(i + step, i + step + 1) for step in range(j_end - j)]
        elif kind == "delete" and found and not text[i].isspace() and found[-1][1] == i:
            found[-1] = (found[-1][0], i + len(text[i:i_end].split()[0]))
        elif kind == "insert":
            found += [found[-1] if found else (i, i)] * (j_end - j)
        elif kind == "replace":
            found += [(i, i_end)] * (j_end - j)
    return found


def _key(character: str) -> str:
    """The form in which characters are compared: lower case, without diacritics; all white space is equal."""
    if character.isspace() or unicodedata.category(character) == "Cc":
        return " "
    return "_" if character == "▁" else unicodedata.normalize("NFKD", character)[0].lower()[0]
