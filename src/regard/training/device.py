"""Where a model is trained, and how it lies on the processes of a group.

One process has the model as it is. Several have copies that sum their gradients (DDP), or a shard each of every tensor,
put together layer by layer when it is needed (FSDP2). The loop sees a `Layout` and need not know which.
"""

from __future__ import annotations

import copy
import functools
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard.config import TrainSettings
from regard.errors import SettingsError, TrainingError
from regard.layers.attention import CrossAttention, SelfAttention
from regard.models.base import Network
from regard.models.transformer import FeedForward
from regard.system import free_memory, usable_cores
from regard.training.distributed import ProcessGroup
from regard.training.loss import Loss

# In which precision matrices are multiplied; weights, norms, softmax and sums stay in float32.
#
# A GPU multiplies in bfloat16 several times as fast. Of CPUs some do, with instructions of their own, and some take
# many
# times as long, so it is measured there.


def product_type(settings: TrainSettings, device: torch.device) -> torch.dtype:
    """What was asked for; "auto" asks the device."""
    low = settings.precision == "bfloat16"
    if settings.precision == "auto":
        low = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if low else torch.float32


def autocast(settings: TrainSettings, device: torch.device) -> AbstractContextManager[Any]:
    """Inside, matrix products have that type."""
    kind = product_type(settings, device)
    return nullcontext() if kind == torch.float32 else torch.autocast(device.type, kind)


LossFunction = Callable[[Any, Any], Loss]


def choose_device(settings: TrainSettings, local_rank: int) -> torch.device:
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


class LossModule(nn.Module):
    """The loss as the `forward` of a module: DDP and FSDP hang on to that."""

    def __init__(self, model: Network, loss: LossFunction, settings: TrainSettings, device: torch.device):
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
class ParallelModel:
    """How a model lies on the processes. Gradients are means over the processes, as DDP and FSDP make them."""

    model: Network
    loss: Callable[[Any], Loss]
    summing: Callable[[bool], AbstractContextManager[None]]
    """To compute a batch in: shall the processes sum their gradients after it (the last of an update), or not yet?"""
    whole: Network | None = None
    """Where the model is sharded: a whole one beside it, for validation."""

    def zero_key_bias_gradients(self) -> None:
        """Take out of the gradients what is nothing but rounding (see `key_biases`)."""
        for bias, heard in self._quiet:
            if bias.grad is not None:
                bias.grad.mul_(heard)

    @cached_property
    def _quiet(self) -> list[tuple[Tensor, Tensor]]:
        return [(bias, scatter(heard, bias)) for bias, heard in key_biases(self.model)]


def parallelize(model: Network, loss: LossFunction, settings: TrainSettings, group: ProcessGroup) -> ParallelModel:
    """Lay out a model on the group whose processes all have it."""
    module = LossModule(model, loss, settings, next(model.parameters()).device)
    if group.size == 1:
        return ParallelModel(model, module, lambda last: nullcontext())
    if settings.fsdp:
        return _shard(model, module)
    from torch.nn.parallel import DistributedDataParallel

    with warnings.catch_warnings():  # newer versions call the option by another name, which older ones do not know
        warnings.simplefilter("ignore", FutureWarning)
        copies = DistributedDataParallel(module, broadcast_buffers=False, gradient_as_bucket_view=True)
    return ParallelModel(model, copies, lambda last: nullcontext() if last else copies.no_sync())


def _shard(model: Network, module: LossModule) -> ParallelModel:
    """Attention and feed-forward layers are gathered one at a time, all else (of a recurrent model: all) at once."""
    from torch.distributed.fsdp import fully_shard

    # It is about changing a layer's output in place, which no layer here does.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    whole = copy.deepcopy(model).cpu().eval()
    for part in list(model.modules()):
        if isinstance(part, CrossAttention):
            fully_shard(part.key_value)  # is used apart from the rest: once, when the source has been read
        if isinstance(part, SelfAttention | CrossAttention | FeedForward):
            fully_shard(part)
    sharded = fully_shard(module)

    @contextmanager
    def summing(last: bool) -> Iterator[None]:
        sharded.set_requires_gradient_sync(last)
        yield

    return ParallelModel(model, module, summing, whole)


def key_biases(model: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """The biases that hold those of keys, each with a mask that is 0 there and 1 elsewhere.

    A bias of the keys adds the same to all scores of a query, and softmax takes it back. Its gradient is zero but for
    rounding, which Adam would turn into steps of full size: other ones for every number of processes.
    """
    for part in model.modules():
        if isinstance(part, SelfAttention) and part.rotary is None:
            bias, parts, keys = part.qkv.bias, 3, 1
        elif isinstance(part, CrossAttention):
            bias, parts, keys = part.key_value.bias, 2, 0
        else:
            continue
        heard = torch.ones(bias.shape)
        heard.chunk(parts)[keys].zero_()
        yield bias, heard


def gather(tensor: Tensor) -> Tensor:
    """All of a tensor that may be sharded. Every process of the group must ask for it."""
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


# The machine: how much memory and arithmetic it has.


@dataclass(frozen=True)
class Machine:
    """What the plan knows of the machine."""

    device: str
    """"cpu" or the name of the GPU."""
    cores: int
    memory: float
    """Bytes that are free: of the GPU, or else of the machine."""
    peak: float
    """Operations a second of a large matrix product."""
    bfloat16_speedup: float = 1.0
    """How many times as fast that is in bfloat16."""


def measure_machine(device: str = "auto") -> Machine:
    """The machine that this runs on, as it is now; `device` as `train.device` says it."""
    if device != "cpu" and torch.cuda.is_available():
        free, _ = torch.cuda.mem_get_info()
        return Machine(torch.cuda.get_device_name(), usable_cores(), float(free), matmul_peak("cuda"))
    peak = matmul_peak()
    return Machine("cpu", usable_cores(), free_memory(), peak, matmul_peak(kind=torch.bfloat16) / peak)


@functools.cache
def matmul_peak(device: str = "cpu", kind: torch.dtype = torch.float32) -> float:
    """Multiplications and additions a second that a large matrix product reaches here, measured in 0.3 s."""
    size = 1024
    a, b = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
    best, until = float("inf"), time.perf_counter() + 0.3
    while time.perf_counter() < until:
        start = time.perf_counter()
        torch.mm(a, b)
        if device != "cpu":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


# The largest batch first: if memory runs out, it does so before the first update and not after an hour.


class MemoryCheckUnit(Protocol):
    """What a rehearsal must know of a task."""

    def largest(self) -> Any:
        """The batch that takes the most memory."""

    def loss(self, model: Any, batch: Any) -> Loss:
        """Sum of the loss over the batch."""


def check_memory(model: Network, task: MemoryCheckUnit, settings: TrainSettings) -> None:
    """Forward and backward on the largest batch; weights and gradients are left as they were."""
    device = choose_device(settings, 0)
    batch = task.largest()
    model.to(device).train()
    try:
        LossModule(model, task.loss, settings, device)(batch).smoothed.backward()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        batches = 2 * settings.gradient_accumulation
        halves = f"train.batch_tokens={settings.batch_tokens // 2} --set train.gradient_accumulation={batches}"
        raise TrainingError(
            f"out of memory with {settings.batch_tokens:,} tokens in a batch; the same in halves: --set {halves}"
        ) from None
    finally:
        model.zero_grad(set_to_none=True)


def is_out_of_memory(error: RuntimeError) -> bool:
    """The GPU's error has a type, the CPU's only a text."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
