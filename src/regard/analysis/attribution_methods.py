"""Attribution by attention weights: as they are, or followed down through the layers.

Rollout: "Quantifying Attention Flow in Transformers", Abnar and Zuidema 2020. A residual connection is taken for an
attention to oneself of one half, heads are averaged, and the matrices of all layers multiplied. For a decoder that also
looks at the source, the shares of source and prefix are rolled out together (Ferrando et al. 2022), so that a row sums
to one over both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.analysis.attribution import (
    Attribution,
    Baseline,
    EmbeddedInput,
    TokenPair,
    chosen,
    embed,
    embed_absent,
    in_chunks,
    log_probs,
    run,
)
from regard.errors import ModelError
from regard.layers.attention import CrossAttention, SelfAttention
from regard.layers.hooks import AttentionTrace, trace, trace_states
from regard.models.base import Seq2Seq
from regard.models.transformer import FullyPrunedAttention, Residual, Transformer


@torch.no_grad()
def attention(model: Seq2Seq, pair: TokenPair, *, layer: int | None = None) -> Attribution:
    """Weights of the decoder on source and prefix, averaged over heads and over layers, or those of one `layer`.

    A recurrent decoder attends to the source alone; its prefix gets zeros. Source and prefix sum to one each, so the
    weights do not say which of the two matters more. Cost: one forward pass.
    """
    where = "decoder" if layer is None else f"decoder.{layer}"
    means = {name: mean for name, mean in _head_means(model, pair).items() if name.startswith(f"{where}.")}
    cross = [mean_TS for name, mean_TS in means.items() if name.endswith(".cross")]
    own = [mean_TT for name, mean_TT in means.items() if name.endswith(".self")]
    if not cross:
        raise ModelError(f"{type(model).__name__} has no attention to the source in {where}; take occlusion instead")
    source_TS = torch.stack(cross).mean(0)
    target_TT = torch.stack(own).mean(0) if own else source_TS.new_zeros(len(source_TS), len(source_TS))
    return Attribution(source_TS, target_TT)


@torch.no_grad()
def rollout(model: Seq2Seq, pair: TokenPair) -> Attribution:
    """Attention weights and residual connections, half and half, multiplied through all layers.

    Cost: one forward pass.
    """
    transformer = require_transformer(model, "rollout")
    means = _head_means(model, pair)
    length, source_length = pair.input_1T.shape[1], pair.source.ids_BS.shape[1]

    def half(name: str, rest: Tensor) -> Tensor:
        """Half of the weights and half of the rest, which is all there is where no head is left to look."""
        return (means[name] + rest) / 2 if name in means else rest

    device = pair.input_1T.device
    oneself_SS, oneself_TT = torch.eye(source_length, device=device), torch.eye(length, device=device)
    nobody_TS = torch.zeros(length, source_length, device=device)
    encoder = [half(f"encoder.{layer}.self", oneself_SS) for layer in range(len(transformer.encoder.blocks))]
    decoder = [
        (half(f"decoder.{layer}.self", oneself_TT), half(f"decoder.{layer}.cross", nobody_TS))
        for layer in range(len(transformer.decoder))
    ]
    return Attribution(*roll_out(encoder, decoder))


def roll_out(encoder: Sequence[Tensor], decoder: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Shares layer by layer, from the lowest up, to shares of the inputs in the highest: [T, S] and [T, T].

    An encoder layer is a matrix [S, S] whose rows sum to one. A decoder layer is two: self [T, T], whose rows sum to
    one, and cross [T, S], whose rows sum to what the source has in the stream after that layer's look at it.
    """
    length, source_length = decoder[0][1].shape
    encoded_SS = torch.eye(source_length, dtype=decoder[0][1].dtype, device=decoder[0][1].device)
    for mixing_SS in encoder:
        encoded_SS = mixing_SS @ encoded_SS
    target_TT = torch.eye(length, dtype=encoded_SS.dtype, device=encoded_SS.device)
    source_TS = encoded_SS.new_zeros(length, source_length)
    for own_TT, cross_TS in decoder:
        kept_T1 = 1 - cross_TS.sum(-1, keepdim=True)
        target_TT = kept_T1 * (own_TT @ target_TT)
        source_TS = kept_T1 * (own_TT @ source_TS) + cross_TS @ encoded_SS
    return source_TS, target_TT


