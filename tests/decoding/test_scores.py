"""The best few of many scores, length penalties, ensembles, coverage, forced targets: numbers worked out by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding.beam import beam_search
from regard.decoding.ensemble import Ensemble
from regard.decoding.forced_decoding import force
from regard.decoding.hypothesis import Tokens, top, top_sums
from regard.decoding.penalties import CoveragePenalty, LengthPenalty

END, START = 0, 3


@given(st.integers(1, 900), st.integers(1, 12), st.integers(0, 10))
def test_top_is_topk(words, count, seed):
    scores = torch.randn(3, 2, words, generator=torch.Generator().manual_seed(seed))
    count = min(count, words)
    expected, found = scores.topk(count, dim=-1), top(scores, count)
    assert torch.equal(found[0], expected.values)
    assert torch.equal(scores.gather(-1, found[1]), expected.values)


@given(st.integers(1, 6), st.integers(1, 900), st.integers(1, 12), st.integers(0, 10))
def test_top_sums_are_the_best_of_all_sums(width, words, count, seed):
    random = torch.Generator().manual_seed(seed)
    totals, scores = torch.randn(3, width, generator=random), torch.randn(3, width, words, generator=random)
    totals[1, 0] = -torch.inf  # a dead hypothesis
    sums = (totals[:, :, None] + scores).flatten(1)
    expected, found = sums.topk(min(count, width * words), dim=-1), top_sums(totals, scores, min(count, width * words))
    assert torch.equal(found[0], expected.values)
    assert torch.equal(sums.gather(-1, found[1]), expected.values)


def test_top_with_forbidden_tokens():
    scores = torch.full((1, 1, 500), -torch.inf)
    scores[0, 0, [17, 203]] = torch.tensor([1.0, 2.0])
    values, places = top(scores, 4)
    assert places[0, 0, :2].tolist() == [203, 17]
    assert values[0, 0, 2:].tolist() == [-math.inf] * 2


def test_length_penalties():
    assert float(LengthPenalty(1.0).divisor(8)) == 8
    assert float(LengthPenalty(0.0).divisor(8)) == 1
    # Wu et al. 2016, equation 14: lp(Y) = (5 + |Y|)^alpha / (5 + 1)^alpha
    assert float(LengthPenalty(0.6, "gnmt").divisor(7)) == pytest.approx(12**0.6 / 6**0.6)


def test_what_an_open_hypothesis_can_reach():
    total = torch.tensor(-6.0)
    assert float(LengthPenalty(1.0).reachable(total, 3, torch.tensor(12))) == pytest.approx(-0.5)
    assert float(LengthPenalty(-1.0).reachable(total, 3, torch.tensor(12))) == pytest.approx(
        -24
    )  # the shortest is best


class Table:
    """A model that always gives the same probabilities."""

    def __init__(self, *shares):
        self.logits = torch.tensor(shares).log() + 1.7  # unnormalised

    def encode(self, source):
        return torch.zeros(1)

    def start(self, memory):
        return torch.zeros(1, 1)

    def step(self, token_BW, state, memory):
        return self.logits.repeat(*token_BW.shape, 1), state + 1


def mixed(mixing):
    both = Ensemble([Table(0.2, 0.8), Table(0.6, 0.4)], mixing)
    memory = both.encode(None)
    logits, state = both.step(torch.tensor([[0, 0]]), both.start(memory), memory)
    assert [part.tolist() for part in state] == [[[1.0]], [[1.0]]]
    return logits[0, 1].softmax(-1).tolist(), logits[0, 1].exp().tolist()


def test_an_ensemble_mixes():
    shares, raw = mixed("mean")
    assert shares == pytest.approx([0.4, 0.6])
    assert raw == pytest.approx([0.4, 0.6])
    one, other = math.sqrt(0.2 * 0.6), math.sqrt(0.8 * 0.4)
    assert mixed("log-mean")[0] == pytest.approx([one / (one + other), other / (one + other)])


def test_forced_targets_cost_what_the_model_says():
    model = Table(0.1, 0.5, 0.3, 0.1)  # the end, two words, the start that is never written
    tokens = Tokens(START, END, never=(START,))
    memory = torch.zeros(2)
    found = force(model.step, torch.zeros(2, 1), memory, [(1, 2), ()], tokens)
    parts = [math.log(0.5 / 0.9), math.log(0.3 / 0.9), math.log(0.1 / 0.9)]
    assert found[0].tokens == (1, 2)
    assert found[0].log_probs == pytest.approx(parts)
    assert found[0].score == pytest.approx(sum(parts) / 3)
    assert found[1].tokens == ()
    assert found[1].log_probs == pytest.approx(parts[2:])
    [unwritten] = force(model.step, torch.zeros(1, 1), torch.zeros(1), [(START,)], tokens)
    assert unwritten.log_probs[0] == pytest.approx(math.log(0.1))  # counted in, for this once


def test_coverage_penalises_what_was_not_looked_at():
    """Two source tokens and padding; the first is seen fully, the second by a quarter."""
    cover = CoveragePenalty(0.5, attention=lambda: torch.tensor([[[0.75, 0.125, 0.125]]]))
    state = cover.start(torch.zeros(1, 1), torch.tensor([[True, True, False]]))
    step = cover.wrap(lambda token, state, memory: (torch.zeros(1, 1, 4), state))
    assert float(cover.penalty(state)) == pytest.approx(0.5 * 2 * math.log(1e-3))
    for _ in range(2):
        _, state = step(torch.zeros(1, 1), state, None)
    assert float(cover.penalty(state)) == pytest.approx(0.5 * math.log(0.25))


def test_coverage_decides_between_hypotheses():
    """Words 1 and 2 are nearly equal; only after word 2 does the model look at the second source token."""

    def step(token_BW, state, memory):
        looks[0] = torch.where(token_BW[..., None] == 2, torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]))
        first = (token_BW == START)[..., None]
        logits = torch.where(first, torch.tensor([-9.0, 1.0, 0.9, -9.0]), torch.tensor([5.0, 0.0, 0.0, -9.0]))
        return logits, state

    looks = [torch.zeros(0)]
    cover = CoveragePenalty(1.0, attention=lambda: looks[0])
    limit, tokens, memory = torch.tensor([4]), Tokens(START, END), torch.zeros(1)
    plain = beam_search(step, torch.zeros(1, 1), memory, limit, tokens, width=3)
    state = cover.start(torch.zeros(1, 1), torch.ones(1, 2, dtype=torch.bool))
    covered = beam_search(cover.wrap(step), state, memory, limit, tokens, width=3, state_penalty=cover.penalty)
    assert plain[0][0].tokens == (1,)
    assert covered[0][0].tokens == (2,)
