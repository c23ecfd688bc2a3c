"""Search over step functions made by hand, where the right answer is known."""

import itertools
import math

import pytest
import torch

from regard.decoding.beam import beam_search
from regard.decoding.constraints import MinLength
from regard.decoding.greedy import extend_paths
from regard.decoding.hypothesis import Tokens, follow_beams, keep_rows
from regard.decoding.penalties import LengthPenalty

END, START, WORDS = 0, 4, 5


def table_step(seed: int):
    """A "model" whose next-token scores depend on the last two tokens and the sentence, kept in its state."""
    scores = torch.randn(3, WORDS, WORDS, WORDS, generator=torch.Generator().manual_seed(seed)) * 2

    def step(token_BW, state, memory):
        sentence, before = memory, state
        logits = scores[sentence[:, None].expand_as(token_BW), before, token_BW]
        return logits, token_BW

    return step, scores


def run(search, step, rows, limit, **options):
    memory = torch.arange(rows)
    state = torch.full((rows, 1), START)
    longest = torch.tensor([limit] * rows)
    return search(step, state, memory, longest, Tokens(START, END, never=(START,)), **options)


def brute_force(scores, sentence, limit, penalty):
    """Every output of up to `limit` tokens, scored; the end token counts."""
    best = {}
    for length in range(1, limit + 1):
        for path in itertools.product(range(WORDS - 1), repeat=length):
            if END in path[:-1] or (path[-1] != END and length < limit):
                continue
            total, before, last = 0.0, START, START
            for token in path:
                logits = scores[sentence, before, last].clone()
                logits[START] = -math.inf
                total += float(logits.log_softmax(-1)[token])
                before, last = last, token
            best[path] = total / length**penalty
    return max(best.items(), key=lambda item: item[1])


@pytest.mark.parametrize("seed", range(5))
def test_beam_one_is_greedy(seed):
    step, _ = table_step(seed)
    one = run(beam_search, step, 3, 6, width=1)
    other = run(extend_paths, step, 3, 6)
    assert [h[0].tokens for h in one] == [h[0].tokens for h in other]
    for left, right in zip(one, other, strict=True):
        assert left[0].score == pytest.approx(right[0].score, abs=1e-5)
        assert left[0].log_probs == pytest.approx(right[0].log_probs, abs=1e-5)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_equals_brute_force(seed, penalty):
    step, scores = table_step(seed)
    found = run(beam_search, step, 3, 4, width=200, penalty=LengthPenalty(penalty))
    for sentence, hypotheses in enumerate(found):
        path, score = brute_force(scores, sentence, 4, penalty)
        best = hypotheses[0]
        assert (*best.tokens, END) == path if best.ended else best.tokens == path
        assert best.score == pytest.approx(score, abs=1e-4)


def test_hypotheses_are_best_first_and_different():
    step, _ = table_step(1)
    for hypotheses in run(beam_search, step, 3, 6, width=5):
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({hypothesis.tokens for hypothesis in hypotheses}) == len(hypotheses)


def test_a_sentence_alone_equals_its_row_in_a_batch():
    step, _ = table_step(2)
    together = run(beam_search, step, 3, 6, width=4)

    def shifted(token_BW, state, memory):
        return step(token_BW, state, memory + 2)

    alone = run(beam_search, shifted, 1, 6, width=4)
    assert [h.tokens for h in alone[0]] == [h.tokens for h in together[2]]


def test_limits_are_kept_and_told():
    never_ends = lambda token, state, memory: (  # noqa: E731
        torch.tensor([-9.0, 1.0, 2.0, 0.0, 0.0]).expand(*token.shape, 5),
        state,
    )
    memory, state = torch.zeros(2), torch.zeros(2, 1)
    for search in (extend_paths, beam_search):
        found = search(never_ends, state, memory, torch.tensor([3, 5]), Tokens(START, END, never=(START,)))
        assert [len(hypotheses[0].tokens) for hypotheses in found] == [3, 5]
        assert not any(hypotheses[0].ended for hypotheses in found)


def test_trees_of_any_shape_are_followed():
    state = {"a": torch.arange(6).view(2, 3), "b": (torch.arange(12).view(2, 3, 2),), "n": 5}
    followed = follow_beams(state, torch.tensor([[2, 2], [0, 1]]))
    assert followed["a"].tolist() == [[2, 2], [3, 4]]
    assert followed["b"][0].tolist() == [[[4, 5], [4, 5]], [[6, 7], [8, 9]]]
    assert followed["n"] == 5
    assert keep_rows(state, torch.tensor([1]))["a"].tolist() == [[3, 4, 5]]


def overtakes():
    """The end is likeliest at once, and stays possible; but word 1 goes on so cheaply that a long output wins."""
    first = torch.tensor([0.55, 0.45, 1e-9, 1e-9, 1e-9]).log()
    later = torch.tensor([0.25, 0.75, 1e-9, 1e-9, 1e-9]).log()

    def step(token_BW, state, memory):
        return torch.where((token_BW == START)[..., None], first, later), state

    return step


def test_exact_stopping_waits_for_what_can_still_win():
    step, memory, state = overtakes(), torch.zeros(1), torch.zeros(1, 1)
    options = {"width": 2}
    limit, tokens = torch.tensor([12]), Tokens(START, END, never=(START,))
    enough = beam_search(step, state, memory, limit, tokens, stop="beam-full", **options)[0]
    exact = beam_search(step, state, memory, limit, tokens, stop="exact", **options)[0]
    assert enough[0].tokens == ()  # log 0.55; the second that ended, (1,), scores (log 0.45 + log 0.25) / 2
    assert exact[0].tokens == (1,) * 12
    assert exact[0].score == pytest.approx((math.log(0.45) + 11 * math.log(0.75)) / 12, abs=1e-4)
    wide = beam_search(step, state, memory, limit, tokens, width=50)[0]
    assert exact[0] == wide[0]


def test_a_search_that_may_not_end_is_cut_off():
    step, _ = table_step(0)
    found = run(beam_search, step, 3, 5, width=3, constraints=[MinLength(99, END)])
    assert all(not hypothesis.ended and len(hypothesis.tokens) == 5 for row in found for hypothesis in row)
