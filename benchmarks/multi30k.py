"""Multi30k for the benchmarks: where it is, and the batches that all sides get.

The corpus: repository multi30k/dataset on GitHub; train.en, train.de, val.*, test_2016_flickr.* in one folder.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from regard.config import Corpus, TokenizerSettings
from regard.data.batches import BatchStream
from regard.data.pairs import Pair, read_corpus
from regard.text import tokenizer as tokenizers

HERE = Path(__file__).parent
OUT = HERE / "out"
WORDS, BATCH_TOKENS, SEED = 8000, 4096, 1


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Add the option for the folder of the corpus."""
    default = HERE.parent.parent / "shared" / "data" / "multi30k"
    parser.add_argument("--data", type=Path, default=default, metavar="DIR", help="the folder of Multi30k")


def check_folder(folder: Path) -> None:
    """Exit with a hint if the corpus is missing."""
    if not (folder / "train.en").is_file():
        raise SystemExit(f"{folder}: no train.en; Multi30k can be had from github.com/multi30k/dataset")


def read_pairs(folder: Path, part: str) -> list[Pair]:
    """The pairs of train, val or test_2016_flickr."""
    return list(read_corpus(Corpus(str(folder / f"{part}.en"), str(folder / f"{part}.de"))))


class Encoded:
    """The training pairs as ids of one joint vocabulary, and the stream of batches that every side trains on."""

    def __init__(self, folder: Path):
        self.pairs = read_pairs(folder, "train")
        texts = (side for pair in self.pairs for side in pair)
        self.tokenizer = tokenizers.train_tokenizer(texts, TokenizerSettings(vocab_size=WORDS), seed=SEED)
        self.source = self.tokenizer.encode_many([pair.source for pair in self.pairs])
        self.target = self.tokenizer.encode_many([pair.target for pair in self.pairs])
        lengths = tuple(np.array([len(ids) for ids in side], dtype=np.int32) for side in (self.source, self.target))
        self.stream = BatchStream((lengths[0], lengths[1]), BATCH_TOKENS, SEED)

    def write_batches(self, path: Path, count: int) -> None:
        """Write the first `count` batches as JSON lines of [source ids, target ids] for another process."""
        with path.open("w") as file:
            for position in range(count):
                rows = [(self.source[place], self.target[place]) for place in self.stream.at(position).tolist()]
                file.write(json.dumps(rows) + "\n")
