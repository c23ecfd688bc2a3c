"""Attribution of a label to the tokens of a document: gradient, integrated gradients, occlusion.

The tokens of a document are renumbered by position, 0, 1, ..., and row p of the embedding matrix is replaced by the
vector of token p. So each position has its own vector, and the methods work for every architecture of classifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.func import functional_call

from regard.errors import ModelError, nearest
from regard.models.base import ClassifierModel, Documents

STEPS = 16  # number of steps of integrated gradients (Sundararajan et al. 2017)
Score = Callable[[Tensor], Tensor]
"""A function from the embeddings [P, E] of the P tokens of a document to the log-probability of a label."""


def attribute_label(
    model: ClassifierModel, document: Documents, label: int, method: str = "integrated", *, several: bool = False
) -> Tensor:
    """Signed contribution [P] of each of the P tokens of a document to the log-probability of a label (its index).

    `document` is a batch of one document; `method` is one of METHODS. A removed token has an embedding of zeros. With
    `several`, a document can have several labels: the probability of a label is a sigmoid, not a softmax over all
    labels.
    """
    if method not in METHODS:
        raise ModelError(f'there is no method "{method}"{nearest(method, METHODS)} (choose from {", ".join(METHODS)})')
    if not isinstance(model.reads, int):
        raise ModelError("a label is attributed only to tokens; for pictures, use the attention weights (explain)")
    if len(document.ids_BUS) != 1:
        raise ModelError("attribute_label takes one document at a time; call it once per document")
    name, embedding = next((name, part) for name, part in model.named_modules() if isinstance(part, nn.Embedding))
    mask_BUS = document.mask_BUS
    vectors_PE = embedding.weight.detach()[document.ids_BUS[mask_BUS]]
    numbered = SimpleNamespace(ids_BUS=torch.zeros_like(document.ids_BUS), mask_BUS=mask_BUS)
    numbered.ids_BUS[mask_BUS] = torch.arange(len(vectors_PE), device=mask_BUS.device)

    def score(vectors_PE: Tensor) -> Tensor:
        logits_L = functional_call(model, {f"{name}.weight": vectors_PE}, (numbered,))[0]
        log_probs_L: Tensor = nn.functional.logsigmoid(logits_L) if several else logits_L.log_softmax(-1)
        return log_probs_L[label]

    return METHODS[method](score, vectors_PE)


def path_gradient(score: Score, vectors_PE: Tensor, places: Sequence[float]) -> Tensor:
    """For each of P tokens, its vector times the mean gradient of `score` at c * `vectors_PE` for all c in `places`.

    `places` are numbers from 0 to 1. With `places` = [1.0], the result is gradient times input (Shrikumar et al. 2016).
    """
    slope_PE = torch.zeros_like(vectors_PE)
    for place in places:
        leaf = (place * vectors_PE).requires_grad_()
        with torch.enable_grad():
            slope_PE += torch.autograd.grad(score(leaf), leaf)[0]
    return (slope_PE / len(places) * vectors_PE).sum(-1)


@torch.no_grad()
def occlusion(score: Score, vectors_PE: Tensor) -> Tensor:
    """For each of P tokens, the decrease of `score`, the log-probability of a label, when its vector is set to zero.

    Cost: one forward pass per token.
    """
    whole, lost = score(vectors_PE), []
    for place in range(len(vectors_PE)):
        without = vectors_PE.clone()
        without[place] = 0.0
        lost.append(whole - score(without))
    return torch.stack(lost)


METHODS: dict[str, Callable[[Score, Tensor], Tensor]] = {
    "gradient": lambda score, x_PE: path_gradient(score, x_PE, [1.0]),
    "integrated": lambda score, x_PE: path_gradient(score, x_PE, [(step + 0.5) / STEPS for step in range(STEPS)]),
    "occlusion": occlusion,
}
