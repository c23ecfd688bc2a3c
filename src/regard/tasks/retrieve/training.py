"""Training of text encoders for retrieval: the plan, pairs of texts with the same answer, and contrastive loss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.config import Recipe
from regard.data.batches import TokenSource, batch_bounds, make_sources
from regard.data.pairs import Pair
from regard.data.split import normalize
from regard.errors import RunError, SettingsError
from regard.layers.dropout import Rows
from regard.models.base import Network
from regard.run import Run
from regard.tasks.bootstrap import ratio_metric
from regard.tasks.dataset import HELD_OUT, StreamTrainUnit, learn_tokenizer, new_store, open_store_folder, read_held_out
from regard.tasks.retrieve.data import (
    KNOWLEDGE,
    KnowledgeEntry,
    KnowledgeFacts,
    PreparedKnowledge,
    TrainingKnowledge,
    read_entries,
    texts_of,
    without,
    write_entries,
)
from regard.tasks.retrieve.embedding import TrainedEmbedder, open_embedder
from regard.tasks.retrieve.index import KnowledgeIndex, known_entries, store_entries
from regard.tasks.retrieve.retriever import Retriever
from regard.tasks.retrieve.scores import rank, right_entries, score, tune_run
from regard.tasks.retrieve.settings import RetrieveSettings
from regard.tasks.training import Json, Log, Scored, Tables, Training, Workload
from regard.text.tokenizer import EOS, UNK
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.loss import Loss
from regard.training.plan import PlannedSetting, choose_batch, choose_learning_rate, choose_length, leave_given
from regard.training.trainer import Validation

COMPARED_ANSWERS = 2000
"""Maximum number of answers without a held-out question among which a comparison with the base ranks."""


def contrastive_loss(one_BV: Tensor, other_BV: Tensor, group_B: Tensor, temperature: float) -> Loss:
    """Return the contrastive loss with in-batch negatives (InfoNCE in both directions), summed over B pairs of texts.

    `one_BV` and `other_BV` are the vectors of the first and of the second texts; they have V elements and length one.
    The loss is the cross-entropy of finding the second text of a pair among all second texts, averaged with that of
    finding the first text among all first texts. `group_B` has the index of the answer of each pair: pairs with the
    same answer are not negatives of each other. Dot products are divided by `temperature`.
    """
    scores_BB = (one_BV @ other_BV.mT).float() / temperature
    same_BB = group_B[:, None] == group_B[None, :]
    own_BB = torch.eye(len(group_B), dtype=torch.bool, device=group_B.device)
    scores_BB = scores_BB.masked_fill(same_BB & ~own_BB, float("-inf"))
    loss_B = (scores_BB.logsumexp(1) + scores_BB.logsumexp(0)) / 2 - scores_BB.diagonal()
    total = loss_B.sum(dtype=torch.float64)
    return Loss(total, total.detach(), len(group_B))


@dataclass(frozen=True)
class PairBatch:
    """A batch of B pairs: a text and its positive, i.e. another question with the same answer, or the answer itself."""

    texts: tuple[TokenSource, ...]
    """All texts and positives, sorted by length and divided into parts, so that they need little padding."""
    place_R: Tensor
    """R = 2 B rows: where each of the B texts, and then each of the B positives, is in the concatenated parts."""
    group_B: Tensor
    """Index of the answer of each pair."""

    @property
    def target_tokens(self) -> int:
        """Number of pairs. (In other tasks, the loss is a sum over target tokens; here it is a sum over pairs.)"""
        return len(self.group_B)

    def to(self, device: torch.device | str) -> PairBatch:
        texts = tuple(source.to(device) for source in self.texts)
        return PairBatch(texts, self.place_R.to(device), self.group_B.to(device))


class RetrieveTrainUnit(StreamTrainUnit):
    data: PreparedKnowledge

    def __init__(self, recipe: Recipe, data: PreparedKnowledge, model: Network, group: ProcessGroup | None = None):
        groups = [texts_of(entry, answers=recipe.task.match_answers) for entry in data.train]
        groups = [texts for texts in groups if len(texts) > 1]  # a single text has no positive
        self.sizes = np.array([len(texts) for texts in groups])
        self.group_T = np.repeat(np.arange(len(groups)), self.sizes)
        self.first = np.cumsum([0, *self.sizes[:-1]])
        encoded = data.tokenizer.encode_many([text for texts in groups for text in texts])
        self.ids = [ids[: recipe.task.max_tokens] for ids in encoded]
        self.length_T = np.array([len(ids) + 1 for ids in self.ids])
        even = np.full(len(self.ids), round(self.length_T.mean()) - 1, np.uint32)
        # With equal lengths, every batch has the same number of texts, of all lengths.
        super().__init__(recipe, data, model, group, (even, np.zeros_like(even)))
        self.by_vectors = replace(recipe.task, method="dense")
        self.known = [entry._replace(questions=entry.questions[:10]) for entry in data.train]  # few, for speed
        self.right = right_entries(self.known, data.valid)

    def batch(self, position: int) -> PairBatch:
        """Return the batch at `position` of the training stream: texts, each with another text of the same answer.

        Random tokens are replaced by UNK (`retrieve.word_dropout`).
        """
        chance = np.random.Generator(np.random.PCG64([self.recipe.train.seed % (1 << 64), position]))
        batch = self._join(self.stream.at(position), chance)
        hidden = self.recipe.task.word_dropout * self.stage.strength
        for texts in batch.texts if hidden else ():
            drawn_BS = torch.from_numpy(chance.random(texts.ids_BS.shape, np.float32)) < hidden
            texts.ids_BS[drawn_BS & texts.mask_BS & (texts.ids_BS != EOS)] = UNK
        return batch

    def largest(self) -> PairBatch:
        index = self.largest_of(lambda index: int(self.length_T[index].sum()))
        return self._join(index, np.random.default_rng(0))

    def rows(self, batch: PairBatch, first: int, every: int) -> tuple[PairBatch, Rows | None]:
        """Return the part of a batch for process number `first` of `every` processes: all of it for process 0.

        A batch is not divided, because its pairs are negatives of each other, so the other processes compute one pair
        with weight 0. To use all processes, make `train.gradient_accumulation` a multiple of their number: then each
        computes whole batches.
        """
        if not first:
            return batch, None
        alone = make_sources([self.ids[0], self.ids[0]], self.data.tokenizer.pad)
        part = PairBatch((alone,), torch.arange(2), batch.group_B[:1])
        return part, Rows(torch.zeros(1, dtype=torch.long), 1, weight=0.0)

    def loss(self, model: Network, batch: PairBatch) -> Loss:
        vectors_RV = torch.cat([model(texts) for texts in batch.texts])
        one_BV, other_BV = vectors_RV[batch.place_R].chunk(2)
        return contrastive_loss(one_BV, other_BV, batch.group_B, self.recipe.task.temperature)

    def flops(self, batch: PairBatch) -> float:
        shapes = [texts.mask_BS.shape for texts in batch.texts]
        return sum(self.cost.training(text=rows, token=rows * size, pair=rows * size**2) for rows, size in shapes)

    def validate(self, model: Network) -> Validation:
        """Compute recall and mean reciprocal rank of the validation questions by vectors only (without BM25)."""
        embedder = TrainedEmbedder(model, self.data.tokenizer, self.by_vectors)
        index = KnowledgeIndex(self.known, self.by_vectors, embedder)
        dense_QE = index.compare_all([pair.source for pair in self.data.valid]).total(1.0)
        found = score(dense_QE, self.right, 0.0)
        scores = {"mrr": found.mrr, "recall_1": found.recall_1, "recall_5": found.recall_5}
        return Validation(scores, found.mrr)

    def _join(self, index: NDArray[np.int64], chance: np.random.Generator) -> PairBatch:
        """Make a batch of pairs: each text at `index`, and another text with the same answer, chosen by `chance`."""
        group_B = self.group_T[index]
        size_B, first_B = self.sizes[group_B], self.first[group_B]
        further_B = 1 + (chance.random(len(index)) * (size_B - 1)).astype(np.int64)
        partner_B = first_B + (index - first_B + further_B) % size_B
        chosen = np.concatenate([index, partner_B])
        order = np.argsort(self.length_T[chosen], kind="stable")
        bounds = batch_bounds(self.length_T[chosen[order]], self.recipe.train.batch_tokens // 2)
        parts = (
            make_sources([self.ids[place] for place in chosen[order[start:end]]], self.data.tokenizer.pad)
            for start, end in pairwise(bounds)
        )
        return PairBatch(tuple(parts), torch.from_numpy(np.argsort(order)), torch.from_numpy(group_B))


class RetrieveTraining(Training[TrainingKnowledge, PreparedKnowledge]):
    train_unit = RetrieveTrainUnit
    result = "recall@1 {recall_1:.2%}  recall@5 {recall_5:.2%}  MRR {mrr:.4f}  on {questions:,} questions"

    def check(self, recipe: Recipe) -> None:
        settings: RetrieveSettings = recipe.task
        if settings.encoder or settings.method == "bm25":
            what = "retrieve.encoder" if settings.encoder else 'retrieve.method = "bm25"'
            raise SettingsError(f'{what} needs no training; use "regard index --create RUN FILE"')

    def read(self, recipe: Recipe) -> TrainingKnowledge:
        return TrainingKnowledge(recipe.data, recipe.train.seed)

    def plan(self, examples: TrainingKnowledge, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        return make_retrieval_plan(examples.facts, given)

    def workload(self, recipe: Recipe, examples: TrainingKnowledge) -> Workload:
        """Estimate the computation of an epoch: every text, of mean length, is encoded together with a positive."""
        data = examples.facts
        tokens = round(min(data.tokens, recipe.task.max_tokens))
        amounts = {"text": data.texts, "token": data.texts * tokens, "pair": data.texts * tokens**2}
        return Workload(amounts, tokens, passes=2)

    def prepare(self, run: Run, recipe: Recipe, examples: TrainingKnowledge, log: Log, base: Run | None) -> None:
        groups = [texts_of(entry, answers=recipe.task.match_answers) for entry in examples.train]
        if not any(len(texts) > 1 for texts in groups):
            raise SettingsError(
                "no answer has two questions, so there are no pairs to train on; add questions, "
                "or set retrieve.match_answers = true"
            )
        write_entries(run.folder / KNOWLEDGE, examples.entries)
        learn_tokenizer(run, recipe, (text for texts in groups for text in texts), log, base)
        _write_store(run, examples)

    def open_data(self, run: Run, log: Log) -> PreparedKnowledge:
        if not run.recipe.data.train:
            raise RunError(
                f'{run.folder}: made by "regard index --create", without training; make a new run with "regard train"'
            )
        folder = open_store_folder(run, lambda: _write_store(run, self.read(run.recipe)))
        valid, test = ([Pair(*pair) for pair in read_held_out(folder, part, "questions")] for part in HELD_OUT)
        return PreparedKnowledge(run.tokenizers[0], read_entries(folder / "train.jsonl"), valid, test)

    def card(self, recipe: Recipe, data: PreparedKnowledge, base: Run | None) -> Json:
        parts = {"train": sum(len(entry.questions) for entry in data.train)}
        parts |= {"valid": len(data.valid), "test": len(data.test)}
        return {
            "vocabulary": data.tokenizer.size,
            "questions": parts,
            "answers": len(data.train),
            "tuned": base.card.get("tuned", {}) if base else {},
        }

    def expected_initial_loss(self, recipe: Recipe, data: PreparedKnowledge) -> float:
        return 2.0 + 1 / recipe.task.temperature  # about half of the maximum: similarities are from -1 to 1

    def predictor(self, run: Run, data: PreparedKnowledge, log: Log) -> Retriever:
        """Tune dense weight and threshold of a run; return a retriever without the held-out questions, to be scored."""
        index = KnowledgeIndex(data.train, run.recipe.task, open_embedder(run, run.recipe.task))
        retriever = Retriever(index, tune_run(run, index, log))
        retriever.tuned = run.card.get("tuned", {})
        return retriever

    def score(self, predictor: Retriever, examples: Sequence[Pair]) -> Scored:
        """Compute recall and MRR with the run's `retrieve.method` and, as "methods", with each tuned method."""
        compared = predictor.index.compare_all([pair.source for pair in examples])
        right = right_entries(predictor.index.entries, examples)
        methods = {}
        for method, found in predictor.tuned.items():
            totals_QE = compared.by(method).total(found.get("dense_weight", 0.0))
            methods[method] = score(totals_QE, right, found["threshold"]).as_dict()
        totals_QE = compared.total(predictor.settings.dense_weight)
        own = score(totals_QE, right, predictor.settings.threshold)
        metric = ratio_metric("mrr", ((1 / place, 1) for place in rank(totals_QE, right).tolist()))
        return Scored(own.as_dict() | {"methods": methods}, None, metric)

    def from_records(self, records: Sequence[Json]) -> list[Pair]:
        return [Pair(one["source"], one["target"]) for one in records]

    def comparison_context(self, base: Run) -> Json:
        """The knowledge base of `base` without its held-out questions; of a large one, only some other answers."""
        held_out = base.held_out()
        gone, answers = {normalize(pair.source) for pair in held_out}, {normalize(pair.target) for pair in held_out}
        entries = [without(entry, gone) for entry in known_entries(base)]
        asked = [entry for entry in entries if normalize(entry.answer) in answers]
        others = [entry for entry in entries if normalize(entry.answer) not in answers]
        return {"entries": [*asked, *others[:COMPARED_ANSWERS]]}

    def comparison_predictor(self, run: Run, context: Json) -> Retriever:
        """A retriever by vectors only: fine-tuning does not change BM25."""
        entries = [KnowledgeEntry(tuple(questions), answer) for questions, answer in context["entries"]]
        settings = replace(run.recipe.task, method="dense")
        return Retriever(KnowledgeIndex(entries, settings, open_embedder(run, settings)), settings)

    def train_examples(self, examples: TrainingKnowledge) -> Iterable[Pair]:
        return (Pair(question, entry.answer) for entry in examples.train for question in entry.questions)

    def texts(self, example: Pair) -> tuple[str, ...]:
        return (example.source,)

    def held_out(self, data: PreparedKnowledge) -> list[Pair]:
        return data.valid  # never the test part, because `tune_run` uses these questions

    def complete(self, run: Run, data: PreparedKnowledge) -> None:
        """Encode the whole knowledge base, including the held-out questions, and store the vectors in the run."""
        store_entries(run, known_entries(run))

    def folder(self, recipe: Recipe) -> Path:
        name = Path(recipe.data.train[0].source).name.partition(".")[0]
        return Path("runs") / (name or recipe.model.arch)


