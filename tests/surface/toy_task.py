"""A task and its architecture in a single file, as a plugin has them: tell which language a line is written in.

A line of the data is a language, a tab and a text. The network sums up the characters of the text.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard import registry
from regard.config import ModelSettings, Recipe
from regard.config.ranges import CheckedSettings, Share, Width
from regard.data.records import read_kept
from regard.data.split import group_by_part, split_texts
from regard.errors import CorpusError
from regard.files import read_lines, write_atomically
from regard.layers.dropout import Dropout, Rows
from regard.models.base import Example, Network
from regard.run import Run
from regard.tasks import Task
from regard.tasks.dataset import StreamTrainUnit
from regard.tasks.training import Json, Log, Scored, Tables, Training, Workload
from regard.terminal import Command
from regard.text.tokenizer import Tokenizer, train_tokenizer
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.loss import Loss, smoothed_cross_entropy
from regard.training.plan import PlannedSetting, leave_given
from regard.training.trainer import Validation

registry.TASKS["toy-language"] = __name__
registry.ARCHITECTURES["toy-sum"] = __name__


# Architecture


@dataclass(frozen=True)
class ToySettings(ModelSettings):
    """A sum of character embeddings."""

    kind: ClassVar[str] = "toy"
    network: ClassVar[str] = "ToyNetwork"
    about: ClassVar[str] = "a sum of character embeddings"

    arch: str = "toy-sum"
    width: Width = 16
    """Width of the embeddings."""
    dropout: Share = 0.1
    """Dropout on the sum."""


PRESETS = {"toy-sum": ToySettings()}


class ToyNetwork(Network):
    """Characters to scores of languages."""

    def __init__(self, settings: ToySettings, vocabulary: int, labels: int):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, settings.width)
        self.drop = Dropout(settings.dropout)
        self.output = nn.Linear(settings.width, labels)

    def encode(self, ids_BS: Tensor, mask_BS: Tensor) -> Tensor:
        """One vector per text [B, D]."""
        states_BSD = self.embed(ids_BS)
        mask_BS1 = mask_BS[:, :, None].to(states_BSD.device)
        return self.drop((states_BSD * mask_BS1).sum(1) / mask_BS1.sum(1))

    def forward(self, ids_BS: Tensor, mask_BS: Tensor) -> Tensor:
        """Scores of the languages [B, L]."""
        return self.output(self.encode(ids_BS, mask_BS))

    def examples(self) -> Iterator[Example]:
        """Unit: a text."""
        ids_BS = torch.zeros(1, 1, dtype=torch.long)
        yield Example(partial(self, ids_BS, torch.ones_like(ids_BS)), {"text": 1})


# Facts


@dataclass(frozen=True)
class ToyLanguageSettings(CheckedSettings):
    """How texts are read."""

    section: ClassVar[str] = "toy-language"

    max_characters: int = 50
    """Only the beginning of a text is read."""


TASK = Task(
    name="toy-language",
    help="tell the language of lines",
    does="tells the language of lines",
    model_kind="toy",
    predictor="ToyGuesser",
    module="predictor",
    command="toy-language",
    commands={"toy-language": "tell the language of lines"},
    settings="ToyLanguageSettings",
    defaults={"model": {"arch": "toy-sum"}, "tokenizer": {"kind": "character"}, "train": {"label_smoothing": 0.0}},
    metrics=("accuracy",),
    scores={"accuracy": "accuracy {:.1%}", "loss": "loss {:.3f}"},
    unit="texts",
    unsupported=("train.r_drop",),
)


# Data


class Line(NamedTuple):
    """A text and its language."""

    label: str
    text: str


class ToyExamples:
    """The lines of the files, by part."""

    def __init__(self, recipe: Recipe):
        lines = []
        for corpus in recipe.data.train:
            for number, line in enumerate(read_lines(Path(corpus.source)), 1):
                label, tab, text = line.partition("\t")
                if not tab:
                    raise CorpusError(corpus.source, "a line is a language, a tab and a text", line=number)
                lines.append(Line(label, text))
        parts = split_texts([line.text for line in lines], recipe.data, recipe.train.seed)
        [self.parts] = group_by_part([lines], parts)

    def __len__(self) -> int:
        return len(self.parts["train"])

    def describe(self) -> str:
        return f"{len(self)} lines to train on"


@dataclass(frozen=True)
class ToyData:
    """What is trained on."""

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    train: list[Line]
    valid: list[Line]
    test: list[Line]


@dataclass(frozen=True)
class ToyBatch:
    """Texts and the numbers of their languages."""

    ids_BS: Tensor
    mask_BS: Tensor
    label_B: Tensor

    @property
    def target_tokens(self) -> int:
        return len(self.label_B)

    def to(self, device: torch.device) -> ToyBatch:
        return ToyBatch(self.ids_BS.to(device), self.mask_BS.to(device), self.label_B.to(device))


def join(texts: Sequence[str], tokenizer: Tokenizer, settings: ToyLanguageSettings) -> tuple[Tensor, Tensor]:
    """Ids and mask of texts."""
    encoded = [tokenizer.encode(text)[: settings.max_characters] or [tokenizer.pad] for text in texts]
    ids_BS = torch.full((len(encoded), max(map(len, encoded))), tokenizer.pad)
    mask_BS = torch.zeros_like(ids_BS)
    for row, ids in enumerate(encoded):
        ids_BS[row, : len(ids)], mask_BS[row, : len(ids)] = torch.tensor(ids), 1
    return ids_BS, mask_BS


# Training


class ToyTrainUnit(StreamTrainUnit):
    """Batches of lines."""

    def __init__(self, recipe: Recipe, data: ToyData, model: Network, group: ProcessGroup | None = None):
        lengths = np.array([len(line.text) for line in data.train], np.uint32)
        super().__init__(recipe, data, model, group, (lengths, np.zeros_like(lengths)))

    def make(self, lines: Sequence[Line]) -> ToyBatch:
        label_B = torch.tensor([self.data.labels.index(line.label) for line in lines])
        return ToyBatch(*join([line.text for line in lines], self.data.tokenizer, self.recipe.task), label_B)

    def join(self, index: np.ndarray) -> ToyBatch:
        return self.make([self.data.train[place] for place in index])

    def rows(self, batch: ToyBatch, first: int, every: int) -> tuple[ToyBatch, Rows]:
        rows = Rows.every_nth(len(batch.label_B), first, every)
        index_R = rows.index_R
        return ToyBatch(batch.ids_BS[index_R], batch.mask_BS[index_R], batch.label_B[index_R]), rows

    def loss(self, model: ToyNetwork, batch: ToyBatch) -> Loss:
        return smoothed_cross_entropy(model.output, model.encode(batch.ids_BS, batch.mask_BS), batch.label_B, 0.0)

    def flops(self, batch: ToyBatch) -> float:
        return self.cost.training(text=len(batch.label_B))

    def validate(self, model: ToyNetwork) -> Validation:
        batch = self.make(self.data.valid)
        accuracy = float((model(batch.ids_BS, batch.mask_BS).argmax(1) == batch.label_B).float().mean())
        scores = {"accuracy": accuracy, "loss": float(self.loss(model, batch).plain) / len(batch.label_B)}
        return Validation(scores, accuracy)


class ToyTraining(Training[ToyExamples, ToyData]):
    """From lines to a guesser."""

    train_unit = ToyTrainUnit
    result = "accuracy {accuracy:.1%}"

    def read(self, recipe: Recipe) -> ToyExamples:
        return ToyExamples(recipe)

    def plan(self, examples: ToyExamples, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        return leave_given([PlannedSetting("train.learning_rate", 0.05, "it is a toy")], given)

    def sizes(self, recipe: Recipe, examples: ToyExamples) -> Mapping[str, int]:
        return {"vocabulary": recipe.tokenizer.vocab_size, "labels": 2}

    def workload(self, recipe: Recipe, examples: ToyExamples) -> Workload:
        return Workload({"text": len(examples)}, 20.0)

    def prepare(self, run: Run, recipe: Recipe, examples: ToyExamples, log: Log, base: Run | None) -> None:
        texts = (line.text for line in examples.parts["train"])
        tokenizer = base.tokenizers[0] if base else train_tokenizer(texts, recipe.tokenizer, recipe.train.seed)
        labels = base.labels if base else sorted({line.label for line in examples.parts["train"]})
        run.write_tokenizers(tokenizer, tokenizer)
        run.write_labels(labels)
        run.write_sizes(vocabulary=tokenizer.size, labels=len(labels))
        self.write_store(run, examples)

    def write_store(self, run: Run, examples: ToyExamples) -> None:
        with run.new_store() as folder:
            for part, lines in examples.parts.items():
                write_atomically(folder / f"{part}.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines).encode())

    def open_data(self, run: Run, log: Log) -> ToyData:
        if not (run.folder / "store").is_dir():
            self.write_store(run, ToyExamples(run.recipe))
        parts = [
            [Line(*line) for line in read_kept(run.folder / "store" / f"{part}.jsonl", "lines")]
            for part in ("train", "valid", "test")
        ]
        return ToyData(run.tokenizers[0], run.labels, *parts)

    def expected_initial_loss(self, recipe: Recipe, data: ToyData) -> float:
        return 2.0 + math.log(len(data.labels))

    def card(self, recipe: Recipe, data: ToyData, base: Run | None) -> Json:
        return {"lines": len(data.train)}

    def held_out(self, data: ToyData) -> Sequence[Json]:
        return [line._asdict() for line in data.test]

    def score(self, predictor: ToyGuesser, examples: Sequence[Line]) -> Scored:
        given = predictor.guess([line.text for line in examples])
        hits = [one == line.label for one, line in zip(given, examples, strict=True)]
        return Scored({"accuracy": sum(hits) / len(hits)}, given)


TRAINING = ToyTraining()


# Use


class ToyGuesser:
    """Tells the language of texts."""

    def __init__(self, model: ToyNetwork, run: Run):
        self.model, self.labels, self.tokenizer, self.settings = model, run.labels, run.tokenizers[0], run.recipe.task

    @torch.no_grad()
    def guess(self, texts: Sequence[str]) -> list[str]:
        """The language of each text."""
        best = self.model(*join(texts, self.tokenizer, self.settings)).argmax(1)
        return [self.labels[number] for number in best.tolist()]


def load(run: str | Path, *others: str | Path) -> ToyGuesser:
    """Open a run folder."""
    opened = Run.open(run).require(TASK.name)
    model = opened.load_network()
    assert isinstance(model, ToyNetwork)
    return ToyGuesser(model, opened)


def report(run: Run, predictor: ToyGuesser, data: ToyData, answers: Sequence[str]) -> Json:
    """Samples."""
    samples = [{"source": line.text, "output": one} for line, one in zip(data.test, answers, strict=True)]
    return {"title": "Languages of lines", "samples": samples}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("run")
    parser.add_argument("text", nargs="+")


def run(options: argparse.Namespace) -> int:
    """Print the language of each text."""
    for language in load(options.run).guess(options.text):
        print(language)
    return 0


COMMANDS: dict[str, Any] = {"toy-language": Command("tell the language of lines", configure, run)}
