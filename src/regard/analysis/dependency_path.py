"""The dependency path of an encoder, measured: how strongly, and over how many operations, outputs depend on inputs.

Dependencies between distant tokens are easier to learn if the path between them through the network is short
(Hochreiter et al. 2001; Vaswani et al. 2017, section 4). Two measurements for any encoder-decoder:

- the gradient reach: the norm of d output_t / d input_s as a function of the distance |t - s|, relative to its value at
  distance 0;
- the sequential operations: the longest chain of operators between the embedding of the first token and the output at
  the last token, of which each needs the result of the one before.

The norm of a Jacobian is estimated with random directions v: E |J' v|² = |J|² / D for unit vectors v of width D.
"""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from regard.analysis.complexity import exponent
from regard.errors import ModelError, SettingsError
from regard.layers.hooks import listen_to_states
from regard.layers.operators import count_operations
from regard.models import build, settings_of, size_names
from regard.models.base import Seq2Seq

WORDS = 64  # size of the vocabularies of a model that is built here
FIRST_ID = 4  # the ids below are special tokens
LENGTH = 64
PROBES = 16
SHARE = 0.01


def gradient_reach(
    model: Seq2Seq | str, *, length: int = LENGTH, probes: int = PROBES, seed: int = 1
) -> dict[str, Any]:
    """Measure the encoder of a network, or of a new network of an architecture, on random texts of `length` tokens.

    Returns data for JSON:

        name                      the architecture, or the class of the network
        length                    tokens per text
        distances, gradient       the norm of the gradient at each distance, relative to distance 0
        reach                     the largest distance at which it is at least 1 % of the value at distance 0
        steps                     pairs of a distance and the number of sequential operations over it
        steps_exponent            the growth of the last two numbers: 0 if they are constant, near 1 if proportional

    `probes`: number of random pairs of an output position and a direction. Takes a few seconds; the largest
    architectures need about 15, most of it to initialize the weights.
    """
    if length < 4:
        raise SettingsError(f"gradient_reach: length is {length}, and must be at least 4")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network, name = (_build(model), model) if isinstance(model, str) else (deepcopy(model), type(model).__name__)
        network.eval().requires_grad_(False)
        squares_PS, outputs_P = _squared_gradients(network, length, probes)
        steps = [(size - 1, _sequential(network, size)) for size in _sizes(length)]
    distance_PS = (torch.arange(length) - outputs_P[:, None]).abs()
    total = torch.zeros(length, dtype=torch.float64).index_add_(0, distance_PS.flatten(), squares_PS.flatten())
    norms = (total / torch.bincount(distance_PS.flatten(), minlength=length)).sqrt()
    gradient = (norms / norms[0]).tolist()
    return {
        "name": name,
        "length": length,
        "distances": list(range(length)),
        "gradient": gradient,
        "reach": max(place for place, value in enumerate(gradient) if value >= SHARE),
        "steps": steps,
        "steps_exponent": exponent(*zip(*steps[-2:], strict=True)),
    }


def _build(arch: str) -> Seq2Seq:
    settings = settings_of(arch)
    network = build(settings, **dict.fromkeys(size_names(settings), WORDS)) if settings.kind == "seq2seq" else None
    if not isinstance(network, Seq2Seq):
        raise ModelError(f"{arch} is no encoder-decoder: the dependency path is measured in their encoders only")
    return network


def _sizes(length: int) -> list[int]:
    """Numbers of tokens whose first and last token are 1, 4, 16 ... apart, and `length`."""
    return [*(1 + 4**power for power in range(length.bit_length()) if 4**power < length - 1), length]


def _texts(network: Seq2Seq, rows: int, length: int) -> Any:
    """Random tokens without padding. The last id of a vocabulary is padding."""
    words = min(module.num_embeddings for module in network.modules() if isinstance(module, nn.Embedding))
    ids_BS = torch.randint(min(FIRST_ID, words - 2), words - 1, (rows, length))
    return SimpleNamespace(ids_BS=ids_BS, mask_BS=torch.ones_like(ids_BS, dtype=torch.bool))


def _squared_gradients(network: Seq2Seq, length: int, probes: int) -> tuple[Tensor, Tensor]:
    """Squared norms [P, S] of the gradients of P random projections of outputs, and the position of each output."""
    outputs_P = torch.linspace(0, length - 1, probes).round().long()
    inputs: list[Tensor] = []

    def cut(_: str, x_BSD: Tensor) -> Tensor:
        inputs.append(x_BSD.detach().requires_grad_())
        return inputs[-1]

    with torch.enable_grad(), listen_to_states(network, "encoder.embed", cut):
        states_BSD = network.encode(_texts(network, probes, length)).states_BSD
        if not inputs:
            raise ModelError(f'{type(network).__name__} has no point "encoder.embed" (layers/hooks.py) to measure from')
        states_PD = states_BSD[torch.arange(probes), outputs_P.to(states_BSD.device)]
        directions_PD = nn.functional.normalize(torch.randn(states_PD.shape), dim=-1).to(states_PD)
        (gradient_PSD,) = torch.autograd.grad((states_PD * directions_PD).sum(), inputs[0])
    return gradient_PSD.double().square().sum(-1).cpu(), outputs_P


def _sequential(network: Seq2Seq, length: int) -> int:
    source = _texts(network, 1, length)
    return count_operations(lambda: network.encode(source)).sequential
