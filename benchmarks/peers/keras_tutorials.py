"""The models of two Keras tutorials, built from keras-hub's layers, for benchmarks/lectures.py.

`translation`: the tutorial "English-to-Spanish translation" (one encoder and one decoder layer, 15,000 words, 20
tokens, batches of 64, RMSprop), with the layers of its KerasHub version. `imdb`: "Text classification with
Transformer" (20,000 words, the last 200 tokens, batches of 32, Adam). Both train until the steps have taken the given
time and keep the epoch with the best validation; neither validations nor the first step, which compiles, are counted.
`speed` trains the translation model until the process is stopped, and logs the real target tokens of every step.

Runs in an environment of its own, and reads and writes files in FOLDER.

    python keras_tutorials.py translation|imdb FOLDER [--minutes 10]
    python keras_tutorials.py speed FOLDER --log FILE [--xla]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import string
import time
import warnings
from collections import Counter
from pathlib import Path

os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2"}

import keras
import keras_hub
import numpy as np
import tensorflow as tf
from keras import layers

WORDS, LENGTH, WIDTH, INNER, HEADS, BATCH = 15_000, 20, 256, 2048, 8, 64
REVIEW_WORDS, REVIEW_LENGTH, REVIEW_WIDTH, REVIEW_INNER, REVIEW_HEADS, REVIEW_BATCH = 20_000, 200, 32, 32, 2, 32
FOREVER = 10**6
SEED = 1
warnings.filterwarnings("ignore", "Layer .* was passed an input with a mask")  # inside of keras-hub's layers
# The brackets of [start] and [end] stay.
STRIPPED = re.sub(r"[\[\]]", "", string.punctuation) + "¿"


class Clock(keras.callbacks.Callback):
    """Counts steps and their seconds, and stops training after `limit` seconds. The first step is not counted.

    `log`: a file to which the number of `tokens` of each step is written; the batches come again after the last.
    """

    def __init__(self, limit: float, tokens: list[int] | None = None, log: Path | None = None):
        super().__init__()
        self.limit, self.tokens, self.log = limit, tokens, log.open("w") if log else None
        self.steps, self.seconds, self.began = 0, 0.0, 0.0
        self.epochs: list[dict[str, float]] = []

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        self.began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if self.steps:
            self.seconds += time.perf_counter() - self.began
        if self.log and self.tokens:
            self.log.write(json.dumps({"tokens": self.tokens[self.steps % len(self.tokens)]}) + "\n")
            self.log.flush()
        self.steps += 1
        self.model.stop_training = self.seconds >= self.limit

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        scores = {name: float(value) for name, value in (logs or {}).items()}
        self.epochs.append({"step": self.steps, "seconds": self.seconds, **scores})

    def facts(self, monitor: str, highest: bool) -> dict[str, object]:
        """What is reported beside the scores; `monitor`: the validation score that selected the epoch."""
        best = (max if highest else min)(self.epochs, key=lambda epoch: epoch[monitor])
        return {
            "parameters": self.model.count_params(),
            "steps": self.steps,
            "seconds": self.seconds,
            "best_seconds": best["seconds"],
            "epochs": self.epochs,
        }


# ---------------------------------------------------------------------------------------------------------------------
# English-Spanish


def standardize(text: tf.Tensor) -> tf.Tensor:
    """Lower-case Spanish text and remove its punctuation, as in the tutorial."""
    return tf.strings.regex_replace(tf.strings.lower(text), f"[{re.escape(STRIPPED)}]", "")


class Vocabularies:
    """The words of both languages. Spanish has one token more: input and output are shifted by one."""

    def __init__(self, english: list[str], spanish: list[str]):
        self.english = layers.TextVectorization(WORDS, output_sequence_length=LENGTH)
        self.spanish = layers.TextVectorization(WORDS, output_sequence_length=LENGTH + 1, standardize=standardize)
        self.english.adapt(tf.data.Dataset.from_tensor_slices(english).batch(1024))
        self.spanish.adapt(tf.data.Dataset.from_tensor_slices(mark(spanish)).batch(1024))

    def pairs(self, english: list[str], spanish: list[str]) -> tf.data.Dataset:
        """Batches of inputs and outputs of the model, in the order of the pairs."""

        def encode(english: tf.Tensor, spanish: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
            ids = self.spanish(spanish)
            return {"english": self.english(english), "spanish": ids[:, :-1]}, ids[:, 1:]

        texts = tf.data.Dataset.from_tensor_slices((english, mark(spanish)))
        return texts.batch(BATCH).map(encode, num_parallel_calls=tf.data.AUTOTUNE)


def mark(sentences: list[str]) -> list[str]:
    """Add the tokens at the start and at the end."""
    return [f"[start] {sentence} [end]" for sentence in sentences]


def build_translator() -> keras.Model:
    """Build the model of the tutorial. Padding is masked, as the text of the tutorial says."""

    def embed(ids: keras.KerasTensor) -> keras.KerasTensor:
        return keras_hub.layers.TokenAndPositionEmbedding(WORDS, LENGTH, WIDTH, mask_zero=True)(ids)

    english = keras.Input((None,), dtype="int64", name="english")
    spanish = keras.Input((None,), dtype="int64", name="spanish")
    memory = keras_hub.layers.TransformerEncoder(INNER, HEADS)(embed(english))
    states = keras_hub.layers.TransformerDecoder(INNER, HEADS)(embed(spanish), memory)
    words = layers.Dense(WORDS, activation="softmax")(layers.Dropout(0.5)(states))
    return keras.Model([english, spanish], words)


def translate(model: keras.Model, vocabularies: Vocabularies, sentences: list[str]) -> list[str]:
    """Translate greedily. As in the tutorial, each new word is chosen by the whole model; but here in batches."""

    @tf.function
    def choose(source: tf.Tensor, target: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
        return tf.argmax(model([source, target], training=False)[:, place], -1)

    names = vocabularies.spanish.get_vocabulary()
    start, end = names.index("[start]"), names.index("[end]")
    texts = []
    for first in range(0, len(sentences), BATCH):
        source = vocabularies.english(sentences[first : first + BATCH])
        target = np.zeros((len(source), LENGTH + 1), np.int64)
        target[:, 0] = start
        for place in range(LENGTH):
            chosen = choose(source, tf.constant(target[:, :-1]), tf.constant(place)).numpy()
            target[:, place + 1] = np.where((target[:, : place + 1] == end).any(1), end, chosen)
            if (target[:, place + 1] == end).all():
                break
        for row in target[:, 1:].tolist():
            texts.append(" ".join(names[word] for word in row[: row.index(end) if end in row else LENGTH]))
    return texts


def read_part(folder: Path, part: str) -> tuple[list[str], list[str]]:
    """The English and the Spanish lines of a part."""
    english, spanish = (
        (folder / f"{part}.{language}").read_text(encoding="utf-8").split("\n")[:-1] for language in ("en", "es")
    )
    return english, spanish


def train_translator(folder: Path, minutes: float) -> dict[str, object]:
    """Train, and translate the test sentences with the weights of the best validation."""
    train, valid, (test, _) = (read_part(folder, part) for part in ("train", "valid", "test"))
    vocabularies, model = Vocabularies(*train), build_translator()
    model.compile("rmsprop", "sparse_categorical_crossentropy", metrics=["accuracy"])
    batches = vocabularies.pairs(*train).cache().shuffle(2048, seed=SEED).prefetch(16)
    clock, weights = Clock(60 * minutes), folder / "best.weights.h5"
    best = keras.callbacks.ModelCheckpoint(weights, "val_loss", save_best_only=True, save_weights_only=True)
    held_out = vocabularies.pairs(*valid).cache()
    model.fit(batches, epochs=FOREVER, validation_data=held_out, callbacks=[clock, best], shuffle=False, verbose=2)
    model.load_weights(weights)
    return {"texts": translate(model, vocabularies, test), **clock.facts("val_loss", highest=False)}


def measure_speed(folder: Path, log: Path, xla: bool) -> None:
    """Train until the process is stopped, on batches of a fixed order."""
    english, spanish = read_part(folder, "train")
    vocabularies, model = Vocabularies(english, spanish), build_translator()
    batches = vocabularies.pairs(english, spanish)
    tokens = [int((output != 0).sum()) for _, output in batches.as_numpy_iterator()]
    model.compile("rmsprop", "sparse_categorical_crossentropy", jit_compile=xla or "auto")  # auto: not on a CPU
    log.with_suffix(".facts").write_text(
        json.dumps({"parameters": model.count_params(), "tokens_per_batch": sum(tokens) / len(tokens)})
    )
    endless = batches.cache().repeat().prefetch(16)
    model.fit(endless, callbacks=[Clock(float("inf"), tokens, log)], shuffle=False, verbose=0)


# ---------------------------------------------------------------------------------------------------------------------
# IMDB


def read_reviews(folder: Path, part: str) -> tuple[list[list[str]], np.ndarray]:
    """The reviews as lower-case words, and their labels. Punctuation is removed as in the dataset that Keras has."""
    filtered = str.maketrans(dict.fromkeys('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n', " "))
    with (folder / f"{part}.jsonl").open(encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    words = [record["text"].lower().translate(filtered).split() for record in records]
    return words, np.array([int(record["label"] == "positive") for record in records])


def encode_reviews(reviews: list[list[str]], known: list[str]) -> np.ndarray:
    """Ids as in the dataset of Keras: 0 padding, 1 start, 2 unknown, then the words; the last tokens are kept."""
    numbers = {word: number for number, word in enumerate(known, 3)}
    rows = [[1, *(numbers.get(word, 2) for word in review)] for review in reviews]
    return keras.utils.pad_sequences(rows, maxlen=REVIEW_LENGTH)


def build_classifier() -> keras.Model:
    """Build the model of the tutorial: the mean of all states, also at padding, and a small network on it."""
    ids = keras.Input((REVIEW_LENGTH,))
    states = keras_hub.layers.TokenAndPositionEmbedding(REVIEW_WORDS, REVIEW_LENGTH, REVIEW_WIDTH)(ids)
    states = keras_hub.layers.TransformerEncoder(
        REVIEW_INNER, REVIEW_HEADS, dropout=0.1, layer_norm_epsilon=1e-6
    )(states)  # fmt: skip
    states = layers.Dropout(0.1)(layers.GlobalAveragePooling1D()(states))
    states = layers.Dropout(0.1)(layers.Dense(20, activation="relu")(states))
    return keras.Model(ids, layers.Dense(2, activation="softmax")(states))


def train_classifier(folder: Path, minutes: float) -> dict[str, object]:
    """Train, and score the test reviews with the weights of the best validation."""
    (train, labels), (valid, valid_labels), (test, test_labels) = (
        read_reviews(folder, part) for part in ("train", "valid", "test")
    )
    counts = Counter(word for review in train for word in review)
    known = [word for word, _ in counts.most_common(REVIEW_WORDS - 3)]
    model, clock, weights = build_classifier(), Clock(60 * minutes), folder / "best.weights.h5"
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    best = keras.callbacks.ModelCheckpoint(weights, "val_accuracy", save_best_only=True, save_weights_only=True)
    model.fit(
        encode_reviews(train, known), labels, batch_size=REVIEW_BATCH, epochs=FOREVER, callbacks=[clock, best],
        validation_data=(encode_reviews(valid, known), valid_labels), verbose=2,
    )  # fmt: skip
    model.load_weights(weights)
    chosen = model.predict(encode_reviews(test, known), batch_size=500, verbose=0).argmax(-1)
    return {"accuracy": float((chosen == test_labels).mean()), **clock.facts("val_accuracy", highest=True)}


def main() -> None:
    """Train one of the models; write keras.json, or for `speed` keras.jsonl."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["translation", "imdb", "speed"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help="minutes of training steps")
    parser.add_argument("--log", type=Path, help="the log of `speed`")
    parser.add_argument("--xla", action="store_true", help="compile the steps of `speed` with XLA")
    options = parser.parse_args()
    keras.utils.set_random_seed(SEED)
    if options.part == "speed":
        measure_speed(options.folder, options.log, options.xla)
        return
    train = {"translation": train_translator, "imdb": train_classifier}[options.part]
    found = train(options.folder, options.minutes)
    (options.folder / "keras.json").write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
