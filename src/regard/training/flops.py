"""Arithmetic of a training step, counted from the architecture: one multiplication and one addition are two."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from regard.layers.attention import CrossAttention, SelfAttention

BACKWARD = 2  # the backward pass multiplies twice for each product of the forward pass


@dataclass(frozen=True)
class Cost:
    """Operations of one forward pass: a source token, a target token, and a pair of tokens that see each other."""

    source: float
    target: float
    source_pair: float = 0.0
    target_pair: float = 0.0
    cross_pair: float = 0.0

    def forward(self, rows: int, source_length: int, target_length: int) -> float:
        """Of a padded batch."""
        return rows * (
            self.source * source_length
            + self.target * target_length
            + self.source_pair * source_length**2
            + self.target_pair * target_length**2
            + self.cross_pair * source_length * target_length
        )

    def training(self, rows: int, source_length: int, target_length: int) -> float:
        """Forward and backward."""
        return (1 + BACKWARD) * self.forward(rows, source_length, target_length)


def count_cost(model: nn.Module) -> Cost:
    """Count the matrix products of a model. Matrices of the encoder, and those that read its states, are applied once
    a source token; all others once a target token; embeddings are looked up, not multiplied.
    """
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    source = target = source_pair = target_pair = cross_pair = 0.0
    for name, module in model.named_modules():
        if isinstance(module, SelfAttention | CrossAttention):
            pair = 4.0 * module.outward.in_features  # a score and a share of the mix
            if isinstance(module, CrossAttention):
                cross_pair += pair
            elif module.causal:
                target_pair += pair
            else:
                source_pair += pair
        for own_name, parameter in module.named_parameters(recurse=False):
            is_output = name == "output"
            if parameter.dim() != 2 or (id(parameter) in embeddings and not is_output) or own_name.startswith("bias"):
                continue
            if reads_source(name):
                source += 2.0 * parameter.numel()
            else:
                target += 2.0 * parameter.numel()
    return Cost(source, target, source_pair, target_pair, cross_pair)


def reads_source(name: str) -> bool:
    """Whether a module of this name is applied to source tokens."""
    return name.startswith("encoder.") or name.endswith((".cross.memory", "score.key"))
