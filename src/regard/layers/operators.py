"""Watch the operators that PyTorch runs: their names, tensors and FLOPs, and how many must run one after another.

`watch_operators` reports every operator that the dispatcher of PyTorch calls within a `with` block, in the forward and
in the backward pass, also on the meta device. FLOPs are those of torch's FLOP counter: a multiplication and an addition
are two, and only matrix products and convolutions count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


class Operator(NamedTuple):
    """One call of an operator, e.g. of "mm"; a name that ends in "_" changes its first argument in place."""

    name: str
    flops: float
    read: list[Tensor]
    """The tensors among the arguments, without the tensor of the argument `out`."""
    written: list[Tensor]
    """The tensors that the operator returns, without views of its arguments."""


@contextmanager
def watch_operators(note: Callable[[Operator], None]) -> Iterator[None]:
    """Within the `with` block, call `note` after each operator."""
    counter = FlopCounterMode(display=False)
    counter.flop_registry = _Formulas(counter.flop_registry, note)
    with counter:
        yield


class _Formulas(dict[Any, Any]):
    """The table of formulas of torch's FLOP counter, extended to all operators: each call is reported."""

    def __init__(self, formulas: dict[Any, Any], note: Callable[[Operator], None]):
        super().__init__({str(operator): formula for operator, formula in formulas.items()})
        self._note = note

    def __contains__(self, operator: object) -> bool:
        return True

    def __getitem__(self, operator: Any) -> Callable[..., int]:
        return partial(self._report, str(operator))

    def _report(self, operator: str, *arguments: Any, out_val: Any, **options: Any) -> int:
        formula = self.get(operator.removesuffix("_"))  # addmm_ costs what addmm costs
        flops = formula(*arguments, **options, out_val=out_val) if formula else 0
        goal = options.pop("out", None)
        read, written = tensors_in((arguments, options)), tensors_in(out_val)
        name = operator.removeprefix("aten.")
        if goal is None and not name.endswith("_"):
            inputs = {tensor.untyped_storage() for tensor in read}
            written = [tensor for tensor in written if tensor.untyped_storage() not in inputs]
        self._note(Operator(name, float(flops), read, written))
        return int(flops)


def tensors_in(tree: Any) -> list[Tensor]:
    """All tensors in nested tuples, lists and dictionaries."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [tensor for branch in tree for tensor in tensors_in(branch)] if isinstance(tree, tuple | list) else []


class OperationCount(NamedTuple):
    """The result of `count_operations`."""

    flops: float
    sequential: int
    """The longest chain of operators of which each needs the result of the one before."""


def count_operations(run: Callable[[], object]) -> OperationCount:
    """Count FLOPs and sequential operators of `run`, without gradients. Attention computes explicit weights."""
    flops = 0.0
    depth: dict[torch.UntypedStorage, int] = {}  # the number of operators before the data of a storage is known

    def note(operator: Operator) -> None:
        nonlocal flops
        flops += operator.flops
        before = max((depth.get(tensor.untyped_storage(), 0) for tensor in operator.read), default=0)
        for tensor in operator.written:  # none if the result is a view
            depth[tensor.untyped_storage()] = before + bool(operator.read)

    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), watch_operators(note):  # FLOPs of fused kernels are unknown
        run()
    return OperationCount(flops, max(depth.values(), default=0))