def _write_store(run: Run, knowledge: TrainingKnowledge) -> None:
    with new_store(run, knowledge.held_out) as folder:
        write_entries(folder / "train.jsonl", knowledge.train)


def make_retrieval_plan(data: KnowledgeFacts, given: Tables) -> list[PlannedSetting]:
    """Choose vocabulary size, model width, batch size and other settings by statistics of the training data.

    `given` are the settings of the user by section; they are left out of the result.
    """
    choices = []
    if data.names:
        reason = "the answers are names: questions are compared with questions only"
        choices.append(PlannedSetting("retrieve.match_answers", False, reason))
    size = int(min(max(15 * math.sqrt(data.texts * data.words), 300), 16_000)) // 100 * 100
    reason = f"{data.texts:,} texts: few enough that each subword is seen often"
    dropout = 0.3 if data.texts < 100_000 else 0.1
    choices += [
        PlannedSetting("tokenizer.vocab_size", size, reason),
        PlannedSetting("model.width", 128 if data.texts < 2_000 else 256, f"{data.texts:,} texts"),
        PlannedSetting("model.dropout", dropout, "the less data, the more dropout"),
        PlannedSetting("train.ema_decay", 0.98, "a short average, because training is short"),
        *choose_learning_rate(4e-3, 50, 0.3),
    ]
    # Each text gets some hundred negatives, or a tenth of a small knowledge base.
    wanted = min(256, max(data.texts // 10, 16)) * data.tokens
    unit = "texts, which are negatives of each other"
    batch, epoch = choose_batch(given, wanted, least=256, examples=data.texts, length=data.tokens, unit=unit)
    every = min(max(2 * epoch, 50), 1000)
    most = max(20 * epoch, 10 * every)  # a model of a small knowledge base overfits long before
    choices += [batch, *choose_length(epoch, validate_every=every, patience=5, max_steps=most)]
    return leave_given(choices, given)


TRAINING = RetrieveTraining()
