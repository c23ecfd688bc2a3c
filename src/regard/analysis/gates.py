"""Gates on heads, learnt: "Learning Sparse Neural Networks through L0 Regularization", Louizos et al. 2018.

Voita et al. 2019 put one on the output of every head of a trained Transformer. A gate z is drawn anew each time,

    s = sigmoid((log u - log(1 - u) + log_alpha) / BETA),   u uniform in (0, 1)
    z = clamp(s (ZETA - GAMMA) + GAMMA, 0, 1)

so it is exactly 0 or exactly 1 with some probability, and log_alpha still gets a gradient. Training adds the expected
number of open gates, times a penalty, to the loss. Attention weights are multiplied by the gate, which multiplies the
head's output by it. A difference to the paper: a gate is drawn for each sentence, not for each batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from regard.layers.taps import listen
from regard.models.base import Memory, Seq2Seq, Source, Tree

BETA, GAMMA, ZETA = 2 / 3, -0.1, 1.1  # temperature and stretch, as in Louizos et al.
START = 2.0  # log_alpha at first: nearly open, not so far that its gradient vanishes


def draw_gates(log_alpha: Tensor, uniform: Tensor) -> Tensor:
    """Gates between 0 and 1 from numbers drawn uniformly from the same interval."""
    noise = uniform.log() - (-uniform).log1p()
    return _stretch(((noise + log_alpha) / BETA).sigmoid())


def settled_gates(log_alpha: Tensor) -> Tensor:
    """Gates without chance, for a model that is not being trained."""
    return _stretch(log_alpha.sigmoid())


def open_probability(log_alpha: Tensor) -> Tensor:
    """P(z > 0): what the penalty counts."""
    return (log_alpha - BETA * math.log(-GAMMA / ZETA)).sigmoid()


def _stretch(s: Tensor) -> Tensor:
    return (s * (ZETA - GAMMA) + GAMMA).clamp(0.0, 1.0)


class HeadGates(nn.Module):
    """A gate for each head, attached to a model as a listener to its taps."""

    def __init__(self, heads: Mapping[str, int], gain: float = 1.0):
        """`heads`: how many there are, by the name of their attention. log_alpha is `gain` times the parameter: it has
        far to go, at a learning rate that suits the model's weights.
        """
        super().__init__()
        self.heads, self.gain = dict(heads), gain
        self.position = nn.Parameter(torch.full((sum(heads.values()),), START / gain))

    @property
    def log_alpha(self) -> Tensor:
        """Of all heads, one attention after the other."""
        return self.position * self.gain

    def by_attention(self) -> dict[str, Tensor]:
        """log_alpha [H] of each attention: the higher, the more open."""
        return dict(zip(self.heads, self.log_alpha.split(list(self.heads.values())), strict=True))

    def settled(self) -> dict[str, Tensor]:
        """The gates [H] of each attention, without chance."""
        return {name: settled_gates(log_alpha_H) for name, log_alpha_H in self.by_attention().items()}

    def open_share(self) -> Tensor:
        """Share of the heads that are expected to be open."""
        return open_probability(self.log_alpha).mean()

    def forward(self, name: str, weights_BHTS: Tensor) -> Tensor:
        """The weights times the gates: drawn while training, for each sentence; settled otherwise."""
        log_alpha_H = self.by_attention()[name]
        if not self.training:
            return weights_BHTS * settled_gates(log_alpha_H)[:, None, None]
        tiny = torch.finfo(log_alpha_H.dtype).eps
        uniform_BH = torch.rand(weights_BHTS.shape[:2], device=log_alpha_H.device).clamp(tiny, 1 - tiny)
        return weights_BHTS * draw_gates(log_alpha_H, uniform_BH)[..., None, None]


class Gated(Seq2Seq):
    """A model whose heads pass through gates; both learn, or the gates alone."""

    def __init__(self, model: Seq2Seq, gates: HeadGates, *, weights_follow: bool = True):
        super().__init__()
        self.model, self.gates = model.requires_grad_(weights_follow), gates
        self.output = model.output

    def encode(self, source: Source) -> Memory:
        """As the model does, through the gates."""
        with listen(self.model, "*", self.gates):
            return self.model.encode(source)

    def start(self, memory: Memory) -> Tree:
        """The model's own."""
        return self.model.start(memory)

    def step(self, token_BW: Tensor, state: Tree, memory: Memory) -> tuple[Tensor, Tree]:
        """As the model does, through the gates."""
        with listen(self.model, "*", self.gates):
            return self.model.step(token_BW, state, memory)

    def hidden(self, source: Source, target_BT: Tensor) -> Tensor:
        """As the model does, through the gates."""
        with listen(self.model, "*", self.gates):
            return self.model.hidden(source, target_BT)
