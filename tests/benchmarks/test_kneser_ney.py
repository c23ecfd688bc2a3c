"""The n-gram model that language models are compared with."""

import math
import random
from itertools import pairwise

import numpy as np
import pytest
from benchmarks.kneser_ney import KneserNey

WORDS = 6


def texts(count, seed):
    """Random texts in which a token depends on the one before it."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        text = [chance.randrange(WORDS)]
        while len(text) < 9 and text[-1]:
            text.append((text[-1] * 2 + chance.choice([0, 0, 0, 1, 3])) % WORDS)
        found.append(text)
    return found


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("discount", [None, 0.3])
def test_the_probabilities_of_all_tokens_sum_to_one(order, discount):
    model = KneserNey(texts(200, 1), WORDS, order, discount)
    for context in ([], [1], [3, 1], [5, 5, 5], [2, 4, 2, 4, 3]):
        logs = [model.log_probabilities([[*context, token]])[-1] for token in range(WORDS)]
        assert sum(map(math.exp, logs)) == pytest.approx(1.0)


def test_a_bigram_model_by_hand():
    """Texts "1 2", "1 2", "1 3" and "2 3" with the end 0; discount 0.5: P(2|1) by the formula of Kneser and Ney."""
    model = KneserNey([[1, 2, 0], [1, 2, 0], [1, 3, 0], [2, 3, 0]], 4, 2, discount=0.5)
    # Continuations: 1 is preceded by START; 2 by START and 1; 3 by 1 and 2; 0 by 2 and 3. Seven in total.
    after_one = (2 - 0.5) / 3 + 0.5 * 2 / 3 * 2 / 7
    assert math.exp(model.log_probabilities([[1, 2]])[1]) == pytest.approx(after_one)
    after_two = 0.5 * 2 / 3 * 1 / 7  # 1 never follows 2, which has two continuations (0, 3) in three places
    assert math.exp(model.log_probabilities([[2, 1]])[1]) == pytest.approx(after_two)
    start = (3 - 0.5) / 4 + 0.5 * 2 / 4 * 1 / 7
    assert math.exp(model.log_probabilities([[1]])[0]) == pytest.approx(start)


def test_the_discounts_are_those_of_chen_and_goodman():
    chance = random.Random(3)
    model = KneserNey([[int(100 * chance.random() ** 4) for _ in range(8)] for _ in range(300)], 100, 3)
    for level in model.levels[1:]:
        one, two, three, four = (int((level.counts == number).sum()) for number in (1, 2, 3, 4))
        share = one / (one + 2 * two)
        wanted = [1 - 2 * share * two / one, 2 - 3 * share * three / two, 3 - 4 * share * four / three]
        assert level.discounts[1:].tolist() == pytest.approx(wanted)


def test_more_context_helps_where_there_is_some():
    train, test = texts(2000, 1), texts(200, 2)
    losses = [-KneserNey(train, WORDS, order).log_probabilities(test).mean() for order in (1, 2, 3)]
    assert losses[1] < losses[0] - 0.3
    assert losses[2] < losses[1] + 0.02


@pytest.mark.parametrize("order", [2, 3])
def test_it_is_that_of_nltk(order):
    """With one discount, and the symbol before the text as one of its tokens."""
    lm = pytest.importorskip("nltk.lm", reason="nltk is not installed")
    stream = [token for text in texts(60, 1) for token in text]
    names = ["<s>", *map(str, stream)]
    grams = [
        tuple(names[start : start + size]) for size in range(1, order + 1) for start in range(len(names) - size + 1)
    ]
    theirs, ours = lm.KneserNeyInterpolated(order, 0.3), KneserNey([stream], WORDS, order, 0.3)
    theirs.fit([grams], map(str, range(WORDS)))
    for start in (5, 17, 33):
        context = stream[start : start + order - 1]
        for token in range(WORDS):
            own = math.exp(ours.log_probabilities([[*context, token]])[-1])
            assert own == pytest.approx(theirs.score(str(token), [*map(str, context)]))


def test_all_texts_are_scored_as_each_alone():
    model, some = KneserNey(texts(100, 1), WORDS, 4), texts(5, 9)
    together = model.log_probabilities(some)
    bounds = np.cumsum([0, *map(len, some)])
    for text, (start, end) in zip(some, pairwise(bounds), strict=True):
        assert model.log_probabilities([text]).tolist() == together[start:end].tolist()
