"""How labels of words are learnt: batches of sentences, their loss, and validation on held-out ones."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import torch

from regard.config import Recipe, TagSettings
from regard.data.batches import in_batches
from regard.data.store import Sentences
from regard.layers.dropout import Rows
from regard.models.base import TaggerModel
from regard.tasks.dataset import StreamTrainUnit
from regard.tasks.tag.data import PreparedSentences, TagBatch, TaggedSentence, encode_words, make_words, stretches
from regard.tasks.tag.scores import score_tags
from regard.tasks.tag.spans import Scheme, all_labels, find_scheme, learnt_scheme, merge, rewrite
from regard.text.tokenizer import Tokenizer
from regard.training.distributed import ProcessGroup
from regard.training.flops import count_cost
from regard.training.loss import Loss
from regard.training.trainer import Validation


class TagTrainUnit(StreamTrainUnit):
    """What the loop must know of tagging."""

    def __init__(
        self, recipe: Recipe, prepared: PreparedSentences, model: TaggerModel, group: ProcessGroup | None = None
    ):
        store = prepared.train
        super().__init__(recipe.train, (store.sentence_counts, np.zeros_like(store.sentence_counts)), store.weights)
        self.recipe, self.data, self.group = recipe, prepared, group or ProcessGroup()
        self.cost = count_cost(model)
        self.labelling = LabelScheme(prepared.labels, recipe.tag)

    def batch(self, position: int) -> TagBatch:
        """The sentences at this place of the stream."""
        return self._join(self.stream.at(position))

    def largest(self) -> TagBatch:
        """The largest batch of the first epoch, padding included."""
        return self._join(self.largest_of(lambda index: len(index) * int(self.lengths[0][index].max())))

    def rows(self, batch: TagBatch, first: int, every: int) -> tuple[TagBatch, Rows]:
        """Every so many sentences, from the first on."""
        rows = Rows.deal(len(batch.index_B), first, every)
        return batch.rows(rows.index_R), rows

    def loss(self, model: TaggerModel, batch: TagBatch) -> Loss:
        """Of the words' labels."""
        smoothing = self.recipe.train.label_smoothing if model.training else 0.0
        logits_BTL = model(batch)
        smoothed = model.crf.negative_log_likelihood(logits_BTL, batch.target_BT, batch.mask_BT, smoothing).sum()
        plain = smoothed.detach()
        if smoothing:
            with torch.no_grad():
                plain = model.crf.negative_log_likelihood(logits_BTL, batch.target_BT, batch.mask_BT).sum()
        return Loss(smoothed, plain, batch.target_tokens)

    def flops(self, batch: TagBatch) -> float:
        """Arithmetic of one step on this batch."""
        rows, words = batch.mask_BT.shape
        pieces = int(batch.mask_BTS.sum())
        return self.cost.training(piece=pieces, word=int(batch.mask_BT.sum()), pair=rows * words**2)

    def validate(self, model: TaggerModel) -> Validation:
        """Loss, accuracy and F1 over the validation sentences."""
        share = self.group.share(range(len(self.data.valid)))
        mine = [self.data.valid[place] for place in share]
        given = self.group.join(
            tag_sentences(model, [one.tokens for one in mine], self.data.tokenizer, self.recipe.tag, self.labelling)
        )
        found = score_tags([one.tags for one in self.data.valid], [one.tags for one in given], self.labelling.scheme)
        scores = {"accuracy": found.accuracy, "f1": found.f1, "loss": self._valid_loss(model, mine)}
        if found.span_f1 is not None:
            scores = {"span_f1": found.span_f1} | scores
        metric = self.recipe.train.metric
        counts = "span_f1" if metric == "f1" and "span_f1" in scores else metric
        return Validation(scores, -scores["loss"] if counts == "loss" else scores[counts])

    def _valid_loss(self, model: TaggerModel, sentences: Sequence[TaggedSentence]) -> float:
        """Over all words of sentences whose labels are all known."""
        number = {label: place for place, label in enumerate(self.data.labels)}
        learnt = learnt_scheme(self.labelling.scheme)
        short = (one for one in sentences if len(one.tags) <= self.recipe.tag.max_words)
        rewritten = [TaggedSentence(one.tokens, rewrite(one.tags, learnt)) for one in short]
        known = [one for one in rewritten if number.keys() >= set(one.tags)]
        total = words = 0.0
        device = model.output.weight.device
        for places in in_batches([len(one.tags) for one in known], self.recipe.tag.batch_words):
            chosen = [known[place] for place in places]
            encoded = encode_words([one.tokens for one in chosen], self.data.tokenizer, self.recipe.tag)
            labels = [[number[tag] for tag in one.tags] for one in chosen]
            batch = make_words(encoded, self.data.tokenizer.pad, labels).to(device)
            total += float(self.loss(model, batch).plain)
            words += batch.target_tokens
        total, words = self.group.sum(total, words)
        return total / max(words, 1.0)

    def _join(self, index: np.ndarray) -> TagBatch:
        store = self.data.train
        sentences, labels = zip(*(store[int(place)] for place in index), strict=True)
        return make_words(sentences, self.data.tokenizer.pad, labels, index)


