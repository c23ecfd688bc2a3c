"""Pruning attention heads: learned gates that choose the heads, and weights without the pruned heads.

Gates: "Learning Sparse Neural Networks through L0 Regularization", Louizos et al. 2018. Voita et al. 2019 put a
gate on the output of every head of a trained Transformer. A gate z is sampled as

    s = sigmoid((log u - log(1 - u) + log_alpha) / BETA),   u uniform in (0, 1)
    z = clamp(s (ZETA - GAMMA) + GAMMA, 0, 1)

so it is exactly 0 or exactly 1 with some probability, and log_alpha still gets a gradient. Training adds the expected
number of open gates, times a penalty, to the loss. Attention weights are multiplied by the gate, which multiplies the
head's output by it. Unlike in the paper, a gate is sampled per sentence, not per batch.

Pruned weights: a head owns rows of the matrices for queries, keys and values, and columns of the output projection. All
of these are removed, so the matrices become smaller. The bias of the output projection stays; it is the whole output of
an attention without heads.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from regard.errors import ModelError, nearest
from regard.layers.attention import CrossAttention, SelfAttention
from regard.layers.hooks import listen
from regard.models.base import EncoderOutput, Seq2Seq, Source, Tree
from regard.models.transformer_settings import TransformerSettings

Kept = Mapping[str, Sequence[int]]
"""Numbers of the heads that remain, by the name of the attention; attentions without an entry keep all heads."""

BETA, GAMMA, ZETA = 2 / 3, -0.1, 1.1  # temperature and stretch of Louizos et al.
START = 2.0  # initial log_alpha: nearly open, with a gradient that does not vanish


def hard_concrete(log_alpha: Tensor, uniform: Tensor | None = None) -> Tensor:
    """Values from 0 to 1 of hard concrete gates with the parameters `log_alpha` (Louizos et al. 2018).

    The gates are sampled with `uniform`, random numbers in (0, 1); if it is None, their deterministic values at test
    time are returned.
    """
    if uniform is not None:
        log_alpha = (uniform.log() - (-uniform).log1p() + log_alpha) / BETA
    return (log_alpha.sigmoid() * (ZETA - GAMMA) + GAMMA).clamp(0.0, 1.0)


def open_probability(log_alpha: Tensor) -> Tensor:
    """The probability that a sampled hard concrete gate with the parameter `log_alpha` is not zero."""
    return (log_alpha - BETA * math.log(-GAMMA / ZETA)).sigmoid()


class HeadGates(nn.Module):
    """One trained gate, a factor from 0 to 1, per attention head. As a listener of hooks, it multiplies the weights."""

    def __init__(self, heads: Mapping[str, int], gain: float = 1.0):
        """`heads` has the number of heads of each attention layer, by the name of its hook, e.g. "encoder.0.self".

        The parameter of a gate, log_alpha, is `gain` times the trained `position`. `gain` should be large, so that
        log_alpha changes much faster than the weights of the model, at the same learning rate.
        """
        super().__init__()
        self.heads, self.gain = dict(heads), gain
        self.position = nn.Parameter(torch.full((sum(heads.values()),), START / gain))

    def by_attention(self) -> dict[str, Tensor]:
        """The gate parameters log_alpha [H] by attention layer; the higher log_alpha, the more often a gate is open."""
        log_alpha = self.position * self.gain
        return dict(zip(self.heads, log_alpha.split(list(self.heads.values())), strict=True))

    def open_share(self) -> Tensor:
        """The expected share of open gates (gates that are not zero) among all gates, as a scalar tensor."""
        return open_probability(self.position * self.gain).mean()

    def forward(self, name: str, weights_BHTS: Tensor) -> Tensor:
        """Multiply the weights of the attention layer `name` by its gates, sampled per sentence in training only."""
        log_alpha_H = self.by_attention()[name]
        uniform_BH = None
        if self.training:
            tiny = torch.finfo(log_alpha_H.dtype).eps
            uniform_BH = torch.rand(weights_BHTS.shape[:2], device=log_alpha_H.device).clamp(tiny, 1 - tiny)
        return weights_BHTS * hard_concrete(log_alpha_H, uniform_BH)[..., None, None]


class GatedModel(Seq2Seq):
    """A model with a gate on each head. If `weights_follow`, model and gates are trained, otherwise only the gates."""

    def __init__(self, model: Seq2Seq, gates: HeadGates, *, weights_follow: bool = True):
        super().__init__()
        self.model, self.gates = model.requires_grad_(weights_follow), gates
        self.output = model.output

    def encode(self, source: Source) -> EncoderOutput:
        with listen(self.model, "*", self.gates):
            return self.model.encode(source)

    def start(self, memory: EncoderOutput) -> Tree:
        return self.model.start(memory)

    def step(self, token_BW: Tensor, state: Tree, memory: EncoderOutput) -> tuple[Tensor, Tree]:
        with listen(self.model, "*", self.gates):
            return self.model.step(token_BW, state, memory)

    def decode(self, memory: EncoderOutput, target_BT: Tensor) -> Tensor:
        with listen(self.model, "*", self.gates):
            return self.model.decode(memory, target_BT)


def attentions(model: Seq2Seq) -> dict[str, tuple[str, SelfAttention | CrossAttention]]:
    """The attention layers that can be pruned: hook name, e.g. "encoder.0.self" -> (name of the module, module)."""
    return {
        module.tap.name: (name, module)
        for name, module in model.named_modules()
        if isinstance(module, SelfAttention | CrossAttention)
    }


@torch.no_grad()
def scale_heads(model: Seq2Seq, gates: HeadGates) -> None:
    """Multiply the output weights of each head by its deterministic gate, so that the gates can be removed."""
    for name, (_, module) in attentions(model).items():
        factors_H = hard_concrete(gates.by_attention()[name])
        module.out.weight.unflatten(1, (module.heads, -1)).mul_(factors_H[:, None])


def pruned_weights(model: Seq2Seq, kept: Kept) -> dict[str, Tensor]:
    """The weights of `model` with only the heads `kept` (head numbers by attention layer; other layers keep all heads).

    The result fits a model that is built with the settings from `pruned_settings`.
    """
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    known = attentions(model)
    for name, heads in kept.items():
        if name not in known:
            guess = nearest(name, known) or f"; there are {', '.join(known)}"
            raise ModelError(f'the model has no attention layer "{name}" to prune{guess}')
        place, module = known[name]
        if any(not 0 <= head < module.heads for head in heads) or len(set(heads)) != len(heads):
            raise ModelError(f"{name}: cannot keep heads {list(heads)}: list heads 0 to {module.heads - 1}, each once")
        if len(heads) == module.heads:
            continue
        kept_H = torch.tensor(sorted(heads), dtype=torch.long)
        by_head = (module.heads, module.out.in_features // module.heads)
        for key in [key for key in weights if key.startswith(f"{place}.") and key != f"{place}.out.bias"]:
            if not heads:
                del weights[key]
            elif key == f"{place}.out.weight":
                weights[key] = weights[key].unflatten(1, by_head).index_select(1, kept_H).flatten(1, 2)
            else:  # one part each for query, key, value
                weights[key] = weights[key].unflatten(0, (-1, *by_head)).index_select(1, kept_H).flatten(0, 2)
    return weights


def pruned_settings(settings: TransformerSettings, kept: Kept) -> TransformerSettings:
    """The settings for a model with only the heads `kept` (head numbers by attention layer): sets `remaining_heads`."""
    counts = dict(settings.remaining_heads) | {name: len(heads) for name, heads in kept.items()}
    fewer = [(name, counts[name]) for name in settings.attentions if counts.get(name, settings.heads) < settings.heads]
    return dataclasses.replace(settings, remaining_heads=tuple(fewer))


def strongest(scores: Mapping[str, Tensor], count: int) -> dict[str, tuple[int, ...]]:
    """Select the `count` heads with the highest scores among all attention layers; return their numbers by layer.

    `scores` has the scores [H] of the heads of each attention layer. Ties go to the earlier head.
    """
    heads = [(name, head) for name, score_H in scores.items() for head in range(len(score_H))]
    best = sorted(heads, key=lambda key: -float(scores[key[0]][key[1]]))[:count]
    return {name: tuple(sorted(head for other, head in best if other == name)) for name in scores}
