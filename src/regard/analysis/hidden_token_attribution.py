"""Hidden token attribution: how much each input token contributes to a hidden state, and how far tokens spread.

After "On Identifiability in Transformers", Brunner et al. 2020: the norm of the Jacobian of hidden state j at a layer
with respect to input embedding i, divided by the sum over all inputs,

    share[j, i] = |d h_j / d x_i| / sum_k |d h_j / d x_k|        (Frobenius norm of the D by D matrix).

Cost: an input of S tokens of width D takes S D forward passes with a forward-mode derivative. Forward mode serves all
layers with one pass; reverse mode would need T D backward passes per layer. Passes run in batches whose states have at
most `CHUNK` numbers, so memory does not grow with the length. The first call of a process takes some seconds longer,
because torch then imports modules.

The fused attention kernel has neither a forward derivative nor a batching rule for its backward pass. A hook on every
attention selects the explicit computation, which has both.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jvp, vmap

from regard.errors import ModelError
from regard.layers.hooks import listen, listen_to_states, trace_states
from regard.models.base import Seq2Seq, Source

CHUNK = 1 << 19
"""Maximum number of elements in the states of one layer, counted over all passes of a batch."""


@dataclass(frozen=True)
class HiddenTokenAttribution:
    """The result of `hidden_token_attribution`: for each layer, the share of each input token in each hidden state."""

    share: dict[str, Tensor]
    """For each layer, e.g. "encoder.0", the share [T, S] of each input token in each state; rows sum to one."""
    states: str  # "encoder" or "decoder"
    inputs: str  # "encoder" or "decoder"
    passes: int  # number of forward passes that were needed

    def own(self, place: str) -> Tensor:
        """For each position [T] of the layer `place`, e.g. "encoder.0", the share of the token at the same position."""
        return self._square(place).diagonal()

    def by_distance(self, place: str) -> Tensor:
        """For distances 0, 1, 2, ...: the shares of inputs at this distance, left plus right, averaged over states."""
        square_TT = self._square(place)
        place_T = torch.arange(len(square_TT))
        distance_TT = (place_T[:, None] - place_T).abs()
        sums = square_TT.new_zeros(len(square_TT)).index_add_(0, distance_TT.flatten(), square_TT.flatten())
        return sums / len(square_TT)

    def _square(self, place: str) -> Tensor:
        if self.states != self.inputs:
            raise ModelError(
                f"{place}: positions of {self.states} states and {self.inputs} inputs do not correspond; "
                f'call hidden_token_attribution with inputs="{self.states}"'
            )
        return self.share[place]


def hidden_token_attribution(
    model: Seq2Seq, source: Source, target_1T: Tensor | None = None, *, states: str = "encoder", inputs: str = ""
) -> HiddenTokenAttribution:
    """Compute the share of each input embedding in each hidden state of encoder or decoder, for one sentence.

    `states` is "encoder" or "decoder"; decoder states need the decoder input `target_1T`. `inputs` tells whose
    embeddings are the inputs, "encoder" or "decoder"; empty means the same as `states`. Decoder states also allow
    "encoder": the inputs are then the source tokens.
    """
    inputs = inputs or states
    if model.training:
        raise ModelError("hidden token attribution needs a model without dropout: call model.eval() first")
    if (states, inputs) not in (("encoder", "encoder"), ("decoder", "decoder"), ("decoder", "encoder")):
        allowed = 'states must be "encoder" or "decoder", and inputs the same or "encoder"'
        raise ModelError(f"{states} states do not depend on {inputs} inputs; {allowed}")
    if states == "decoder" and target_1T is None:
        raise ModelError("decoder states need the decoder input: pass it as target_1T")
    if source.ids_BS.shape[0] != 1 or not bool(source.mask_BS.all()):
        raise ModelError("hidden token attribution needs one sentence without padding; call it once per sentence")

    def run(inputs_SD: Tensor | None) -> dict[str, Tensor]:
        """Run the model, and return the states [T, D] of every layer; `inputs_SD`, if given, are the embeddings."""
        given = None if inputs_SD is None else inputs_SD[None]
        wanted = {f"{inputs}.embed", f"{states}.*"}
        with listen_to_states(model, f"{inputs}.embed", lambda name, x: given), trace_states(model, wanted) as seen:
            if target_1T is None:
                model.encode(source)
            else:
                model.hidden(source, target_1T)
        return {name: state_1TD[0] for name, state_1TD in seen.items()}

    with torch.no_grad(), listen(model, "*", lambda name, weights: None):
        start = run(None)
        start_SD = start[f"{inputs}.embed"]
        places = [name for name in start if name.startswith(f"{states}.")]
        if states != inputs:
            places.remove(f"{states}.embed")  # decoder embeddings do not depend on the encoder
        squares = _squared_norms(
            lambda x: {place: state for place, state in run(x).items() if place in places}, start_SD
        )
    norms = {place: squares[place].mT.sqrt() for place in places}
    share = {place: norm_TS / norm_TS.sum(-1, keepdim=True) for place, norm_TS in norms.items()}
    return HiddenTokenAttribution(share, states, inputs, start_SD.numel())


def _squared_norms(run: Callable[[Tensor], dict[str, Tensor]], start_SD: Tensor) -> dict[str, Tensor]:
    """For each layer, the squared Frobenius norms [S, T] of the Jacobians of state t with respect to input s.

    `run` computes the states [T, D] of each layer from input embeddings; `start_SD` are the embeddings of the sentence.
    """

    def push(tangent_SD: Tensor) -> dict[str, Tensor]:
        """For each layer, the squared norms [T] of the derivatives of its states in the direction `tangent_SD`."""
        moved: dict[str, Tensor] = jvp(run, (start_SD,), (tangent_SD,))[1]
        return {name: move_TD.double().square().sum(-1) for name, move_TD in moved.items()}

    totals: dict[str, Tensor] = {}
    for numbers_C in torch.arange(start_SD.numel(), device=start_SD.device).split(max(1, CHUNK // start_SD.numel())):
        tangents = torch.zeros(len(numbers_C), start_SD.numel(), dtype=start_SD.dtype, device=start_SD.device)
        tangents.scatter_(1, numbers_C[:, None], 1.0)
        with warnings.catch_warnings():  # about code of torch itself, at the first use of forward mode
            warnings.filterwarnings("ignore", message=r"`torch\.jit\.script", category=DeprecationWarning)
            pushed = vmap(push)(tangents.unflatten(1, start_SD.shape))
        for name, square_CT in pushed.items():
            total_ST = totals.setdefault(name, square_CT.new_zeros(len(start_SD), square_CT.shape[1]))
            total_ST.index_add_(0, numbers_C // start_SD.shape[1], square_CT)
    return totals
