"""A ledger of the operators that a model runs: the FLOPs of each call, and each access to a tensor, in bytes.

`training/cost.py` runs a model on the meta device with a ledger. Attention is noted as one fused kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from regard.layers.operators import Operator, tensors_in, watch_operators


class Touch(NamedTuple):
    """An access of an operator to a tensor."""

    bytes: int
    distance: int | None
    """Bytes moved since the tensor was touched last. None: not touched before in this step."""
    fresh: bool
    """Whether the operator has just allocated the tensor, and autograd does not keep it for the backward pass."""


class OperatorCall(NamedTuple):
    """One call of an operator of PyTorch."""

    name: str
    flops: float
    touches: tuple[Touch, ...]
    rows: int = 0
    """The smallest of the three sizes of a matrix product; 0 for other operators. Thin products are slow."""

    @property
    def bytes(self) -> int:
        return sum(touch.bytes for touch in self.touches)


def footprint(tensor: Tensor) -> int:
    """Bytes of a tensor; elements that an expanded axis repeats count once."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    count = 1
    for size, stride in sizes:
        count *= 1 if stride == 0 and size > 1 else size
    return count * tensor.element_size()


WRITE_ONLY = ("new_", "empty", "zeros", "ones", "full", "arange", "eye", "fill_", "zero_", "random_", "copy_")
"""Operators whose first argument is not read, given by the start of their names."""
LOOK_UP = ("embedding", "index_select", "gather", "index", "take")
"""Operators that read only as many elements of their first argument as they write."""
PUT = ("scatter_", "scatter_add_", "index_put_", "index_add_", "index_copy_")
"""Operators that change only as many elements of their first argument as their other arguments have."""


class Ledger:
    """The operators that were called, with the bytes that each of them read and wrote."""

    def __init__(self, model: nn.Module):
        self.activations = 0
        self._calls: list[tuple[OperatorCall, list[torch.UntypedStorage]]] = []
        self._moved = 0
        # For each storage, bytes moved before its last touch. As a key it stays alive: no new storage is taken for it.
        self._touched: dict[torch.UntypedStorage, int] = {}
        self._weights = {tensor.untyped_storage() for tensor in chain(model.parameters(), model.buffers())}
        self._kept: set[torch.UntypedStorage] = set()

    def note(self, operator: Operator) -> None:
        """Note a call: which of its tensors are read or written, and how much of them."""
        name, flops, read, written = operator
        if name == "_to_copy" and written and read[0].device != written[0].device:  # see `_on_meta`
            return
        if not written or name.startswith(("empty", "new_empty")):  # a view, or memory that nobody has written to yet
            read, written = [], []
        elif name in LOOK_UP:
            read = [*read[1:], *written]
        elif name in PUT:
            read, written = [*read[1:], read[-1]], read[-1:]
        elif name.startswith(WRITE_ONLY) or name.endswith("_like"):
            read = read[1:]
        rows = min(*read[-2].shape[-2:], *read[-1].shape[-2:]) if flops and len(read) > 1 else 0
        self.add(name, flops, read, written, rows=rows)

    def add(self, name: str, flops: float, read: list[Tensor], written: list[Tensor], *, rows: int = 0) -> None:
        """Add a call that reads and writes whole tensors."""
        inputs = {tensor.untyped_storage() for tensor in read}
        touches = [self._touch(tensor, fresh=False) for tensor in read]
        touches += [self._touch(tensor, fresh=tensor.untyped_storage() not in inputs) for tensor in written]
        self._moved += sum(touch.bytes for touch in touches)
        storages = [tensor.untyped_storage() for tensor in (*read, *written)]
        self._calls.append((OperatorCall(name, flops, tuple(touches), rows), storages))

    def _touch(self, tensor: Tensor, *, fresh: bool) -> Touch:
        storage = tensor.untyped_storage()
        before = self._touched.get(storage)
        self._touched[storage] = self._moved
        return Touch(footprint(tensor), None if before is None else self._moved - before, fresh and before is None)

    @contextmanager
    def watch_activations(self) -> Iterator[None]:
        """Within the `with` block, sum the sizes of the tensors that autograd keeps for the backward pass."""

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage not in self._kept and storage not in self._weights:
                self._kept.add(storage)
                self.activations += storage.nbytes()
            return tensor

        with saved_tensors_hooks(keep, lambda tensor: tensor):
            yield

    def calls(self) -> tuple[OperatorCall, ...]:
        """All calls, in order. A tensor that autograd keeps is not `fresh`: its memory was last used one step ago."""
        return tuple(
            call._replace(
                touches=tuple(
                    touch._replace(fresh=touch.fresh and storage not in self._kept)
                    for touch, storage in zip(call.touches, storages, strict=True)
                )
            )
            for call, storages in self._calls
        )