class LabelScheme:
    """The labels that a model has learnt, and those that it answers with: of spans, only some schemes tell the ends."""

    def __init__(self, learnt: Sequence[str], settings: TagSettings):
        self.learnt = tuple(learnt)
        self.scheme: Scheme = "plain" if find_scheme([learnt]) == "plain" else settings.scheme
        """Of the answers."""
        merged = [merge(label, self.scheme) for label in learnt]
        self.labels = all_labels(merged, self.scheme)
        """Those of the answers."""
        self.number = {label: place for place, label in enumerate(self.labels)}
        self.merge_LK = torch.zeros(len(learnt), len(self.labels), dtype=torch.float64)
        """1 where a learnt label is one of the answers'."""
        self.merge_LK[range(len(learnt)), [self.number[label] for label in merged]] = 1.0

    def merged(self, counts: Sequence[int]) -> dict[str, int]:
        """How often each label of the answers is among learnt ones that were counted; none that is never there."""
        sums = (torch.tensor(counts, dtype=torch.float64) @ self.merge_LK).long().tolist()
        return {label: count for label, count in zip(self.labels, sums, strict=True) if count}

    def answer(self, path: Sequence[int]) -> list[str]:
        """The labels to give for a path of learnt ones."""
        return list(rewrite([self.learnt[number] for number in path], self.scheme))


class SentenceTags(NamedTuple):
    """Labels of a sentence's words, and how probable each is."""

    tags: list[str]
    sure: list[float]
    others: list[dict[str, float]]
    """The likeliest labels of each word with their probabilities, if they were asked for."""


@torch.no_grad()
def tag_sentences(
    model: TaggerModel,
    sentences: Sequence[Sequence[str]],
    tokenizer: Tokenizer,
    settings: TagSettings,
    labelling: LabelScheme,
    likeliest: int = 0,
) -> list[SentenceTags]:
    """Label any number of sentences, each with at least one word, in their order; similar lengths are read together."""
    encoded = encode_words(sentences, tokenizer, settings)
    parts = [
        (number, stretch)
        for number, words in enumerate(encoded)
        for stretch in stretches(len(words), settings.max_words)
    ]
    answers = [SentenceTags([], [], []) for _ in sentences]
    found: list[SentenceTags] = [answers[0]] * len(parts) if answers else []
    for places in in_batches([stretch.end - stretch.start for _, stretch in parts], settings.batch_words):
        chosen = [encoded[number][stretch.start : stretch.end] for number, stretch in (parts[one] for one in places)]
        for place, answer in zip(places, _answer(model, chosen, tokenizer.pad, labelling, likeliest), strict=True):
            found[place] = answer
    for (number, stretch), answer in zip(parts, found, strict=True):
        kept = slice(stretch.first - stretch.start, stretch.last - stretch.start)
        whole = answers[number]
        whole.tags.extend(answer.tags[kept])
        whole.sure.extend(answer.sure[kept])
        whole.others.extend(answer.others[kept])
    return answers


def _answer(
    model: TaggerModel, sentences: Sequence[Sentences], pad: int, labelling: LabelScheme, likeliest: int
) -> list[SentenceTags]:
    batch = make_words(sentences, pad).to(model.output.weight.device)
    logits_BTL = model(batch)
    paths_BT = model.crf.best(logits_BTL, batch.mask_BT).tolist()
    shares_BTK = (model.crf.marginals(logits_BTL, batch.mask_BT).cpu() @ labelling.merge_LK).tolist()
    answers = []
    for row, count in enumerate(map(len, sentences)):
        tags, shares_TK = labelling.answer(paths_BT[row][:count]), shares_BTK[row][:count]
        sure = [shares[labelling.number[tag]] for tag, shares in zip(tags, shares_TK, strict=True)]
        others = [
            dict(heapq.nlargest(likeliest, zip(labelling.labels, shares, strict=True), key=itemgetter(1)))
            for shares in shares_TK
        ]
        answers.append(SentenceTags(tags, sure, others if likeliest else []))
    return answers
