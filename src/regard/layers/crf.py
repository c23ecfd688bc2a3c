"""A linear chain over labels: a label has a score at its place, and one after the label before it (a CRF).

Lafferty et al. 2001. The sum over all paths is taken forwards and backwards with scaled probabilities (Rabiner 1989),
one small matrix product a step for the whole batch. Its gradient is the marginals, so it is written out and need not be
recorded step by step. All in double precision, whose range no sensible score leaves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LinearChainCRF(nn.Module):
    """Learnt scores of a label after another, of the first label and of the last.

    Padding stands at the ends of rows, and every row has at least one word.
    """

    def __init__(self, labels: int):
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(labels, labels))
        """Row: the label before."""
        self.start = nn.Parameter(torch.zeros(labels))
        self.end = nn.Parameter(torch.zeros(labels))

    def negative_log_likelihood(
        self, logits_BTL: Tensor, target_BT: Tensor, mask_BT: Tensor, smoothing: float = 0.0
    ) -> Tensor:
        """Negative log-probability [B] of the right labels; smoothing gives its share to all labels alike."""
        score_BTL, after_LL = self._close(logits_BTL, mask_BT), self.transitions.double()
        total_B: Tensor = _Total.apply(score_BTL, after_LL, mask_BT)  # type: ignore[no-untyped-call]
        place_BT = score_BTL.gather(2, target_BT[:, :, None])[:, :, 0]
        step_BT = after_LL[target_BT[:, :-1], target_BT[:, 1:]]
        if smoothing:
            place_BT = torch.lerp(place_BT, score_BTL.mean(-1), smoothing)
            step_BT = torch.lerp(step_BT, after_LL.mean().expand_as(step_BT), smoothing)
        return total_B - (place_BT * mask_BT).sum(1) - (step_BT * mask_BT[:, 1:]).sum(1)

    @torch.no_grad()
    def marginals(self, logits_BTL: Tensor, mask_BT: Tensor) -> Tensor:
        """Probability of each label at each place, over all paths; zero on padding."""
        swept = sweep(self._close(logits_BTL, mask_BT), self.transitions.double(), mask_BT)
        return swept.before_BTL * swept.behind_BTL * mask_BT[:, :, None]

    @torch.no_grad()
    def best(self, logits_BTL: Tensor, mask_BT: Tensor) -> Tensor:
        """The likeliest path [B, T] of each row (Viterbi 1967); 0 on padding."""
        score_BTL, after_LL = self._close(logits_BTL, mask_BT), self.transitions.double()
        stay_L = torch.arange(after_LL.shape[0], device=after_LL.device)
        best_BL, pointers = score_BTL[:, 0], []
        for place in range(1, score_BTL.shape[1]):
            real_B1 = mask_BT[:, place, None]
            reached_BL, from_BL = (best_BL[:, :, None] + after_LL).max(1)
            best_BL = torch.where(real_B1, reached_BL + score_BTL[:, place], best_BL)
            pointers.append(torch.where(real_B1, from_BL, stay_L))
        path = [best_BL.argmax(-1)]
        for from_BL in reversed(pointers):
            path.append(from_BL.gather(1, path[-1][:, None])[:, 0])
        return torch.stack(path[::-1], dim=1) * mask_BT

    def _close(self, logits_BTL: Tensor, mask_BT: Tensor) -> Tensor:
        """The scores with those of first and last labels on top; zero on padding."""
        real_BT1 = mask_BT[:, :, None]
        end_BT1 = real_BT1 & ~F.pad(mask_BT[:, 1:], (0, 1))[:, :, None]
        inner_BTL = torch.where(real_BT1, logits_BTL.double(), 0.0) + torch.where(end_BT1, self.end.double(), 0.0)
        return torch.cat([inner_BTL[:, :1] + self.start.double(), inner_BTL[:, 1:]], dim=1)


class ForwardBackward(NamedTuple):
    """What a pass in each direction found."""

    total_B: Tensor
    """Logarithm of the sum over all paths."""
    before_BTL: Tensor
    """Share of the paths up to here that end in this label."""
    behind_BTL: Tensor
    """How much likelier this label becomes by what follows: times the above, its probability."""
    onward_BTL: Tensor
    """The same before the step to this label is taken; zero at the first place and on padding."""


def sweep(score_BTL: Tensor, after_LL: Tensor, mask_BT: Tensor) -> ForwardBackward:
    """Sum over all paths, forwards and backwards."""
    peak_BT, top = score_BTL.amax(-1), after_LL.max()
    weights = (score_BTL - peak_BT[:, :, None]).exp().unbind(1)
    step_LL = (after_LL - top).exp()
    whole = mask_BT.all(0).tolist()
    reals = [None if every else real_B1 for every, real_B1 in zip(whole, mask_BT.t()[:, :, None], strict=True)]
    before: list[Tensor] = []
    scales: list[Tensor] = []
    for place, (weight_BL, real_B1) in enumerate(zip(weights, reals, strict=True)):
        reached_BL = before[-1] @ step_LL * weight_BL if place else weight_BL
        scale_B1 = reached_BL.sum(-1, keepdim=True)
        if real_B1 is not None:
            scale_B1 = torch.where(real_B1, scale_B1, 1.0)
            reached_BL = torch.where(real_B1, reached_BL, before[-1])
        before.append(reached_BL / scale_B1)
        scales.append(scale_B1)
    behind = [torch.ones_like(weights[0])]
    onward: list[Tensor] = []
    for place in range(len(weights) - 1, 0, -1):
        real_B1 = reals[place]
        ahead_BL = weights[place] * behind[-1] / scales[place]
        onward.append(ahead_BL if real_B1 is None else ahead_BL * real_B1)
        come_BL = onward[-1] @ step_LL.t()
        behind.append(come_BL if real_B1 is None else torch.where(real_B1, come_BL, 1.0))
    onward.append(torch.zeros_like(weights[0]))
    total_B = ((torch.cat(scales, dim=1).log() + peak_BT) * mask_BT).sum(1) + (mask_BT.sum(1) - 1) * top
    return ForwardBackward(total_B, *(torch.stack(found, dim=1) for found in (before, behind[::-1], onward[::-1])))


class _Total(torch.autograd.Function):
    """The logarithm of the sum over all paths. Its slope is how often each label, and each pair, is expected."""

    @staticmethod
    def forward(context: Any, score_BTL: Tensor, after_LL: Tensor, mask_BT: Tensor) -> Tensor:
        swept = sweep(score_BTL, after_LL, mask_BT)
        context.save_for_backward(*swept[1:], after_LL, mask_BT)
        return swept.total_B

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        before_BTL, behind_BTL, onward_BTL, after_LL, mask_BT = context.saved_tensors
        before_BTL = before_BTL * gradients[0][:, None, None]
        step_LL = (after_LL - after_LL.max()).exp()
        pairs_LL = before_BTL[:, :-1].flatten(0, 1).t() @ onward_BTL[:, 1:].flatten(0, 1) * step_LL
        return before_BTL * behind_BTL * mask_BT[:, :, None], pairs_LL, None
