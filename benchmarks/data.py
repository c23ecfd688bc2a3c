"""From text to batches: seconds, padding and memory, on Multi30k.

    python benchmarks/data.py [FOLDER]

FOLDER has train.en and train.de; the default is ../shared/data/multi30k beside the repository. Get them from the
repository multi30k/dataset on GitHub. Prints one table; the last column is the limit of the figure, if it has one.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Literal, TypeVar

from regard import config
from regard.data.pairs import Pair, read_corpus
from regard.data.store import TokenStore, build_store
from regard.text.subword_regularization import resample
from regard.text.tokenizer import Tokenizer, load_tokenizer, train_tokenizer

DEFAULT_FOLDER = Path(__file__).parents[2] / "shared" / "data" / "multi30k"
BUDGET = 4096
SEED = 1
MAX_LENGTH = 250
FEW_PAIRS, MANY_PAIRS = 200_000, 2_000_000

Row = tuple[str, str, str]
Result = TypeVar("Result")


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        measure, *arguments = sys.argv[2:]
        print(json.dumps(MEASURES[measure](*map(Path, arguments[:2]), *map(int, arguments[2:]))))
        return
    data = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_FOLDER
    if not (data / "train.en").is_file():
        sys.exit(f"{data}: no train.en there; give the folder of Multi30k (github: multi30k/dataset)")
    with tempfile.TemporaryDirectory() as scratch:
        rows = run("prepare", data, scratch)
        rows += run("order", data, scratch)
        rows += run("sample", data, scratch)
        rows += run("memory", data, scratch, str(FEW_PAIRS))
        allowed = 1.05 * float(rows[-1][1])
        rows += [(name, figure, f"{allowed:.0f}") for name, figure, _ in run("memory", data, scratch, str(MANY_PAIRS))]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, figure, limit in rows:
        print(f"{name:{widths[0]}}  {figure:>{widths[1]}}  {limit}".rstrip())


def run(measure: str, *arguments: str | Path) -> list[Row]:
    """Measure in a separate process, so that each peak of memory is that of one measurement."""
    command = [sys.executable, __file__, "--measure", measure, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def prepare(data: Path, scratch: Path) -> list[Row]:
    """Measure tokenizer training and the building of the token store, as for training."""
    tokenizer, seconds_tokenizer = timed(lambda: train(data, "bpe"))
    tokenizer.save(scratch, "bpe")
    store, seconds_store = timed(lambda: build(data, scratch / "store", tokenizer))
    unigram, seconds_unigram = timed(lambda: train(data, "unigram"))
    unigram.save(scratch, "unigram")
    indices = random.Random(SEED).choices(range(len(store)), k=100_000)
    _, seconds_access = timed(lambda: [store[index] for index in indices])
    return [
        (
            f"tokenizer, joint BPE of {tokenizer.size:,} from {2 * len(store):,} lines: s",
            f"{seconds_tokenizer:.2f}",
            "",
        ),
        (f"store of {len(store):,} pairs: s", f"{seconds_store:.2f}", ""),
        ("both: s", f"{seconds_tokenizer + seconds_store:.2f}", "15"),
        ("the same tokenizer by unigram: s", f"{seconds_unigram:.2f}", ""),
        ("a pair out of the store: us", f"{seconds_access * 10:.2f}", ""),
    ]


def order(data: Path, scratch: Path) -> list[Row]:
    """Measure the planning of the batches of one epoch, and their padding."""
    from regard.data.batches import BatchStream, epoch_batches, make_batch
    from regard.data.store import open_store

    store, pad = open_store(scratch / "store"), load_tokenizer(scratch, "bpe").pad
    batches, seconds_plan = timed(lambda: epoch_batches(store.lengths, BUDGET, SEED, 0))
    real = sum(int(side.sum()) + len(side) for side in store.lengths)
    padded = sum(len(batch) * (2 + sum(int(side[batch].max()) for side in store.lengths)) for batch in batches)
    stream = BatchStream(store.lengths, BUDGET, SEED)
    _, seconds = timed(
        lambda: [
            make_batch([store[number] for number in batch.tolist()], pad, pad, batch)
            for batch in map(stream.at, range(len(batches)))
        ]
    )
    _, seconds_far = timed(lambda: BatchStream(store.lengths, BUDGET, SEED).at(100_000))
    return [
        (f"padding at a budget of {BUDGET:,}: % of all tokens", f"{100 * (1 - real / padded):.2f}", "5"),
        (f"planning an epoch of {len(batches)} batches: ms", f"{seconds_plan * 1e3:.1f}", ""),
        ("batches, planned and made into tensors: 1/s", f"{len(batches) / seconds:.0f}", ""),
        ("first batch at position 100,000 of the stream: s", f"{seconds_far:.2f}", ""),
    ]


def sample(data: Path, scratch: Path) -> list[Row]:
    """Measure the time of subword regularization per sentence."""
    texts = [side for pair in islice(pairs(data), 5_000) for side in pair]
    rows: list[Row] = []
    for kind, strength in (("bpe", 0.1), ("unigram", 0.2)):
        tokenizer, generator = load_tokenizer(scratch, kind), random.Random(SEED)
        sentences = tokenizer.encode_many(texts)
        for epoch in ("first", "second"):
            start = time.perf_counter()
            for ids in sentences:
                resample(tokenizer, ids, strength, generator)
            each = (time.perf_counter() - start) / len(sentences)
            rows.append((f"a sentence resampled by {kind} at {strength}, {epoch} time: us", f"{each * 1e6:.0f}", ""))
    return rows


def memory(data: Path, scratch: Path, count: int) -> list[Row]:
    """Measure the peak of resident memory while a store is built."""
    tokenizer = load_tokenizer(scratch, "bpe")
    store, seconds = timed(lambda: build(data, scratch / f"store-{count}", tokenizer, count))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [(f"peak memory building a store of {len(store):,} pairs ({seconds:.0f} s): MB", f"{peak:.0f}", "")]


MEASURES: dict[str, Callable[..., list[Row]]] = {"prepare": prepare, "order": order, "sample": sample, "memory": memory}


def pairs(data: Path) -> Iterator[Pair]:
    return read_corpus(config.Corpus(source=str(data / "train.en"), target=str(data / "train.de")))


def train(data: Path, kind: Literal["bpe", "unigram"]) -> Tokenizer:
    return train_tokenizer((side for pair in pairs(data) for side in pair), config.TokenizerSettings(kind=kind), SEED)


def build(data: Path, folder: Path, tokenizer: Tokenizer, count: int | None = None) -> TokenStore:
    """Build a store of the pairs; with `count`, of so many pairs by repetition."""
    corpus = pairs(data) if count is None else islice(cycle(pairs(data)), count)
    return build_store(folder, [(corpus, 1.0)], tokenizer, tokenizer, MAX_LENGTH)


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


if __name__ == "__main__":
    main()
