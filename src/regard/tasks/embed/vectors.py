"""`WordVectors`: the trained vectors of words. Similar words, analogies, and scores of texts.

The similarity of two words is the cosine of their vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import ModelError, RunError, nearest
from regard.models.skip_gram import SkipGram
from regard.run import Run
from regard.tasks.embed.analogies import Analogy
from regard.tasks.embed.blocks import BlockSampler
from regard.tasks.embed.data import encode_texts, read_counts
from regard.tasks.embed.scoring import score_texts
from regard.text.tokenizer import Tokenizer, words_of

Matrix = NDArray[np.float32]
ANALOGIES = 256
"""Number of analogies that are answered together."""


class Neighbour(NamedTuple):
    """A word and its similarity, from -1 to 1."""

    word: str
    similarity: float


class WordVectors:
    """The vectors of a run. Words are compared in the spelling of the tokenizer, usually in lower case."""

    def __init__(self, model: SkipGram, tokenizer: Tokenizer, sampler: BlockSampler, max_length: int):
        self.model, self.tokenizer = model, tokenizer
        self._sampler, self._max_length = sampler, max_length
        self.rows = words_of(tokenizer)
        """All words with a vector, each with its token id."""
        self.words = tuple(self.rows)
        """All words with a vector, the most frequent first."""
        self._numbers = {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return self.tokenizer.normalize(word) in self._numbers

    @cached_property
    def matrix(self) -> Matrix:
        """The vectors [V, D] of all words, in the order of `words`."""
        matrix: Matrix = self.model.words.weight.detach().cpu().numpy()[list(self.rows.values())]
        return matrix

    @cached_property
    def directions(self) -> Matrix:
        """The vectors [V, D], scaled to length 1."""
        lengths = np.linalg.norm(self.matrix, axis=1, keepdims=True)
        directions: Matrix = self.matrix / np.maximum(lengths, 1e-12)
        return directions

    def number(self, word: str) -> int:
        """The row of a word in `matrix`. An unknown word is an error."""
        normal = self.tokenizer.normalize(word)
        if normal not in self._numbers:
            alike = [other for other in self.words if other[:1] == normal[:1]] if normal else []
            guess = nearest(normal, alike) or "; choose a word that occurs in the training texts often enough"
            raise ModelError(f'"{word}" is not among the {len(self):,} words with a vector{guess}')
        return self._numbers[normal]

    def vector(self, word: str) -> Matrix:
        """The vector of a word, as it was trained."""
        return self.matrix[self.number(word)]

    def similarity(self, one: str, other: str) -> float:
        """The cosine of the vectors of two words."""
        return float(self.directions[self.number(one)] @ self.directions[self.number(other)])

    def neighbours(self, query: str, count: int = 10) -> list[Neighbour]:
        """The words with the most similar vectors. The words of the query itself are left out.

        `query` is a word, or a sum such as "king - man + woman": words and signs between spaces. The vectors of a sum
        have length 1 before they are added.
        """
        terms = parse_query(query)
        numbers = [self.number(word) for _, word in terms]
        return self._nearest(sum_of([sign for sign, _ in terms], self.directions[numbers]), numbers, count)

    def _nearest(self, vector: Matrix, left_out: Sequence[int], count: int) -> list[Neighbour]:
        similarity = self.directions @ (vector / max(float(np.linalg.norm(vector)), 1e-12))
        similarity[list(left_out)] = -2.0  # below every cosine
        count = min(count, len(self) - len(set(left_out)))
        best = np.argsort(-similarity, kind="stable")[:count]
        return [Neighbour(self.words[number], float(similarity[number])) for number in best]

    def analogies(self, questions: Sequence[Analogy]) -> list[Analogy]:
        """Answer questions "a is to b as c is to?" by the word nearest to b - a + c, without these three words."""
        answered = list(questions)
        known, rows = [], []
        for place, one in enumerate(questions):
            words = [self.tokenizer.normalize(word) for word in (one.a, one.b, one.c, one.expected)]
            if self._numbers.keys() >= set(words):
                known.append(place)
                rows.append([self._numbers[word] for word in words])
        for start in range(0, len(known), ANALOGIES):
            numbers_N4 = np.array(rows[start : start + ANALOGIES])
            a_ND, b_ND, c_ND = (self.directions[numbers_N4[:, place]] for place in range(3))
            similarity_NV = (b_ND - a_ND + c_ND) @ self.directions.T
            np.put_along_axis(similarity_NV, numbers_N4[:, :3], -np.inf, axis=1)
            expected_N1 = np.take_along_axis(similarity_NV, numbers_N4[:, 3:], axis=1)
            ranks, best = 1 + (similarity_NV > expected_N1).sum(1), similarity_NV.argmax(1)
            for place, rank, number in zip(known[start:], ranks.tolist(), best.tolist(), strict=False):
                answered[place] = replace(questions[place], answer=self.words[number], rank=rank)
        return answered

    def score(self, texts: Sequence[str]) -> dict[str, Any]:
        """How well the vectors predict the words around each word of the texts, and how many words are known."""
        encoded = encode_texts(texts, self.tokenizer, self._max_length)
        words = sum(map(len, self.tokenizer.encode_many(list(texts))))
        known = sum(map(len, encoded))
        found = score_texts(self.model, encoded, self._sampler).as_dict()
        return {**found, "texts": len(texts), "words": words, "known_words": known}


def parse_query(query: str) -> list[tuple[int, str]]:
    """Split "king - man + woman" into words with signs: [(1, "king"), (-1, "man"), (1, "woman")]."""
    terms, sign = list[tuple[int, str]](), 0
    for part in query.split():
        if part in ("+", "-"):
            if sign or (part == "+" and not terms):
                raise ModelError(f'"{query}": a word is missing before "{part}"; write e.g. king - man + woman')
            sign = 1 if part == "+" else -1
        elif terms and not sign:
            raise ModelError(f'"{query}": there is no + or - before "{part}"; write e.g. king - man + woman')
        else:
            terms.append((sign or 1, part))
            sign = 0
    if sign or not terms:
        raise ModelError(f'"{query}": a word is missing at the end; write e.g. king - man + woman')
    return terms


def sum_of(signs: Sequence[int], vectors_ND: Matrix) -> Matrix:
    total: Matrix = np.array(signs, np.float32) @ vectors_ND
    return total


def load(run: str | Path | Run, *others: str | Path) -> WordVectors:
    """Open a trained run."""
    opened = Run.open(run).require("embed")
    if others:
        raise RunError(f"{others[0]}: the vectors of several runs cannot be combined; give only one run")
    recipe, tokenizer = opened.recipe, opened.tokenizers[0]
    sampler = BlockSampler(read_counts(opened), recipe.task, recipe.train.seed, tokenizer.pad)
    model = opened.load_network()
    assert isinstance(model, SkipGram)
    return WordVectors(model, tokenizer, sampler, recipe.data.max_length)