def require_transformer(model: Seq2Seq, method: str) -> Transformer:
    """The model, known to be a stack of attention and residual connections; an error for any other."""
    if not isinstance(model, Transformer):
        raise ModelError(
            f"{method} follows attention through the layers of a Transformer, which {type(model).__name__} is not;"
            " take integrated or occlusion"
        )
    return model


def _head_means(model: Seq2Seq, pair: TokenPair) -> dict[str, Tensor]:
    """The weights of every attention, averaged over its heads."""
    with trace(model) as tape:
        model(pair.source, pair.input_1T)
    return {name: seen.weights_BHTS[0].mean(0) for name, seen in tape.items()}


# Attribution by gradients: how the log-probability of an output token changes with the embeddings that made it.
#
# Gradient times input: "Not Just a Black Box", Shrikumar et al. 2016. Integrated gradients: "Axiomatic Attribution
# for
# Deep Networks", Sundararajan et al. 2017. Source and target prefix move together along the path, so the shares of
# both
# add up to the whole. An input is the token's part of the embedding: its distance from the baseline at the same
# place.


RULES = ("gauss", "midpoint")


def gradient(model: Seq2Seq, pair: TokenPair, *, baseline: Baseline = None) -> Attribution:
    """The gradient of log p times x - baseline: what integrated gradients see at the end of their path.

    Cost: three forward and T backward passes.
    """
    read, absent = embed(model, pair), embed_absent(model, pair, baseline)
    one = read.source_NSD.new_ones(1)
    return _follow(model, pair, read, absent, one, one)


def integrated(
    model: Seq2Seq, pair: TokenPair, *, baseline: Baseline = None, steps: int = 64, rule: str = "gauss"
) -> Attribution:
    """The mean gradient on the straight way from the baseline to the input, times its length.

    Sums to log p(input) - log p(baseline), but for `gap_T`, which more steps make smaller. `rule` spaces the steps by
    Gauss and Legendre, or evenly with a gradient at the middle of each. Where nothing is added to the embedding (rotary
    or no positions) a layer norm sees no difference between an input and a small share of it: the baseline of zeros is
    then a poor one, as the gap will tell, and a token the better choice.
    Cost: `steps` + 4 forward and T x `steps` backward passes, `steps` in a batch.
    """
    if steps < 1 or rule not in RULES:
        raise ModelError(f"integrated: steps must be at least 1 and rule one of {', '.join(RULES)}")
    read, absent = embed(model, pair), embed_absent(model, pair, baseline)
    places, shares = np.polynomial.legendre.leggauss(steps) if rule == "gauss" else _midpoints(steps)
    at_N, share_N = (read.source_NSD.new_tensor(numbers) for numbers in ((places + 1) / 2, shares / 2))
    found = _follow(model, pair, read, absent, at_N, share_N)
    with torch.no_grad():
        whole_T = (log_probs(model, pair, read) - log_probs(model, pair, absent))[0]
    shared_T = found.source_TS.sum(-1) + found.target_TT.sum(-1)
    return Attribution(found.source_TS, found.target_TT, signed=True, gap_T=(whole_T - shared_T).cpu())


def _midpoints(steps: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], ...]:
    """Evenly spaced on [-1, 1], as Gauss and Legendre have it."""
    return (2 * np.arange(steps) + 1) / steps - 1, np.full(steps, 2 / steps)


