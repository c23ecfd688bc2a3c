"""Taking heads out of a Transformer for good: the matrices really get smaller.

A head owns rows of the maps that make queries, keys and values, and the columns of the output map that read it. Without
a head all of these go; the bias of the output map stays, and is all that an attention without heads still says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from regard import config
from regard.errors import ModelError, nearest
from regard.layers.attention import CrossAttention, SelfAttention
from regard.models.base import Seq2Seq

Kept = Mapping[str, Sequence[int]]
"""The heads that stay, by the name of their attention; an attention that is not named keeps all."""

Attention = SelfAttention | CrossAttention

INWARD = {SelfAttention: ("inward",), CrossAttention: ("query", "memory")}
"""The maps whose rows belong to heads; "outward" is the one whose columns do."""


def attentions(model: Seq2Seq) -> dict[str, tuple[str, Attention]]:
    """The attentions that heads can be taken from, by the name of their tap: the module's name, and the module."""
    return {
        module.tap.name: (name, module)
        for name, module in model.named_modules()
        if isinstance(module, SelfAttention | CrossAttention)
    }


@torch.no_grad()
def scale_heads(model: Seq2Seq, factors: Mapping[str, Tensor]) -> None:
    """Multiply what each head says by a factor, for good: by its gate, before the gate is taken away."""
    for name, (_, module) in attentions(model).items():
        module.outward.weight.unflatten(1, (module.heads, -1)).mul_(factors[name][:, None])


def pruned_weights(model: Seq2Seq, kept: Kept) -> dict[str, Tensor]:
    """The weights of the model with these heads alone, under the names that `pruned_settings` gives rise to."""
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    known = attentions(model)
    for name, heads in kept.items():
        if name not in known:
            raise ModelError(f'there is no attention "{name}" to prune{nearest(name, known)}')
        place, module = known[name]
        if any(not 0 <= head < module.heads for head in heads) or len(set(heads)) != len(heads):
            raise ModelError(f"{name}: has heads 0 to {module.heads - 1}, of which {list(heads)} cannot be kept")
        if len(heads) < module.heads:
            weights = dict(_cut(weights, f"{place}.", module, torch.tensor(sorted(heads), dtype=torch.long)))
    return weights


def pruned_settings(settings: config.Transformer, kept: Kept) -> config.Transformer:
    """The settings of the model with these heads alone."""
    counts = dict(settings.kept_heads) | {name: len(heads) for name, heads in kept.items()}
    fewer = [(name, counts[name]) for name in settings.attentions if counts.get(name, settings.heads) < settings.heads]
    return dataclasses.replace(settings, kept_heads=tuple(fewer))


def strongest(scores: Mapping[str, Tensor], count: int) -> dict[str, tuple[int, ...]]:
    """The heads with the highest scores, so many of all attentions together. Of equals, the earlier one."""
    order = [(-float(score), place, head, name) for place, (name, head, score) in enumerate(_each(scores))]
    chosen = {(name, head) for _, _, head, name in sorted(order)[:count]}
    return {
        name: tuple(head for head in range(len(score_H)) if (name, head) in chosen) for name, score_H in scores.items()
    }


def _each(scores: Mapping[str, Tensor]) -> Iterator[tuple[str, int, Tensor]]:
    return ((name, head, score) for name, score_H in scores.items() for head, score in enumerate(score_H))


def _cut(weights: Mapping[str, Tensor], place: str, module: Attention, heads: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The weights with fewer heads in the attention at this place. One without heads has no maps, only a bias."""
    inward = tuple(f"{place}{name}." for name in INWARD[type(module)])
    head_width = module.outward.in_features // module.heads
    for name, tensor in weights.items():
        if name.startswith(inward):
            if len(heads):
                by_head = tensor.unflatten(0, (-1, module.heads, head_width))  # one part each for query, key, value
                yield name, by_head.index_select(1, heads).flatten(0, 2)
        elif name == f"{place}outward.weight":
            if len(heads):
                yield name, tensor.unflatten(1, (module.heads, head_width)).index_select(1, heads).flatten(1, 2)
        else:
            yield name, tensor
