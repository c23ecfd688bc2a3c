"""Optimizers: Adam with decoupled weight decay (AdamW), Muon for the matrices inside the model, or row-wise Adagrad.

Muon (Jordan et al. 2024) replaces the averaged gradient of a matrix by the nearest matrix whose singular values are all
equal, so that all directions are learned at the same rate, not only the few that dominate the gradient. Embeddings,
the output matrix, norms and biases are trained by Adam. Small corpora need about half as many steps (docs/log.md).

Adagrad (Duchi et al. 2011) is for tables of vectors such as word vectors: of a sparse gradient, it updates only the
rows that the gradient has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from regard.config import TrainSettings
from regard.layers.init import STACKED
from regard.models.base import Network
from regard.training.device import by_sharding, product_type

MOMENTUM = 0.95
ROUNDS = 5
LINEAR, CUBIC, QUINTIC = 3.4445, -4.7750, 2.0315  # Jordan et al.'s polynomial: drives singular values to 1, roughly
TINY = 1e-7


class Muon(torch.optim.Optimizer):
    """The Muon optimizer: Nesterov momentum with orthogonalized updates. Equally shaped matrices are computed together.

    torch's own Muon processes one matrix at a time, always in bfloat16, which is slow on most CPUs, and does not know
    that a matrix may contain several projections, such as query, key and value.
    """

    def __init__(
        self, matrices: Sequence[tuple[Tensor, int]], rate: float, weight_decay: float,
        product: torch.dtype = torch.float32,
    ):  # fmt: skip
        """`matrices`: pairs of a matrix and the number of projections stacked in its rows (3 for query, key and value).

        `rate`: learning rate; `product`: data type of the matrix products.
        """
        super().__init__([matrix for matrix, _ in matrices], {"lr": rate, "weight_decay": weight_decay})
        self._stacked, self._product = dict(matrices), product

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient; `closure`, which torch optimizers accept, is ignored."""
        for group in self.param_groups:
            by_shape: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = defaultdict(list)
            for matrix in (matrix for matrix in group["params"] if matrix.grad is not None):
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                state = self.state[matrix]
                if not state:
                    state["momentum"] = torch.zeros_like(matrix)
                momentum = state["momentum"].lerp_(matrix.grad, 1 - MOMENTUM)
                direction = matrix.grad.lerp(momentum, MOMENTUM)  # Nesterov
                parts = self._stacked[matrix]
                flat, direction = matrix.flatten(1), direction.flatten(1)  # a convolution: one row per output
                for part, wanted in zip(flat.chunk(parts), direction.chunk(parts), strict=True):
                    by_shape[part.shape[0], part.shape[1]].append((part, wanted))
            for pairs in by_shape.values():
                updates = orthogonal(torch.stack([direction for _, direction in pairs]), self._product)
                rows, columns = updates.shape[1:]
                rate = group["lr"] * max(1.0, rows / columns) ** 0.5  # the same change of the output for every shape
                for (part, _), update in zip(pairs, updates, strict=True):
                    part.sub_(update, alpha=rate)


def orthogonal(matrices_NRC: Tensor, product: torch.dtype = torch.float32) -> Tensor:
    """For each matrix, the nearest one whose singular values are all 1, approximated by the Newton-Schulz iteration.

    Computed for N matrices of R rows and C columns together. `product`: data type of the matrix products.
    """
    wide = matrices_NRC.shape[1] <= matrices_NRC.shape[2]
    x = matrices_NRC if wide else matrices_NRC.mT
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + TINY)).to(product)
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=CUBIC, alpha=QUINTIC), x, beta=LINEAR)
    return x if wide else x.mT


