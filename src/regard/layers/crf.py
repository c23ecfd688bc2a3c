"""A linear-chain conditional random field (Lafferty et al. 2001): scores of labels, and of pairs of adjacent labels.

The forward-backward algorithm sums over all label sequences with scaled probabilities (Rabiner 1989), by one small
matrix product per word for the whole batch. The gradient of the logarithm of this sum is the marginal probabilities,
which are computed directly, because autograd would be slower. Everything is in double precision.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LinearChainCRF(nn.Module):
    """A CRF layer: learned scores of pairs of adjacent labels, of first labels and of last labels.

    It adds them to the label scores (logits) of a tagger. In every mask, padding must be at the end of a row, and every
    row must have at least one word.
    """

    def __init__(self, labels: int):
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(labels, labels))
        """Score of each pair of adjacent labels. Rows: the previous label; columns: the next label."""
        self.start = nn.Parameter(torch.zeros(labels))
        self.end = nn.Parameter(torch.zeros(labels))

    def negative_log_likelihood(
        self, logits_BTL: Tensor, target_BT: Tensor, mask_BT: Tensor, smoothing: float = 0.0
    ) -> Tensor:
        """Negative log-probability [B] of the label sequences `target_BT`, given label scores for L labels per word.

        `smoothing` is the rate of label smoothing.
        """
        score_BTL, after_LL = self._add_start_and_end(logits_BTL, mask_BT), self.transitions.double()
        total_B: Tensor = _LogPartition.apply(score_BTL, after_LL, mask_BT)  # type: ignore[no-untyped-call]
        place_BT = score_BTL.gather(2, target_BT[:, :, None])[:, :, 0]
        step_BT = after_LL[target_BT[:, :-1], target_BT[:, 1:]]
        if smoothing:
            place_BT = torch.lerp(place_BT, score_BTL.mean(-1), smoothing)
            step_BT = torch.lerp(step_BT, after_LL.mean().expand_as(step_BT), smoothing)
        return total_B - (place_BT * mask_BT).sum(1) - (step_BT * mask_BT[:, 1:]).sum(1)

    @torch.no_grad()
    def marginals(self, logits_BTL: Tensor, mask_BT: Tensor) -> Tensor:
        """The marginal probability [B, T, L] of each of L labels at each word; zero on padding."""
        found = forward_backward(self._add_start_and_end(logits_BTL, mask_BT), self.transitions.double(), mask_BT)
        return found.before_BTL * found.behind_BTL * mask_BT[:, :, None]

    @torch.no_grad()
    def best(self, logits_BTL: Tensor, mask_BT: Tensor) -> Tensor:
        """The most likely label sequence [B, T] of each sentence, by the Viterbi algorithm; 0 on padding."""
        score_BTL, after_LL = self._add_start_and_end(logits_BTL, mask_BT), self.transitions.double()
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

    def _add_start_and_end(self, logits_BTL: Tensor, mask_BT: Tensor) -> Tensor:
        """Add the learned scores of first labels at the first word, and of last labels at the last word, to the logits.

        Scores are zero on padding.
        """
        real_BT1 = mask_BT[:, :, None]
        end_BT1 = real_BT1 & ~F.pad(mask_BT[:, 1:], (0, 1))[:, :, None]
        inner_BTL = torch.where(real_BT1, logits_BTL.double(), 0.0) + torch.where(end_BT1, self.end.double(), 0.0)
        return torch.cat([inner_BTL[:, :1] + self.start.double(), inner_BTL[:, 1:]], dim=1)


class ForwardBackward(NamedTuple):
    """The result of `forward_backward`: log-partition function, forward and backward probabilities of labels."""

    total_B: Tensor
    """The log-partition function: logarithm of the sum of exp(score) over all label sequences."""
    before_BTL: Tensor
    """Forward probabilities: the probability of each label of a word, given only this word and the words before it."""
    behind_BTL: Tensor
    """Backward factors: forward probability times backward factor is the marginal probability of the label."""
    onward_BTL: Tensor
    """Scaled exp(label score) times backward factor; used for the probabilities of label pairs. 0 at the first word."""


def forward_backward(score_BTL: Tensor, after_LL: Tensor, mask_BT: Tensor) -> ForwardBackward:
    """Run the forward-backward algorithm, with forward probabilities that are scaled to sum to one at each word.

    `score_BTL`: scores of L labels at each word. `after_LL`: scores of pairs of adjacent labels; rows are the previous
    label, columns the next label.
    """
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


class _LogPartition(torch.autograd.Function):
    """The log-partition function [B] of a CRF, with a gradient that is computed directly.

    The gradient is the expected counts of labels and of pairs of adjacent labels.
    """

    @staticmethod
    def forward(context: Any, score_BTL: Tensor, after_LL: Tensor, mask_BT: Tensor) -> Tensor:
        found = forward_backward(score_BTL, after_LL, mask_BT)
        context.save_for_backward(*found[1:], after_LL, mask_BT)
        return found.total_B

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        before_BTL, behind_BTL, onward_BTL, after_LL, mask_BT = context.saved_tensors
        before_BTL = before_BTL * gradients[0][:, None, None]
        step_LL = (after_LL - after_LL.max()).exp()
        pairs_LL = before_BTL[:, :-1].flatten(0, 1).t() @ onward_BTL[:, 1:].flatten(0, 1) * step_LL
        return before_BTL * behind_BTL * mask_BT[:, :, None], pairs_LL, None
