"""Constraints on log-probabilities written down by hand."""

import torch

from regard.decoding.constraints import (
    ForcedPrefix,
    MinLength,
    NoRepeatNgram,
    RepetitionPenalty,
    SuppressTokens,
    constrain,
)

INF = float("inf")
ROWS = torch.arange(2)


def flat(words=5):
    """Two sentences, one hypothesis each, all tokens at -1."""
    return torch.full((2, 1, words), -1.0)


def paths(*rows):
    return torch.tensor(rows)[:, None]


def forbidden(log_probs):
    return [[token for token, value in enumerate(row[0]) if value == -INF] for row in log_probs.tolist()]


def test_suppressed_tokens_have_no_probability():
    log_probs = flat()
    constrain([SuppressTokens((1, 3))], log_probs, paths([2], [2]), ROWS, end=0)
    assert forbidden(log_probs) == [[1, 3], [1, 3]]
    assert log_probs[0, 0, 2] == -1  # the others keep theirs


def test_the_end_waits_for_the_shortest_length():
    for written, expected in (([2], [0]), ([2, 3], [])):
        log_probs = flat()
        MinLength(2, end=0)(log_probs, paths(written, written), ROWS)
        assert forbidden(log_probs) == [expected] * 2


def test_runs_are_not_repeated():
    log_probs = flat()
    NoRepeatNgram(2)(log_probs, paths([1, 2, 1], [1, 2, 3]), ROWS)
    assert forbidden(log_probs) == [[2], []]  # 1 2 was there; after 3 nothing was
    log_probs = flat()
    NoRepeatNgram(3)(log_probs, paths([1, 1, 1, 1], [4, 1, 2, 4]), ROWS)
    assert forbidden(log_probs) == [[1], []]
    log_probs = flat()
    NoRepeatNgram(1)(log_probs, paths([1, 2], [3, 3]), ROWS)
    assert forbidden(log_probs) == [[1, 2], [3]]
    log_probs = flat()
    NoRepeatNgram(4)(log_probs, paths([1, 1], [1, 1]), ROWS)  # too short for any run
    assert forbidden(log_probs) == [[], []]


def test_what_was_written_becomes_rarer():
    log_probs = flat()
    RepetitionPenalty(1.5)(log_probs, paths([1, 1, 2], [4, 4, 4]), ROWS)
    assert log_probs[:, 0].tolist() == [[-1, -1.5, -1.5, -1, -1], [-1, -1, -1, -1, -1.5]]


def test_a_prefix_leaves_one_token_and_wins_over_the_others():
    prefix = ForcedPrefix.of([[3, 1], []], others=[SuppressTokens((3, 4))])
    log_probs = flat()
    prefix(log_probs, torch.empty(2, 1, 0, dtype=torch.long), ROWS)
    assert forbidden(log_probs) == [[0, 1, 2, 4], [3, 4]]
    assert log_probs[0, 0, 3] == -1
    log_probs = flat()
    prefix(log_probs, paths([3, 1], [2, 2]), ROWS)  # the prefix is over
    assert forbidden(log_probs) == [[3, 4], [3, 4]]
    log_probs = flat()[:1]
    prefix(log_probs, paths([3]), torch.tensor([0]))  # only the first sentence is left in the batch
    assert forbidden(log_probs) == [[0, 2, 3, 4]]


def test_where_nothing_may_be_written_the_output_ends():
    log_probs = flat()
    constrain([SuppressTokens((1, 2, 3, 4)), MinLength(9, end=0)], log_probs, paths([1], [2]), ROWS, end=0)
    assert forbidden(log_probs) == [[1, 2, 3, 4]] * 2
    assert log_probs[0, 0, 0] == -1
