"""Attribution methods: attention weights, rollout, gradient times input, integrated gradients, occlusion, ALTI.

attention     the weights themselves.
rollout       "Quantifying Attention Flow in Transformers", Abnar and Zuidema 2020. A residual connection counts as an
              attention weight of one half to the same position; heads are averaged, and the matrices of all layers are
              multiplied. In a decoder, source and prefix are rolled out together (Ferrando et al. 2022), so that a row
              sums to one over both.
gradient      gradient times input: "Not Just a Black Box", Shrikumar et al. 2016. The input is the difference between
              the embedding and the baseline at the same position.
integrated    integrated gradients: "Axiomatic Attribution for Deep Networks", Sundararajan et al. 2017. Source and
              prefix move together along the path, so that the values of both sum to the total.
occlusion     remove one input and measure how much the log-probability decreases (Zeiler and Fergus 2014; Li et al.
              2016). A removed token gets an embedding of zeros or of another token such as UNK; zeros are the default,
              because subword models hardly ever see UNK. One token is removed at a time. So if two inputs can replace
              each other, both score low.
alti          "Measuring the Mixing of Contextual Information in the Transformer", Ferrando et al. 2022a; for
              encoder-decoders ALTI+, "Towards Opening the Black Box of Neural Machine Translation", Ferrando et al.
              2022b. The output of an attention block at a position is a sum of vectors, one per input. The vector of
              an input is its attention weight times its value times the output projection; the residual stream is added
              to the vector of the input at the same position. A layer norm after the sum is linear once its standard
              deviation is known, and is applied to each vector. The share of an input is |sum| - |sum - vector| in the
              L1 norm, at least 0, divided by the total over all inputs. Biases of the output projection belong to no
              input. Feed-forward layers mix no positions and are skipped. Norms before a sub-layer or after the last
              layer are skipped too, except that values are computed from normalized states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.analysis.attribution import (
    Attribution,
    Baseline,
    EmbeddedInput,
    TokenPair,
    embed,
    embed_absent,
    in_chunks,
    log_probs,
    output_log_probs,
    run,
)
from regard.errors import ModelError
from regard.layers.attention import CrossAttention, SelfAttention
from regard.layers.hooks import AttentionRecord, AttentionTrace, trace, trace_states
from regard.models.base import Seq2Seq
from regard.models.transformer import FullyPrunedAttention, Residual, Transformer


@torch.no_grad()
def attention(model: Seq2Seq, pair: TokenPair, *, layer: int | None = None) -> Attribution:
    """Attribution by attention weights of the decoder on source and prefix, averaged over heads and layers.

    With `layer`, only the weights of this decoder layer are used. A recurrent decoder attends to the source only; its
    prefix gets zeros. The weights on the source sum to one, and so do the weights on the prefix. So they do not show
    whether source or prefix matters more. Cost: one forward pass.
    """
    where = "decoder" if layer is None else f"decoder.{layer}"
    means = {name: mean for name, mean in _head_means(model, pair).items() if name.startswith(f"{where}.")}
    cross = [mean_TS for name, mean_TS in means.items() if name.endswith(".cross")]
    own = [mean_TT for name, mean_TT in means.items() if name.endswith(".self")]
    if not cross:
        raise ModelError(f"{type(model).__name__} has no attention to the source in {where}; use occlusion instead")
    source_TS = torch.stack(cross).mean(0)
    target_TT = torch.stack(own).mean(0) if own else source_TS.new_zeros(len(source_TS), len(source_TS))
    return Attribution(source_TS, target_TT)


@torch.no_grad()
def rollout(model: Seq2Seq, pair: TokenPair) -> Attribution:
    """Attribution by attention rollout: multiply, over all layers, the mean of attention weights and identity matrix.

    The identity matrix stands for the residual connection. Cost: one forward pass.
    """
    transformer = _require_transformer(model, "rollout")
    means = _head_means(model, pair)
    length, source_length, device = pair.input_1T.shape[1], pair.source.ids_BS.shape[1], pair.input_1T.device
    own_SS, own_TT = torch.eye(source_length, device=device), torch.eye(length, device=device)
    none_TS = torch.zeros(length, source_length, device=device)

    def mix(name: str, residual: Tensor) -> Tensor:
        """The mean of the attention weights of layer `name` and `residual`; only `residual` if all heads are pruned."""
        return (means[name] + residual) / 2 if name in means else residual

    encoder = [mix(f"encoder.{layer}.self", own_SS) for layer in range(len(transformer.encoder.blocks))]
    decoder = [
        (mix(f"decoder.{layer}.self", own_TT), mix(f"decoder.{layer}.cross", none_TS))
        for layer in range(len(transformer.decoder))
    ]
    return Attribution(*roll_out(encoder, decoder))


def roll_out(encoder: Sequence[Tensor], decoder: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Multiply matrices of contributions through all layers, the lowest layer first in both arguments.

    Returns the contributions of source tokens [T, S] and prefix tokens [T, T] to the states of the top decoder layer.
    An encoder layer is a matrix [S, S] whose rows sum to one. A decoder layer is a pair of matrices: self [T, T], whose
    rows sum to one, and cross [T, S]. A row of cross sums to the share that the cross-attention of this layer has in
    the residual stream after it; the rest is the share of the stream before it.
    """
    source_TS = torch.zeros_like(decoder[0][1])
    encoded_SS, target_TT = (torch.eye(size).to(source_TS) for size in reversed(source_TS.shape))
    for mixing_SS in encoder:
        encoded_SS = mixing_SS @ encoded_SS
    for own_TT, cross_TS in decoder:
        kept_T1 = 1 - cross_TS.sum(-1, keepdim=True)
        target_TT = kept_T1 * (own_TT @ target_TT)
        source_TS = kept_T1 * (own_TT @ source_TS) + cross_TS @ encoded_SS
    return source_TS, target_TT


