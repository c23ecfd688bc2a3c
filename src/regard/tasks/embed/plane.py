"""The plane of words: a projection of word vectors to two dimensions by t-SNE (van der Maaten and Hinton 2008).

Words with similar vectors are close to each other; large distances mean little. The computation is exact and starts
from the first two principal components, so the same vectors always give the same plane.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
PERPLEXITY = 12.0
"""About the number of neighbours that a word should stay close to."""
STEPS, EARLY, EXAGGERATION = 400, 100, 6.0
"""Number of steps; in the early ones, attraction is exaggerated, so that groups form."""
TINY = 1e-12


def plane_of(directions_ND: NDArray[np.float32]) -> Array:
    """Places [N, 2] of words in the unit square; `directions_ND`: their vectors of length 1."""
    x_ND = directions_ND.astype(np.float64)
    count = len(x_ND)
    if count < 4:
        return np.linspace(0, 1, 2 * count).reshape(count, 2)
    distances_NN = np.maximum(2.0 - 2.0 * x_ND @ x_ND.T, 0.0)
    wanted_NN = _similarities(distances_NN, min(PERPLEXITY, (count - 1) / 3))
    place_N2 = _principal_components(x_ND)
    speed_N2 = np.zeros_like(place_N2)
    for step in range(STEPS):
        near_NN = 1.0 / (1.0 + _squared_distances(place_N2))
        np.fill_diagonal(near_NN, 0.0)
        found_NN = near_NN / near_NN.sum()
        force_NN = (wanted_NN * (EXAGGERATION if step < EARLY else 1.0) - found_NN) * near_NN
        gradient_N2 = 4.0 * (force_NN.sum(1)[:, None] * place_N2 - force_NN @ place_N2)
        speed_N2 = (0.5 if step < EARLY else 0.8) * speed_N2 - count / 4 * gradient_N2
        place_N2 = place_N2 + speed_N2
        place_N2 -= place_N2.mean(0)
    low_2, high_2 = place_N2.min(0), place_N2.max(0)
    scaled: Array = (place_N2 - low_2) / np.maximum(high_2 - low_2, TINY)
    return scaled


def _squared_distances(x_ND: Array) -> Array:
    squares_N = (x_ND**2).sum(1)
    distances: Array = np.maximum(squares_N[:, None] + squares_N - 2.0 * x_ND @ x_ND.T, 0.0)
    return distances


def _principal_components(x_ND: Array) -> Array:
    centered_ND = x_ND - x_ND.mean(0)
    left_NN, sizes_N, right_ND = np.linalg.svd(centered_ND, full_matrices=False)
    signs_2 = np.sign(right_ND[:2, np.argmax(np.abs(right_ND[:2]), axis=1)].diagonal())
    first_N2: Array = left_NN[:, :2] * sizes_N[:2] * np.where(signs_2 == 0, 1.0, signs_2)
    return first_N2 / max(float(first_N2[:, 0].std()), TINY) * 1e-2


def _similarities(distances_NN: Array, perplexity: float) -> Array:
    """For each pair, the mean of the probabilities that one word is the neighbour of the other.

    The width of each row is searched by bisection, so that its distribution has the given perplexity.
    """
    count, entropy = len(distances_NN), np.log(perplexity)
    low_N, high_N, beta_N = np.zeros(count), np.full(count, np.inf), np.ones(count)
    shifted_NN = distances_NN + np.diag(np.full(count, np.inf))
    shifted_NN = shifted_NN - shifted_NN.min(1, keepdims=True)
    for _ in range(50):
        rows_NN = np.exp(-shifted_NN * beta_N[:, None])
        rows_NN /= rows_NN.sum(1, keepdims=True)
        found_N = -(rows_NN * np.log(np.maximum(rows_NN, TINY))).sum(1)
        wide_N = found_N > entropy
        low_N, high_N = np.where(wide_N, beta_N, low_N), np.where(wide_N, high_N, beta_N)
        beta_N = np.where(np.isinf(high_N), 2 * beta_N, (low_N + np.minimum(high_N, 1e12)) / 2)
    both: Array = np.maximum((rows_NN + rows_NN.T) / (2 * count), TINY)
    return both
