"""Training of taggers: the plan, batches of sentences, loss by the CRF, and validation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from regard.config import Recipe
from regard.data.batches import in_batches
from regard.data.records import read_kept
from regard.data.store import open_documents
from regard.errors import SettingsError
from regard.models.base import Network, TaggerModel
from regard.run import Run
from regard.tasks.bootstrap import ratio_metric
from regard.tasks.dataset import HELD_OUT, StreamTrainUnit, learn_tokenizer, open_store_folder, read_held_out
from regard.tasks.tag.conll import TaggedSentence
from regard.tasks.tag.data import (
    CLITICS,
    PreparedSentences,
    SentenceFacts,
    TagBatch,
    TrainingSentences,
    encode_words,
    make_words,
    write_store,
)
from regard.tasks.tag.scores import hits_and_total, score_tags
from regard.tasks.tag.spans import Scheme, learned_scheme, merge, rewrite
from regard.tasks.tag.tagger import LabelScheme, Tagger
from regard.tasks.training import Json, Log, Scored, Tables, Training, Workload
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.loss import Loss
from regard.training.plan import PlannedSetting, choose_batch, choose_learning_rate, choose_length, leave_given
from regard.training.trainer import Validation


def tag_loss(model: TaggerModel, batch: TagBatch, smoothing: float = 0.0) -> Loss:
    """Return the negative log-likelihood of the correct label sequences, summed over the batch.

    `smoothing` is the rate of label smoothing, in training.
    """
    smoothing = smoothing if model.training else 0.0
    logits_BTL = model(batch)
    smoothed = model.crf.negative_log_likelihood(logits_BTL, batch.target_BT, batch.mask_BT, smoothing).sum()
    plain = smoothed.detach()
    if smoothing:
        with torch.no_grad():
            plain = model.crf.negative_log_likelihood(logits_BTL, batch.target_BT, batch.mask_BT).sum()
    return Loss(smoothed, plain, batch.target_tokens)


class TagTrainUnit(StreamTrainUnit):
    data: PreparedSentences

    def __init__(self, recipe: Recipe, data: PreparedSentences, model: Network, group: ProcessGroup | None = None):
        words = data.train.sentence_counts
        super().__init__(recipe, data, model, group, (words, np.zeros_like(words)), data.train.weights)

    def loss(self, model: TaggerModel, batch: TagBatch) -> Loss:
        return tag_loss(model, batch, self.recipe.train.label_smoothing)

    def flops(self, batch: TagBatch) -> float:
        rows, words = batch.mask_BT.shape
        pieces = int(batch.mask_BTS.sum())
        return self.cost.training(piece=pieces, word=int(batch.mask_BT.sum()), pair=rows * words**2)

    def validate(self, model: TaggerModel) -> Validation:
        """Return loss, accuracy and F1 over the validation sentences. Each process labels a share of the sentences."""
        mine = [self.data.valid[place] for place in self.group.share(range(len(self.data.valid)))]
        tagger = Tagger(model, self.data.tokenizer, self.data.labels, self.recipe)
        given = self.group.join(tagger.answers([one.tokens for one in mine]))
        tags = [[word.tag for word in one] for one in given]
        found = score_tags([one.tags for one in self.data.valid], tags, tagger.scheme)
        scores = {} if found.span_f1 is None else {"span_f1": found.span_f1}
        loss = self._valid_loss(model, mine, learned_scheme(tagger.scheme))
        scores |= {"accuracy": found.accuracy, "f1": found.f1, "loss": loss}
        metric = self.recipe.train.metric
        counts = "span_f1" if metric == "f1" and "span_f1" in scores else metric
        return Validation(scores, -loss if counts == "loss" else scores[counts])

    def _valid_loss(self, model: TaggerModel, sentences: Sequence[TaggedSentence], learned: Scheme) -> float:
        """Return the mean loss per word. `learned` is the scheme of the labels in training.

        Sentences with more than `tag.max_words` words, or with a label that is not in the training data, are left out.
        """
        task, tokenizer = self.recipe.task, self.data.tokenizer
        index = {label: place for place, label in enumerate(self.data.labels)}
        short = (one for one in sentences if len(one.tags) <= task.max_words)
        rewritten = [TaggedSentence(one.tokens, rewrite(one.tags, learned)) for one in short]
        known = [one for one in rewritten if index.keys() >= set(one.tags)]
        total = words = 0.0
        for places in in_batches([len(one.tags) for one in known], task.batch_words):
            chosen = [known[place] for place in places]
            encoded = encode_words([one.tokens for one in chosen], tokenizer, task)
            labels = [[index[tag] for tag in one.tags] for one in chosen]
            batch = make_words(encoded, tokenizer.pad, labels).to(model.output.weight.device)
            total += float(self.loss(model, batch).plain)
            words += batch.target_tokens
        total, words = self.group.sum(total, words)
        return total / max(words, 1.0)

    def join(self, index: np.ndarray) -> TagBatch:
        store = self.data.train
        sentences, labels = zip(*(store[int(place)] for place in index), strict=True)
        return make_words(sentences, self.data.tokenizer.pad, labels, index)


class TagTraining(Training[TrainingSentences, PreparedSentences]):
    train_unit = TagTrainUnit

    def check(self, recipe: Recipe) -> None:
        if recipe.pictures.images:
            given = f"--images {recipe.pictures.images}"
            raise SettingsError(f"{given}: not for taggers; give a folder of numbered pictures as the training data")

    def for_recipe(self, recipe: Recipe) -> Training[Any, Any]:
        from regard.data.series import holds_frames

        if any(holds_frames(corpus.source) for corpus in recipe.data.train):
            from regard.tasks.tag.frames.training import TRAINING

            return TRAINING
        return self

    def read(self, recipe: Recipe) -> TrainingSentences:
        return TrainingSentences(recipe.data, recipe.task, recipe.train.seed)

    def plan(self, examples: TrainingSentences, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        return make_tag_plan(examples.facts, given)

    def sizes(self, recipe: Recipe, examples: TrainingSentences) -> dict[str, int]:
        return {"vocabulary": recipe.tokenizer.vocab_size, "labels": examples.facts.labels}

    def workload(self, recipe: Recipe, examples: TrainingSentences) -> Workload:
        """Estimate the computation of an epoch as numbers of tokens ("piece"), words, and pairs of words in a sentence.

        Every word is assumed to have the mean length, plus SOS and EOS.
        """
        facts = examples.facts
        words = round(facts.total)
        pieces = round(words * (facts.word_length + 2))
        return Workload({"piece": pieces, "word": words, "pair": round(facts.words) * words}, facts.words)

    def prepare(self, run: Run, recipe: Recipe, examples: TrainingSentences, log: Log, base: Run | None) -> None:
        labels = base.labels if base else examples.labels
        if unknown := set(examples.labels) - set(labels):
            label = merge(min(unknown), recipe.task.scheme)
            problem = f'the label "{label}" is unknown to the run that is fine-tuned'
            raise SettingsError(f"{problem}; remove it from the data, or train a new run")
        run.write_labels(labels)
        texts = (" ".join(sentence.tokens) for sentence in examples.parts.train())
        learn_tokenizer(run, recipe, texts, log, base, "pieces", labels=len(labels))
        write_store(run, examples, log)

    def open_data(self, run: Run, log: Log) -> PreparedSentences:
        folder = open_store_folder(run, lambda: write_store(run, self.read(run.recipe), log))
        valid, test = (self.from_records(read_held_out(folder, part, "sentences")) for part in HELD_OUT)
        [clitics] = read_kept(folder / CLITICS, "clitics")
        train = open_documents(folder / "train")
        return PreparedSentences(run.tokenizers[0], train, valid, test, run.labels, tuple(clitics))

    def expected_initial_loss(self, recipe: Recipe, data: PreparedSentences) -> float:
        return 2.0 + math.log(len(data.labels))

    def card(self, recipe: Recipe, data: PreparedSentences, base: Run | None) -> Json:
        counts = data.train.label_counts(len(data.labels)).tolist()
        labeling = LabelScheme(data.labels, recipe.task)
        before = base.card.get("clitics", ()) if base else ()
        return {
            "vocabulary": data.tokenizer.size,
            "sentences": {"train": len(data.train), "valid": len(data.valid), "test": len(data.test)},
            "words": sum(counts),
            "scheme": labeling.scheme,
            "labels": labeling.merge_counts(counts),
            "clitics": list(dict.fromkeys((*before, *data.clitics))),
        }

    def score(self, predictor: Tagger, examples: Sequence[TaggedSentence]) -> Scored:
        given = predictor.answers([one.tokens for one in examples])
        right = [rewrite(one.tags, predictor.scheme) for one in examples]
        tags = [[word.tag for word in words] for words in given]
        counts = (hits_and_total(*pair, predictor.scheme) for pair in zip(right, tags, strict=True))
        name = "accuracy" if predictor.scheme == "plain" else "span_f1"
        return Scored(predictor.score(examples).as_dict(), None, ratio_metric(name, counts))

    def from_records(self, records: Sequence[Json]) -> list[TaggedSentence]:
        return [TaggedSentence(tuple(one["tokens"]), tuple(one["tags"])) for one in records]

    def train_examples(self, examples: TrainingSentences) -> Iterable[TaggedSentence]:
        return examples.parts.train()

    def texts(self, example: TaggedSentence) -> tuple[str, ...]:
        return (" ".join(example.tokens),)

    def result_line(self, scores: Json) -> str:
        size = f"on {scores['words']:,} words of {scores['sentences']:,} sentence{'s' * (scores['sentences'] != 1)}"
        accuracy = f"accuracy {scores['accuracy']:.2%}"
        if "span_f1" not in scores:
            return f"{accuracy}  macro F1 {scores['f1']:.2%}  {size}"
        spans = f"span F1 {scores['span_f1']:.2%}  precision {scores['precision']:.2%}"
        return f"{spans}  recall {scores['recall']:.2%}  {accuracy}  {size}"


def make_tag_plan(data: SentenceFacts, given: Tables) -> list[PlannedSetting]:
    """Choose the settings for training a tagger on `data`, except those in `given`, the user's recipe as tables."""
    arch, small = given.get("model", {}).get("arch", "bigru-crf"), data.total < 50_000
    characters = min(max(data.characters, 4) + 5, 8000)  # 5 more: EOS, UNK, SOS, PAD and the space
    table = 1 << min(max(math.ceil(math.log2(data.distinct)), 8), 17)
    choices = []
    if data.scheme == "BIOES":
        choices.append(PlannedSetting("tag.scheme", "BIOES", "the scheme of the training data"))
    choices += [
        PlannedSetting("tokenizer.kind", "character", "the label of an unknown word depends mostly on its spelling"),
        PlannedSetting("tokenizer.vocab_size", characters, "all characters that occur at least three times"),
        PlannedSetting("model.arch", arch, "reads words in both directions; a CRF scores sequences of labels"),
        PlannedSetting("model.word_hash_rows", table, f"{data.distinct:,} different words, each hashed to two rows"),
    ]
    if arch == "bigru-crf":
        choices.append(PlannedSetting("model.width", 64 if small else 128, f"{data.total:,.0f} words"))
    choices.append(PlannedSetting("model.embedding_width", 50 if small else 100, f"{data.total:,.0f} words"))
    metric = ("accuracy", "the share of words with the right label") if data.scheme == "plain" else ("f1", "of spans")
    choices.append(PlannedSetting("train.metric", *metric))
    choices += choose_learning_rate(3e-3, 100, 0.4, muon=arch == "transformer-crf")
    sentences = 32 if data.sentences >= 2_000 else 12  # small batches, for enough steps per epoch
    length = data.words + 1
    batch, epoch = choose_batch(
        given, sentences * length, least=128, examples=data.sentences, length=length, unit="sentences", filled=0.95
    )
    every = min(max(epoch, 40), 1000)
    most = max(10 * epoch, 600)  # more epochs gain little; with little data, an epoch has few steps
    choices += [batch, *choose_length(epoch, validate_every=every, patience=4, max_steps=most)]
    return leave_given(choices, given)


TRAINING = TagTraining()
