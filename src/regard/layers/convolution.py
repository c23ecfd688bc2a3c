"""Convolutions over time as matrix products, for a whole sequence or one step at a time; weight normalization.

A convolution of kernel width k is a linear map of k inputs side by side (Gehring et al. 2017, section 3.2). So one
matrix serves `forward` and `step`, Muon can train it, and `training/flops.py` counts it exactly.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def windows(x_BTD: Tensor, kernel: int, dilation: int = 1, *, causal: bool) -> Tensor:
    """For each position, join the `kernel` inputs of a convolution, `dilation` positions apart, to [B, T, kernel D].

    The last of them is the position itself if `causal`, else the middle one. Inputs outside the sequence are zero.
    """
    reach = (kernel - 1) * dilation
    before = reach if causal else reach // 2
    padded = F.pad(x_BTD, (0, 0, before, reach - before))
    return torch.cat([padded[:, place : place + x_BTD.shape[1]] for place in range(0, reach + 1, dilation)], dim=-1)


def no_inputs(rows: int, kernel: int, dilation: int, weight: Tensor) -> Tensor:
    """The inputs before the first token of a causal convolution: zeros [B, 1, (kernel - 1) dilation, D].

    `weight`: the matrix of the convolution, which has kernel D columns.
    """
    return weight.new_zeros(rows, 1, (kernel - 1) * dilation, weight.shape[1] // kernel)


def next_window(x_BWD: Tensor, past_BWRD: Tensor, dilation: int = 1) -> tuple[Tensor, Tensor]:
    """One step of a causal convolution: its `kernel` inputs [B, W, kernel D], and the past inputs of the next step.

    `past_BWRD`: the R = (kernel - 1) dilation inputs before `x_BWD`. The cost does not depend on the number of tokens.
    """
    seen = torch.cat([past_BWRD, x_BWD.unsqueeze(2)], dim=2)
    return seen[:, :, ::dilation].flatten(2), seen[:, :, 1:]


def no_tokens(states_BSD: Tensor) -> Tensor:
    """A tensor [B, 1, T, 0] that counts the tokens read, T = 0: a decoder state consists of tensors.

    Unlike a number in a tensor, its size is known without waiting for the device, and without data.
    """
    return states_BSD.new_empty(len(states_BSD), 1, 0, 0)


def one_more_token(read_BWT0: Tensor) -> Tensor:
    rows, width, tokens, _ = read_BWT0.shape
    return read_BWT0.new_empty(rows, width, tokens + 1, 0)


class WeightNormLinear(nn.Linear):
    """A linear layer with weight normalization (Salimans and Kingma 2016): row i of its matrix is gain_i v_i / |v_i|.

    `weight` contains the rows v. In PyTorch's own weight normalization, `weight` is no parameter, so Muon cannot train
    it; and the parameters have longer names. Here the names in the weights file are weight, bias and gain.
    """

    def __init__(self, inputs: int, outputs: int, variance: float = 1.0):
        """`variance`: variance of the outputs before training, if the inputs have variance one."""
        super().__init__(inputs, outputs)
        nn.init.normal_(self.weight, std=math.sqrt(variance / inputs))
        nn.init.zeros_(self.bias)
        self.gain = nn.Parameter(torch.linalg.vector_norm(self.weight.detach(), dim=1))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.gain / torch.linalg.vector_norm(self.weight, dim=1)
        return F.linear(x, self.weight * scale.unsqueeze(1), self.bias)
