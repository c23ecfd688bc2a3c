"""How an encoder of questions is learnt: pairs of texts that belong together, told from all others of their batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.config import Recipe
from regard.data.batches import TokenSource, cut, make_sources
from regard.layers.dropout import Rows
from regard.models.base import Network
from regard.tasks.dataset import StreamTrainUnit
from regard.tasks.retrieve.data import KnowledgeEntry, texts_of
from regard.tasks.retrieve.embedding import TrainedEmbedder
from regard.tasks.retrieve.examples import PreparedKnowledge
from regard.tasks.retrieve.index import KnowledgeIndex
from regard.tasks.retrieve.scores import compare_all, right_entries, score
from regard.text.tokenizer import EOS, UNK
from regard.training.distributed import ProcessGroup
from regard.training.flops import count_cost
from regard.training.loss import Loss
from regard.training.trainer import Validation

# The loss of encoders that shall bring together what belongs together: in-batch negatives.


def contrast(one_BV: Tensor, other_BV: Tensor, group_B: Tensor, temperature: float) -> Loss:
    """How surely each text is told to belong to its partner, among the partners of all others; and the other way round.

    Vectors have length one. Pairs of one group (questions with the same answer) do not compete with each other.
    """
    scores_BB = (one_BV @ other_BV.mT).float() / temperature
    same_BB = group_B[:, None] == group_B[None, :]
    own_BB = torch.eye(len(group_B), dtype=torch.bool, device=group_B.device)
    scores_BB = scores_BB.masked_fill(same_BB & ~own_BB, float("-inf"))
    surprise_B = (scores_BB.logsumexp(1) + scores_BB.logsumexp(0)) / 2 - scores_BB.diagonal()
    total = surprise_B.sum(dtype=torch.float64)
    return Loss(total, total.detach(), len(group_B))


PARTS = 2
"""Texts are read so many times fewer at once than a batch has room for: those of one length together."""
FEW_QUESTIONS = 10
"""While training goes on, an answer is known by at most so many questions: as in use, and soon compared."""


@dataclass(frozen=True)
class PairBatch:
    """Texts, and as many others: the partner of each. Texts of similar length stand together."""

    texts: tuple[TokenSource, ...]
    place_R: Tensor
    """Where each text, and after them each partner, stands in these."""
    group_B: Tensor
    """Which answer a pair belongs to."""

    @property
    def target_tokens(self) -> int:
        """What the loss is summed over: pairs."""
        return len(self.group_B)

    def to(self, device: torch.device | str) -> PairBatch:
        """The same on another device."""
        texts = tuple(source.to(device) for source in self.texts)
        return PairBatch(texts, self.place_R.to(device), self.group_B.to(device))


class RetrieveTrainUnit(StreamTrainUnit):
    """What the loop must know of retrieval."""

    def __init__(self, recipe: Recipe, prepared: PreparedKnowledge, model: Network, group: ProcessGroup | None = None):
        self.recipe, self.data = recipe, prepared
        self.cost = count_cost(model)
        groups = [texts_of(entry, answers=recipe.task.match_answers) for entry in prepared.train]
        groups = [texts for texts in groups if len(texts) > 1]  # one text has no partner
        self.sizes = np.array([len(texts) for texts in groups])
        self.group_T = np.repeat(np.arange(len(groups)), self.sizes)
        self.first = np.cumsum([0, *self.sizes[:-1]])
        encoded = prepared.tokenizer.encode_many([text for texts in groups for text in texts])
        self.ids = [ids[: recipe.task.max_tokens] for ids in encoded]
        self.length_T = np.array([len(ids) + 1 for ids in self.ids])
        even = np.full(len(self.ids), round(self.length_T.mean()) - 1, np.uint32)
        # a batch mixes texts of all lengths, and always has as many
        super().__init__(recipe.train, (even, np.zeros_like(even)))
        self.by_vectors = replace(recipe.task, method="dense")
        self.known = [_few(entry) for entry in prepared.train]
        self.right = [number for number in right_entries(self.known, prepared.valid) if number is not None]

    def batch(self, position: int) -> PairBatch:
        """The texts at this place of the stream, each with another partner and other tokens hidden every time."""
        settings = self.recipe.train
        chance = np.random.Generator(np.random.PCG64([settings.seed % (1 << 64), position]))
        batch = self._join(self.stream.at(position), chance)
        hidden = self.recipe.task.word_dropout * self.stage.strength
        for texts in batch.texts if hidden else ():
            drawn_BS = torch.from_numpy(chance.random(texts.ids_BS.shape, np.float32)) < hidden
            texts.ids_BS[drawn_BS & texts.mask_BS & (texts.ids_BS != EOS)] = UNK
        return batch

    def largest(self) -> PairBatch:
        """The largest batch of the first epoch."""
        index = self.largest_of(lambda index: int(self.length_T[index].sum()))
        return self._join(index, np.random.default_rng(0))

    def rows(self, batch: PairBatch, first: int, every: int) -> tuple[PairBatch, Rows | None]:
        """All of it for the first process: a pair is told from all others of its batch, so none can be left out.

        The others only take part. A `train.gradient_accumulation` that they divide gives each of them
        batches of its own.
        """
        if not first:
            return batch, None
        alone = make_sources([self.ids[0], self.ids[0]], self.data.tokenizer.pad)
        part = PairBatch((alone,), torch.arange(2), batch.group_B[:1])
        return part, Rows(torch.zeros(1, dtype=torch.long), 1, weight=0.0)

    def loss(self, model: Network, batch: PairBatch) -> Loss:
        """Of telling partners."""
        vectors_RV = torch.cat([model(texts) for texts in batch.texts])
        one_BV, other_BV = vectors_RV[batch.place_R].chunk(2)
        return contrast(one_BV, other_BV, batch.group_B, self.recipe.task.temperature)

    def flops(self, batch: PairBatch) -> float:
        """Arithmetic of one step on this batch, padding included."""
        shapes = [texts.mask_BS.shape for texts in batch.texts]
        return sum(self.cost.training(text=rows, token=rows * size, pair=rows * size**2) for rows, size in shapes)

    def validate(self, model: Network) -> Validation:
        """How the held-out questions find their answers, by vectors alone."""
        embedder = TrainedEmbedder(model, self.data.tokenizer, self.by_vectors)
        index = KnowledgeIndex(self.known, self.by_vectors, embedder)
        dense_QE = compare_all(index, [pair.source for pair in self.data.valid]).total(1.0)
        found = score(dense_QE, self.right, 0.0)
        scores = {"mrr": found.mrr, "recall_1": found.recall_1, "recall_5": found.recall_5}
        return Validation(scores, found.mrr)

    def _join(self, index: NDArray[np.int64], chance: np.random.Generator) -> PairBatch:
        """Pairs of the texts with these numbers and a partner of each, drawn from the others of its answer."""
        group_B = self.group_T[index]
        size_B, first_B = self.sizes[group_B], self.first[group_B]
        further_B = 1 + (chance.random(len(index)) * (size_B - 1)).astype(np.int64)
        partner_B = first_B + (index - first_B + further_B) % size_B
        chosen = np.concatenate([index, partner_B])
        order = np.argsort(self.length_T[chosen], kind="stable")
        bounds = cut(self.length_T[chosen[order]], self.recipe.train.batch_tokens // PARTS)
        texts = (
            make_sources([self.ids[place] for place in chosen[order[start:end]]], self.data.tokenizer.pad)
            for start, end in pairwise(bounds)
        )
        return PairBatch(tuple(texts), torch.from_numpy(np.argsort(order)), torch.from_numpy(group_B))


def _few(entry: KnowledgeEntry) -> KnowledgeEntry:
    return entry._replace(questions=entry.questions[:FEW_QUESTIONS])