def _follow(
    model: Seq2Seq, pair: TokenPair, read: EmbeddedInput, absent: EmbeddedInput, at_N: Tensor, share_N: Tensor
) -> Attribution:
    """Gradients at places between `absent` (0) and `read` (1), weighted, times the way between them.

    The steps share a forward pass; each output token then has a backward pass of its own through all of them.
    """
    ways = [end - start for start, end in zip(absent, read, strict=True)]
    rows_T = [[torch.zeros_like(way[0, :, 0]) for way in ways] for _ in range(pair.output_1T.shape[1])]
    for steps_N in in_chunks(torch.arange(len(at_N), device=at_N.device), pair):
        at_N11 = at_N[steps_N, None, None]
        leaves = [(start + at_N11 * way).requires_grad_() for start, way in zip(absent, ways, strict=True)]
        with torch.enable_grad():
            top_NTD = run(model, pair, EmbeddedInput(*leaves))
        for t, row in enumerate(rows_T):
            with torch.enable_grad():  # scores of one token at a time: those of all others would be in vain
                log_prob_N1 = chosen(model.output(top_NTD[:, t : t + 1]), pair.output_1T[:, t : t + 1])
            slopes = torch.autograd.grad(share_N[steps_N] @ log_prob_N1, leaves, retain_graph=True)
            for cell, slope_NPD, way in zip(row, slopes, ways, strict=True):
                cell += (slope_NPD.sum(0) * way[0]).sum(-1)
    source_TS, target_TT = (torch.stack(cells) for cells in zip(*rows_T, strict=True))
    return Attribution(source_TS, target_TT, signed=True)


# Attribution by occlusion: take an input away and see what the output loses (Zeiler and Fergus 2014; Li et al. 2016).
#
# To take a token away is to make its embedding zero, its position kept, or that of another token, such as UNK. A
# model
# with subwords has hardly ever seen UNK, which is why zero is the default. One token is taken away at a time: two
# inputs
# that can stand in for each other both seem to matter little.


@torch.no_grad()
def occlusion(model: Seq2Seq, pair: TokenPair, *, baseline: Baseline = None) -> Attribution:
    """What log p(output token) loses without the input token; negative where the output gains by its absence.

    Cost: S + T + 3 forward passes, in batches.
    """
    read, absent = embed(model, pair), embed_absent(model, pair, baseline)
    source_length = read.source_NSD.shape[1]
    away_NP = torch.eye(source_length + read.target_NTD.shape[1], dtype=torch.bool, device=read.source_NSD.device)
    parts = []
    for away in in_chunks(away_NP, pair):
        sides = away[:, :source_length, None], away[:, source_length:, None]
        versions = (torch.where(gone, nothing, x) for gone, nothing, x in zip(sides, absent, read, strict=True))
        parts.append(log_probs(model, pair, EmbeddedInput(*versions)))
    lost_TN = (log_probs(model, pair, read) - torch.cat(parts)).t()
    return Attribution(lost_TN[:, :source_length], lost_TN[:, source_length:], signed=True)


# ALTI: what each input brings to the output of each attention block, followed down through the layers.
#
# "Measuring the Mixing of Contextual Information in the Transformer", Ferrando et al. 2022a, and for encoder-decoders
# ALTI+, "Towards Opening the Black Box of Neural Machine Translation", Ferrando et al. 2022b. The output of an
# attention
# block is a sum of one vector for each input: its value through the output projection, times its weight, and the
# residual
# stream for oneself. A layer norm after the sum is linear once its spread is known, and is applied to each vector.
# The
# share of an input is how much nearer its vector comes to the sum than nothing does, in the L1 norm. The biases after
# the
# values belong to nobody. Feed-forward layers mix no positions and are passed over; so are norms that stand before a
# sub-layer or at the top, except that values are made from what such a norm gives.


@torch.no_grad()
def alti(model: Seq2Seq, pair: TokenPair) -> Attribution:
    """Shares of the source and the prefix in the top layer; a row sums to one over both.

    Cost: one forward pass, and for each attention T x S vectors of the model's width.
    """
    transformer = require_transformer(model, "alti")
    with trace(model) as tape, trace_states(model) as states:
        model(pair.source, pair.input_1T)
    encoder, decoder = [], []
    x_SD = states["encoder.embed"][0]
    for layer, block in enumerate(transformer.encoder.blocks):
        encoder.append(
            self_shares(look(tape, block.self_attention, x_SD, len(x_SD)), block.self_attention_residual).shares_TP
        )
        x_SD = states[f"encoder.{layer}"][0]
    x_TD = states["decoder.embed"][0]
    for layer, above in enumerate(transformer.decoder):
        own = self_shares(look(tape, above.self_attention, x_TD, len(x_TD)), above.self_attention_residual)
        cross = cross_shares(
            look(tape, above.cross_attention, own.stream_TD, len(x_SD)), above.cross_attention_residual
        )
        decoder.append((own.shares_TP, cross.shares_TP))
        x_TD = states[f"decoder.{layer}"][0]
    return Attribution(*roll_out(encoder, decoder))


