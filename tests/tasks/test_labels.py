"""Scores of labels against scikit-learn, and calibration against numbers worked out by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as example_budget
from hypothesis import strategies as st

from regard.tasks.labels import find_temperature, score_labels, to_probabilities

metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")


def one_hot(numbers, count):
    return np.eye(count, dtype=bool)[numbers]


@example_budget(max_examples=25)
@given(st.integers(2, 6), st.integers(1, 60), st.integers(0, 999))
def test_one_label_a_document_is_scored_as_scikit_learn_does(labels, documents, seed):
    chance = np.random.default_rng(seed)
    right, probability = chance.integers(0, labels, documents), chance.dirichlet([0.5] * labels, documents)
    given_labels = probability.argmax(1)
    names = [str(label) for label in range(labels)]
    found = score_labels(probability, one_hot(right, labels), names, several=False)
    known = list(range(labels))
    assert found.accuracy == pytest.approx(metrics.accuracy_score(right, given_labels))
    f1 = metrics.f1_score(right, given_labels, average="macro", labels=known, zero_division=0)
    assert found.f1 == pytest.approx(f1)
    assert found.confusion == metrics.confusion_matrix(right, given_labels, labels=known).tolist()
    assert found.loss == pytest.approx(metrics.log_loss(right, probability, labels=known))
    table = metrics.precision_recall_fscore_support(right, given_labels, labels=known, zero_division=0)
    for place, name in enumerate(names):
        ours = found.by_label[name]
        assert [ours[key] for key in ("precision", "recall", "f1", "count")] == pytest.approx(
            [column[place] for column in table]
        )


@example_budget(max_examples=25)
@given(st.integers(2, 5), st.integers(1, 40), st.integers(0, 999))
def test_several_labels_are_scored_as_scikit_learn_does(labels, documents, seed):
    chance = np.random.default_rng(seed)
    right, probability = chance.random((documents, labels)) < 0.4, chance.random((documents, labels))
    found = score_labels(probability, right, [str(n) for n in range(labels)], several=True, threshold=0.6)
    given_labels = probability >= 0.6
    assert found.accuracy == pytest.approx(metrics.accuracy_score(right, given_labels))
    assert found.f1 == pytest.approx(metrics.f1_score(right, given_labels, average="macro", zero_division=0))
    assert found.confusion is None


def test_calibration_error_by_hand():
    """Two answers at 0.9 of which one is right, two at 0.6 of which both are: (2 * 0.4 + 2 * 0.4) / 4."""
    probability = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.4, 0.6]])
    found = score_labels(probability, one_hot([0, 1, 0, 1], 2), ["a", "b"], several=False)
    bins = found.reliability
    assert found.calibration_error == pytest.approx(0.4)
    assert [one["answers"] for one in bins] == [2, 2]
    assert [one["confidence"] for one in bins] == pytest.approx([0.6, 0.9])
    assert [one["right"] for one in bins] == [1.0, 0.5]


def test_answers_that_are_as_sure_as_they_are_right_have_no_error():
    chance = np.random.default_rng(1)
    sure = chance.uniform(0.5, 1.0, 200_000)
    right = chance.random(200_000) < sure
    probability = np.stack([np.where(right, sure, 1 - sure), np.where(right, 1 - sure, sure)], 1)
    found = score_labels(probability, one_hot(np.zeros(200_000, int), 2), ["a", "b"], several=False)
    assert found.calibration_error < 0.01


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
def test_the_temperature_that_made_the_labels_is_found(several, temperature):
    """Labels are drawn from scores at a known temperature: that very one makes them likeliest."""
    chance = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(20_000, 3, generator=chance)
    probability = to_probabilities(logits, temperature, several=several).float()
    if several:
        target = torch.bernoulli(probability, generator=chance)
    else:
        target = torch.nn.functional.one_hot(torch.multinomial(probability, 1, generator=chance)[:, 0], 3).float()
    assert find_temperature(logits, target, several=several) == pytest.approx(temperature, rel=0.05)


def test_a_few_documents_that_are_all_right_do_not_make_it_sure():
    target = torch.eye(2).repeat(20, 1)
    logits = 0.5 * target  # right, and hardly sure
    found = find_temperature(logits, target, several=False)
    assert to_probabilities(logits, found, several=False).max().item() == pytest.approx(41 / 42, abs=1e-3)


def test_a_temperature_changes_no_decision_and_needs_documents():
    logits = torch.randn(50, 4)
    hot, cold = (to_probabilities(logits, temperature, several=False) for temperature in (5.0, 0.2))
    assert torch.equal(hot.argmax(1), cold.argmax(1))
    assert find_temperature(logits[:5], torch.eye(4)[[0, 1, 2, 3, 0]], several=False) is None
