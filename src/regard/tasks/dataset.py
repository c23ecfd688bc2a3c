"""Training data of any task: examples from files, held-out parts, vocabulary, encoded data and stream of batches.

A task reads its files with `read_train` and `hold_out` into `Parts`, and learns a vocabulary with `learn_tokenizer`. It
writes the encoded data into the folder store/ of the run with `new_store`, and opens it with `open_store_folder`.
Reading, encoding and batching single examples is different for each task.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Generic, TypeVar

from regard.config import Corpus, DataSettings, Recipe
from regard.data.batches import BatchPosition, BatchStream, Index, epoch_batches
from regard.data.pairs import content_hash
from regard.data.records import read_kept
from regard.data.split import group_by_part, split_texts
from regard.data.store import Ids, StorePart
from regard.errors import CorpusError, RunError, SettingsError
from regard.files import write_atomically
from regard.layers.dropout import Rows
from regard.models.base import Network
from regard.run import Run
from regard.tasks.start_from import copied_tokenizers
from regard.text.tokenizer import Tokenizer, train_tokenizer
from regard.training.distributed import ProcessGroup
from regard.training.flops import count_cost
from regard.training.schedule import ScheduleStage

FEWEST = 20
"""Minimum number of training examples."""
HELD_OUT = ("valid", "test")

Example = TypeVar("Example")
Train = TypeVar("Train")
Log = Callable[[str], None]


# Examples


@dataclass
class Parts(Generic[Example]):
    """All examples of a corpus, in memory: the training examples of each file, the validation and test examples."""

    unit: str
    """Name of the examples in messages, e.g. "documents"."""
    corpora: list[tuple[list[Example], float]]
    """For each training file: its examples, and its weight."""
    held_out: dict[str, list[Example]] = field(default_factory=lambda: {part: [] for part in HELD_OUT})

    def __len__(self) -> int:
        return sum(len(examples) for examples, _ in self.corpora)

    def train(self) -> Iterator[Example]:
        return (example for examples, _ in self.corpora for example in examples)

    def describe(self) -> str:
        return describe_parts(self.unit, len(self), *(len(self.held_out[part]) for part in HELD_OUT))


def describe_parts(unit: str, train: int, valid: int, test: int) -> str:
    """A line for the log with the numbers of training, validation and test examples. `unit`: e.g. "documents"."""
    return f"{train:,} {unit} to train on, {valid:,} for validation, {test:,} for the test"


def require_train(data: DataSettings, what: str) -> None:
    """Raise an error if the settings name no training file; `what` tells the user what to give: "a file of texts"."""
    if not data.train:
        raise SettingsError(f"nothing to train on: give {what}, or [[data.train]] in a recipe")


def read_train(
    data: DataSettings, read: Callable[[Corpus], list[Example]], what: str, unit: str
) -> list[list[Example]]:
    """Return a list of examples for each training file; `read` reads one file.

    In error messages, `what` describes a training file ("a file of texts"), and `unit` the examples ("texts").
    """
    require_train(data, what)
    found = [read(corpus) for corpus in data.train]
    total = sum(map(len, found))
    if total < FEWEST:
        few = f"1 {unit.removesuffix('s')} is" if total == 1 else f"{total} {unit} are"
        raise CorpusError(data.train[0].source, f"{few} too few to train on; give at least {FEWEST}")
    return found


def hold_out(
    data: DataSettings,
    found: Sequence[list[Example]],
    read: Callable[[Corpus], list[Example]],
    text_of: Callable[[Example], str],
    unit: str,
    seed: int,
    adjust: Callable[[list[Example], bytes], bytes] | None = None,
) -> Parts[Example]:
    """Divide the examples `found` in the training files into training, validation and test examples.

    If the settings name files for validation or test, `read` reads the examples of these parts from them instead.
    Examples with the same text, given by `text_of`, are never divided between parts. `adjust`, if given, may move
    examples to other parts: it takes all examples of the training files and, for each example, the index of its part in
    `regard.data.split.PARTS`, and returns the new indices. `unit` is what messages call the examples.
    """
    parts: Parts[Example] = Parts(unit, [])
    for name, held_out in parts.held_out.items():
        held_out += [example for corpus in getattr(data, name) for example in read(corpus)]
    examples = [example for corpus in found for example in corpus]
    numbers = split_texts([text_of(example) for example in examples], data, seed)
    numbers = adjust(examples, numbers) if adjust else numbers
    for corpus, by_part in zip(data.train, group_by_part(found, numbers), strict=True):
        parts.corpora.append((by_part["train"], corpus.weight))
        for name, held_out in parts.held_out.items():
            held_out += by_part[name]
    return parts


# In a run folder


def require_unchanged(run: Run, advice: str) -> None:
    """Raise an error that ends with `advice` if a corpus of the run has changed since the run was made."""
    data = run.recipe.data
    known = {(one["source"], one["target"]): one["sha256"] for one in run.card.get("data", ())}
    for corpus in (*data.train, *data.valid, *data.test):
        if content_hash(corpus) != known.get((corpus.source, corpus.target)):
            raise RunError(f"{corpus.source}: has changed since {run.folder} was trained{advice}")


@dataclass(frozen=True)
class PreparedData(Generic[Train, Example]):
    """The tokenizer, the training data and the held-out examples of a prepared run."""

    tokenizer: Tokenizer
    train: Train
    valid: list[Example]
    test: list[Example]


def learn_tokenizer(
    run: Run, recipe: Recipe, texts: Iterable[str], log: Log, base: Run | None, unit: str = "tokens", **sizes: int
) -> None:
    """Train a tokenizer on texts, or copy that of another run, e.g. of the fine-tuned `base`; write it into `run`.

    Also writes the vocabulary size and `sizes` (e.g. the number of labels), which the network's constructor needs.
    `unit` is what the log calls the entries of the vocabulary.
    """
    if base:
        tokenizer = base.tokenizers[0]
    elif copied := copied_tokenizers(recipe):
        tokenizer = copied[1]
    else:
        log(f"learning a vocabulary of {recipe.tokenizer.vocab_size:,} {unit} ({recipe.tokenizer.kind})")
        tokenizer = train_tokenizer(texts, recipe.tokenizer, recipe.train.seed)
    run.write_tokenizers(tokenizer, tokenizer)
    run.write_sizes(vocabulary=tokenizer.size, **sizes)


def store_parts(sizes: Iterable[tuple[int, float]]) -> list[StorePart]:
    """One `StorePart` per training file. `sizes`: per file, its number of examples, and their uses in an epoch."""
    counts, weights = zip(*sizes, strict=True)
    return list(map(StorePart, accumulate(counts), weights))


@contextmanager
def new_store(run: Run, held_out: Mapping[str, Iterable[Any]]) -> Iterator[Path]:
    """Yield a new folder for the encoded training data, which becomes store/ of the run when the `with` block ends.

    The folder already contains `held_out`, i.e. the validation and test examples by part: valid.jsonl and test.jsonl.
    """
    with run.new_store() as folder:
        for part, records in held_out.items():
            lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
            write_atomically(folder / f"{part}.jsonl", "".join(lines).encode())
        yield folder


def open_store_folder(run: Run, remake: Callable[[], None]) -> Path:
    """Return the folder store/ with the encoded data of a run. If it is missing, call `remake` to write it again."""
    folder = run.folder / "store"
    if not folder.is_dir():
        remake()
    return folder


def read_held_out(folder: Path, part: str, unit: str) -> list[Any]:
    """Read the examples of `part` ("valid" or "test") that `new_store` wrote. Error messages call them `unit`."""
    return read_kept(folder / f"{part}.jsonl", f"held-out {unit}")


# Batches


class StreamTrainUnit:
    """Base class for the `TrainUnit` of each task: provides an endless stream of batches, determined by the seed.

    A subclass adds `join` (make a batch from examples) and the other methods of `TrainUnit`.
    """

    stage = ScheduleStage()

    def __init__(
        self,
        recipe: Recipe,
        data: Any,
        model: Network,
        group: ProcessGroup | None,
        lengths: tuple[Ids, Ids],
        weights: Sequence[StorePart] = (),
    ):
        """`lengths`: source and target lengths of all examples, in tokens; zeros if the task has no source or target.

        `weights`: for each training file, how often an epoch uses its examples. Empty: every example once.
        """
        self.recipe, self.data, self.group = recipe, data, group or ProcessGroup()
        self.lengths, self._weights = lengths, weights
        self.cost = count_cost(model)
        self.enter(0, 0)

    def enter(self, epoch: int, start: int) -> None:
        settings, known = self.recipe.train, BatchPosition(epoch, start)
        self.stream = BatchStream(self.lengths, settings.batch_tokens, settings.seed, self._weights, known=known)

    def mark(self, position: int) -> tuple[int, int]:
        return self.stream.mark(position)

    def rows(self, batch: Any, first: int, every: int) -> tuple[Any, Rows | None]:
        """Return a batch of the rows `first`, `first` + `every`, ... of `batch`, and the indices of these rows.

        One of several processes computes these rows.
        """
        rows = Rows.every_nth(len(batch.index_B), first, every)
        return batch.rows(rows.index_R), rows

    def join(self, index: Index) -> Any:
        """Make a batch of the training examples with these indices."""
        raise NotImplementedError

    def batch(self, position: int) -> Any:
        return self.join(self.stream.at(position))

    def largest(self) -> Any:
        """Return the batch of the first epoch with the most tokens, including padding and end tokens."""
        return self.join(
            self.largest_of(lambda index: len(index) * sum(int(side[index].max()) + 1 for side in self.lengths))
        )

    def largest_of(self, size: Callable[[Index], int]) -> Index:
        """Return the indices of the examples in the batch of the first epoch for which `size(indices)` is largest."""
        settings = self.recipe.train
        return max(epoch_batches(self.lengths, settings.batch_tokens, settings.seed, 0, self._weights), key=size)
