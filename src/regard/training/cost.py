"""Cost of a training step, a decoding step and a prediction: FLOPs, bytes moved, stored activations, operator calls.

The model runs on the meta device, where tensors have shapes but no data, and every operator is counted as it runs:

- FLOPs by the formulas of torch's FLOP counter: a multiplication and an addition are two, and only matrix products and
  convolutions count, so that the numbers agree with `training/flops.py`;
- bytes moved: what the operator reads plus what it writes. Weights count each time that an operator reads them. This is
  an upper estimate of the traffic to memory, because caches keep some of it. So for every tensor that an operator
  touches, its reuse distance is noted too: how many bytes were moved since it was touched last. With it,
  `training/roofline.py` decides how fast the access is;
- activations: the tensors that autograd keeps for the backward pass, without the weights.

Attention is counted as the fused kernel (Dao et al. 2022): it moves queries, keys, values and outputs, but no matrix of
weights, and its backward pass computes the scores again. FLOPs of causal attention are counted as those of full
attention. Token ids have data, because some models compute other shapes for other tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from regard.decoding.hypothesis import follow_beams
from regard.errors import SettingsError
from regard.models.base import ClassifierModel, Network, Seq2Seq, TaggerModel, count_parameters, example_input
from regard.training.flops import without_data
from regard.training.loss import smoothed_cross_entropy

FIRST_ID = 4  # the ids below are special tokens; HRAN ends an utterance at one of them
PIECES = 6  # characters or subwords of each word of a tagger
ADAM_BYTES = 28  # per weight: reads weight, gradient and two moments, writes weight and moments, 4 bytes each


KINDS = {
    "training": "training step", "decoding": "decoding step", "sentence": "whole sentence", "prediction": "prediction",
}  # fmt: skip


class Touch(NamedTuple):
    """An access of an operator to a tensor."""

    bytes: int
    distance: int | None
    """Bytes moved since the tensor was touched last. None: not touched before in this step."""
    fresh: bool
    """Whether the operator has just allocated the tensor."""


@dataclass(frozen=True)
class OperatorCall:
    """One call of an operator of PyTorch."""

    name: str
    flops: float
    touches: tuple[Touch, ...]
    rows: int = 0
    """The smallest of the three sizes of a matrix product; 0 for other operators. Thin products are slow."""

    @property
    def bytes(self) -> int:
        return sum(touch.bytes for touch in self.touches)


@dataclass(frozen=True)
class StepCost:
    """Cost of one step of a model, e.g. of a training step."""

    kind: str
    """"training", "decoding" (one step), "sentence" (all steps, and the encoder) or "prediction" (a forward pass)."""
    rows: int
    """Number of sentences in the batch."""
    width: int
    """Number of beams."""
    operators: tuple[OperatorCall, ...]
    activations: int
    """Bytes that are kept for the backward pass, without the weights; 0 if there is no backward pass."""
    parameters: int

    @property
    def name(self) -> str:
        beams = f", beam {self.width}" if self.kind in ("decoding", "sentence") else ""
        return f"{KINDS[self.kind]}, batch {self.rows}{beams}"

    @property
    def flops(self) -> float:
        return sum(operator.flops for operator in self.operators)

    @property
    def bytes(self) -> int:
        return sum(operator.bytes for operator in self.operators)

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: FLOPs per byte moved."""
        return self.flops / self.bytes

    def as_dict(self) -> dict[str, Any]:
        """The sums, and the sums of each operator, those that move most bytes first."""
        groups: dict[str, list[OperatorCall]] = defaultdict(list)
        for operator in self.operators:
            groups[operator.name].append(operator)
        rows = [
            {
                "name": name,
                "calls": len(calls),
                "flops": sum(call.flops for call in calls),
                "bytes": sum(call.bytes for call in calls),
            }
            for name, calls in groups.items()
        ]
        return {
            "name": self.name,
            "kind": self.kind,
            "rows": self.rows,
            "width": self.width,
            "flops": self.flops,
            "bytes": self.bytes,
            "intensity": self.intensity,
            "calls": len(self.operators),
            "activations": self.activations,
            "parameters": self.parameters,
            "operators": sorted((row for row in rows if row["bytes"]), key=lambda row: -float(row["bytes"])),  # type: ignore[arg-type]
        }


