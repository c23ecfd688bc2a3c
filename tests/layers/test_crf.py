"""The chain of labels against brute force over all paths."""

from itertools import pairwise, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.layers.crf import LinearChainCRF
from tests.toys import close

LABELS = 3


def chain(seed: int, spread: float = 1.0) -> LinearChainCRF:
    torch.manual_seed(seed)
    made = LinearChainCRF(LABELS)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=spread)
    return made


def rows(lengths: list[int], spread: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Random scores, also where nothing is real, and the mask."""
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return spread * torch.randn(*mask.shape, LABELS), mask


def path_scores(made: LinearChainCRF, logits_TL: torch.Tensor) -> dict[tuple[int, ...], float]:
    """The score of every path."""
    after, first, last = (part.detach().double().tolist() for part in (made.transitions, made.start, made.end))
    scores = logits_TL.double().tolist()
    found = {}
    for path in product(range(LABELS), repeat=len(scores)):
        total = first[path[0]] + last[path[-1]] + sum(scores[place][label] for place, label in enumerate(path))
        found[path] = total + sum(after[one][other] for one, other in pairwise(path))
    return found


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
    spread=st.sampled_from([0.5, 3.0, 20.0]),
)
def test_everything_equals_brute_force(lengths: list[int], seed: int, spread: float) -> None:
    made = chain(seed, spread)
    logits, mask = rows(lengths, spread)
    target = torch.randint(LABELS, mask.shape)
    negative_log_likelihood = made.negative_log_likelihood(logits, target, mask)
    marginals, best = made.marginals(logits, mask), made.best(logits, mask)
    for row, length in enumerate(lengths):
        scores = path_scores(made, logits[row, :length])
        every = torch.tensor(list(scores.values()), dtype=torch.float64)
        goal = scores[tuple(target[row, :length].tolist())]
        assert negative_log_likelihood[row].item() == pytest.approx(every.logsumexp(0).item() - goal, abs=1e-6)
        assert tuple(best[row, :length].tolist()) == max(scores, key=scores.__getitem__)
        share = dict(zip(scores, every.softmax(0).tolist(), strict=True))
        for place, label in product(range(length), range(LABELS)):
            wanted = sum(probability for path, probability in share.items() if path[place] == label)
            assert marginals[row, place, label].item() == pytest.approx(wanted, abs=1e-9)
    assert not marginals[~mask].any()
    assert not best[~mask].any()


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_gradient_that_is_written_out_is_the_slope(smoothing: float) -> None:
    """`gradcheck` compares with differences; rows count differently, and padding not at all."""
    made = chain(1).double()
    logits, mask = rows([4, 1, 3])
    target = torch.randint(LABELS, mask.shape)
    weight = torch.tensor([1.0, 2.0, -0.5])

    def total(logits, after, first, last):
        swapped = {"after": after, "first": first, "last": last}
        return torch.func.functional_call(made, swapped, (logits, target, mask, smoothing))

    made.forward = lambda *given: (made.negative_log_likelihood(*given) * weight).sum()
    inputs = [
        logits.double(),
        made.transitions.detach().clone(),
        made.start.detach().clone(),
        made.end.detach().clone(),
    ]
    for tensor in inputs:
        tensor.requires_grad_()
    assert torch.autograd.gradcheck(total, inputs)
    total(*inputs).backward()
    assert not inputs[0].grad[~mask].any()


def test_smoothing_is_the_mean_over_labels() -> None:
    """With all of it, every label is as good: the surprise is that of a mean path."""
    made = chain(2)
    logits, mask = rows([3])
    every = [
        made.negative_log_likelihood(logits, torch.tensor([path]), mask).item()
        for path in product(range(LABELS), repeat=3)
    ]
    inner = made.negative_log_likelihood(logits, torch.tensor([[0, 1, 2]]), mask, smoothing=1.0).item()
    assert inner == pytest.approx(sum(every) / len(every), abs=1e-6)


def test_extreme_scores_stay_finite() -> None:
    made = chain(3, 50.0)
    logits, mask = rows([40, 7], 80.0)
    logits.requires_grad_()
    found = made.negative_log_likelihood(logits, torch.zeros(mask.shape, dtype=torch.long), mask)
    found.sum().backward()
    assert found.isfinite().all()
    assert logits.grad.isfinite().all()
    close(made.marginals(logits, mask).sum(-1)[mask], torch.ones(int(mask.sum())).double())


def test_what_never_follows_is_never_given() -> None:
    """The chain overrules the words: label 1 scores best everywhere, but may not follow itself."""
    made = LinearChainCRF(2)
    with torch.no_grad():
        made.transitions[1, 1] = -100.0
    logits = torch.tensor([[[0.0, 1.0]] * 5])
    mask = torch.ones(1, 5, dtype=torch.bool)
    assert made.best(logits, mask).tolist() == [[1, 0, 1, 0, 1]]
