"""Training of caption models: batches of pictures and captions, validation by chrF, scores of the held-out parts."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard import tasks
from regard.config import Recipe
from regard.data.batches import Batch, Index, TokenSource, make_targets
from regard.models.base import Network, Seq2Seq
from regard.run import Run
from regard.tasks.caption.captioner import Caption, Captioner, texts_of
from regard.tasks.caption.data import (
    CaptionData,
    Captioned,
    from_records,
    group_captions,
    language_tags,
    open_captions,
    read_parts,
    start_tokens,
    write_store,
)
from regard.tasks.caption.evaluate import describe, evaluate
from regard.tasks.caption.plan import CaptionFacts, make_plan, measure_captions
from regard.tasks.caption.scores import score_captions
from regard.tasks.dataset import Log, learn_tokenizer
from regard.tasks.pictures import (
    HeldOutPictures,
    PictureExamples,
    gallery_card,
    kept_pictures,
    picture_input,
    picture_lengths,
    picture_mask,
    training_input,
)
from regard.tasks.seq2seq import TeacherForcing, batch_loss
from regard.tasks.text_metrics import chrf_metric
from regard.tasks.training import HELD_OUT_EXAMPLES, Json, Scored, Tables, Training, Workload
from regard.text.subword_regularization import resample
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.flops import pair_amounts
from regard.training.plan import PlannedSetting, steps_per_epoch
from regard.training.trainer import Validation


class Sample(NamedTuple):
    """A held-out picture by its name, the caption by the model, and the references."""

    picture: str
    caption: Caption
    references: tuple[str, ...]


class CaptionTrainUnit(TeacherForcing):
    """Provides batches of pictures with their captions, and validates by loss, chrF, BLEU and CIDEr-D."""

    data: CaptionData

    def __init__(self, recipe: Recipe, data: CaptionData, model: Network, group: ProcessGroup | None = None):
        captions = data.train.captions
        super().__init__(
            recipe, data, model, group, picture_lengths(recipe.pictures, captions.tokens), captions.weights
        )
        starts = start_tokens(data.tokenizer, recipe.task.languages)
        self.starts_L = torch.tensor([starts[language] for language in recipe.task.languages or ("",)])

    def batch(self, position: int) -> Batch:
        """The batch at `position` of the stream of training batches: pictures and segmentations change at random."""
        return self._make(self.stream.at(position), position)

    def join(self, index: Index) -> Batch:
        return self._make(index)

    def _make(self, index: Index, position: int | None = None) -> Batch:
        """A batch of the captions with these indices; with a position in the stream, it has random changes."""
        pairs = [self.data.train.captions[int(place)] for place in index]
        ids = [part.tolist() for (part,), _ in pairs]
        places, languages = (np.array(found) for found in zip(*(labels for _, labels in pairs), strict=True))
        pixels, pictures = self.data.train.gallery.pixels(places), self.recipe.pictures
        values = picture_input(pixels, pictures) if position is None else self._change(pixels, ids, position)
        return make_caption_batch(
            TokenSource(values, picture_mask(pictures, len(index))),
            ids,
            self.data.tokenizer.pad,
            self.starts_L[torch.from_numpy(languages)],
            torch.tensor(index, dtype=torch.int64),
        )

    def _change(self, pixels: np.ndarray, ids: list[list[int]], position: int) -> Tensor:
        """Change the pictures at random and return them as input; sample the segmentation of the captions `ids`."""
        share = self.recipe.tokenizer.subword_regularization * self.stage.augmentation_strength
        if share:
            draw = random.Random(f"{self.recipe.train.seed} {position}")
            ids[:] = [resample(self.data.tokenizer, one, share, draw) for one in ids]
        return training_input(pixels, self.recipe, position, self.stage.strength)

    def validate(self, model: Seq2Seq) -> Validation:
        """Compute the loss of all validation captions, and the scores of greedy captions of the first pictures.

        At most `train.validation_sentences` captions are written (0: all).
        """
        predictor = Captioner(model, self.data.tokenizer, self.recipe)
        valid, gallery = self.data.valid.examples, self.data.valid.gallery
        some = group_captions(valid)[: self.recipe.train.validation_sentences or None]
        mine = describe(predictor, self.group.share(some), gallery, beam_size=1)
        texts = self.group.join(texts_of(mine))
        loss = mean_loss(model, self.data.tokenizer.pad, self._valid_batches(), self.group)
        found = score_captions(texts, [one.references for one in some])
        scores = {"loss": loss} | {name: found[name] for name in ("chrf", "bleu", "cider")}
        samples = [
            {"source": one.picture, "output": text, "reference": one.references[0]}
            for one, text in zip(some[:3], texts, strict=False)
        ]
        metric = self.recipe.train.metric
        return Validation(scores, -loss if metric == "loss" else scores[metric], samples, loss=loss)

    def _valid_batches(self) -> Iterable[Batch]:
        """The batches of validation captions that this process computes."""
        valid, size = self.data.valid, self.recipe.task.batch_pictures
        for first in self.group.share(range(0, len(valid), size)):
            some = valid.examples[first : first + size]
            languages = [self.recipe.task.languages.index(one.language) if one.language else 0 for one in some]
            pixels = valid.gallery.pixels(one.picture for one in some)
            yield make_caption_batch(
                TokenSource(picture_input(pixels, self.recipe.pictures), picture_mask(self.recipe.pictures, len(some))),
                self.data.tokenizer.encode_many([one.text for one in some]),
                self.data.tokenizer.pad,
                self.starts_L[languages],
                torch.arange(len(some)),
            )


def make_caption_batch(
    source: TokenSource, ids: Sequence[list[int]], pad: int, start_B: Tensor, index_B: Tensor
) -> Batch:
    """A batch of pictures and their captions `ids`; `start_B`: the token that the decoder reads first."""
    input_BT, output_BT, mask_BT = make_targets(ids, pad)
    input_BT[:, 0] = start_B
    tokens = source.mask_BS.numel()
    return Batch(source, input_BT, output_BT, mask_BT, index_B, tokens, int(mask_BT.sum()))


@torch.no_grad()
def mean_loss(model: Seq2Seq, pad: int, batches: Iterable[Batch], group: ProcessGroup) -> float:
    """Mean negative log-likelihood per token of the captions in the batches of all processes."""
    total, tokens = 0.0, 0.0
    for batch in batches:
        loss = batch_loss(model, batch.to(model.output.weight.device))
        total, tokens = total + float(loss.plain), tokens + loss.tokens
    total, tokens = group.sum(total, tokens)
    return total / max(tokens, 1.0)


class CaptionTraining(Training[PictureExamples[Captioned], CaptionData]):
    train_unit = CaptionTrainUnit
    result = (
        "chrF {chrf:.1f}  BLEU {bleu:.1f}  CIDEr-D {cider:.2f}  recall@1 {recall_1:.1%}, @5 {recall_5:.1%},"
        " @10 {recall_10:.1%}  on {pictures:,} pictures"
    )

    def read(self, recipe: Recipe) -> PictureExamples[Captioned]:
        return read_parts(recipe)

    def plan(
        self, examples: PictureExamples[Captioned], machine: Machine, given: Tables, where: str
    ) -> list[PlannedSetting]:
        return make_plan(examples, machine, given)

    def sizes(self, recipe: Recipe, examples: PictureExamples[Captioned]) -> dict[str, int]:
        return recipe.pictures.sizes | {"target_vocabulary": recipe.tokenizer.vocab_size}

    def workload(self, recipe: Recipe, examples: PictureExamples[Captioned]) -> Workload:
        """Estimate the amount of computation per epoch, as if all captions had mean length."""
        facts: CaptionFacts = measure_captions(examples)
        patches = picture_mask(recipe.pictures, 1).numel()
        length = max(facts.tokens, patches)
        amounts = pair_amounts(1, patches, round(facts.tokens))
        passes = 2 if recipe.train.r_drop else 1
        steps = steps_per_epoch(facts.captions * length, recipe.train.batch_tokens, 1.0)
        return Workload({unit: facts.captions * n for unit, n in amounts.items()}, length, passes, steps)

    def prepare(
        self, run: Run, recipe: Recipe, examples: PictureExamples[Captioned], log: Log, base: Run | None
    ) -> None:
        special = (*language_tags(recipe.task.languages), *recipe.tokenizer.special_tokens)
        tagged = replace(recipe, tokenizer=replace(recipe.tokenizer, special_tokens=special))
        learn_tokenizer(run, tagged, (one.text for one in examples.parts.train()), log, base)
        run.write_sizes(**recipe.pictures.sizes, target_vocabulary=run.tokenizers[1].size)
        write_store(run, examples, log)

    def open_data(self, run: Run, log: Log) -> CaptionData:
        return open_captions(run, log)

    def expected_initial_loss(self, recipe: Recipe, data: CaptionData) -> float:
        return 2.0 + math.log(data.tokenizer.size)  # a little more than the loss of uniform guessing

    def card(self, recipe: Recipe, data: CaptionData, base: Run | None) -> Json:
        """Entries of card.json: vocabulary size, languages, numbers of captions, number and hash of the pictures."""
        counts = {"train": len(data.train), "valid": len(data.valid), "test": len(data.test)}
        shown = {"vocabulary": data.tokenizer.size, "languages": list(recipe.task.languages), "captions": counts}
        return shown | gallery_card(data.train.gallery)

    def score(self, predictor: Captioner, examples: HeldOutPictures[Captioned]) -> Scored:
        """Compute BLEU, chrF, CIDEr-D and recall; the samples are all captions."""
        wanted = group_captions(examples.examples)
        scores, captions = evaluate(predictor, wanted, examples.gallery)
        metric = chrf_metric(texts_of(captions), [one.references for one in wanted])
        samples = [Sample(one.picture, found, one.references) for one, found in zip(wanted, captions, strict=True)]
        return Scored(scores, samples, metric)

    def predictor(self, run: Run, data: CaptionData, log: Log) -> Captioner:
        found: Captioner = tasks.load(run)
        return found

    def from_records(self, records: Sequence[Json]) -> Any:
        return from_records(records, kept_pictures(records))

    def train_examples(self, examples: PictureExamples[Captioned]) -> Iterable[Captioned]:
        return examples.parts.train()

    def texts(self, example: Captioned) -> tuple[str, ...]:
        return (example.text,)

    def held_out(self, data: CaptionData) -> list[Json]:
        return (data.test if len(data.test) else data.valid).first(HELD_OUT_EXAMPLES).records()


TRAINING = CaptionTraining()
