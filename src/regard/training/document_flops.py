"""Arithmetic of a classifier of documents, or an encoder of texts, counted from its architecture as in `flops.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import nn

from regard.layers.attention import SelfAttention
from regard.layers.pool import ContextAttention, Mean
from regard.models.base import Network
from regard.training.flops import BACKWARD


@dataclass(frozen=True)
class DocumentCost:
    """Operations of one forward pass: a document, a sentence, a token, and a pair of tokens that see each other."""

    document: float = 0.0
    sentence: float = 0.0
    token: float = 0.0
    pair: float = 0.0

    def forward(self, documents: int, sentences: int, tokens: int, pairs: int = 0) -> float:
        """Of a batch with so many of each."""
        return self.document * documents + self.sentence * sentences + self.token * tokens + self.pair * pairs

    def training(self, documents: int, sentences: int, tokens: int, pairs: int = 0) -> float:
        """Forward and backward."""
        return (1 + BACKWARD) * self.forward(documents, sentences, tokens, pairs)

    def plus(self, kind: str, operations: float) -> DocumentCost:
        """With so many operations more of one kind."""
        return replace(self, **{kind: getattr(self, kind) + operations})


def count_document_cost(model: Network) -> DocumentCost:
    """Count the matrix products; embeddings are looked up, not multiplied."""
    cost = DocumentCost()
    for name, module in model.named_modules():
        kind = _applied_to(name)
        if isinstance(module, SelfAttention):
            cost = cost.plus("pair", 4.0 * module.outward.in_features)
        if isinstance(module, ContextAttention):
            cost = cost.plus(kind, 4.0 * module.key.in_features)  # a score and a share of the mix
        if isinstance(module, Mean):
            cost = cost.plus(kind, 2.0 + 2.0 * model.output.in_features)
        if not isinstance(module, nn.Embedding):
            matrices = [matrix for matrix in module.parameters(recurse=False) if matrix.dim() == 2]
            cost = cost.plus(kind, sum(2.0 * matrix.numel() for matrix in matrices))
    return cost


def _applied_to(name: str) -> str:
    """How often the matrices of the module of this name are applied."""
    if name.startswith("output"):
        return "document"
    return "sentence" if name.startswith("sentences") else "token"