@contextmanager
def keep_ledger(model: nn.Module) -> Iterator[Ledger]:
    """Yield a ledger that notes the operators of the `with` block. Gradients are off, unless the block enables them."""
    ledger = Ledger(model)
    with torch.no_grad(), _MetaFunctions(ledger), watch_operators(ledger.note):
        yield ledger


def count_calls(model: nn.Module, run: Callable[[], object], *, gradients: bool) -> int:
    """The number of operators that `run` calls; `model` need not be on the meta device."""
    with keep_ledger(model) as ledger, torch.set_grad_enabled(gradients):
        run()
    return len(ledger.calls())


def _on_meta(tree: Any) -> Any:
    """Nested arguments with their tensors moved to the meta device, except tensors without axes."""
    if isinstance(tree, Tensor):
        return tree.to("meta") if tree.dim() else tree
    if isinstance(tree, tuple | list):
        return type(tree)(map(_on_meta, tree))
    return {key: _on_meta(branch) for key, branch in tree.items()} if isinstance(tree, dict) else tree


def _is_mask(index: Any) -> bool:
    return isinstance(index, Tensor) and index.dtype == torch.bool


class _MetaFunctions(TorchFunctionMode):
    """Adapts functions to the meta device. Attention is counted as one fused kernel, which this device does not have.

    If a function gets tensors on several devices, e.g. weights and token ids, all are moved to the meta device.
    """

    def __init__(self, ledger: Ledger):
        super().__init__()
        self._ledger = ledger

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        options = options or {}
        if function is not F.scaled_dot_product_attention:
            devices = {tensor.device.type for tensor in tensors_in((arguments, options)) if tensor.dim()}
            if function in (Tensor.__getitem__, Tensor.__setitem__) and _is_mask(arguments[1]):
                x, mask, *value = arguments  # the shape depends on the mask
                arguments = x, mask.nonzero(as_tuple=True), *value
            if len(devices) > 1:
                arguments, options = _on_meta(arguments), _on_meta(options)
            return function(*arguments, **options)
        query, key, value = arguments
        return _CountedAttention.apply(query, key, value, options.get("attn_mask"), self._ledger)  # type: ignore[no-untyped-call]


class _CountedAttention(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, ledger: Ledger) -> Tensor:
        output = query.new_empty(*query.shape[:-1], value.shape[-1])
        normalizer = query.new_empty(query.shape[:-1])
        context.save_for_backward(query, key, value, mask, output, normalizer)
        context.ledger = ledger
        read = [query, key, value] if mask is None else [query, key, value, mask]
        flops, rows = _score_flops(query, key) + _score_flops(output, key), min(*query.shape[-2:], key.shape[-2])
        ledger.add("attention", flops, read, [output, normalizer], rows=rows)
        return output

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, mask, output, normalizer = context.saved_tensors
        written = [torch.empty_like(tensor) for tensor in (query, key, value)]
        read = [gradients[0], query, key, value, output, normalizer, *([] if mask is None else [mask])]
        # Scores again, gradients of query and key; gradients of weights and value.
        flops = 3 * _score_flops(query, key) + 2 * _score_flops(output, key)
        context.ledger.add("attention, backward", flops, read, written, rows=min(*query.shape[-2:], key.shape[-2]))
        return *written, None, None


def _score_flops(query: Tensor, key: Tensor) -> float:
    """FLOPs of the product of queries [..., T, K] with keys [..., S, *]."""
    return 2.0 * query.numel() * key.shape[-2]
