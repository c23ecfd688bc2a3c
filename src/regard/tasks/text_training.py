"""Training on plain text, for language models of all kinds: texts, a store of windows, and sizes of networks.

A text with more than `data.max_length` tokens is divided into windows of that length. Each window is a separate
example.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from regard.config import Recipe
from regard.data.store import DocumentStore, open_documents, write_documents
from regard.errors import CorpusError
from regard.run import Run
from regard.tasks.dataset import (
    HELD_OUT,
    Parts,
    PreparedData,
    hold_out,
    learn_tokenizer,
    new_store,
    open_store_folder,
    read_held_out,
    read_train,
    store_parts,
)
from regard.tasks.text_scores import windows
from regard.tasks.texts import read_texts
from regard.tasks.training import HELD_OUT_EXAMPLES, Json, Log, Tables, Training
from regard.text.tokenizer import UNK
from regard.training.device import Machine
from regard.training.plan import CHARACTERS_PER_TOKEN, SHARE_OF_PEAK, PlannedSetting

TextData = PreparedData[DocumentStore, str]
"""Each document of the store is one window of a training text, without labels."""


def write_store(run: Run, examples: Parts[str], *, needs_known_token: bool) -> None:
    """Encode the training texts in windows, and write them and the held-out texts into the folder store/ of a run.

    With `needs_known_token`, windows in which every token is UNK are left out.
    """
    tokenizer, size = run.tokenizers[0], run.recipe.data.max_length
    encoded = [
        ([part for ids in tokenizer.encode_many(texts) for part in windows(ids, size)], weight)
        for texts, weight in examples.corpora
    ]
    if needs_known_token:
        encoded = [([part for part in found if any(id != UNK for id in part)], weight) for found, weight in encoded]
    if not any(found for found, _ in encoded):
        raise CorpusError(
            run.recipe.data.train[0].source, "the tokenizer finds no tokens in the training texts; give other texts"
        )
    with new_store(run, examples.held_out) as folder:
        parts = store_parts((len(found), weight) for found, weight in encoded)
        rows = (([list(part)], ()) for found, _ in encoded for part in found)
        write_documents(folder / "train", rows, parts, tokenizer.size)


def mean_tokens(examples: Parts[str]) -> float:
    """Mean number of tokens per training text, including EOS, estimated from the number of characters."""
    return sum(map(len, examples.train())) / max(len(examples), 1) / CHARACTERS_PER_TOKEN + 1


class TextTraining(Training[Parts[str], TextData]):
    """Base class of the training of a task on plain texts; subclasses add the plan, the batches and the scores."""

    needs_known_token: ClassVar[bool] = False
    """Whether the model cannot learn from a window in which every token is UNK."""

    def read(self, recipe: Recipe) -> Parts[str]:
        found = read_train(recipe.data, read_texts, "a file of texts", "texts")
        return hold_out(recipe.data, found, read_texts, str, "texts", recipe.train.seed)

    def prepare(self, run: Run, recipe: Recipe, examples: Parts[str], log: Log, base: Run | None) -> None:
        learn_tokenizer(run, recipe, examples.train(), log, base)
        write_store(run, examples, needs_known_token=self.needs_known_token)

    def open_data(self, run: Run, log: Log) -> TextData:
        def remake() -> None:
            write_store(run, self.read(run.recipe), needs_known_token=self.needs_known_token)

        folder = open_store_folder(run, remake)
        valid, test = (read_held_out(folder, part, "texts") for part in HELD_OUT)
        return TextData(run.tokenizers[0], open_documents(folder / "train"), valid, test)

    def expected_initial_loss(self, recipe: Recipe, data: TextData) -> float:
        return 2.0 + math.log(data.tokenizer.size)  # a little more than the loss of uniform guessing

    def card(self, recipe: Recipe, data: TextData, base: Run | None) -> Json:
        """Entries of card.json: vocabulary size, number of training windows, numbers of validation and test texts."""
        return {
            "vocabulary": data.tokenizer.size,
            "texts": {"train": len(data.train), "valid": len(data.valid), "test": len(data.test)},
        }

    def from_records(self, records: Sequence[Json]) -> list[str]:
        return [one["text"] for one in records]

    def train_examples(self, examples: Parts[str]) -> Iterable[str]:
        return examples.train()

    def texts(self, example: str) -> tuple[str, ...]:
        return (example,)

    def held_out(self, data: TextData) -> list[Json]:
        return [{"text": text} for text in (data.test or data.valid)[:HELD_OUT_EXAMPLES]]


# The size of a network, from the number of tokens and the time


class Size(NamedTuple):
    """The size of a network: width and number of layers."""

    width: int
    layers: int

    def parameters(self, vocabulary: int) -> int:
        """Approximate number of parameters: a block has 12 width^2, as many as one and a half layers of an LSTM."""
        return 12 * self.layers * self.width**2 + vocabulary * self.width


SIZES = (Size(128, 2), Size(192, 3), Size(256, 4), Size(512, 6))
"""The sizes among which the plan chooses. A recurrent network has the same width, but at most two layers."""


def choose_sizes(
    tokens: float, machine: Machine, given: Tables, *, layers: str, epochs: float, most_layers: int = 0
) -> Iterator[PlannedSetting]:
    """Vocabulary, layers, widths, heads and dropout for `tokens` training tokens.

    With `train.max_minutes`, the network is the largest one that reads the texts `epochs` times in that time. `layers`:
    the setting of the number of layers; `most_layers`: the largest number, 0: no limit.
    """
    much = f"about {tokens / 1e6:.1f} million tokens"
    vocabulary = 2000 if tokens < 2e5 else 4000 if tokens < 1e6 else 6000 if tokens < 5e6 else 16_000
    yield PlannedSetting("tokenizer.vocab_size", vocabulary, f"{much}: few enough that each subword is seen often")
    most = 0 if tokens < 2e5 else 2 if tokens < 2e7 else 3
    chosen = most
    minutes = given.get("train", {}).get("max_minutes", 0)
    vocabulary = given.get("tokenizer", {}).get("vocab_size", vocabulary)
    while chosen and minutes and _epochs(SIZES[chosen], vocabulary, tokens, machine, minutes) < epochs:
        chosen -= 1
    reason = f"{much}: a larger network overfits"
    if chosen < most:
        reason = f"a larger network reads {much} fewer than {epochs:g} times in {minutes:g} minutes"
    depth = min(SIZES[chosen].layers, most_layers) if most_layers else SIZES[chosen].layers
    width = given.get("model", {}).get("width", 0) or SIZES[chosen].width
    yield PlannedSetting(layers, depth, reason)
    yield PlannedSetting("model.width", width, reason)
    yield PlannedSetting("model.ffn_width", 4 * width, "four times the width, as in the paper")
    yield PlannedSetting("model.heads", max(width // 64, 1), "heads of 64, as in the paper")
    dropout = 0.3 if tokens < 2e6 else 0.2 if tokens < 2e7 else 0.1
    shown = "the less data, the more dropout"
    if chosen < most:
        dropout, shown = min(dropout, 0.2), "the small network reads the data only a few times"
    yield PlannedSetting("model.dropout", dropout, shown)


def _epochs(size: Size, vocabulary: int, tokens: float, machine: Machine, minutes: float) -> float:
    """The number of times that a network of this size reads the texts in `minutes` of training on this machine."""
    operations = 6 * size.parameters(vocabulary)  # per token: two in the forward pass, four in the backward pass
    return 60 * minutes * SHARE_OF_PEAK * machine.peak / (operations * tokens)
