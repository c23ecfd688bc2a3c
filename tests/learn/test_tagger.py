"""Each tagger learns, from nothing and within a CPU minute, labels that the words around decide."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from regard import models
from regard.models import presets
from tests.tagged import Words, toy_tagger

LETTERS, LENGTH = 10, 8
STEPS, ROWS = 250, 32


def draw(count: int) -> tuple[Words, Tensor]:
    """Words of two letters; a span begins with a word whose first letter is 0 and ends with one whose last letter is 0.

    Labels: outside (0), the first word of a span (1), the others (2). They hang on how words are spelt, on the words
    before, and on the label before.
    """
    ids = torch.randint(LETTERS, (count, LENGTH, 2))
    target = torch.zeros(count, LENGTH, dtype=torch.long)
    inside = torch.zeros(count, dtype=torch.bool)
    for place in range(LENGTH):
        begins = ~inside & (ids[:, place, 0] == 0)
        target[:, place] = torch.where(begins, 1, torch.where(inside, 2, 0))
        inside = (inside | begins) & (ids[:, place, 1] != 0)
    return Words(ids, torch.ones_like(ids, dtype=torch.bool)), target


@pytest.mark.parametrize("arch", presets("tagger"))
def test_learns(arch: str) -> None:
    torch.manual_seed(1)
    model = models.build(toy_tagger(arch, width=32, dropout=0.0, word_dropout=0.0), vocabulary=LETTERS, labels=3)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    mask = torch.ones(ROWS, LENGTH, dtype=torch.bool)
    for _ in range(STEPS):
        words, target = draw(ROWS)
        optimizer.zero_grad()
        model.crf.negative_log_likelihood(model(words), target, mask).mean().backward()
        optimizer.step()
    words, target = draw(500)
    found = model.eval().crf.best(model(words), torch.ones(500, LENGTH, dtype=torch.bool))
    assert (found == target).float().mean() > 0.97
