"""Reward fine-tuning of encoder-decoders: candidates that the model writes itself, their rewards, and the losses.

    minimum-risk    expected risk of a few candidates with renormalized probabilities (Shen et al. 2016)
    gnmt            expected reward by samples, minus the mean reward of a sentence's samples (Wu et al. 2016, eq. 8)
    self-critical   expected reward by samples, minus the reward of the greedy output (Rennie et al. 2017)

To each, `likelihood_weight` times the usual loss is added (Wu et al. 2016, eq. 9). There is no dropout, as in GNMT:
the reward is that of the model as it is used.

The samples of a batch depend only on `train.seed`, the position of the batch, and each source text. So a resumed
training samples the same texts as one without interruption, and so do several processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from regard.config import Recipe, SearchSettings
from regard.data.batches import Batch, make_targets
from regard.decoding.hypothesis import Hypothesis, keep_rows
from regard.models.base import Seq2Seq
from regard.tasks.generation import Searcher, SearchInput
from regard.tasks.rewards import find_reward, mean_reward, objective_of
from regard.tasks.seq2seq import batch_loss
from regard.text.tokenizer import Tokenizer
from regard.training.flops import Cost, pair_amounts
from regard.training.loss import Loss, token_log_probs

TARGET_UNITS = ("target_token", "target_pair", "cross_pair")
"""Units of computation (`Seq2Seq.examples`) that each candidate needs; the other units are shared."""


# ---------------------------------------------------------------------------------------------------------------------
# Losses of B sentences with up to C different candidates each; `times_BC`: how often each was sampled, 0: missing


def policy_gradient_loss(
    log_prob_BC: Tensor, reward_BC: Tensor, times_BC: Tensor, baseline_B: Tensor | None = None
) -> Tensor:
    """A loss whose expected gradient is that of minus the expected reward, summed over the sentences (REINFORCE).

    `log_prob_BC`: log-probabilities of random samples. `baseline_B` is subtracted from the rewards, which reduces the
    variance; None: the mean reward of the N samples of the sentence. A sample is part of this mean, which makes the
    gradient smaller by the factor (N - 1) / N on average, so the sum is divided by N - 1 instead of N.
    """
    count_B1 = times_BC.sum(1, keepdim=True)
    if baseline_B is None:
        advantage_BC = (reward_BC - mean_rewards(reward_BC, times_BC)[:, None]) / (count_B1 - 1)
    else:
        advantage_BC = (reward_BC - baseline_B[:, None]) / count_B1
    return -(times_BC * advantage_BC * log_prob_BC).sum()


def minimum_risk_loss(log_prob_BC: Tensor, reward_BC: Tensor, times_BC: Tensor, sharpness: float) -> Tensor:
    """The expected risk, summed over the sentences; the risk of a candidate is 1 minus its reward.

    The probability of a candidate is P ** `sharpness`, renormalized over the different candidates of its sentence.
    """
    logits_BC = (sharpness * log_prob_BC).masked_fill(times_BC == 0, -torch.inf)
    return (logits_BC.softmax(-1) * (1 - reward_BC)).sum()


def mean_rewards(reward_BC: Tensor, times_BC: Tensor) -> Tensor:
    """The mean reward [B] of the samples of each sentence."""
    return (times_BC * reward_BC).sum(1) / times_BC.sum(1)


# ---------------------------------------------------------------------------------------------------------------------
# Candidates


class Candidate(NamedTuple):
    """An output of the model, or the reference: token ids without the end token, and whether the end token follows."""

    tokens: tuple[int, ...]
    ended: bool = True


@dataclass(frozen=True)
class CandidateTable:
    """The different candidates of each sentence of a batch, and their rewards."""

    rows: Sequence[Sequence[Candidate]]
    reward_BC: Tensor
    times_BC: Tensor
    """How often each candidate was sampled; 0 where a sentence has fewer candidates than others."""

    def flat(self) -> tuple[list[Candidate], Tensor, Tensor]:
        """All M candidates in one list, and for each its row and its column in the table."""
        places = [(row, column) for row, found in enumerate(self.rows) for column in range(len(found))]
        row_M, column_M = torch.tensor(places).unbind(1)
        return list(chain.from_iterable(self.rows)), row_M, column_M


def score_candidates(model: Seq2Seq, batch: Batch, table: CandidateTable, pad: int, temperature: float = 1.0) -> Tensor:
    """The log-probabilities [B, C] of candidates, with gradients; the encoder reads each source text once.

    `temperature` divides the logits, as in sampling. So the loss is about outputs that are sampled at this temperature.
    """
    candidates, row_M, column_M = table.flat()
    device = model.output.weight.device
    input_MT, output_MT, real_MT = make_targets([list(one.tokens) for one in candidates], pad)
    lengths_M = torch.tensor([len(one.tokens) + one.ended for one in candidates])
    real_MT &= torch.arange(real_MT.shape[1]) < lengths_M[:, None]  # an output at the length limit has no end token
    memory = keep_rows(model.encode(batch.source), row_M.to(device))
    states_ND = model.decode(memory, input_MT.to(device))[real_MT.to(device)]
    log_prob_N = token_log_probs(model.output, states_ND, output_MT[real_MT].to(device), temperature)
    owner_N = real_MT.nonzero()[:, 0].to(device)
    log_prob_M = log_prob_N.new_zeros(len(candidates)).index_add(0, owner_N, log_prob_N)
    return log_prob_M.new_zeros(table.times_BC.shape).index_put((row_M.to(device), column_M.to(device)), log_prob_M)


class RewardObjective:
    """Computes the loss of reward fine-tuning for a batch of sentence pairs."""

    def __init__(self, recipe: Recipe, source: Tokenizer, target: Tokenizer):
        self.settings = objective_of(recipe)
        self.source, self.target = source, target
        self.reward = find_reward(self.settings)
        known, self._smoothing = recipe.search, recipe.train.label_smoothing
        self._temperature = self.settings.temperature if self.settings.samples else 1.0
        limits = SearchSettings(max_length_ratio=known.max_length_ratio, max_length_extra=known.max_length_extra)
        self._greedy = replace(limits, beam_size=1)
        self._beam = replace(
            limits,
            beam_size=self.settings.candidate_count,
            length_penalty=known.length_penalty,
            length_penalty_form=known.length_penalty_form,
        )

    def loss(self, model: Seq2Seq, batch: Batch) -> Loss:
        """The loss of a batch, computed in evaluation mode; afterwards the model is in training mode again."""
        settings, device = self.settings, model.output.weight.device
        model.eval()
        try:
            with torch.autocast(device.type, enabled=False):
                found = self._search(model, batch)
            references = [self.target.decode(one.tokens) for one in references_of(batch)]
            table = self._table([Counter(Candidate(one.tokens, one.ended) for one in row) for row in found], references)
            measures, baseline_B = self._measure(batch, found, table), None
            if settings.method == "self-critical":
                baseline_B = self._greedy_rewards(model, batch, references)
                measures["baseline"] = float(baseline_B.sum()), float(len(baseline_B))
            if settings.method == "minimum-risk" and settings.include_reference:
                with_reference = zip(table.rows, references_of(batch), strict=True)
                table = self._table([Counter({*row, reference}) for row, reference in with_reference], references)
            log_prob_BC = score_candidates(model, batch, table, self.target.pad, self._temperature)
            with torch.set_grad_enabled(settings.likelihood_weight > 0):
                likelihood = batch_loss(model, batch, self._smoothing)
        finally:
            model.train()
        reward_BC, times_BC = table.reward_BC.to(log_prob_BC), table.times_BC.to(log_prob_BC)
        if settings.method == "minimum-risk":
            cost = minimum_risk_loss(log_prob_BC, reward_BC, times_BC, settings.sharpness)
        else:
            baseline_B = None if baseline_B is None else baseline_B.to(log_prob_BC)
            cost = policy_gradient_loss(log_prob_BC, reward_BC, times_BC, baseline_B)
        total = settings.likelihood_weight * likelihood.smoothed + cost
        return likelihood._replace(smoothed=total, measures=measures)

    def flops(self, batch: Batch, cost: Cost) -> float:
        """FLOPs of writing candidates and of training on them, if they are as long as the references."""
        rows, source_length = batch.source.ids_BS.shape
        amounts = pair_amounts(rows, source_length, batch.target_input_BT.shape[1])
        many = amounts | {unit: self.settings.candidate_count * amounts[unit] for unit in TARGET_UNITS}
        greedy = cost.forward(**amounts) if self.settings.method == "self-critical" else 0.0
        return cost.training(**many) + cost.forward(**many) + greedy

    def mean(self, outputs: Sequence[str], references: Sequence[str]) -> float:
        """The mean reward of outputs, for validation."""
        return mean_reward(self.reward, outputs, references)

    def _search(self, model: Seq2Seq, batch: Batch, settings: SearchSettings | None = None) -> list[list[Hypothesis]]:
        """Candidates for each source text of the batch; with `settings`, the result of this search."""
        count = self.settings.candidate_count
        if settings is None:
            sampling = replace(self._greedy, sample=True, temperature=self._temperature, seed=batch.seed)
            settings = sampling if self.settings.samples else self._beam
        sources = batch.source.ids_BS.tolist(), batch.source.mask_BS.sum(1).tolist()
        inputs = [SearchInput("", ids[: length - 1]) for ids, length in zip(*sources, strict=True)]
        return Searcher([model], self.source, self.target, settings).search(inputs, count)

    def _greedy_rewards(self, model: Seq2Seq, batch: Batch, references: Sequence[str]) -> Tensor:
        with torch.autocast(model.output.weight.device.type, enabled=False):
            found = self._search(model, batch, self._greedy)
        outputs = [self.target.decode(row[0].tokens) for row in found]
        return torch.tensor([self.reward(*pair) for pair in zip(outputs, references, strict=True)])

    def _table(self, found: Sequence[Mapping[Candidate, int]], references: Sequence[str]) -> CandidateTable:
        """The table of candidates, given for each sentence as a number of times per candidate."""
        widest = max(map(len, found))
        reward_BC, times_BC = torch.zeros(len(found), widest), torch.zeros(len(found), widest)
        for row, (counts, reference) in enumerate(zip(found, references, strict=True)):
            rewards = [self.reward(self.target.decode(one.tokens), reference) for one in counts]
            reward_BC[row, : len(counts)] = torch.tensor(rewards)
            times_BC[row, : len(counts)] = torch.tensor(list(counts.values()), dtype=torch.float32)
        return CandidateTable([list(counts) for counts in found], reward_BC, times_BC)

    def _measure(
        self, batch: Batch, found: Sequence[Sequence[Hypothesis]], table: CandidateTable
    ) -> dict[str, tuple[float, float]]:
        """Numbers for the logs: rewards of the candidates, how much they differ, their entropy and length."""
        sentences, count = len(found), sum(map(len, found))
        mean_B = mean_rewards(table.reward_BC, table.times_BC)
        spread_B = mean_rewards((table.reward_BC - mean_B[:, None]) ** 2, table.times_BC).sqrt()
        log_probs = [value for row in found for one in row for value in one.log_probs]
        lengths = count / sentences * batch.target_tokens
        return {
            "reward": (float(mean_B.sum()), sentences),
            "reward_spread": (float(spread_B.sum()), sentences),
            "entropy": (-sum(log_probs), len(log_probs)),
            "length_ratio": (len(log_probs), lengths),
            "different": (sum(map(len, table.rows)), count),
        }


def references_of(batch: Batch) -> list[Candidate]:
    """The references of a batch, as candidates."""
    rows = zip(batch.target_output_BT.tolist(), batch.target_mask_BT.sum(1).tolist(), strict=True)
    return [Candidate(tuple(ids[: length - 1])) for ids, length in rows]