def roll_out_pooling(tape: Mapping[str, AttentionRecord], pooled_BS: Tensor) -> Tensor | None:
    """Attention rollout [B, S] (Abnar and Zuidema 2020): how much each input contributes to the pooled vector.

    `tape`: the recorded self-attention of an encoder, from the lowest layer to the highest. `pooled_BS`: the weights of
    the states of the highest layer in the pooled vector; their sum is 1, and so is that of the result. The pooling is
    like a decoder of one position and one layer, without a residual connection. None if the encoder has no
    self-attention.
    """
    weights = [seen.weights_BHTS.float().cpu().mean(1) for name, seen in tape.items() if name.endswith(".self")]
    if not weights:
        return None
    own_SS, one_TT = torch.eye(pooled_BS.shape[1]), torch.ones(1, 1)
    rows = []
    for row, pooled_S in enumerate(pooled_BS):
        encoder = [(weights_BSS[row] + own_SS) / 2 for weights_BSS in weights]
        rows.append(roll_out(encoder, [(one_TT, pooled_S[None])])[0][0])
    return torch.stack(rows)


def _require_transformer(model: Seq2Seq, method: str) -> Transformer:
    if isinstance(model, Transformer):
        return model
    kind = type(model).__name__
    raise ModelError(f"{method} works for Transformers only, and this model is a {kind}; use integrated or occlusion")


def _head_means(model: Seq2Seq, pair: TokenPair) -> dict[str, Tensor]:
    """Attention weights [queries, keys] by attention layer, averaged over its heads. Cost: one forward pass."""
    with trace(model) as tape:
        model(pair.source, pair.input_1T)
    return {name: seen.weights_BHTS[0].mean(0) for name, seen in tape.items()}


def gradient(model: Seq2Seq, pair: TokenPair, *, baseline: Baseline = None) -> Attribution:
    """Attribution by gradient times input: the gradient of an output token's log-probability, times (x - baseline).

    x is the input embedding. `baseline`: ids of a source and a target token that stand for a removed token, or None for
    zeros. Cost: 3 forward passes, T backward passes.
    """
    read, absent = embed(model, pair), embed_absent(model, pair, baseline)
    one = read.source_NSD.new_ones(1)
    return _integrate(model, pair, read, absent, one, one)


def integrated(
    model: Seq2Seq, pair: TokenPair, *, baseline: Baseline = None, steps: int = 64, rule: str = "gauss"
) -> Attribution:
    """Attribution by integrated gradients: mean gradient from the baseline to the embedding x, times (x - baseline).

    The gradients are taken at `steps` points on the straight line. The values of a row sum to log p(input) - log
    p(baseline) of its output token, up to an error `gap_T`, which more steps make smaller. `rule` is "gauss"
    (Gauss-Legendre points and weights) or "midpoint" (midpoints of equal steps).

    With a baseline of zeros, the points of the line are multiples of x. If a model is pre-norm and adds no positions to
    x (rotary or no positional encoding), the first layer norm maps all points to the same vector, except very close to
    the baseline. There the output changes abruptly, so the gap is large: use a token as the baseline.

    Cost: `steps` + 4 forward passes and T x `steps` backward passes, in batches.
    """
    if steps < 1 or rule not in ("gauss", "midpoint"):
        raise ModelError(
            f'integrated: steps must be at least 1, and rule must be "gauss" or "midpoint", not {steps} and "{rule}"'
        )
    read, absent = embed(model, pair), embed_absent(model, pair, baseline)
    if rule == "gauss":
        places, shares = np.polynomial.legendre.leggauss(steps)
    else:
        places, shares = (2 * np.arange(steps) + 1) / steps - 1, np.full(steps, 2 / steps)
    at_N, share_N = (read.source_NSD.new_tensor(numbers) for numbers in ((places + 1) / 2, shares / 2))
    found = _integrate(model, pair, read, absent, at_N, share_N)
    with torch.no_grad():
        whole_T = (log_probs(model, pair, read) - log_probs(model, pair, absent))[0]
    return replace(found, gap_T=(whole_T - (found.source_TS.sum(-1) + found.target_TT.sum(-1))).cpu())


