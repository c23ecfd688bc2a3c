"""The training device: CPU or GPU, mixed precision, speed and memory; DDP and FSDP; gradient clipping.

One process trains the model as it is. Several processes have a copy of the model each and average the gradients (DDP),
or have a shard of every tensor each and gather them layer by layer (FSDP2). Experts may be divided among the processes
(`training/expert_parallel.py`). The training loop is the same for all.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from regard.config import TrainSettings
from regard.errors import SettingsError, TrainingError
from regard.layers.attention import CrossAttention, SelfAttention
from regard.layers.auxiliary import collect_auxiliary, token_total
from regard.layers.experts import MixtureOfExperts
from regard.models.base import Network
from regard.system import free_memory, usable_cores
from regard.training.distributed import ProcessGroup
from regard.training.loss import Loss

LossFunction = Callable[[Any, Any], Loss]
AnyTensor = TypeVar("AnyTensor", bound=Tensor)


def product_type(settings: TrainSettings, device: torch.device) -> torch.dtype:
    """The data type of matrix products, from `train.precision`; weights, norms, softmax and sums are always float32.

    "auto" means bfloat16 on GPUs that support it, else float32. On a CPU, the plan measures which type is faster.
    """
    low = settings.precision == "bfloat16"
    if settings.precision == "auto":
        low = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if low else torch.float32


def autocast(settings: TrainSettings, device: torch.device) -> AbstractContextManager[Any]:
    """A context in which matrix products are computed in the data type that `product_type` returns."""
    kind = product_type(settings, device)
    return nullcontext() if kind == torch.float32 else torch.autocast(device.type, kind)


def choose_device(settings: TrainSettings, local_rank: int) -> torch.device:
    """The device of this process, from `train.device`: the CPU, an Apple GPU, or the CUDA GPU of index `local_rank`."""
    if settings.device == "mps":
        if not torch.backends.mps.is_available():
            raise SettingsError('train.device = "mps", but PyTorch finds no Apple GPU here; set it to "auto" or "cpu"')
        return torch.device("mps")
    if settings.device == "cpu" or (settings.device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    found = torch.cuda.device_count()
    if not found:
        raise SettingsError('train.device = "cuda", but PyTorch finds no GPU here; set it to "auto" or "cpu"')
    if local_rank >= found:
        raise SettingsError(f"more processes than GPUs on this machine; start torchrun with --nproc-per-node {found}")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


class LossModule(nn.Module):
    """Combines a model and its loss function: `forward(batch)` returns the loss. DDP and FSDP need such a module.

    The losses that layers add, such as the balance losses of experts, count once per target token.
    """

    def __init__(self, model: Network, loss: LossFunction, settings: TrainSettings, device: torch.device):
        super().__init__()
        self.model, self.loss = model, loss
        self.settings, self.device = settings, device

    def forward(self, batch: Any) -> Loss:
        if self.device.type != "cpu":
            batch = batch.to(self.device)
        with autocast(self.settings, self.device), collect_auxiliary() as added:
            loss = self.loss(self.model, batch)
        if not added.losses:
            return loss
        total = torch.stack(added.losses).sum() * token_total(loss.tokens, self.device)
        return loss._replace(smoothed=loss.smoothed + total, statistics=added.statistics)


@dataclass
class ParallelModel:
    """A model prepared by `parallelize`, and its loss. The gradients are averaged over the processes."""

    model: Network
    loss: Callable[[Any], Loss]
    summing: Callable[[bool], AbstractContextManager[None]]
    """`summing(last)` is the context of the backward pass of one batch; gradients of the batches of a step are summed.

    `last` is True for the last batch of a step: only then do the processes exchange gradients.
    """
    whole: Network | None = None
    """If the model is sharded: a copy that is not sharded, for validation."""

    def zero_key_bias_gradients(self) -> None:
        """Set the gradients of key biases to zero: they are only rounding errors, as softmax cancels these biases."""
        for bias, mask in self._key_biases:
            if bias.grad is not None:
                bias.grad.mul_(mask)

    @cached_property
    def _key_biases(self) -> list[tuple[Tensor, Tensor]]:
        return [(bias, scatter(mask, bias)) for bias, mask in key_biases(self.model)]


def parallelize(model: Network, loss: LossFunction, settings: TrainSettings, group: ProcessGroup) -> ParallelModel:
    """Prepare a model for DDP, FSDP2 (`train.fsdp`), or a single process. All processes must pass the same model.

    With `train.expert_parallel`, DDP has copies of all weights but those of the experts, which are divided.
    """
    module = LossModule(model, loss, settings, next(model.parameters()).device)
    if group.size == 1:
        return ParallelModel(model, module, lambda last: nullcontext())
    if settings.fsdp:
        return _shard(model, module)
    from torch.nn.parallel import DistributedDataParallel

    whole = None
    if settings.expert_parallel:
        from regard.training.expert_parallel import divide_experts

        whole = copy.deepcopy(model).cpu().eval()
        divided = [f"model.{name}" for name in divide_experts(model, group)]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, divided)
    with warnings.catch_warnings():  # newer versions of torch have another name for the option
        warnings.simplefilter("ignore", FutureWarning)
        copies = DistributedDataParallel(module, broadcast_buffers=False, gradient_as_bucket_view=True)
    return ParallelModel(model, copies, lambda last: nullcontext() if last else copies.no_sync(), whole)


def _shard(model: Network, module: LossModule) -> ParallelModel:
    """Shard `model`, and `module`, which contains it, by FSDP2.

    Attention and feed-forward layers are gathered one by one, all other layers together.
    """
    from torch.distributed.fsdp import fully_shard

    from regard.models.transformer import FeedForward

    # The warning is about changing a layer's output in place, which no layer here does.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    whole = copy.deepcopy(model).cpu().eval()
    for part in list(model.modules()):
        if isinstance(part, CrossAttention):
            fully_shard(part.key_value)  # its `forward` is called separately, once per source
        if isinstance(part, SelfAttention | CrossAttention | FeedForward | MixtureOfExperts):
            fully_shard(part)
    sharded = fully_shard(module)

    @contextmanager
    def summing(last: bool) -> Iterator[None]:
        sharded.set_requires_gradient_sync(last)
        yield

    return ParallelModel(model, module, summing, whole)


def key_biases(model: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each bias vector that contains the bias of the keys, and a mask that is 0 for the keys and 1 elsewhere.

    These are the biases of the key-value projection in cross-attention, and of the query-key-value projection in
    self-attention without rotary encoding. The bias of the keys adds the same number to all scores of a query, which
    softmax cancels. So its gradient is zero, except for rounding errors, which Adam would scale up to full steps that
    depend on the number of processes.
    """
    for part in model.modules():
        if isinstance(part, SelfAttention) and part.rotary is None:
            bias, parts, keys = part.qkv.bias, 3, 1
        elif isinstance(part, CrossAttention):
            bias, parts, keys = part.key_value.bias, 2, 0
        else:
            continue
        mask = torch.ones(bias.shape)
        mask.chunk(parts)[keys].zero_()
        yield bias, mask


