"""Shallow fusion over step functions made by hand: the best sum of both scores is found."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from regard.decoding.beam import beam_search
from regard.decoding.ensemble import ShallowFusion
from regard.decoding.hypothesis import Tokens
from regard.decoding.penalties import LengthPenalty

END, WORDS, LIMIT = 0, 4, 4


def bigram_model(seed):
    """A "model" whose next-token scores depend on the last token; its state counts the tokens."""
    scores = 2 * torch.randn(WORDS + 1, WORDS + 1, generator=torch.Generator().manual_seed(seed))
    scores[:, WORDS] = -torch.inf  # the start token is never written

    def step(token_BW, state, memory):
        return scores[token_BW].clone(), state + 1

    model = SimpleNamespace(encode=lambda source: source, start=lambda memory: memory[:, None], step=step)
    return model, scores.log_softmax(-1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_the_best_sum_is_found(seed, weight):
    (one, first), (other, second) = bigram_model(seed), bigram_model(100 + seed)
    fused = ShallowFusion(one, other, weight)
    memory = fused.encode(torch.zeros(1, dtype=torch.long))
    tokens = Tokens(WORDS, END, never=(WORDS,), normalize=False)
    [[best, *_]] = beam_search(
        fused.step, fused.start(memory), memory, torch.tensor([LIMIT]), tokens,
        width=WORDS**LIMIT, penalty=LengthPenalty(0.0), stop="exact",
    )  # fmt: skip
    totals = {}
    for length in range(1, LIMIT + 1):
        for path in itertools.product(range(WORDS), repeat=length):
            if END in path[:-1] or (path[-1] != END and length < LIMIT):
                continue
            steps = itertools.pairwise((WORDS, *path))
            totals[path] = sum(float(first[a, b] + weight * second[a, b]) for a, b in steps)
    expected = max(totals, key=totals.__getitem__)
    assert (*best.tokens, *([END] if best.ended else [])) == expected
    assert best.score == pytest.approx(totals[expected], rel=1e-5)
