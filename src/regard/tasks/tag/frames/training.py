"""Training of taggers of frames: the plan, batches of windows, loss by the CRF, and validation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from regard.config import Recipe
from regard.data.batches import Index, in_batches
from regard.data.frame_store import Normalization, open_frames
from regard.data.series import Series
from regard.data.store import StorePart
from regard.errors import SettingsError
from regard.models.base import Network, TaggerModel
from regard.run import Run
from regard.tasks.bootstrap import ratio_metric
from regard.tasks.dataset import HELD_OUT, StreamTrainUnit, open_store_folder
from regard.tasks.tag.data import TagBatch
from regard.tasks.tag.frames.data import (
    FrameFacts,
    PreparedFrames,
    TrainingFrames,
    make_frames,
    shifts,
    training_windows,
    write_store,
)
from regard.tasks.tag.frames.scores import score_frames
from regard.tasks.tag.frames.tagger import FrameTagger
from regard.tasks.tag.training import TRAINING as WORDS
from regard.tasks.tag.training import tag_loss
from regard.tasks.training import Json, Log, Scored, Tables, Training, Workload
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.loss import Loss
from regard.training.plan import PlannedSetting, choose_batch, choose_learning_rate, choose_length, leave_given
from regard.training.trainer import Validation

KEPT_NUMBERS = 200_000
"""Maximum number of numbers in the held-out frames that stay in a finished run."""


class FrameTrainUnit(StreamTrainUnit):
    data: PreparedFrames

    def __init__(self, recipe: Recipe, data: PreparedFrames, model: Network, group: ProcessGroup | None = None):
        most, seed = recipe.task.max_frames, recipe.train.seed
        self.windows = windows = training_windows(data.train.lengths.tolist(), most)
        series = np.array([one.series for one in windows])
        parts = [StorePart(int((series < part.end).sum()), part.weight) for part in data.train.weights]
        self.starts = lru_cache(maxsize=1)(lambda epoch: shifts(windows, most, seed, epoch))
        lengths = np.array([one.length for one in windows], np.uint32)
        super().__init__(recipe, data, model, group, (lengths, np.zeros_like(lengths)), parts)

    def batch(self, position: int) -> TagBatch:
        return self._make(self.stream.at(position), self.starts(self.stream.mark(position).epoch))

    def join(self, index: Index) -> TagBatch:
        return self._make(index, np.array([one.start for one in self.windows]))

    def _make(self, index: Index, starts: Index) -> TagBatch:
        chosen = [(self.windows[place], int(starts[place])) for place in index.tolist()]
        cut = [self.data.train.part(window.series, start, start + window.length) for window, start in chosen]
        frames, labels = zip(*cut, strict=True)
        return make_frames(frames, self.data.normalization, labels, index)

    def loss(self, model: TaggerModel, batch: TagBatch) -> Loss:
        return tag_loss(model, batch, self.recipe.train.label_smoothing)

    def flops(self, batch: TagBatch) -> float:
        rows, frames = batch.mask_BT.shape
        real = batch.target_tokens
        return self.cost.training(piece=real, word=real, pair=rows * frames**2)

    def validate(self, model: TaggerModel) -> Validation:
        """Return loss and scores of the validation series. Each process labels a share of the series."""
        mine = [self.data.valid[place] for place in self.group.share(range(len(self.data.valid)))]
        tagger = FrameTagger(model, self.data.normalization, self.data.labels, self.recipe)
        given = self.group.join([one.best_T.tolist() for one in tagger.answers([one.frames for one in mine])])
        names = [[self.data.labels[number] for number in one] for one in given]
        found = score_frames([one.labels for one in self.data.valid], names)
        scores = {"accuracy": found.accuracy, "f1": found.f1, "segment_f1": found.segment_f1}
        scores["loss"] = loss = self._valid_loss(model, mine)
        metric = self.recipe.train.metric
        return Validation(scores, -loss if metric == "loss" else scores[metric])

    def _valid_loss(self, model: TaggerModel, series: Sequence[Series]) -> float:
        """Return the mean loss per frame in windows without overlap; windows with unknown labels are left out."""
        most, index = self.recipe.task.max_frames, {label: place for place, label in enumerate(self.data.labels)}
        parts = [
            (one.frames[start : start + most], [index[label] for label in labels])
            for one in series
            for start in range(0, len(one.frames), most)
            if index.keys() >= set(labels := one.labels[start : start + most])
        ]
        total = frames = 0.0
        for places in in_batches([len(own) for own, _ in parts], self.recipe.task.batch_words):
            chosen, numbers = zip(*(parts[place] for place in places), strict=True)
            batch = make_frames(chosen, self.data.normalization, numbers).to(model.output.weight.device)
            total += float(self.loss(model, batch).plain)
            frames += batch.target_tokens
        total, frames = self.group.sum(total, frames)
        return total / max(frames, 1.0)


class FrameTraining(Training[TrainingFrames, PreparedFrames]):
    train_unit = FrameTrainUnit
    unit = "frames"
    result = (
        "accuracy {accuracy:.2%}  macro F1 {f1:.2%}  segment F1@50 {segment_f1:.2%}  edit score {edit:.2%}"
        "  on {frames:,} frames of {series:,} series"
    )

    def check(self, recipe: Recipe) -> None:
        WORDS.check(recipe)
        for name, given in (("train.start_from", recipe.train.start_from), ("tokenizer", recipe.tokenizer.copy_from)):
            if given:
                raise SettingsError(
                    f"{name}: frames are not divided into tokens, so there is none to copy; leave it out"
                )

    def read(self, recipe: Recipe) -> TrainingFrames:
        return TrainingFrames(recipe)

    def plan(self, examples: TrainingFrames, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        return make_frame_plan(examples.facts, given)

    def sizes(self, recipe: Recipe, examples: TrainingFrames) -> dict[str, int]:
        return {"frame_width": examples.width, "labels": len(examples.labels)}

    def workload(self, recipe: Recipe, examples: TrainingFrames) -> Workload:
        lengths = [len(one.frames) for one in examples.parts.train()]
        windows = training_windows(lengths, recipe.task.max_frames)
        frames, pairs = (float(sum(one.length**power for one in windows)) for power in (1, 2))
        return Workload({"piece": frames, "word": frames, "pair": pairs}, frames / len(windows))

    def prepare(self, run: Run, recipe: Recipe, examples: TrainingFrames, log: Log, base: Run | None) -> None:
        if base and base.sizes["frame_width"] != examples.width:
            sizes = (
                f"the data has frames of {examples.width} numbers, those of {base.folder} {base.sizes['frame_width']}"
            )
            raise SettingsError(f"{sizes}; give the same kind of data, or train a new run")
        labels = base.labels if base else examples.labels
        if unknown := set(examples.labels) - set(labels):
            problem = f'the label "{min(unknown)}" is unknown to the run that is fine-tuned'
            raise SettingsError(f"{problem}; remove it from the data, or train a new run")
        run.write_labels(labels)
        own = base.normalization if base else Normalization.of(one.frames for one in examples.parts.train())
        run.write_normalization(own)
        run.write_sizes(frame_width=examples.width, labels=len(labels))
        write_store(run, examples, log)

    def open_data(self, run: Run, log: Log) -> PreparedFrames:
        folder = open_store_folder(run, lambda: write_store(run, self.read(run.recipe), log))
        valid, test = (
            [store[n] for n in range(len(store))] for store in (open_frames(folder / p, mapped=False) for p in HELD_OUT)
        )
        return PreparedFrames(open_frames(folder / "train"), valid, test, run.normalization, run.labels)

    def expected_initial_loss(self, recipe: Recipe, data: PreparedFrames) -> float:
        return 2.0 + math.log(len(data.labels))

    def card(self, recipe: Recipe, data: PreparedFrames, base: Run | None) -> Json:
        counts = zip(data.train.labels, data.train.label_counts().tolist(), strict=True)
        parts = {"valid": data.valid, "test": data.test}
        return {
            "frame_width": data.train.width,
            "series": {"train": len(data.train), **{part: len(own) for part, own in parts.items()}},
            "frames": {
                "train": int(data.train.lengths.sum()),
                **{part: sum(len(one.frames) for one in own) for part, own in parts.items()},
            },
            "labels": {label: count for label, count in counts if count},
        }

    def held_out(self, data: PreparedFrames) -> Sequence[Json]:
        kept, room = [], KEPT_NUMBERS
        for one in data.test or data.valid:
            frames = one.frames[: room // data.train.width]
            if len(frames):
                kept.append({"frames": frames.tolist(), "labels": list(one.labels[: len(frames)]), "name": one.name})
            room -= frames.size
        return kept

    def from_records(self, records: Sequence[Json]) -> list[Series]:
        return [Series(np.array(one["frames"], np.float32), tuple(one["labels"]), one["name"]) for one in records]

    def score(self, predictor: FrameTagger, examples: Sequence[Series]) -> Scored:
        """Score series. The intervals are computed from windows, because there may be only one long series."""
        given = predictor.answers([one.frames for one in examples])
        most = predictor.recipe.task.max_frames
        counts = []
        for one, answer in zip(examples, given, strict=True):
            names = np.array(predictor.labels)[answer.best_T]
            hits = (names == np.array(one.labels)).astype(np.float64)
            counts += [(float(hits[start : start + most].sum()), len(hits[start : start + most]))
                       for start in range(0, len(hits), most)]  # fmt: skip
        return Scored(predictor.score(examples).as_dict(), given, ratio_metric("accuracy", counts))


def make_frame_plan(data: FrameFacts, given: Tables) -> list[PlannedSetting]:
    """Choose the settings for training on `data`, except those in `given`, the user's recipe as tables."""
    arch, small = given.get("model", {}).get("arch", "bigru-crf"), data.frames < 50_000
    window = min(max(64, 1 << round(math.log2(4 * data.segment))), 512, data.longest)
    window = given.get("tag", {}).get("max_frames", max(window, 8))
    choices = [
        PlannedSetting("tag.max_frames", window, f"segments have {data.segment:,.0f} frames, as a mean"),
        PlannedSetting("model.arch", arch, "reads frames in both directions; a CRF scores sequences of labels"),
        PlannedSetting("model.embedding_width", 64 if small else 128, f"{data.frames:,} frames"),
    ]
    if arch == "bigru-crf":
        choices.append(PlannedSetting("model.width", 64 if small else 128, f"{data.frames:,} frames"))
        choices.append(PlannedSetting("model.layers", 2, "the second layer reads the context that the first one found"))
    is_rare = data.rarest < 0.3 / data.labels
    metric = ("f1", "one label is rare, and would hardly count in the accuracy") if is_rare else (
        "accuracy", "the share of frames with the right label")  # fmt: skip
    choices.append(PlannedSetting("train.metric", *metric))
    choices += choose_learning_rate(3e-3, 50, 0.4, muon=arch == "transformer-crf")
    frames = 2 * data.frames if data.longest > window else data.frames  # windows overlap by half
    batch, epoch = choose_batch(
        given,
        8 * window,
        least=256,
        examples=max(round(frames / window), 1),
        length=window,
        unit="windows",
        filled=0.95,
    )
    every = min(max(epoch, 20), 500)
    most = max(40 * epoch, 1500)
    length = choose_length(epoch, validate_every=every, patience=8, max_steps=most)
    return leave_given([*choices, batch, *length], given)


TRAINING = FrameTraining()
