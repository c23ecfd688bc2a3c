"""How labels are learnt: batches of documents, their loss, and validation on held-out ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.config import Recipe
from regard.data.batches import DocumentBatch, in_batches, make_documents
from regard.data.store import Sentences
from regard.layers.dropout import Rows
from regard.models.base import ClassifierModel
from regard.tasks.classify.data import LabelledDocument, PreparedDocuments, encode_document
from regard.tasks.dataset import StreamTrainUnit
from regard.tasks.labels import balanced, label_loss, score_labels, to_probabilities
from regard.text.tokenizer import EOS, UNK
from regard.training.distributed import ProcessGroup
from regard.training.flops import count_cost
from regard.training.loss import Loss
from regard.training.trainer import Validation


class ClassifyTrainUnit(StreamTrainUnit):
    """What the loop must know of classification."""

    def __init__(
        self, recipe: Recipe, prepared: PreparedDocuments, model: ClassifierModel, group: ProcessGroup | None = None
    ):
        store = prepared.train
        super().__init__(recipe.train, (store.tokens, np.zeros_like(store.tokens)), store.weights)
        self.recipe, self.data, self.group = recipe, prepared, group or ProcessGroup()
        self.cost = count_cost(model)
        self.window = window_of(recipe)
        self.valid = [encode_document(one.text, prepared.tokenizer, recipe.task) for one in prepared.valid]
        self.weights_L: Tensor | None = None
        if recipe.task.class_weights == "balanced":
            self.weights_L = balanced(store.label_counts(len(prepared.labels)))

    def batch(self, position: int) -> DocumentBatch:
        """The documents at this place of the stream, with other words hidden each time."""
        settings = self.recipe.train
        batch = self._join(self.stream.at(position))
        hidden = self.recipe.task.word_dropout * self.stage.strength
        if not hidden:
            return batch
        chance = np.random.Generator(np.random.PCG64([settings.seed % (1 << 64), position]))
        drawn_BUS = torch.from_numpy(chance.random(batch.ids_BUS.shape, np.float32)) < hidden
        batch.ids_BUS[drawn_BUS & batch.mask_BUS & (batch.ids_BUS != EOS)] = UNK
        return batch

    def largest(self) -> DocumentBatch:
        """The largest batch of the first epoch, padding included."""
        return self._join(self.largest_of(lambda index: len(index) * int(self.lengths[0][index].max())))

    def rows(self, batch: DocumentBatch, first: int, every: int) -> tuple[DocumentBatch, Rows]:
        """Every so many documents, from the first on."""
        rows = Rows.deal(len(batch.index_B), first, every)
        return batch.rows(rows.index_R), rows

    def loss(self, model: ClassifierModel, batch: DocumentBatch) -> Loss:
        """Of the documents' labels."""
        classify, smoothing = self.recipe.task, self.recipe.train.label_smoothing if model.training else 0.0
        weights_L = self.weights_L if model.training else None
        weights_L = None if weights_L is None else weights_L.to(batch.target_BL.device)
        return label_loss(
            model(batch), batch.target_BL, several=classify.multi_label, smoothing=smoothing, weights_L=weights_L
        )

    def flops(self, batch: DocumentBatch) -> float:
        """Arithmetic of one step on this batch. A window is computed with its padding, sentences without."""
        documents, segments, size = batch.mask_BUS.shape
        if self.window:
            pairs = documents * segments * size**2
            return self.cost.training(document=documents, token=batch.mask_BUS.numel(), pair=pairs)
        sentences, tokens = int(batch.mask_BUS.any(-1).sum()), int(batch.mask_BUS.sum())
        return self.cost.training(document=documents, sentence=sentences, token=tokens)

    def validate(self, model: ClassifierModel) -> Validation:
        """Loss, accuracy and F1 over the validation documents."""
        settings, labels = self.recipe.task, self.data.labels
        logits_BL = self._team_logits(model)
        probability_BL = to_probabilities(logits_BL, 1.0, several=settings.multi_label).numpy()
        target_BL = target_of(self.data.valid, labels).numpy() > 0
        found = score_labels(
            probability_BL, target_BL, labels, several=settings.multi_label, threshold=settings.threshold
        )
        scores = {"loss": found.loss, "accuracy": found.accuracy, "f1": found.f1}
        metric = self.recipe.train.metric
        return Validation(scores, -found.loss if metric == "loss" else scores[metric])

    def _team_logits(self, model: ClassifierModel) -> Tensor:
        share = self.group.share(range(len(self.valid)))
        documents = [self.valid[place].sentences for place in share]
        mine = score_documents(model, documents, self.data.tokenizer.pad, self.recipe)
        return torch.tensor(self.group.join(mine.tolist()), dtype=torch.float64)

    def _join(self, index: np.ndarray) -> DocumentBatch:
        store = self.data.train
        sentences, labels = zip(*(store[int(place)] for place in index), strict=True)
        return make_documents(sentences, self.data.tokenizer.pad, self.window, labels, len(self.data.labels), index)


def window_of(recipe: Recipe) -> int:
    """Tokens of the windows that the architecture reads; 0: it reads sentences."""
    return recipe.model.document_window


def target_of(documents: Sequence[LabelledDocument], labels: Sequence[str]) -> Tensor:
    """1 for each label that a document has, [B, L]."""
    target_BL = torch.zeros(len(documents), len(labels))
    number = {label: place for place, label in enumerate(labels)}
    for row, document in enumerate(documents):
        target_BL[row, [number[label] for label in document.labels]] = 1.0
    return target_BL


@torch.no_grad()
def score_documents(model: ClassifierModel, documents: Sequence[Sentences], pad: int, recipe: Recipe) -> Tensor:
    """Scores [B, L] of any number of documents, in their order; those of similar length are read together."""
    device = model.output.weight.device
    logits_BL = torch.zeros(len(documents), model.output.out_features)
    for places in in_batches([sum(map(len, one)) for one in documents], recipe.task.batch_tokens):
        batch = make_documents([documents[place] for place in places], pad, window_of(recipe))
        logits_BL[places] = model(batch.to(device)).float().cpu()
    return logits_BL
