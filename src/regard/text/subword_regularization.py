"""Subword regularization (BPE-dropout, unigram sampling): random segmentations of a text, different each time.

BPE-dropout (Provilkov et al. 2020) and sampling from the unigram lattice (Kudo 2018). Both are implemented here because
the sampling of SentencePiece cannot be seeded. Subwords never cross a space, so each word is segmented independently.
"""

from __future__ import annotations

import functools
import math
import random
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise

from regard.errors import TokenizerError
from regard.text.subword import BYTE_COUNT, SubwordTokenizer
from regard.text.tokenizer import FIRST_TOKEN, SPACE_MARK, Tokenizer, find_symbols

CACHED_WORDS = 1 << 16
"""Number of words for which the part of the computation that is not random is cached: words occur many times."""
NEVER = math.inf
"""The rank of two neighboring symbols that cannot be merged, because together they are not a token."""
Draw = Callable[[], float]
"""Returns the next uniform random number in [0, 1)."""


def resample(tokenizer: Tokenizer, ids: Sequence[int], strength: float, generator: random.Random) -> list[int]:
    """Sample a random segmentation of the text of `ids`, and return the ids of the sampled tokens.

    For BPE, `strength` is the probability that a merge is dropped. For unigram, `strength` is Kudo's alpha, the
    exponent of the probability of a segmentation: a smaller alpha gives more varied samples. `strength` 0 turns
    sampling off.
    """
    text = tokenizer.decode(ids)
    if not strength:
        return tokenizer.encode(text)
    if not isinstance(tokenizer, SubwordTokenizer):
        raise TokenizerError(
            'tokenizer.subword_regularization needs subwords; set it to 0, or tokenizer.kind to "bpe" or "unigram"'
        )
    return _Resampler(tokenizer).encode(text, strength, generator.random)


@functools.lru_cache(maxsize=4)  # the two tokenizers of a run
class _Resampler:
    """Encodes texts into ids of one tokenizer, with random segmentations."""

    def __init__(self, tokenizer: SubwordTokenizer):
        self.first_byte = tokenizer.first_byte
        start = self.first_byte + BYTE_COUNT
        self.ids = {tokenizer.token(id): id for id in range(start, tokenizer.pad)}
        scores = {token: tokenizer.scores[id - FIRST_TOKEN] for token, id in self.ids.items()}
        self.split = (BpeDropout if tokenizer.kind == "bpe" else UnigramLattice)(scores).split
        self.symbols = {symbol: FIRST_TOKEN + place for place, symbol in enumerate(tokenizer.symbols)}
        self.symbol = find_symbols(tokenizer.symbols)

    def encode(self, text: str, strength: float, draw: Draw) -> list[int]:
        ids: list[int] = []
        for word in text.split(" ") if text else ():
            marked = SPACE_MARK + word
            for part in [marked] if self.symbol is None else filter(None, self.symbol.split(marked)):
                if part in self.symbols:
                    ids.append(self.symbols[part])
                    continue
                for token in self.split(part, strength, draw):
                    id = self.ids.get(token)
                    if id is None:  # a character outside the alphabet
                        ids.extend(self.first_byte + byte for byte in token.encode())
                    else:
                        ids.append(id)
        return ids


class BpeDropout:
    """Segments words by BPE, but before each merge, every possible merge is dropped with the same probability."""

    def __init__(self, scores: Mapping[str, float]):
        """`scores`: the score of each token. The later the merge of a token was learned, the lower is its score."""
        self.rank = {token: -score for token, score in scores.items()}
        self.plain = functools.lru_cache(maxsize=CACHED_WORDS)(
            lambda word: self._merge(word, len(word), lambda: len(word))  # without dropout
        )

    def split(self, word: str, drop: float, draw: Draw) -> list[str]:
        """Segment a word at random. `drop`: probability of dropping a merge; `draw()`: random number in [0, 1)."""
        plain, log_keep = self.plain(word), math.log1p(-drop)

        def merges_until_drop() -> int:
            """Number of merges to apply before the next dropped merge, drawn from a geometric distribution."""
            return int(math.log(1.0 - draw()) / log_keep)

        first = merges_until_drop()
        if first >= len(word) - len(plain):  # nothing is dropped before the last merge of plain BPE
            return plain
        return self._merge(word, first, merges_until_drop)

    def _merge(self, word: str, left: int, merges_until_drop: Callable[[], int]) -> list[str]:
        """Merge neighboring symbols of a word in the order in which BPE learned the merges, with dropout.

        `left` merges are applied before the first dropped merge. After each dropped merge, `merges_until_drop()`
        returns how many merges are applied before the next dropped merge.
        """
        rank_of = self.rank.get
        symbols = list(word)
        ranks = [rank_of(one + other, NEVER) for one, other in pairwise(word)]
        dropped: list[tuple[int, float]] = []
        while (best := min(ranks, default=NEVER)) < NEVER:
            place = ranks.index(best)
            if left == 0:
                dropped.append((place, best))
                ranks[place] = NEVER
                left = merges_until_drop()
                continue
            left -= 1
            for other, rank in dropped:  # after the next merge they are possible again
                ranks[other] = rank
            dropped.clear()
            symbols[place] += symbols.pop(place + 1)
            del ranks[place]
            if place > 0:
                ranks[place - 1] = rank_of(symbols[place - 1] + symbols[place], NEVER)
            if place < len(ranks):
                ranks[place] = rank_of(symbols[place] + symbols[place + 1], NEVER)
        return symbols


class UnigramLattice:
    """Samples a segmentation of a word with probability proportional to (product of token probabilities) ** alpha."""

    def __init__(self, scores: Mapping[str, float]):
        """`scores`: the log-probability of each token."""
        self.scores = scores
        self.longest = max(map(len, scores), default=1)
        self.last_tokens = functools.lru_cache(maxsize=CACHED_WORDS)(self._last_tokens)

    def split(self, word: str, alpha: float, draw: Draw) -> list[str]:
        """Segment a word at random, from its end to its beginning; `draw()` returns a random number in [0, 1).

        `alpha`: exponent of the probability of a segmentation; a smaller one gives more varied samples.
        """
        tokens = []
        last_tokens, end = self.last_tokens(word, alpha), len(word)
        while end:
            starts, cumulative = last_tokens[end]
            start = starts[bisect(cumulative, draw() * cumulative[-1])] if len(starts) > 1 else starts[0]
            tokens.append(word[start:end])
            end = start
        return tokens[::-1]

    def _last_tokens(self, word: str, alpha: float) -> list[tuple[list[int], list[float]]]:
        """For each position in the word: where the tokens that end there start, and their cumulative weights.

        The weight of a token is proportional to the probability that it is the last in a sampled segmentation of the
        characters up to this position; it is computed by a forward pass.
        """
        log_sums = [0.0]
        last_tokens: list[tuple[list[int], list[float]]] = [([], [])]
        for end in range(1, len(word) + 1):
            starts = [s for s in range(max(0, end - self.longest), end) if word[s:end] in self.scores]
            if not starts or starts[-1] < end - 1:
                starts.append(end - 1)  # a character outside the alphabet, which will be encoded as bytes
            weights = [log_sums[start] + alpha * self.scores.get(word[start:end], 0.0) for start in starts]
            best = max(weights)
            cumulative = list(accumulate(math.exp(weight - best) for weight in weights))
            log_sums.append(best + math.log(cumulative[-1]))
            last_tokens.append((starts, cumulative))
        return last_tokens
