"""Experts divided among processes: each process has the weights of an equal share of the experts of every layer.

Tokens are sent to the processes that own their experts, and the results are sent back (all-to-all). All other weights
are copies, as in DDP. The weights of experts are `DTensor`s that are sharded along their rows, so that checkpoints,
averages and the norm of the gradient treat them as they treat the shards of FSDP: a checkpoint has all experts, and any
number of processes can continue from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from regard.errors import SettingsError
from regard.layers.experts import MixtureOfExperts, move
from regard.models.base import Network
from regard.training.distributed import ProcessGroup


def divide_experts(model: Network, group: ProcessGroup) -> list[str]:
    """Divide the experts of all layers among the processes; return the names of their weights.

    Every process must call this with the same model.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    layers = {name: part for name, part in model.named_modules() if isinstance(part, MixtureOfExperts)}
    if not layers:
        raise SettingsError("train.expert_parallel needs a model with experts; set model.experts, or set it to false")
    for layer in layers.values():
        if layer.experts % group.size:
            raise SettingsError(
                f"train.expert_parallel: {layer.experts} experts cannot be divided among {group.size} processes;"
                " change model.experts or the number of processes"
            )
    mesh = init_device_mesh(next(model.parameters()).device.type, (group.size,))
    exchange = TokenExchange(group.rank, group.size, dist.new_group())
    names = []
    for name, layer in layers.items():
        layer.exchange = exchange
        for side in ("up", "down"):
            linear = getattr(layer, side)
            for kind, parameter in list(linear.named_parameters()):
                shard = nn.Parameter(distribute_tensor(parameter.detach(), mesh, [Shard(0)]))
                # The owner of an expert gets the gradients of all processes, whose mean is wanted, as in DDP.
                shard.register_hook(lambda gradient: gradient / group.size)
                setattr(linear, kind, shard)
                names.append(f"{name}.{side}.{kind}")
    return names


class TokenExchange:
    """Sends rows that are sorted by expert to the owners of the experts, and their results back.

    Experts are numbered across the processes: with 8 experts and 2 processes, the first process owns experts 0 to 3.
    `channel` is a process group of its own, so that its messages cannot meet those of other collective operations.
    """

    def __init__(self, rank: int, size: int, channel: Any):
        self.rank, self.size, self.channel = rank, size, channel

    def __call__(
        self, x_PD: Tensor, sizes: Sequence[int], compute: Callable[[Tensor, Sequence[int]], Tensor]
    ) -> Tensor:
        """Rows of `x_PD`: `sizes[e]` of expert e. `compute` gets the rows of the experts of this process."""
        owned = len(sizes) // self.size
        sizes_E = torch.tensor(sizes, device=x_PD.device)
        counts = sizes_E.new_empty(self.size * len(sizes))
        dist.all_gather_into_tensor(counts, sizes_E, group=self.channel)
        mine_RE = counts.view(self.size, -1)[:, self.rank * owned : (self.rank + 1) * owned]
        sent: list[int] = sizes_E.view(self.size, owned).sum(1).tolist()
        received: list[int] = mine_RE.sum(1).tolist()
        by_rank_PD = _AllToAll.apply(x_PD, sent, received, self.channel)  # type: ignore[no-untyped-call]
        order_P = torch.tensor(list(_by_expert(mine_RE.tolist())), dtype=torch.long, device=x_PD.device)
        back_P = order_P.argsort()
        by_expert_PD = compute(move(by_rank_PD, order_P, back_P[:, None]), mine_RE.sum(0).tolist())
        results_PD = move(by_expert_PD, back_P, order_P[:, None])
        return _AllToAll.apply(results_PD, received, sent, self.channel)  # type: ignore[no-untyped-call]


def _by_expert(counts_RE: Sequence[Sequence[int]]) -> Iterator[int]:
    """The indices, sorted by expert, of rows that are sorted by process and then by expert."""
    starts = [0, *accumulate(count for counts_E in counts_RE for count in counts_E)]
    experts = len(counts_RE[0])
    for expert in range(experts):
        for rank, counts_E in enumerate(counts_RE):
            start = starts[rank * experts + expert]
            yield from range(start, start + counts_E[expert])


class _AllToAll(torch.autograd.Function):
    """Send `sent[r]` rows to each process r and receive `received[r]` rows; gradients go the opposite way."""

    @staticmethod
    def forward(context: Any, x_PD: Tensor, sent: list[int], received: list[int], channel: Any) -> Tensor:
        context.sent, context.received, context.channel = sent, received, channel
        return _all_to_all(x_PD, sent, received, channel)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return _all_to_all(gradients[0], context.received, context.sent, context.channel), None, None, None


def _all_to_all(x_PD: Tensor, sent: list[int], received: list[int], channel: Any) -> Tensor:
    y_PD = x_PD.new_empty(sum(received), x_PD.shape[1])
    dist.all_to_all_single(y_PD, x_PD.contiguous(), received, sent, group=channel)
    return y_PD
