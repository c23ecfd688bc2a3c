"""Skip-gram with negative sampling: "Distributed Representations of Words and Phrases", Mikolov et al. 2013.

Each word has two vectors: one as the center of a window, one as the context of other words. The score of a pair is
their dot product, and its sigmoid is the probability that the pair comes from the text and not from noise. The vectors
of centers are the result of training.

A text is computed in blocks of consecutive words. All words of a block are scored against all words of the block, a few
words on either side, and the noise words of the block, which its words share (Ji et al. 2016): one small matrix product
per block. A mask selects the pairs within the window of each center. The gradients are sparse: they contain only the
rows of the words in the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from regard.config import ModelSettings
from regard.config.ranges import Width
from regard.models.base import Example, Network


@dataclass(frozen=True)
class SkipGramSettings(ModelSettings):
    """Settings of word vectors: skip-gram with negative sampling."""

    kind: ClassVar[str] = "word-vectors"
    network: ClassVar[str] = "SkipGram"
    about: ClassVar[str] = (
        "Distributed Representations of Words and Phrases and their Compositionality (Mikolov et al. 2013)"
    )

    arch: str = "skip-gram"
    width: Width = 100
    """Width of the vectors."""

    @property
    def attends(self) -> bool:
        return False

    @property
    def tokenizer_kind(self) -> str:
        return "word"

    @property
    def suits_muon(self) -> bool:
        return False


PRESETS: dict[str, ModelSettings] = {"skip-gram": SkipGramSettings()}


class TextBlocks(Protocol):
    """R blocks of Q consecutive words (centers), and the C words around and inside each block (contexts).

    Each block also has K noise words, which all its centers share.
    """

    @property
    def centers_RQ(self) -> Tensor: ...
    @property
    def contexts_RC(self) -> Tensor: ...
    @property
    def noise_RK(self) -> Tensor: ...


class SkipGram(Network):
    """Two tables of vectors; the score of a center and a context, or of a center and a noise word, is a dot product."""

    has_sparse_gradients = True

    def __init__(self, settings: SkipGramSettings, vocabulary: int):
        super().__init__()
        self.words = nn.Embedding(vocabulary, settings.width, sparse=True)
        self.contexts = nn.Embedding(vocabulary, settings.width, sparse=True)
        nn.init.uniform_(self.words.weight, -0.5 / settings.width, 0.5 / settings.width)
        nn.init.zeros_(self.contexts.weight)
        self.output = nn.Linear(settings.width, vocabulary, bias=False)
        self.output.weight = self.contexts.weight

    def forward(self, blocks: TextBlocks) -> Tensor:
        """Scores [R, Q, C + K] of each center with all contexts and all noise words of its block."""
        others_RN = torch.cat([blocks.contexts_RC, blocks.noise_RK], dim=1)
        return torch.bmm(self.words(blocks.centers_RQ), self.contexts(others_RN).transpose(1, 2))

    def embedding_tables(self) -> dict[str, nn.Embedding]:
        return {"source": self.words}

    def examples(self) -> Iterator[Example]:
        """A forward pass of one word, for `training/flops.py`. The unit is a score of a center and another word."""
        ids = torch.zeros(1, 1, dtype=torch.long, device="cpu")
        blocks = SimpleNamespace(centers_RQ=ids, contexts_RC=ids, noise_RK=ids[:, :0])
        yield Example(partial(self, blocks), {"score": 1})


def negative_sampling_loss(scores_RQN: Tensor, window_RQC: Tensor, noise_weight_RQ: Tensor) -> Tensor:
    """Binary cross-entropy, summed over the pairs of all windows and their noise words.

    `window_RQC`: True for pairs within the window of a center, in the first C columns of the scores. `noise_weight_RQ`:
    weight of each noise word for each center, which makes up for the number of noise words that are shared.
    """
    loss: Tensor = _NegativeSampling.apply(scores_RQN, window_RQC, noise_weight_RQ)  # type: ignore[no-untyped-call]
    return loss


class _NegativeSampling(torch.autograd.Function):
    """Computes loss and gradient together, in the memory of the scores' sigmoid."""

    @staticmethod
    def forward(ctx: Any, scores_RQN: Tensor, window_RQC: Tensor, noise_weight_RQ: Tensor) -> Tensor:
        scores_RQN, contexts = scores_RQN.float(), window_RQC.shape[2]
        weight_RQN = scores_RQN.new_empty(scores_RQN.shape)
        weight_RQN[:, :, :contexts] = window_RQC
        weight_RQN[:, :, contexts:] = noise_weight_RQ[:, :, None]
        terms_RQN = nn.functional.softplus(scores_RQN)
        terms_RQN[:, :, :contexts] -= scores_RQN[:, :, :contexts]
        loss = torch.dot(terms_RQN.flatten(), weight_RQN.flatten())
        gradient_RQN = scores_RQN.sigmoid()
        gradient_RQN[:, :, :contexts] -= 1
        ctx.save_for_backward(gradient_RQN.mul_(weight_RQN))
        return loss

    @staticmethod
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor, None, None]:
        (gradient_RQN,) = ctx.saved_tensors
        return gradient_RQN.mul(factor), None, None