# ---------------------------------------------------------------------------------------------------------------------
# Steps of a model. The same functions run a model with data, so that a benchmark can measure what is counted here.


def pair_batch(model: Seq2Seq, rows: int, source_length: int, target_length: int) -> tuple[Any, Tensor]:
    """A source and a target without padding, with ids that are in the vocabulary."""
    source, target_BT = example_input("BS", rows, source_length), example_input("BS", rows, target_length).ids_BS
    words = min(module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding))
    spread = 7919  # a prime: neighbors are not neighbors in the table of embeddings
    for ids in (source.ids_BS, target_BT):
        ids.mul_(spread).remainder_(words - FIRST_ID).add_(FIRST_ID)
    return source, target_BT


def run_training(model: Seq2Seq, source: Any, target_BT: Tensor) -> None:
    """Forward and backward pass of a batch without padding, with label smoothing."""
    states_ND = model.hidden(source, target_BT).flatten(0, 1)
    loss = smoothed_cross_entropy(model.output, states_ND, target_BT.flatten().to(states_ND.device), 0.1)
    (loss.smoothed / loss.tokens).backward()  # type: ignore[no-untyped-call]


@dataclass
class DecodingRun:
    """Decoding of a batch with a beam: `width` hypotheses per sentence that share no token except the first."""

    model: Seq2Seq
    source: Any
    width: int

    def start(self) -> None:
        """Encode the source, and prepare the state before the first token."""
        self._memory = self.model.encode(self.source)
        state = self.model.start(self._memory)
        rows = self.source.ids_BS.shape[0]
        device = self.model.output.weight.device
        self._state = follow_beams(state, torch.zeros(rows, self.width, dtype=torch.long, device=device))
        self._token_BW = torch.full((rows, self.width), FIRST_ID)

    def step(self) -> None:
        """Compute the scores of the next token of every hypothesis."""
        _, self._state = self.model.step(self._token_BW, self._state, self._memory)