def gather(tensor: Tensor) -> Tensor:
    """The whole tensor if `tensor` is sharded, else `tensor` itself. Every process of the group must call this."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def scatter(whole: Tensor, like: Tensor) -> Tensor:
    """Copy `whole` to the device of `like`, sharded if `like` is sharded. Every process must pass the same `whole`."""
    if not is_sharded(like):
        return whole.to(like.device)
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(whole.to(like.device), like.device_mesh, like.placements)


def clip_gradients(model: Network, limit: float) -> float:
    """Scale all gradients so that their joint L2 norm is at most `limit` (0: no limit); return the norm before.

    Sparse gradients are coalesced: each row occurs once.
    """
    parts = by_sharding(parameter for parameter in model.parameters() if parameter.grad is not None) or [[]]
    norms = [
        gather(torch.nn.utils.get_total_norm([_gradient_values(parameter) for parameter in part])) for part in parts
    ]
    norm = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
    if limit:
        for part in parts:
            torch.nn.utils.clip_grads_with_norm_(part, limit, norm, foreach=False if _has_sparse(part) else None)
    return float(norm)


def _gradient_values(parameter: Tensor) -> Tensor:
    """The gradient of a parameter. Of a sparse gradient, the values: first, rows that occur several times are added."""
    assert parameter.grad is not None
    if parameter.grad.is_sparse:
        parameter.grad = parameter.grad.coalesce()
        return parameter.grad.values()
    return parameter.grad


def _has_sparse(parameters: Iterable[Tensor]) -> bool:
    return any(parameter.grad is not None and parameter.grad.is_sparse for parameter in parameters)


def by_sharding(tensors: Iterable[AnyTensor]) -> list[list[AnyTensor]]:
    """Divide tensors into those that are not sharded and those that are, which one operation cannot mix.

    Empty parts are left out.
    """
    parts: tuple[list[AnyTensor], list[AnyTensor]] = ([], [])
    for tensor in tensors:
        parts[is_sharded(tensor)].append(tensor)
    return [part for part in parts if part]


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is sharded, that is, a DTensor (tested without importing DTensor, which takes a second)."""
    return hasattr(tensor, "full_tensor")


@dataclass(frozen=True)
class Machine:
    """Speed and free memory of a machine, from which the plan chooses settings and estimates the training time."""

    device: str
    """"cpu" or the name of the GPU."""
    cores: int
    memory: float
    """Free memory of the GPU, or of the machine, in bytes."""
    peak: float
    """Operations per second of a large matrix product in float32."""
    bfloat16_speedup: float = 1.0
    """Speed of the same product in bfloat16, divided by `peak`."""


def measure_machine(device: str = "auto") -> Machine:
    """Measure speed and free memory of this machine; `device`: a value of the setting `train.device`."""
    if device != "cpu" and torch.cuda.is_available():
        free, _ = torch.cuda.mem_get_info()
        return Machine(torch.cuda.get_device_name(), usable_cores(), float(free), matmul_peak("cuda"))
    peak = matmul_peak()
    return Machine("cpu", usable_cores(), free_memory(), peak, matmul_peak(kind=torch.bfloat16) / peak)


@cache
def matmul_peak(device: str = "cpu", kind: torch.dtype = torch.float32) -> float:
    """Floating-point operations per second of a large matrix product on `device`, with the data type `kind`."""
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


def check_memory(model: Network, loss: LossFunction, largest: Any, settings: TrainSettings) -> None:
    """Before training, compute the gradients of the largest batch; raise TrainingError if memory is not sufficient."""
    device = choose_device(settings, 0)
    model.to(device).train()
    try:
        LossModule(model, loss, settings, device)(largest).smoothed.backward()
    except RuntimeError as error:  # the error of a GPU has its own type, the error of a CPU only a text
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        batches = 2 * settings.gradient_accumulation
        halves = f"train.batch_tokens={settings.batch_tokens // 2} --set train.gradient_accumulation={batches}"
        raise TrainingError(
            f"out of memory with {settings.batch_tokens:,} tokens per batch; use smaller batches: --set {halves}"
        ) from None
    finally:
        model.zero_grad(set_to_none=True)