def _integrate(
    model: Seq2Seq, pair: TokenPair, read: EmbeddedInput, absent: EmbeddedInput, at_N: Tensor, share_N: Tensor
) -> Attribution:
    """Sum the gradients at N points, weighted by `share_N`, and multiply the sum by (read - absent).

    `at_N` are the points as numbers from 0 to 1: 0 is the embeddings `absent`, 1 is `read`, and other points are
    between them. The points of a batch share a forward pass; each output token needs a backward pass per batch.
    """
    deltas = [end - start for start, end in zip(absent, read, strict=True)]
    rows_T = [[torch.zeros_like(delta[0, :, 0]) for delta in deltas] for _ in range(pair.output_1T.shape[1])]
    for steps_N in in_chunks(torch.arange(len(at_N), device=at_N.device), pair):
        at_N11 = at_N[steps_N, None, None]
        leaves = [(start + at_N11 * delta).requires_grad_() for start, delta in zip(absent, deltas, strict=True)]
        with torch.enable_grad():
            top_NTD = run(model, pair, EmbeddedInput(*leaves))
        for t, row in enumerate(rows_T):
            with torch.enable_grad():  # logits of one position only: the others are not needed
                log_prob_N1 = output_log_probs(model.output(top_NTD[:, t : t + 1]), pair.output_1T[:, t : t + 1])
            slopes = torch.autograd.grad(share_N[steps_N] @ log_prob_N1, leaves, retain_graph=True)
            for cell, slope_NPD, delta in zip(row, slopes, deltas, strict=True):
                cell += (slope_NPD.sum(0) * delta[0]).sum(-1)
    source_TS, target_TT = (torch.stack(cells) for cells in zip(*rows_T, strict=True))
    return Attribution(source_TS, target_TT, signed=True)


@torch.no_grad()
def occlusion(model: Seq2Seq, pair: TokenPair, *, baseline: Baseline = None) -> Attribution:
    """Attribution by the decrease of an output token's log-probability when an input token is removed.

    `baseline`: ids of a source and a target token that replace a removed token, or None for an embedding of zeros.
    Cost: S + T + 3 forward passes, in batches.
    """
    read, absent = embed(model, pair), embed_absent(model, pair, baseline)
    source_length = read.source_NSD.shape[1]
    removed_NP = torch.eye(source_length + read.target_NTD.shape[1], dtype=torch.bool, device=read.source_NSD.device)
    parts = []
    for removed in in_chunks(removed_NP, pair):
        sides = removed[:, :source_length, None], removed[:, source_length:, None]
        variants = (torch.where(gone, nothing, x) for gone, nothing, x in zip(sides, absent, read, strict=True))
        parts.append(log_probs(model, pair, EmbeddedInput(*variants)))
    lost_TN = (log_probs(model, pair, read) - torch.cat(parts)).t()
    return Attribution(lost_TN[:, :source_length], lost_TN[:, source_length:], signed=True)


@torch.no_grad()
def alti(model: Seq2Seq, pair: TokenPair) -> Attribution:
    """Attribution by ALTI+: the shares of source and prefix tokens in the states of the top decoder layer.

    A row sums to one over source and prefix. Cost: one forward pass, and memory for T x S vectors of the model's width
    per attention layer.
    """
    transformer = _require_transformer(model, "alti")
    with trace(model) as tape, trace_states(model) as states:
        model(pair.source, pair.input_1T)
    encoder, decoder = [], []
    x_SD = states["encoder.embed"][0]
    for layer, block in enumerate(transformer.encoder.blocks):
        parts = attention_parts(tape, block.self_attention, x_SD, len(x_SD))
        encoder.append(self_shares(parts, block.self_attention_residual)[0])
        x_SD = states[f"encoder.{layer}"][0]
    x_TD = states["decoder.embed"][0]
    for layer, above in enumerate(transformer.decoder):
        parts = attention_parts(tape, above.self_attention, x_TD, len(x_TD))
        own_TT, stream_TD = self_shares(parts, above.self_attention_residual)
        parts = attention_parts(tape, above.cross_attention, stream_TD, len(x_SD))
        decoder.append((own_TT, cross_shares(parts, above.cross_attention_residual)[0]))
        x_TD = states[f"decoder.{layer}"][0]
    return Attribution(*roll_out(encoder, decoder))


