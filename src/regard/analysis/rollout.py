"""Attribution by attention weights: as they are, or followed down through the layers.

Rollout: "Quantifying Attention Flow in Transformers", Abnar and Zuidema 2020. A residual connection is taken for an
attention to oneself of one half, heads are averaged, and the matrices of all layers multiplied. For a decoder that also
looks at the source, the shares of source and prefix are rolled out together (Ferrando et al. 2022), so that a row sums
to one over both.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.analysis.attribution import Attribution, Pair
from regard.errors import ModelError
from regard.layers.taps import trace
from regard.models.base import Seq2Seq
from regard.models.transformer import Transformer


@torch.no_grad()
def attention(model: Seq2Seq, pair: Pair, *, layer: int | None = None) -> Attribution:
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
def rollout(model: Seq2Seq, pair: Pair) -> Attribution:
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


def _head_means(model: Seq2Seq, pair: Pair) -> dict[str, Tensor]:
    """The weights of every attention, averaged over its heads."""
    with trace(model) as tape:
        model(pair.source, pair.input_1T)
    return {name: seen.weights_BHTS[0].mean(0) for name, seen in tape.items()}
