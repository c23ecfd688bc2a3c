"""Where a model is trained, and how it lies on the processes of a team.

One process has the model as it is. Several have copies that sum their gradients (DDP), or a shard each of every tensor,
put together layer by layer when it is needed (FSDP2). The loop sees a `Layout` and need not know which.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import Train
from regard.errors import SettingsError
from regard.layers.attention import CrossAttention, SelfAttention
from regard.models.base import Network
from regard.models.transformer import FeedForward
from regard.training.distributed import Team
from regard.training.loss import Loss
from regard.training.precision import autocast

LossFunction = Callable[[Any, Any], Loss]


def choose_device(settings: Train, local_rank: int) -> torch.device:
    """The GPU of this process, or the CPU."""
    if settings.device == "mps":
        if not torch.backends.mps.is_available():
            raise SettingsError('train.device = "mps", but PyTorch finds no such GPU here; set it to "auto" or "cpu"')
        return torch.device("mps")
    if settings.device == "cpu" or (settings.device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    found = torch.cuda.device_count()
    if not found:
        raise SettingsError('train.device = "cuda", but PyTorch finds no GPU here; set it to "auto" or "cpu"')
    if local_rank >= found:
        raise SettingsError(f"{found} GPUs for more processes; start torchrun with --nproc-per-node {found}")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


class LossOf(nn.Module):
    """The loss as the `forward` of a module: DDP and FSDP hang on to that."""

    def __init__(self, model: Network, loss: LossFunction, settings: Train, device: torch.device):
        super().__init__()
        self.model, self.loss = model, loss
        self.settings, self.device = settings, device

    def forward(self, batch: Any) -> Loss:
        """Of one batch."""
        if self.device.type != "cpu":
            batch = batch.to(self.device)
        with autocast(self.settings, self.device):
            return self.loss(self.model, batch)


@dataclass
class Layout:
    """How a model lies on the processes. Gradients are means over the processes, as DDP and FSDP make them."""

    model: Network
    loss: Callable[[Any], Loss]
    summing: Callable[[bool], AbstractContextManager[None]]
    """To compute a batch in: shall the processes sum their gradients after it (the last of an update), or not yet?"""
    whole: Network | None = None
    """Where the model is sharded: a whole one beside it, for validation."""

    def quieten(self) -> None:
        """Take out of the gradients what is nothing but rounding (see `key_biases`)."""
        for bias, heard in self._quiet:
            if bias.grad is not None:
                bias.grad.mul_(heard)

    @cached_property
    def _quiet(self) -> list[tuple[Tensor, Tensor]]:
        return [(bias, scatter(heard, bias)) for bias, heard in key_biases(self.model)]


def lay_out(model: Network, loss: LossFunction, settings: Train, team: Team) -> Layout:
    """Lay out a model on the team whose processes all have it."""
    module = LossOf(model, loss, settings, next(model.parameters()).device)
    if team.size == 1:
        return Layout(model, module, lambda last: nullcontext())
    if settings.shard:
        return _shard(model, module)
    from torch.nn.parallel import DistributedDataParallel

    with warnings.catch_warnings():  # newer versions call the option by another name, which older ones do not know
        warnings.simplefilter("ignore", FutureWarning)
        copies = DistributedDataParallel(module, broadcast_buffers=False, gradient_as_bucket_view=True)
    return Layout(model, copies, lambda last: nullcontext() if last else copies.no_sync())


def _shard(model: Network, module: LossOf) -> Layout:
    """Attention and feed-forward layers are gathered one at a time, all else (of a recurrent model: all) at once."""
    from torch.distributed.fsdp import fully_shard

    # It is about changing a layer's output in place, which no layer here does.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    whole = copy.deepcopy(model).cpu().eval()
    for part in list(model.modules()):
        if isinstance(part, CrossAttention):
            fully_shard(part.memory)  # is used apart from the rest: once, when the source has been read
        if isinstance(part, SelfAttention | CrossAttention | FeedForward):
            fully_shard(part)
    sharded = fully_shard(module)

    @contextmanager
    def summing(last: bool) -> Iterator[None]:
        sharded.set_requires_gradient_sync(last)
        yield

    return Layout(model, module, summing, whole)


def key_biases(model: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """The biases that hold those of keys, each with a mask that is 0 there and 1 elsewhere.

    A bias of the keys adds the same to all scores of a query, and softmax takes it back. Its gradient is zero but for
    rounding, which Adam would turn into steps of full size: other ones for every number of processes.
    """
    for part in model.modules():
        if isinstance(part, SelfAttention) and part.rotary is None:
            bias, parts, keys = part.inward.bias, 3, 1
        elif isinstance(part, CrossAttention):
            bias, parts, keys = part.memory.bias, 2, 0
        else:
            continue
        heard = torch.ones(bias.shape)
        heard.chunk(parts)[keys].zero_()
        yield bias, heard


def gather(tensor: Tensor) -> Tensor:
    """All of a tensor that may be sharded. Every process of the team must ask for it."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def scatter(whole: Tensor, like: Tensor) -> Tensor:
    """A tensor that every process has, laid out like another."""
    if not is_sharded(like):
        return whole.to(like.device)
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(whole.to(like.device), like.device_mesh, like.placements)


def is_sharded(tensor: Tensor) -> bool:
    """Told by its method: importing the class takes a second, which one process need not wait for."""
    return hasattr(tensor, "full_tensor")