class RowAdagrad(torch.optim.Optimizer):
    """Adagrad with one learning rate per row: the rate divided by the root of the sum of the squared gradients so far.

    The square of the gradient of a row is the mean over its elements. A sparse gradient updates only its rows, so the
    cost of a step does not depend on the number of rows of the table; weight decay applies to these rows, too.
    """

    def __init__(self, parameters: Sequence[Tensor], rate: float, weight_decay: float):
        super().__init__(parameters, {"lr": rate, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the rows of every parameter that has a gradient; `closure`, which torch allows, is ignored."""
        for group in self.param_groups:
            for parameter in (parameter for parameter in group["params"] if parameter.grad is not None):
                state = self.state[parameter]
                if not state:
                    state["sum"] = parameter.new_zeros(len(parameter) if parameter.dim() else 1)
                decay = group["weight_decay"] if parameter.dim() > 1 else 0.0
                _adagrad_step(parameter, state["sum"], group["lr"], decay)


def _adagrad_step(parameter: Tensor, sum_R: Tensor, rate: float, decay: float) -> None:
    gradient = parameter.grad
    assert gradient is not None
    if not gradient.is_sparse:
        sum_R += gradient.view(len(sum_R), -1).square().mean(1)
        scale_R = rate / (sum_R.sqrt() + TINY)
        parameter.mul_(1 - rate * decay).sub_(gradient * scale_R.view(-1, *[1] * (parameter.dim() - 1)))
        return
    gradient = gradient.coalesce()
    index_N, rows_ND = gradient.indices()[0], gradient.values()
    sum_N = sum_R[index_N] + rows_ND.square().mean(1)
    sum_R[index_N] = sum_N
    update_ND = rows_ND * (-rate / (sum_N.sqrt() + TINY))[:, None]
    if decay:
        update_ND -= rate * decay * parameter[index_N]
    parameter.index_add_(0, index_N, update_ND)


class CombinedOptimizer:
    """Several optimizers used as one. `set_rate` changes all learning rates in proportion."""

    def __init__(self, *parts: torch.optim.Optimizer):
        self._parts, self._groups = parts, [group for part in parts for group in part.param_groups]
        self._owner = {tensor: part for part in parts for group in part.param_groups for tensor in group["params"]}
        first = self._groups[0]["lr"]
        for group in self._groups:
            group["share"] = group["lr"] / first

    def state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        """The optimizer state of a parameter: tensors by name, such as the moments of Adam."""
        return self._owner[parameter].state[parameter]

    def load_state(self, parameter: Tensor, state: Mapping[str, Tensor]) -> None:
        """Set the optimizer state of a parameter, in the form that `state_of` returns."""
        self._owner[parameter].state[parameter] = dict(state)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the first optimizer; the rates of the others change in proportion."""
        for group in self._groups:
            group["lr"] = rate * group["share"]

    def zero_grad(self) -> None:
        for part in self._parts:
            part.zero_grad(set_to_none=True)

    def step(self) -> None:
        for part in self._parts:
            part.step()


def make_optimizer(model: Network, settings: TrainSettings) -> CombinedOptimizer:
    """Build the optimizer `train.optimizer`. Biases and norms have no weight decay.

    With Muon, AdamW trains all parameters that are not inner matrices.
    """
    if settings.optimizer == "adagrad":
        return CombinedOptimizer(RowAdagrad(list(model.parameters()), settings.learning_rate, settings.weight_decay))
    inner = inner_matrices(model) if settings.optimizer == "muon" else []
    by_muon = {matrix for matrix, _ in inner}
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1 and parameter not in by_muon]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    adam = torch.optim.AdamW(
        [
            {"params": part, "weight_decay": decay}
            for parameters, decay in ((matrices, settings.weight_decay), (vectors, 0.0))
            for part in by_sharding(parameters)
        ],
        lr=settings.learning_rate,
        betas=settings.adam_betas,
        eps=settings.adam_epsilon,
        fused=True,
    )
    if not inner:
        return CombinedOptimizer(adam)
    product = product_type(settings, inner[0][0].device)
    return CombinedOptimizer(adam, Muon(inner, settings.muon_learning_rate, settings.weight_decay, product))


def inner_matrices(model: Network) -> list[tuple[Tensor, int]]:
    """Matrices that Muon trains, with the number of their projections.

    These are the weights of all linear layers except the output layer, and of convolutions of pictures.
    """
    return [
        (module.weight, getattr(module, STACKED, 1))
        for module in model.modules()
        if isinstance(module, nn.Linear | nn.Conv2d) and module is not model.output and min(module.weight.shape[:2]) > 1
    ]
