"""Attention: scores of queries and keys, softmax, weighted sums of values; multi-head, recurrent and pooling attention.

All attention in the package is computed by `attend`. Dot-product scores use PyTorch's fused kernel. If a hook is
attached, the weights are computed explicitly, so that they can be recorded and replaced.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import SettingsError
from regard.layers.hooks import AttentionHook, AttentionRecord, Recorder
from regard.layers.init import glorot
from regard.layers.kv_cache import KVCache
from regard.layers.positional_encoding import RotaryEncoding, RotaryGridEncoding

if TYPE_CHECKING:
    from regard.layers.rnn_cells import CellState, RecurrentCell

# ---------------------------------------------------------------------------------------------------------------------
# Score functions: they map a query [..., T, Kq] and a key [..., S, Kk] to scores [..., T, S]. Dot-product scores also
# have a method `as_dot`, which the fused kernel needs.


class DotProductScore(nn.Module):
    """Score function of attention: the dot product q . k of query and key (Luong et al. 2015, "dot")."""

    def as_dot(self, query: Tensor) -> tuple[Tensor, float]:
        """Return a query q' and a factor s such that the score is s (q' . k), the form that the fused kernel needs."""
        return query, 1.0

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        query, scale = self.as_dot(query)
        return (query * scale) @ key.transpose(-1, -2)


class ScaledDotProductScore(DotProductScore):
    """Score function of attention: q . k / sqrt(K), where K is the width of q (Vaswani et al. 2017).

    The factor gives the scores of random vectors a variance of one.
    """

    def as_dot(self, query: Tensor) -> tuple[Tensor, float]:
        return query, 1.0 / math.sqrt(query.shape[-1])


class BilinearScore(DotProductScore):
    """Score function of attention: q W k, where the learned matrix W projects the query q to the width of the key k.

    Called "general" in Luong et al. 2015.
    """

    def __init__(self, query_width: int, key_width: int):
        super().__init__()
        self.map = nn.Linear(query_width, key_width, bias=False)

    def as_dot(self, query: Tensor) -> tuple[Tensor, float]:
        return self.map(query), 1.0


class AdditiveScore(nn.Module):
    """Score function of attention: v . tanh(W q + U k) with learned v, W and U and a hidden width of `inner`.

    From Bahdanau et al. 2015; called "concat" in Luong et al. 2015. `U k` does not depend on the query: `prepare`
    computes `U k` once per sentence, and `forward` takes it as the key.
    """

    def __init__(self, query_width: int, key_width: int, inner: int):
        super().__init__()
        self.query = nn.Linear(query_width, inner, bias=False)
        self.key = nn.Linear(key_width, inner)
        self.score = nn.Linear(inner, 1, bias=False)

    def prepare(self, key: Tensor) -> Tensor:
        """Compute `U k` from the keys: the part of the score that does not depend on the query."""
        return self.key(key)

    def forward(self, query: Tensor, prepared_key: Tensor) -> Tensor:
        mixed = torch.tanh(self.query(query).unsqueeze(-2) + prepared_key.unsqueeze(-3))
        return self.score(mixed).squeeze(-1)


SCALED_DOT = ScaledDotProductScore()


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    score: nn.Module = SCALED_DOT,
    causal: bool = False,
    tap: AttentionHook | None = None,
) -> Tensor:
    """Attention of query [..., H, T, K] to key [..., H, S, K]: returns weighted sums of value [..., H, S, Kv].

    `mask` is boolean, broadcasts to [..., H, T, S] and is True for keys that may be attended to. If the mask is False
    for all keys of a query, the output of this query is zero. With `causal=True`, query t attends to keys 0 ... t; the
    caller must then pass no mask. `score` is the score function. `tap` is the hook that can record or replace the
    weights.
    """
    if (tap is None or tap.idle) and isinstance(score, DotProductScore):
        query, scale = score.as_dot(query)
        return _fused(query, key, value, mask, causal, scale)
    if causal:
        mask = causal_mask(query.shape[-2], key.shape[-2], query.device)
    weights = masked_softmax(score(query, key), mask)
    if tap is not None and not tap.idle:
        weights = tap.replace(weights)
    output = weights @ value
    if tap is not None and not tap.idle:
        tap.record(AttentionRecord(tap.name, query, key, value, weights, output))
    return output


def _fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    """Call PyTorch's fused attention kernel, with scores multiplied by `scale`.

    Under CPU autocast, attention is computed in float32, because its backward pass is five times slower in bfloat16.
    """
    if query.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        with torch.autocast("cpu", enabled=False):
            return _fused(query.float(), key.float(), value.float(), mask, causal, scale)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, scale=scale)


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax of `scores` over the keys for which `mask` is True; if it is False for all keys, the weights are 0."""
    if mask is None:
        return scores.softmax(-1)
    weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
    return weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)


