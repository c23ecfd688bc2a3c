"""The plane of words: groups of similar vectors stay together."""

import numpy as np
import pytest

from regard.tasks.embed.plane import plane_of


def test_groups_stay_together_and_the_plane_is_repeatable():
    chance = np.random.default_rng(1)
    centers_GD = 3 * np.eye(10)[:4]
    groups_N = np.repeat(np.arange(4), 12)
    x_ND = (centers_GD[groups_N] + 0.3 * chance.standard_normal((48, 10))).astype(np.float32)
    x_ND /= np.linalg.norm(x_ND, axis=1, keepdims=True)
    place_N2 = plane_of(x_ND)
    assert place_N2.min() == 0
    assert place_N2.max() == 1
    distances_NN = np.linalg.norm(place_N2[:, None] - place_N2, axis=2) + 9 * np.eye(48)
    assert (groups_N[distances_NN.argmin(1)] == groups_N).all()
    np.testing.assert_array_equal(place_N2, plane_of(x_ND))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_few_words_have_places_too(count):
    place_N2 = plane_of(np.eye(8, dtype=np.float32)[:count])
    assert place_N2.shape == (count, 2)
    assert np.isfinite(place_N2).all()
