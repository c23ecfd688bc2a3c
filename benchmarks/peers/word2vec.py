"""gensim's word2vec, for benchmarks/embed.py: train on a file of tokens, write the vectors, print figures as JSON.

Runs in an environment of its own.

    python word2vec.py TOKENS --epochs 5 --threads 2 --seed 1 [--out vectors.txt]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from gensim.models import Word2Vec

SETTINGS = {"vector_size": 100, "window": 5, "min_count": 5, "sg": 1, "negative": 5, "sample": 1e-3}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tokens", type=Path)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="")
    options = parser.parse_args()
    sentences = [line.split() for line in options.tokens.read_text(encoding="utf-8").splitlines()]
    model = Word2Vec(workers=options.threads, epochs=options.epochs, seed=options.seed, **SETTINGS)
    model.build_vocab(sentences)
    began, processor = time.perf_counter(), time.process_time()
    model.train(sentences, total_examples=model.corpus_count, epochs=options.epochs)
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    if options.out:
        model.wv.save_word2vec_format(options.out)
    words = model.corpus_total_words * options.epochs
    print(json.dumps({"words": words, "seconds": seconds, "processor": processor, "vocabulary": len(model.wv)}))


if __name__ == "__main__":
    main()
