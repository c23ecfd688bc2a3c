"""Measure dependency paths in an encoder: how strongly, and over how many operations, outputs depend on inputs.

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
FIRST_ID = 4  # smaller ids are special tokens
LENGTH = 64
PROBES = 16
SHARE = 0.01  # of the gradient at distance 0: up to the reach, the gradient is at least so large


def gradient_reach(
    model: Seq2Seq | str, *, length: int = LENGTH, probes: int = PROBES, seed: int = 1
) -> dict[str, Any]:
    """Measure how strongly outputs of an encoder depend on distant inputs, on random texts of `length` tokens.

    `model` is a network, or the name of an architecture, of which a new network is built. Returns data for JSON:

        name                      the architecture, or the class of the network
        length                    tokens per text
        distances, gradient       the norm of the gradient at each distance, relative to distance 0
        reach                     the largest distance at which the gradient is at least 1 % of its value at distance 0
        steps                     pairs (distance, sequential operations of the encoder on distance + 1 tokens)
        steps_exponent            slope of log operations over log distance: 0 if constant, 1 if proportional

    `probes`: number of outputs whose gradient is measured, each in one random direction. Takes a few seconds, with the
    largest architectures about 15.
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
        raise ModelError(f"{arch} is not an encoder-decoder; choose one, because its encoder is measured")
    return network


def _sizes(length: int) -> list[int]:
    """The text lengths to measure: 2, 5, 17, ... (first and last token 1, 4, 16, ... apart), and `length`."""
    return [*(1 + 4**power for power in range(length.bit_length()) if 4**power < length - 1), length]


def _texts(network: Seq2Seq, rows: int, length: int) -> Any:
    """A batch of random tokens, without special tokens and without padding (the last id of the vocabulary)."""
    words = min(module.num_embeddings for module in network.modules() if isinstance(module, nn.Embedding))
    ids_BS = torch.randint(min(FIRST_ID, words - 2), words - 1, (rows, length))
    return SimpleNamespace(ids_BS=ids_BS, mask_BS=torch.ones_like(ids_BS, dtype=torch.bool))


def _squared_gradients(network: Seq2Seq, length: int, probes: int) -> tuple[Tensor, Tensor]:
    """Squared norms [P, S] of the gradients of P outputs in random directions, and the positions of these outputs."""
    outputs_P = torch.linspace(0, length - 1, probes).round().long()
    inputs: list[Tensor] = []

    def cut(_: str, x_BSD: Tensor) -> Tensor:
        inputs.append(x_BSD.detach().requires_grad_())
        return inputs[-1]

    with torch.enable_grad(), listen_to_states(network, "encoder.embed", cut):
        states_BSD = network.encode(_texts(network, probes, length)).states_BSD
        if not inputs:
            name = type(network).__name__
            raise ModelError(f'{name} has no hidden state "encoder.embed"; add its hook (layers/hooks.py)')
        states_PD = states_BSD[torch.arange(probes), outputs_P.to(states_BSD.device)]
        directions_PD = nn.functional.normalize(torch.randn(states_PD.shape), dim=-1).to(states_PD)
        (gradient_PSD,) = torch.autograd.grad((states_PD * directions_PD).sum(), inputs[0])
    return gradient_PSD.double().square().sum(-1).cpu(), outputs_P


def _sequential(network: Seq2Seq, length: int) -> int:
    source = _texts(network, 1, length)
    return count_operations(lambda: network.encode(source)).sequential
