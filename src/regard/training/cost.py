"""Cost of a training step, a decoding step and a prediction: FLOPs, bytes moved, stored activations, operator calls.

The model runs on the meta device, where tensors have shapes but no data, and every operator is counted as it runs:

- FLOPs by the formulas of torch's FLOP counter: a multiplication and an addition are two, and only matrix products and
  convolutions count, so that the numbers agree with `training/flops.py`;
- bytes moved: what the operator reads plus what it writes. Weights count each time that an operator reads them. This is
  an upper estimate of the traffic to memory, because caches keep some of it. So for every tensor that an operator
  touches, its reuse distance is noted too: how many bytes were moved since it was touched last. With it,
  `training/roofline.py` decides how fast the access is;
- activations: the tensors that autograd keeps for the backward pass, without the weights.

Attention is counted as the fused kernel (Dao et al. 2022): it moves queries, keys, values and outputs, but no attention
weights, and its backward pass computes the scores again. FLOPs of causal attention are counted as those of full
attention. Token ids have data, because some models compute other shapes for other tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.decoding.hypothesis import follow_beams
from regard.errors import SettingsError
from regard.models.base import ClassifierModel, Network, Seq2Seq, TaggerModel, count_parameters, example_input
from regard.training.flops import without_data
from regard.training.loss import smoothed_cross_entropy
from regard.training.operator_ledger import Ledger, OperatorCall, Touch, keep_ledger

FIRST_ID = 4  # the ids below are special tokens; HRAN ends an utterance at one of them
PIECES = 6  # characters or subwords of each word of a tagger
ADAM_BYTES = 28  # per weight: reads weight, gradient and two moments, writes weight and moments, 4 bytes each


KINDS = {
    "training": "training step", "decoding": "decoding step", "sentence": "whole sentence", "prediction": "prediction",
}  # fmt: skip


@dataclass(frozen=True)
class StepCost:
    """Cost of one step of a model, e.g. of a training step."""

    kind: str
    """"training", "decoding" (one step), "sentence" (all steps, and the encoder) or "prediction" (a forward pass)."""
    rows: int
    """Number of sentences in the batch."""
    width: int
    """Beam size: number of hypotheses per sentence."""
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
        """The sums over all calls, and over the calls of each operator; operators that move most bytes come first."""
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
            "operators": sorted((row for row in rows if row["bytes"]), key=lambda row: -float(row["bytes"])),
        }


# ---------------------------------------------------------------------------------------------------------------------
# Steps of a model. The same functions run a model with data, so that a benchmark can measure what is counted here.


def pair_batch(model: Seq2Seq, rows: int, source_length: int, target_length: int) -> tuple[Any, Tensor]:
    """A source and a target without padding, with ids that are in the vocabulary."""
    source, target_BT = example_input("BS", rows, source_length), example_input("BS", rows, target_length).ids_BS
    words = min(module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding))
    spread = 7919  # a prime; neighboring tokens have distant embeddings
    for ids in (source.ids_BS, target_BT):
        ids.mul_(spread).remainder_(words - FIRST_ID).add_(FIRST_ID)
    return source, target_BT


def run_training(model: Seq2Seq, source: Any, target_BT: Tensor) -> None:
    """Forward and backward pass of a batch without padding, with label smoothing."""
    states_ND = model.hidden(source, target_BT).flatten(0, 1)
    loss = smoothed_cross_entropy(model.output, states_ND, target_BT.flatten().to(states_ND.device), 0.1)
    (loss.smoothed / loss.tokens).backward()


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
    if model.has_sparse_gradients:
        raise SettingsError("the cost of training steps with sparse gradients depends on the words and is not counted")
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
    """Count the step that computes the scores at `position` (from 1) for `rows` sentences with `width` hypotheses each.

    The search itself (choosing tokens, reordering beams) is not counted. The hypotheses share no token, so the KV cache
    is as large as it can be.
    """
    run = _decoding_run(model, rows, width, source_length)
    run.start()
    for _ in range(position - 1):
        run.step()
    with keep_ledger(run.model) as ledger:
        run.step()
    return _cost(run.model, ledger, "decoding", rows, width)


def count_decoding(model: Seq2Seq, rows: int, width: int, source_length: int, target_length: int) -> StepCost:
    """Count the decoding of whole sentences: the encoder, and one step per target token."""
    run = _decoding_run(model, rows, width, source_length)
    with keep_ledger(run.model) as ledger:
        run.start()
        for _ in range(target_length):
            run.step()
    return _cost(run.model, ledger, "sentence", rows, width)


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
    with keep_ledger(empty) as ledger:
        empty(texts)
    return _cost(empty, ledger, "prediction", rows)


def _decoding_run(model: Seq2Seq, rows: int, width: int, source_length: int) -> DecodingRun:
    empty = without_data(model)
    return DecodingRun(empty, pair_batch(empty, rows, source_length, 1)[0], width)


def _count_training(empty: Network, rows: int, run: Callable[[], object]) -> StepCost:
    with keep_ledger(empty) as ledger, torch.enable_grad(), ledger.watch_activations():
        run()
    cost = _cost(empty, ledger, "training", rows)
    update = OperatorCall(
        "update of the weights (Adam)", 0.0, (Touch(ADAM_BYTES * cost.parameters, None, fresh=False),)
    )
    return replace(cost, operators=(*cost.operators, update))


def _cost(model: Network, ledger: Ledger, kind: str, rows: int, width: int = 1) -> StepCost:
    return StepCost(kind, rows, width, ledger.calls(), ledger.activations, count_parameters(model))