class AttentionParts(NamedTuple):
    """An attention taken apart: the stream that asks, the vector that each key brings to it, and what is added."""

    x_TD: Tensor
    brought_TSD: Tensor
    update_TD: Tensor


class TokenMixing(NamedTuple):
    """Whose the stream is after an attention, and the stream itself."""

    shares_TP: Tensor
    stream_TD: Tensor


def look(
    tape: AttentionTrace, attend: SelfAttention | CrossAttention | FullyPrunedAttention, x_TD: Tensor, keys: int
) -> AttentionParts:
    """Take one attention of a traced pass apart, all heads together; one without heads brings nothing."""
    if isinstance(attend, FullyPrunedAttention):
        return AttentionParts(x_TD, x_TD.new_zeros(len(x_TD), keys, x_TD.shape[1]), attend(x_TD))
    seen = tape[attend.tap.name]
    weights_HTS = seen.weights_BHTS[0]
    outward_HKD = attend.out.weight.t().unflatten(0, (len(weights_HTS), -1))
    brought_TSD = torch.einsum("hts,hsd->tsd", weights_HTS, seen.value_BHSK[0] @ outward_HKD)
    return AttentionParts(x_TD, brought_TSD, attend.out(seen.output_BHTK[0].transpose(0, 1).flatten(1)))


def self_shares(look: AttentionParts, around: Residual) -> TokenMixing:
    """Each position's shares [T, T] after a self-attention. Where no vector comes near the sum, all is one's own."""
    oneself_TT = torch.eye(len(look.x_TD), dtype=look.x_TD.dtype, device=look.x_TD.device)
    parts_TTD = look.brought_TSD + oneself_TT.unsqueeze(-1) * look.x_TD.unsqueeze(1)
    parts_TTD, stream_TD = _leave(look, around, parts_TTD)
    shares_TT = shares(parts_TTD, stream_TD)
    return TokenMixing(shares_TT + (1 - shares_TT.sum(-1, keepdim=True)) * oneself_TT, stream_TD)


def cross_shares(look: AttentionParts, around: Residual) -> TokenMixing:
    """The source's shares [T, S] after an attention to it. What they lack of one is the stream's own."""
    parts_TPD = torch.cat([look.brought_TSD, look.x_TD.unsqueeze(1)], dim=1)
    parts_TPD, stream_TD = _leave(look, around, parts_TPD)
    return TokenMixing(shares(parts_TPD, stream_TD)[:, :-1], stream_TD)


def shares(parts_TPD: Tensor, whole_TD: Tensor) -> Tensor:
    """How much nearer than nothing each part comes to the whole, never below zero; a row sums to one, or is zero."""
    nearer_TP = whole_TD.abs().sum(-1, keepdim=True) - (whole_TD.unsqueeze(1) - parts_TPD).abs().sum(-1)
    nearer_TP = nearer_TP.clamp_min(0)
    return nearer_TP / nearer_TP.sum(-1, keepdim=True).clamp_min(torch.finfo(nearer_TP.dtype).tiny)


def _leave(look: AttentionParts, around: Residual, parts_TPD: Tensor) -> tuple[Tensor, Tensor]:
    """The parts and their sum after what stands around the attention; a norm there acts on each part alike."""
    stream_TD = around.leave(look.x_TD, look.update_TD)
    if around.before:
        return parts_TPD, stream_TD
    spread_T11 = ((look.x_TD + look.update_TD).var(-1, unbiased=False) + around.norm.eps).sqrt()[:, None, None]
    centred_TPD = parts_TPD - parts_TPD.mean(-1, keepdim=True)
    return centred_TPD / spread_T11 * around.norm.weight, stream_TD
