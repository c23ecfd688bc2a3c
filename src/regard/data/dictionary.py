"""A dictionary of single words, learned from sentence pairs, to translate words that are not in a vocabulary.

It is learned from the text, by IBM Model 1 (Brown et al. 1993) with the preference for the diagonal of fast_align (Dyer
et al. 2013). Both directions are trained together: the count of a pair of words is the product of the probabilities
that each is aligned to the other (after Liang et al. 2006). This matters for rare words, which are looked up most: with
one direction alone, a rare word is aligned to all words of its sentence that are hard to explain.

The attention of the trained model would be an alternative, but to the model, all unknown words are one token.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ITERATIONS = 5
DIAGONAL = 4.0
"""Strength of the preference for the diagonal: a link gets the weight exp(-DIAGONAL * distance)."""
NULL = 0.08
"""Prior probability that a word has no counterpart."""
MOST = 6_000_000
"""Maximum number of pairs of a source word and a target word of one sentence pair to learn from."""
CHARACTERS_PER_WORD = 5.0
"""With the space or punctuation mark after the word; an estimate."""
LEAST_COUNT, LEAST_SHARE = 0.1, 0.2
"""Minimum count of an entry, and its minimum share of the counts of its source word."""

Words = Sequence[str]
Floats = NDArray[np.floating]
Index = NDArray[np.signedinteger]


def learn_dictionary(pairs: Iterable[tuple[Words, Words]], known: Collection[str] = ()) -> dict[str, str]:
    """Learn a dictionary from sentence pairs, given as words: for each source word, the best target word.

    Target words that are not `known` have priority, because the dictionary replaces words that a model does not know.
    A word without a clear translation, or that is its own translation, gets no entry.
    """
    cooccurrences = _count_pairs(pairs)
    if not len(cooccurrences.type_of):
        return {}
    (sources, source_of, _, _), (targets, target_of, _, _) = cooccurrences.sides
    counts = _align(cooccurrences)
    unknown = np.array([word not in known for word in targets])[target_of]
    total = np.bincount(source_of, counts)[source_of]
    candidates = np.flatnonzero((counts >= LEAST_COUNT) & (counts >= LEAST_SHARE * total))
    # Sorted by priority, so that the last candidate of each source word is the best.
    best = candidates[np.lexsort((counts[candidates], unknown[candidates]))]
    entries = {sources[source_of[place]]: targets[target_of[place]] for place in best.tolist()}
    return {source: target for source, target in sorted(entries.items()) if source != target}


def every_nth(pairs: int, characters: float) -> int:
    """The distance between the sentence pairs to learn from, so that there are at most about `MOST` pairs of words.

    `pairs` is the number of sentence pairs, and `characters` the mean length of a sentence.
    """
    return math.ceil(pairs * (characters / CHARACTERS_PER_WORD) ** 2 / MOST) or 1


class _Side(NamedTuple):
    """One language of the sentence pairs. The places of its words are numbered through all sentences."""

    words: list[str]
    word_of: Index
    """For each type of word pairs, the index of its word of this language."""
    place_of: Index
    """For each occurrence of a word pair, the place of its word."""
    word_at: Index
    """For each place, the index of the word."""


class _Cooccurrences(NamedTuple):
    """All pairs of a source word and a target word of the same sentence pair. Equal pairs of words are one type."""

    sides: tuple[_Side, _Side]
    type_of: Index
    """For each occurrence of a word pair, its type."""
    prior: Floats
    """For each occurrence, the weight of its distance from the diagonal."""


def _count_pairs(pairs: Iterable[tuple[Words, Words]]) -> _Cooccurrences:
    """List the pairs of words in the sentence pairs, until there are `MOST`."""
    ids: tuple[dict[str, int], dict[str, int]] = ({}, {})
    seen: tuple[list[int], list[int]] = ([], [])
    grids: list[Index] = [np.empty((2, 0), np.int32)]
    priors: list[Floats] = [np.empty(0, np.float32)]
    total = 0
    for pair in pairs:
        sizes = np.array([len(side) for side in pair])
        if total >= MOST or not sizes.min():
            continue
        grid = np.indices(sizes.tolist()).reshape(2, -1)
        grids.append((grid + np.array([len(side) for side in seen])[:, None]).astype(np.int32))
        relative = (grid + 0.5) / sizes[:, None]
        priors.append(np.exp(-DIAGONAL * np.abs(relative[0] - relative[1])).astype(np.float32))
        for side, table, words in zip(pair, ids, seen, strict=True):
            words += [table.setdefault(word, len(table)) for word in side]
        total += grid.shape[1]
    place_of = np.concatenate(grids, axis=1)
    word_at = [np.array(side, np.intp) for side in seen]
    keys = word_at[0][place_of[0]] * len(ids[1]) + word_at[1][place_of[1]]
    types, type_of = np.unique(keys, return_inverse=True)
    word_of = np.divmod(types, max(len(ids[1]), 1))
    source, target = (_Side(list(ids[n]), word_of[n], place_of[n], word_at[n]) for n in (0, 1))
    return _Cooccurrences((source, target), type_of.astype(np.int32), np.concatenate(priors))


def _align(cooccurrences: _Cooccurrences) -> Floats:
    """Estimate how often the two words of each type are aligned."""
    (source, target), type_of, prior = cooccurrences
    counts: Floats = np.ones(len(source.word_of))
    for _ in range(ITERATIONS):
        agreed = np.ones(len(type_of))
        for given, aligned in ((source, target), (target, source)):  # each place of `aligned` has one link, or none
            probability = counts / np.maximum(np.bincount(given.word_of, counts), 1e-30)[given.word_of]
            distance = prior / np.bincount(aligned.place_of, prior)[aligned.place_of]
            link = (1 - NULL) * distance * probability[type_of]
            frequency = np.bincount(aligned.word_at) / len(aligned.word_at)
            agreed *= link / (np.bincount(aligned.place_of, link) + NULL * frequency[aligned.word_at])[aligned.place_of]
        counts = np.asarray(np.bincount(type_of, agreed, len(counts)), np.float64)
    return counts
