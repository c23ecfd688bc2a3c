"""Batches of skip-gram: windows, borders of texts, noise words, and that they depend only on seed and position."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from regard import models
from regard.models.skip_gram import SkipGramSettings, negative_sampling_loss
from regard.tasks.embed.blocks import BLOCK, NOISE, BlockSampler, keep_probabilities
from regard.tasks.embed.data import join_texts
from regard.tasks.embed.settings import EmbedSettings
from tests.toys import close

PAD = 100
COUNTS = np.arange(PAD + 1, dtype=np.int64) * (np.arange(PAD + 1) < PAD)


def sampler(**settings):
    return BlockSampler(COUNTS, EmbedSettings(**{"subsample": 0.0, **settings}), seed=1, pad=PAD)


def pairs(batch):
    """All pairs of a batch: (center, context) as ids."""
    row, center, place = batch.window_RQC.nonzero(as_tuple=True)
    return list(
        zip(batch.centers_RQ[row, center].tolist(), batch.contexts_RC[row, place].tolist(), strict=True)
    )  # fmt: skip


def test_a_window_of_one_has_all_adjacent_words_of_a_text_and_no_others():
    texts = [list(range(1, 60)), [70, 71], list(range(80, 90))]  # the first one is longer than a block
    expected = [(one, two) for text in texts for a, b in pairwise(text) for one, two in ((a, b), (b, a))]
    batch = sampler(window=1).sample(*join_texts(texts), 7)
    assert sorted(pairs(batch)) == sorted(expected)
    assert batch.target_tokens == len(expected)
    assert batch.centers_RQ.shape == (-(-71 // BLOCK), BLOCK)


def test_windows_are_dynamic_and_at_most_as_large_as_the_setting():
    text = list(range(1, 99))
    found = pairs(sampler(window=4).sample(*join_texts([text] * 50), 0))
    distances = np.bincount([abs(one - two) for one, two in found])
    assert len(distances) == 5
    shares = distances[1:] / distances[1]
    assert shares == pytest.approx([1, 0.75, 0.5, 0.25], abs=0.06)  # word2vec: nearer words have larger weights


def test_the_position_and_the_seed_decide_everything():
    texts = join_texts([list(range(1, 90))])
    one, again, other = (sampler(subsample=0.01).sample(*texts, place) for place in (3, 3, 4))
    for name, value in vars(one).items():
        assert torch.equal(value, getattr(again, name))
    assert not torch.equal(one.noise_RK, other.noise_RK)


def test_frequent_words_are_left_out_as_in_word2vec():
    counts = np.array([0, 10, 990, 9000])
    kept = keep_probabilities(counts, 0.01)
    assert kept[1] == 1
    share = 0.9
    assert kept[3] == pytest.approx((math.sqrt(share / 0.01) + 1) * 0.01 / share)  # the formula of word2vec.c
    assert keep_probabilities(counts, 0.0).tolist() == [1, 1, 1, 1]
    texts = join_texts([[98] * 50 + [1, 2]] * 40)
    counts = np.bincount(texts[0].astype(np.int64), minlength=PAD + 1)
    whole = BlockSampler(counts, EmbedSettings(subsample=0.0), 1, PAD).sample(*texts, 0)
    fewer = BlockSampler(counts, EmbedSettings(subsample=0.01), 1, PAD).sample(*texts, 0)
    assert fewer.target_tokens < whole.target_tokens / 2


def test_a_batch_without_pairs_after_subsampling_uses_all_words():
    counts = np.array([0, 0, 0, 10**12, 10**12])
    batch = BlockSampler(counts, EmbedSettings(subsample=1e-12), 1, 4).sample(*join_texts([[3, 4]]), 0)
    assert batch.target_tokens == 2


def test_noise_words_follow_the_counts_to_a_power():
    texts = join_texts([[1, 2]] * 40_000)
    noise = np.bincount(sampler().sample(*texts, 0).noise_RK.flatten(), minlength=PAD + 1)
    expected = COUNTS**0.75 / (COUNTS**0.75).sum()
    assert noise[0] == noise[PAD] == 0
    assert noise / noise.sum() == pytest.approx(expected, abs=0.002)
    even = np.bincount(sampler(noise_power=0.0).sample(*texts, 0).noise_RK.flatten(), minlength=PAD + 1)
    assert even[0] == even[PAD] == 0
    assert even[1:PAD].min() > 0.8 * even[1:PAD].max()


def test_the_weights_of_the_noise_words_of_a_center_make_up_for_its_pairs():
    batch = sampler(negatives=7).sample(*join_texts([list(range(1, 60))]), 0)
    expected = 7 * batch.window_RQC.sum(2).float()
    close(batch.noise_weight_RQ * NOISE, expected, 1e-3)


def test_the_loss_is_that_of_skip_gram_and_its_gradient_that_of_autograd():
    torch.manual_seed(0)
    model = models.build(SkipGramSettings(width=8), vocabulary=PAD + 1)
    torch.nn.init.normal_(model.contexts.weight)
    batch = sampler(negatives=3).sample(*join_texts([list(range(1, 20)), [50, 51]]), 0)
    words, contexts = model.words.weight, model.contexts.weight
    expected = torch.zeros(())
    for row, center, place in batch.window_RQC.nonzero().tolist():
        vector = words[batch.centers_RQ[row, center]]
        score = vector @ contexts[batch.contexts_RC[row, place]]
        noise = contexts[batch.noise_RK[row]] @ vector
        expected = expected - score.sigmoid().log() - 3 * (-noise).sigmoid().log().mean()
    wanted = torch.autograd.grad(expected, [words, contexts])
    loss = negative_sampling_loss(model(batch), batch.window_RQC, batch.noise_weight_RQ)
    found = torch.autograd.grad(loss, [words, contexts])
    close(loss, expected, 1e-3)
    for one, other in zip(found, wanted, strict=True):
        assert one.is_sparse
        close(one.to_dense(), other, 1e-4)