def count_phases(model: Network, length: int, batch: int) -> list[StepCost]:
    """Costs of a training step of `batch` texts of `length` tokens, and of using the model, for 1 and 32 texts at once.

    A decoding step is counted in the middle of the sentence.
    """
    if not isinstance(model, Seq2Seq):
        training = count_prediction(model, batch, length, gradients=True)
        return [training, *(count_prediction(model, rows, length) for rows in (1, 32))]
    steps = [
        count_decoding_step(model, rows, width, max(length // 2, 1), length) for rows in (1, 32) for width in (1, 5)
    ]
    return [count_training(model, batch, length, length), *steps, count_decoding(model, 1, 5, length, length)]


def count_training(model: Seq2Seq, rows: int, source_length: int, target_length: int) -> StepCost:
    """Count a training step: forward and backward pass of `rows` pairs, and the update of the weights by Adam."""
    empty = without_data(model, gradients=True).train()
    batch = pair_batch(empty, rows, source_length, target_length)
    return _count_training(empty, rows, partial(run_training, empty, *batch))


def count_decoding_step(model: Seq2Seq, rows: int, width: int, position: int, source_length: int) -> StepCost:
    """Count the step that computes the scores at `position` (from 1) for `rows` sentences with `width` beams each.

    The search itself (choosing tokens, reordering beams) is not counted. The hypotheses share no token, so the KV cache
    is as large as it can be.
    """
    run = _decoding_run(model, rows, width, source_length)
    run.start()
    for _ in range(position - 1):
        run.step()
    with _counting(run.model) as ledger:
        run.step()
    return ledger.cost("decoding", rows, width)


def count_decoding(model: Seq2Seq, rows: int, width: int, source_length: int, target_length: int) -> StepCost:
    """Count the decoding of whole sentences: the encoder, and one step per target token."""
    run = _decoding_run(model, rows, width, source_length)
    with _counting(run.model) as ledger:
        run.start()
        for _ in range(target_length):
            run.step()
    return ledger.cost("sentence", rows, width)


def count_prediction(model: Network, rows: int, length: int, *, gradients: bool = False) -> StepCost:
    """Count a forward pass of a model that writes no text, or, with `gradients`, a training step.

    The input has `rows` texts of `length` tokens (taggers: words of six pieces). The loss is counted as the sum of the
    outputs, because labels are few.
    """
    if isinstance(model, Seq2Seq):
        raise SettingsError("this model writes text: count_training and count_decoding count its steps")
    empty = without_data(model, gradients=gradients)
    if isinstance(model, ClassifierModel):
        texts = example_input("BUS", rows, 1, length)
    elif isinstance(model, TaggerModel):
        texts = example_input("BTS", rows, length, PIECES)
    else:
        texts = example_input("BS", rows, length)
    if gradients:
        return _count_training(empty.train(), rows, lambda: empty(texts).sum().backward())
    with _counting(empty) as ledger:
        empty(texts)
    return ledger.cost("prediction", rows)


def _decoding_run(model: Seq2Seq, rows: int, width: int, source_length: int) -> DecodingRun:
    empty = without_data(model)
    return DecodingRun(empty, pair_batch(empty, rows, source_length, 1)[0], width)


def _count_training(empty: Network, rows: int, run: Callable[[], object]) -> StepCost:
    with _counting(empty) as ledger, torch.enable_grad(), ledger.watch_activations():
        run()
    ledger.add("update of the weights (Adam)", 0.0, [], [], other=ADAM_BYTES * count_parameters(empty))
    return ledger.cost("training", rows)


def count_calls(model: nn.Module, run: Callable[[], object], *, gradients: bool) -> int:
    """The number of operators that `run` calls, also on a device with data."""
    with _counting(model) as ledger, torch.set_grad_enabled(gradients):
        run()
    return len(ledger.calls)


@contextmanager
def _counting(model: nn.Module) -> Iterator[Ledger]:
    ledger = Ledger(model)
    counter = FlopCounterMode(display=False)
    counter.flop_registry = _Formulas(counter.flop_registry, ledger)
    with torch.no_grad(), _MetaFunctions(ledger), counter:
        yield ledger


# ---------------------------------------------------------------------------------------------------------------------
# Counting one operator


class Ledger:
    """The operators that were called, with the bytes that each of them read and wrote."""

    def __init__(self, model: nn.Module):
        self.model = model
        self.calls: list[OperatorCall] = []
        self.activations = 0
        self._moved = 0
        self._touched: dict[torch.UntypedStorage, int] = {}  # also keeps the storages alive, so that each is counted once
        self._weights = {tensor.untyped_storage() for tensor in chain(model.parameters(), model.buffers())}
        self._kept: set[torch.UntypedStorage] = set()

    def add(
        self, name: str, flops: float, read: list[Tensor], written: list[Tensor], *, rows: int = 0, other: int = 0
    ) -> None:
        """Note a call that reads and writes whole tensors, and `other` bytes of tensors that are not known."""
        inputs = {tensor.untyped_storage() for tensor in read}
        touches = [self._touch(tensor, fresh=False) for tensor in read]
        touches += [self._touch(tensor, fresh=tensor.untyped_storage() not in inputs) for tensor in written]
        if other:
            touches.append(Touch(other, None, fresh=False))
        self._moved += sum(touch.bytes for touch in touches)
        self.calls.append(OperatorCall(name, flops, tuple(touches), rows))

    def _touch(self, tensor: Tensor, *, fresh: bool) -> Touch:
        storage, known = tensor.untyped_storage(), None
        before = self._touched.get(storage)
        if before is not None:
            known = self._moved - before
        self._touched[storage] = self._moved
        return Touch(footprint(tensor), known, fresh and before is None)

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

    def cost(self, kind: str, rows: int, width: int = 1) -> StepCost:
        return StepCost(kind, rows, width, tuple(self.calls), self.activations, count_parameters(self.model))


def footprint(tensor: Tensor) -> int:
    """Bytes of a tensor; elements that an expanded axis repeats count once."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    count = 1
    for size, stride in sizes:
        count *= 1 if stride == 0 and size > 1 else size
    return count * tensor.element_size()


WRITE_ONLY = ("new_", "empty", "zeros", "ones", "full", "arange", "eye", "fill_", "zero_", "random_", "copy_")
"""Operators, by the start of their name, whose first argument is not read."""
LOOK_UP = ("embedding", "index_select", "gather", "index", "take")
"""Operators that read only as many elements of their first argument as they write."""
PUT = ("scatter_", "scatter_add_", "index_put_", "index_add_", "index_copy_")
"""Operators that change only as many elements of their first argument as their other arguments have."""


class _Formulas(dict[Any, Any]):
    """The table of formulas of torch's FLOP counter, extended to all operators: each call is noted in a ledger."""

    def __init__(self, formulas: dict[Any, Any], ledger: Ledger):
        super().__init__({str(operator): formula for operator, formula in formulas.items()})
        self._ledger = ledger

    def __contains__(self, operator: object) -> bool:
        return True

    def __getitem__(self, operator: Any) -> Callable[..., int]:
        return partial(self._note, str(operator))

    def _note(self, operator: str, *arguments: Any, out_val: Any, **options: Any) -> int:
        formula = self.get(operator.removesuffix("_"))  # addmm_ costs what addmm costs
        flops = formula(*arguments, **options, out_val=out_val) if formula else 0
        goal = options.pop("out", None)
        read, written = _tensors((arguments, options)), _tensors(out_val)
        name = operator.removeprefix("aten.")
        if name == "_to_copy" and read[0].device != written[0].device:  # only on the meta device (`_on_meta`)
            return 0
        if goal is None and not name.endswith("_"):
            inputs = {tensor.untyped_storage() for tensor in read}
            written = [tensor for tensor in written if tensor.untyped_storage() not in inputs]
            if not written:  # a view
                read = []
        if name.startswith(("empty", "new_empty")):
            read, written = [], []
        elif name in LOOK_UP:
            read = [*read[1:], *written]
        elif name in PUT:
            read, written = [*read[1:], read[-1]], read[-1:]
        elif name.startswith(WRITE_ONLY) or name.endswith("_like"):
            read = read[1:]
        rows = min(*read[-2].shape[-2:], *read[-1].shape[-2:]) if flops and len(read) > 1 else 0
        self._ledger.add(name, float(flops), read, written, rows=rows)
        return int(flops)


def _tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [tensor for branch in tree for tensor in _tensors(branch)] if isinstance(tree, tuple | list) else []


def _on_meta(tree: Any) -> Any:
    """The tree of arguments with all tensors on the meta device; tensors without axes may stay where they are."""
    if isinstance(tree, Tensor):
        return tree.to("meta") if tree.dim() else tree
    if isinstance(tree, tuple | list):
        return type(tree)(map(_on_meta, tree))
    return {key: _on_meta(branch) for key, branch in tree.items()} if isinstance(tree, dict) else tree


def _is_mask(index: Any) -> bool:
    return isinstance(index, Tensor) and index.dtype == torch.bool


class _MetaFunctions(TorchFunctionMode):
    """Adapts functions to the meta device: attention is counted as one fused kernel, of which the device has none; and
    a function that gets weights gets its ids and masks on the same device, as the backward pass requires."""

    def __init__(self, ledger: Ledger):
        super().__init__()
        self._ledger = ledger

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        options = options or {}
        if function is not F.scaled_dot_product_attention:
            devices = {tensor.device.type for tensor in _tensors((arguments, options)) if tensor.dim()}
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