class AttentionParts(NamedTuple):
    """The residual stream before an attention layer, what the layer adds to it, and what each key adds to it."""

    x_TD: Tensor
    contribution_TSD: Tensor  # the vector that key s contributes to query t
    update_TD: Tensor  # the sum of these vectors, plus the bias of the output projection


def attention_parts(
    tape: AttentionTrace, attend: SelfAttention | CrossAttention | FullyPrunedAttention, x_TD: Tensor, keys: int
) -> AttentionParts:
    """Split the output of the attention layer `attend` into the vectors that its keys contribute, summed over heads.

    `tape` has the recorded weights and values, `x_TD` is the residual stream before the layer, `keys` the number of
    keys.
    """
    if isinstance(attend, FullyPrunedAttention):
        return AttentionParts(x_TD, x_TD.new_zeros(len(x_TD), keys, x_TD.shape[1]), attend(x_TD))
    seen = tape[attend.tap.name]
    weights_HTS = seen.weights_BHTS[0]
    outward_HKD = attend.out.weight.t().unflatten(0, (len(weights_HTS), -1))
    contribution_TSD = torch.einsum("hts,hsd->tsd", weights_HTS, seen.value_BHSK[0] @ outward_HKD)
    return AttentionParts(x_TD, contribution_TSD, attend.out(seen.output_BHTK[0].transpose(0, 1).flatten(1)))


def self_shares(parts: AttentionParts, around: Residual) -> tuple[Tensor, Tensor]:
    """Shares [T, T] of the input positions in the residual stream after self-attention, and this stream [T, D].

    `around` is the residual connection around the attention. If all shares in a row are zero, the position of the row
    gets a share of 1 in itself.
    """
    own_TT = torch.eye(len(parts.x_TD)).to(parts.x_TD)
    shares_TT, stream_TD = _mix(parts, around, parts.contribution_TSD + own_TT.unsqueeze(-1) * parts.x_TD.unsqueeze(1))
    return shares_TT + (1 - shares_TT.sum(-1, keepdim=True)) * own_TT, stream_TD


def cross_shares(parts: AttentionParts, around: Residual) -> tuple[Tensor, Tensor]:
    """Shares [T, S] of the source tokens in the residual stream after cross-attention, and this stream [T, D].

    `around` is the residual connection around the attention. The rest of a row, 1 minus its sum, is the share of the
    stream before the cross-attention.
    """
    shares_TP, stream_TD = _mix(parts, around, torch.cat([parts.contribution_TSD, parts.x_TD.unsqueeze(1)], dim=1))
    return shares_TP[:, :-1], stream_TD


def shares(parts_TPD: Tensor, whole_TD: Tensor) -> Tensor:
    """For each of T vectors `whole_TD`, the shares [T, P] of P vectors `parts_TPD` in it; a row sums to one.

    The share of a part is |whole| - |whole - part| (L1 norm), at least 0, divided by the sum over all parts. If this
    sum is zero, all shares are zero.
    """
    nearer_TP = whole_TD.abs().sum(-1, keepdim=True) - (whole_TD.unsqueeze(1) - parts_TPD).abs().sum(-1)
    nearer_TP = nearer_TP.clamp_min(0)
    return nearer_TP / nearer_TP.sum(-1, keepdim=True).clamp_min(torch.finfo(nearer_TP.dtype).tiny)


def _mix(parts: AttentionParts, around: Residual, parts_TPD: Tensor) -> tuple[Tensor, Tensor]:
    """Shares [T, P] of the P vectors `parts_TPD` in the residual stream [T, D] after an attention, and this stream.

    `parts` has the stream before the attention and what the attention adds. `around` is the residual connection around
    the attention; if it has a layer norm after the sum, the norm is applied to each of the P vectors too.
    """
    stream_TD = around.leave(parts.x_TD, parts.update_TD)
    if not around.before:
        spread_T11 = ((parts.x_TD + parts.update_TD).var(-1, unbiased=False) + around.norm.eps).sqrt()[:, None, None]
        parts_TPD = (parts_TPD - parts_TPD.mean(-1, keepdim=True)) / spread_T11 * around.norm.weight
    return shares(parts_TPD, stream_TD), stream_TD
