"""ALTI: what each input brings to the output of each attention block, followed down through the layers.

"Measuring the Mixing of Contextual Information in the Transformer", Ferrando et al. 2022a, and for encoder-decoders
ALTI+, "Towards Opening the Black Box of Neural Machine Translation", Ferrando et al. 2022b. The output of an attention
block is a sum of one vector for each input: its value through the output projection, times its weight, and the residual
stream for oneself. A layer norm after the sum is linear once its spread is known, and is applied to each vector. The
share of an input is how much nearer its vector comes to the sum than nothing does, in the L1 norm. The biases after the
values belong to nobody. Feed-forward layers mix no positions and are passed over; so are norms that stand before a
sub-layer or at the top, except that values are made from what such a norm gives.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.analysis.attribution import Attribution, Pair
from regard.analysis.rollout import require_transformer, roll_out
from regard.layers.attention import CrossAttention, SelfAttention
from regard.layers.streams import trace_states
from regard.layers.taps import Tape, trace
from regard.models.base import Seq2Seq
from regard.models.transformer import Headless, Residual


@torch.no_grad()
def alti(model: Seq2Seq, pair: Pair) -> Attribution:
    """Shares of the source and the prefix in the top layer; a row sums to one over both.

    Cost: one forward pass, and for each attention T x S vectors of the model's width.
    """
    transformer = require_transformer(model, "alti")
    with trace(model) as tape, trace_states(model) as states:
        model(pair.source, pair.input_1T)
    encoder, decoder = [], []
    x_SD = states["encoder.embed"][0]
    for layer, block in enumerate(transformer.encoder.blocks):
        encoder.append(self_shares(look(tape, block.attend, x_SD, len(x_SD)), block.around_attend).shares_TP)
        x_SD = states[f"encoder.{layer}"][0]
    x_TD = states["decoder.embed"][0]
    for layer, above in enumerate(transformer.decoder):
        own = self_shares(look(tape, above.attend, x_TD, len(x_TD)), above.around_attend)
        cross = cross_shares(look(tape, above.cross, own.stream_TD, len(x_SD)), above.around_cross)
        decoder.append((own.shares_TP, cross.shares_TP))
        x_TD = states[f"decoder.{layer}"][0]
    return Attribution(*roll_out(encoder, decoder))


class Look(NamedTuple):
    """An attention taken apart: the stream that asks, the vector that each key brings to it, and what is added."""

    x_TD: Tensor
    brought_TSD: Tensor
    update_TD: Tensor


class Mixed(NamedTuple):
    """Whose the stream is after an attention, and the stream itself."""

    shares_TP: Tensor
    stream_TD: Tensor


def look(tape: Tape, attend: SelfAttention | CrossAttention | Headless, x_TD: Tensor, keys: int) -> Look:
    """Take one attention of a traced pass apart, all heads together; one without heads brings nothing."""
    if isinstance(attend, Headless):
        return Look(x_TD, x_TD.new_zeros(len(x_TD), keys, x_TD.shape[1]), attend(x_TD))
    seen = tape[attend.tap.name]
    weights_HTS = seen.weights_BHTS[0]
    outward_HKD = attend.outward.weight.t().unflatten(0, (len(weights_HTS), -1))
    brought_TSD = torch.einsum("hts,hsd->tsd", weights_HTS, seen.value_BHSK[0] @ outward_HKD)
    return Look(x_TD, brought_TSD, attend.outward(seen.output_BHTK[0].transpose(0, 1).flatten(1)))


def self_shares(look: Look, around: Residual) -> Mixed:
    """Each position's shares [T, T] after a self-attention. Where no vector comes near the sum, all is one's own."""
    oneself_TT = torch.eye(len(look.x_TD), dtype=look.x_TD.dtype, device=look.x_TD.device)
    parts_TTD = look.brought_TSD + oneself_TT.unsqueeze(-1) * look.x_TD.unsqueeze(1)
    parts_TTD, stream_TD = _leave(look, around, parts_TTD)
    shares_TT = shares(parts_TTD, stream_TD)
    return Mixed(shares_TT + (1 - shares_TT.sum(-1, keepdim=True)) * oneself_TT, stream_TD)


def cross_shares(look: Look, around: Residual) -> Mixed:
    """The source's shares [T, S] after an attention to it. What they lack of one is the stream's own."""
    parts_TPD = torch.cat([look.brought_TSD, look.x_TD.unsqueeze(1)], dim=1)
    parts_TPD, stream_TD = _leave(look, around, parts_TPD)
    return Mixed(shares(parts_TPD, stream_TD)[:, :-1], stream_TD)


def shares(parts_TPD: Tensor, whole_TD: Tensor) -> Tensor:
    """How much nearer than nothing each part comes to the whole, never below zero; a row sums to one, or is zero."""
    nearer_TP = whole_TD.abs().sum(-1, keepdim=True) - (whole_TD.unsqueeze(1) - parts_TPD).abs().sum(-1)
    nearer_TP = nearer_TP.clamp_min(0)
    return nearer_TP / nearer_TP.sum(-1, keepdim=True).clamp_min(torch.finfo(nearer_TP.dtype).tiny)


def _leave(look: Look, around: Residual, parts_TPD: Tensor) -> tuple[Tensor, Tensor]:
    """The parts and their sum after what stands around the attention; a norm there acts on each part alike."""
    stream_TD = around.leave(look.x_TD, look.update_TD)
    if around.before:
        return parts_TPD, stream_TD
    spread_T11 = ((look.x_TD + look.update_TD).var(-1, unbiased=False) + around.norm.eps).sqrt()[:, None, None]
    centred_TPD = parts_TPD - parts_TPD.mean(-1, keepdim=True)
    return centred_TPD / spread_T11 * around.norm.weight, stream_TD
