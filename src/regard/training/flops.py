"""Arithmetic of a training step, counted from the architecture: one multiplication and one addition are two."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import nn

from regard.layers.attention import CrossAttention, Perceptron, SelfAttention
from regard.layers.recurrent import Look

BACKWARD = 2  # the backward pass multiplies twice for each product of the forward pass
TURNS = "decoder.utterance"  # HRAN's attention to the turns of a conversation, not to their tokens


@dataclass(frozen=True)
class Cost:
    """Operations of one forward pass: a sentence, a token, and a pair of tokens of which one sees the other."""

    sentence: float = 0.0
    source: float = 0.0
    target: float = 0.0
    source_pair: float = 0.0
    target_pair: float = 0.0
    cross_pair: float = 0.0

    def forward(self, rows: int, source_length: int, target_length: int) -> float:
        """Of a padded batch."""
        return rows * (
            self.sentence
            + self.source * source_length
            + self.target * target_length
            + self.source_pair * source_length**2
            + self.target_pair * target_length**2
            + self.cross_pair * source_length * target_length
        )

    def training(self, rows: int, source_length: int, target_length: int) -> float:
        """Forward and backward."""
        return (1 + BACKWARD) * self.forward(rows, source_length, target_length)

    def plus(self, kind: str, operations: float) -> Cost:
        """With so many operations more of one kind."""
        return replace(self, **{kind: getattr(self, kind) + operations})


def count_cost(model: nn.Module) -> Cost:
    """Count the matrix products of a model; embeddings are looked up, not multiplied.

    Restricted attention is counted as though it were full: an upper bound. A conversation is counted as though it had
    one turn, which leaves out some of what HRAN does a turn.
    """
    looked_up = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    cost = Cost()
    for name, module in model.named_modules():
        cost = _count_attention(cost, module)
        for parameter in module.parameters(recurse=False):
            if parameter.dim() == 2 and (id(parameter) not in looked_up or name == "output"):
                cost = cost.plus(_applied_to(name), 2.0 * parameter.numel())
    return cost


def _count_attention(cost: Cost, module: nn.Module) -> Cost:
    """Each pair of tokens costs a score and a share of the mix."""
    if isinstance(module, SelfAttention):
        return cost.plus("target_pair" if module.causal else "source_pair", 4.0 * module.outward.in_features)
    if isinstance(module, CrossAttention):
        return cost.plus("cross_pair", 4.0 * module.outward.in_features)
    if isinstance(module, Look):
        is_perceptron = isinstance(module.score, Perceptron)
        mix = 2.0 * module.memory_width
        kind = "target" if module.tap.name == TURNS else "cross_pair"
        return cost.plus(kind, mix if is_perceptron else 2 * mix)  # a perceptron's score is among its matrices
    return cost


def _applied_to(name: str) -> str:
    """How often the matrices of the module of this name are applied."""
    if name.startswith("bridge"):
        return "sentence"
    if name.endswith("look.score.score"):
        return "cross_pair"
    if name.startswith("encoder.") or name.endswith((".cross.memory", "look.score.key")):
        return "source"
    return "target"