def causal_mask(queries: int, keys: int, device: torch.device) -> Tensor:
    """Boolean mask [T, S] that is True where query t may attend to key s: s <= t."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril()


def attend_nearby(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, window: int, *, tap: AttentionHook | None = None
) -> Tensor:
    """Local (sliding-window) self-attention: each position attends to itself and `window // 2` neighbors on each side.

    Vaswani et al. 2017 call it restricted. Query, key and value are [B, H, N, K] for N positions; `mask` [B, N] is
    False for padding. Long sequences are divided into blocks of queries. A block attends only to the keys near it, so
    that the cost grows linearly with N. If the hook `tap` is in use, there are no blocks, and the hook gets weights [B,
    H, N, N].
    """
    batch, length, reach = query.shape[0], query.shape[-2], window // 2
    block = max(reach, 16)
    if length <= 3 * block or (tap is not None and not tap.idle):  # blocks are slower here, or hooks need all weights
        place = torch.arange(length, device=query.device)
        near = (place[None, :] - place[:, None]).abs() <= reach
        return attend(query, key, value, near if mask is None else near & mask[:, None, None, :], tap=tap)
    real = torch.ones(batch, length, dtype=torch.bool, device=query.device) if mask is None else mask
    seen = _cut(real[:, None, :, None], block, reach).transpose(-1, -2)  # [B blocks, 1, 1, block + 2 reach]
    place = torch.arange(block + 2 * reach, device=query.device)
    near = (place[None, :] - reach - place[:block, None]).abs() <= reach
    mixed = attend(_cut(query, block), _cut(key, block, reach), _cut(value, block, reach), seen & near)
    return mixed.unflatten(0, (batch, -1)).transpose(1, 2).flatten(2, 3)[:, :, :length]


def _cut(x: Tensor, block: int, reach: int = 0) -> Tensor:
    """Cut x [B, H, N, K] into blocks of `block` positions, each extended by `reach` positions on both sides.

    Returns [B n, H, block + 2 reach, K] for n blocks. Positions beyond the ends of the sequence are zeros.
    """
    padded = F.pad(x, (0, 0, reach, reach + -x.shape[-2] % block))
    return padded.unfold(-2, block + 2 * reach, block).permute(0, 2, 1, 4, 3).flatten(0, 1)


class KeyValue(NamedTuple):
    """Keys and values of the source in one attention layer; they are computed once per source sentence."""

    key: Tensor
    value: Tensor


class SelfAttention(nn.Module):
    """Multi-head self-attention, with one projection for queries, keys and values together.

    `name`: the name of its hook. `window`: if not 0, local attention (`attend_nearby`). `rotary`: rotary encoding, if
    any.
    """

    def __init__(
        self, width: int, heads: int, head_width: int, name: str, *, causal: bool = False, window: int = 0,
        rotary: RotaryEncoding | RotaryGridEncoding | None = None,
    ):  # fmt: skip
        super().__init__()
        self.heads, self.causal, self.window, self.rotary = heads, causal, window, rotary
        self.qkv = glorot(nn.Linear(width, 3 * heads * head_width), parts=3)
        self.out = glorot(nn.Linear(heads * head_width, width))
        self.tap = AttentionHook(name)

    def forward(self, x_BTD: Tensor, mask_BT: Tensor | None = None) -> Tensor:
        """Self-attention over whole sequences; `mask_BT` is False for padding.

        A causal layer ignores the mask: padding is at the end, so no real token attends to padding.
        """
        query, key, value = self.qkv(x_BTD).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if self.rotary is not None:
            query, key = self.rotary(query), self.rotary(key)
        if self.window:
            mixed = attend_nearby(query, key, value, mask_BT, self.window, tap=self.tap)
        elif self.causal:
            mixed = attend(query, key, value, causal=True, tap=self.tap)
        else:
            mixed = attend(query, key, value, None if mask_BT is None else mask_BT[:, None, None, :], tap=self.tap)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def start(self, rows: int, width: int) -> KVCache:
        """An empty KV cache [B, W, H, 0, K] for B = `rows` sentences with W = `width` hypotheses each."""
        weight = self.qkv.weight
        empty = weight.new_zeros(rows, width, self.heads, 0, weight.shape[0] // (3 * self.heads))
        return KVCache(empty, empty)

    def step(self, x_BWD: Tensor, cache: KVCache) -> tuple[Tensor, KVCache]:
        """One decoding step: the newest token of each of W hypotheses attends to itself and all earlier tokens.

        Returns the output [B, W, D] and the cache, extended by this token.
        """
        qkv = self.qkv(x_BWD).unflatten(-1, (3, self.heads, -1))  # [B, W, 3, H, K]
        if self.rotary is not None:
            turned = self.rotary(qkv[:, :, :2].unsqueeze(-2), cache.length).squeeze(-2)
            qkv = torch.cat([turned, qkv[:, :, 2:]], dim=2)
        query_BWHK, cache = qkv[:, :, 0], cache.add(qkv[:, :, 1:])
        if self.tap.idle:
            mixed = attend(query_BWHK.transpose(1, 2), *cache.slots()).transpose(1, 2)
        else:  # hooks need the weights per token of each hypothesis, not per slot of the cache
            key, value = (part.flatten(0, 1) for part in cache)
            mixed = attend(query_BWHK.flatten(0, 1).unsqueeze(2), key, value, tap=self.tap)
        return self.out(mixed.reshape(*x_BWD.shape[:2], -1)), cache


class CrossAttention(nn.Module):
    """Multi-head attention of the decoder to the encoded source, whose keys and values `project` computes once."""

    def __init__(self, width: int, heads: int, head_width: int, name: str):
        super().__init__()
        self.heads = heads
        self.query = glorot(nn.Linear(width, heads * head_width))
        self.key_value = glorot(nn.Linear(width, 2 * heads * head_width), parts=2)
        self.out = glorot(nn.Linear(heads * head_width, width))
        self.tap = AttentionHook(name)

    def project(self, memory_BSD: Tensor) -> KeyValue:
        """Compute keys and values [B, H, S, K] from the encoded source `memory_BSD`."""
        key, value = self.key_value(memory_BSD).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return KeyValue(key, value)

    def forward(self, x_BTD: Tensor, memory: KeyValue, mask_BS: Tensor | None) -> Tensor:
        """Attention of T queries per sentence to `memory`, the result of `project`; `mask_BS` is False for padding.

        The queries are T target positions in training, and the newest tokens of T hypotheses in a search.
        """
        query = self.query(x_BTD).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        mask = None if mask_BS is None else mask_BS[:, None, None, :]
        mixed = attend(query, memory.key, memory.value, mask, tap=self.tap)
        return self.out(mixed.transpose(1, 2).flatten(2))


# ---------------------------------------------------------------------------------------------------------------------
# Attention inside the loop of a recurrent decoder


class AttendingStep(NamedTuple):
    """A step of a recurrent decoder: context vector, input of the gates (with the context), new hidden state."""

    context_ND: Tensor
    read_NG: Tensor
    hidden_ND: Tensor


class RecurrentAttention(nn.Module):
    """Single-head attention to the source in a recurrent decoder, with N = B W queries: W hypotheses per sentence."""

    def __init__(self, score: str, query_width: int, memory_width: int, name: str, inner: int = 0):
        """`score` is "dot", "scaled", "general" or "additive"; `name` is the name of the attention hook.

        `inner` is the hidden width of the score "additive"; 0 means `query_width`.
        """
        super().__init__()
        if score in ("dot", "scaled") and query_width != memory_width:
            raise SettingsError(
                f'model.attention_score = "{score}" needs encoder and decoder states of equal width, but they have'
                f' {memory_width} and {query_width}; set model.attention_score to "general" or "additive"'
            )
        self.score: DotProductScore | AdditiveScore
        if score == "additive":
            self.score = AdditiveScore(query_width, memory_width, inner or query_width)
        elif score == "general":
            self.score = BilinearScore(query_width, memory_width)
        else:
            self.score = ScaledDotProductScore() if score == "scaled" else DotProductScore()
        self.tap = AttentionHook(name)

    def prepare(self, states_BSD: Tensor) -> tuple[Tensor, ...]:
        """Compute the part of the score that does not depend on the query, from the encoder states.

        For the additive score v . tanh(W q + U k), this is a tuple of one tensor, the projected keys U k; otherwise ().
        """
        return (self.score.prepare(states_BSD),) if isinstance(self.score, AdditiveScore) else ()

    def forward(self, query_ND: Tensor, source: KeyValue, mask_BS: Tensor | None, tap: AttentionHook | None) -> Tensor:
        """Compute the context vector [N, D] of each query: the weighted sum of `source.value`.

        With the additive score, `source.key` must be the result of `prepare`. `tap` is the hook that `hook_for_loop`
        yields.
        """
        query = query_ND.unflatten(0, (source.value.shape[0], 1, -1))  # [B, 1 head, N / B, D]
        mask = None if mask_BS is None else mask_BS[:, None, None, :]
        key, value = source.key.unsqueeze(1), source.value.unsqueeze(1)
        return attend(query, key, value, mask, score=self.score, tap=tap).flatten(0, 2)

    def before_cell(
        self,
        cell: RecurrentCell,
        read_TNG: Tensor,
        state: CellState,
        source: KeyValue,
        mask_BS: Tensor | None,
        *,
        gate: nn.Linear | None = None,
        watch: Recorder | None = None,
    ) -> tuple[list[AttendingStep], CellState]:
        """Run a cell that reads the context vector: each step is attention, whose query is the hidden state, then cell.

        `read_TNG` is the output of `cell.input` for T steps of N rows. `gate` computes from the hidden state a factor
        on the context vector, before a sigmoid; `watch` gets the record of all steps. Also returns the last state of
        the cell.
        """
        steps = []
        with self.hook_for_loop(watch) as tap:
            for read_NG in read_TNG.unbind(0):
                context_ND = self(state[0], source, mask_BS, tap)
                if gate is not None:
                    context_ND = torch.sigmoid(gate(state[0])) * context_ND
                read_NG = cell.feed_in(read_NG, context_ND)
                state = cell(read_NG, state)
                steps.append(AttendingStep(context_ND, read_NG, state[0]))
        return steps, state

    @contextmanager
    def hook_for_loop(self, watch: Recorder | None = None) -> Iterator[AttentionHook]:
        """Within the `with` block, yield the hook to pass to `forward` as `tap` in every step of the decoder loop.

        Its listeners are called at every step, because the weights that they return affect the next step. After the
        loop, each recorder and `watch` get one record of all steps.
        """
        if self.tap.idle and watch is None:
            yield self.tap
            return
        steps: list[AttentionRecord] = []
        each = AttentionHook(self.tap.name)
        each.listeners = self.tap.listeners
        with each.attached(recorder=steps.append):
            yield each
        every = ((seen.query_BHTK, seen.weights_BHTS, seen.output_BHTK) for seen in steps)
        query, weights, output = (torch.cat(parts, dim=-2) for parts in zip(*every, strict=True))
        whole = AttentionRecord(self.tap.name, query, steps[0].key_BHSK, steps[0].value_BHSK, weights, output)
        self.tap.record(whole)
        if watch is not None:
            watch(whole)


# ---------------------------------------------------------------------------------------------------------------------
# Pooling of a sequence of states into one vector

DOT = DotProductScore()


def pool(query_D: Tensor, key_NSD: Tensor, x_NSD: Tensor, mask_NS: Tensor | None, tap: AttentionHook) -> Tensor:
    """Pool each of N sequences of states `x_NSD` into one vector [N, D] by attention with the same query `query_D`.

    `key_NSD` are the attention keys of the states; `tap` is the hook that can record or replace the weights.
    """
    query = query_D.expand(x_NSD.shape[0], 1, 1, -1)
    mask = None if mask_NS is None else mask_NS[:, None, None, :]
    return attend(query, key_NSD.unsqueeze(1), x_NSD.unsqueeze(1), mask, score=DOT, tap=tap).flatten(1)


class AttentionPooling(nn.Module):
    """Pools states h to their sum with weights softmax(u . c); u = tanh(W h + b), c is learned (Yang et al. 2016)."""

    def __init__(self, width: int, name: str):
        super().__init__()
        self.key = glorot(nn.Linear(width, width))
        self.context = nn.Parameter(torch.randn(width) * 4.0 * width**-0.5)  # 4 is better than 1 and 12: docs/log.md
        self.tap = AttentionHook(name)

    def keys(self, x: Tensor) -> Tensor:
        """Compute the attention keys tanh(W h + b) of states h [..., D]."""
        return torch.tanh(self.key(x))

    def forward(self, x_NSD: Tensor, key_NSD: Tensor, mask_NS: Tensor | None) -> Tensor:
        return pool(self.context, key_NSD, x_NSD, mask_NS, self.tap)


class MeanPooling(nn.Module):
    """Pools states to their mean without padding; as attention with equal scores, so that a hook can record weights."""

    def __init__(self, name: str):
        super().__init__()
        self.tap = AttentionHook(name)

    def keys(self, x: Tensor) -> Tensor:
        """Return keys of width one that are all zero, so that all scores are equal."""
        return torch.zeros_like(x[..., :1])

    def forward(self, x_NSD: Tensor, key_NSD: Tensor, mask_NS: Tensor | None) -> Tensor:
        return pool(x_NSD.new_zeros(1), key_NSD, x_NSD, mask_NS, self.tap)
