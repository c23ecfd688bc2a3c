"""Preparation of sentence pairs for training: `PairExamples` reads files, `prepare` writes into the run folder.

`prepare` writes the vocabularies, the token store of the training pairs, and the held-out pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice, repeat
from typing import ClassVar

from regard.config import Corpus, DataSettings, Recipe
from regard.data.dictionary import every_nth, learn_dictionary
from regard.data.pairs import Pair, read_corpus
from regard.data.split import PARTS, Split, held_out_sizes, plan_split
from regard.data.store import build_store
from regard.errors import CorpusError
from regard.run import Run
from regard.tasks.dataset import FEWEST, HELD_OUT, Log, describe_parts, new_store, require_train
from regard.tasks.translate.plan import PairFacts
from regard.text.tokenizer import SPACE_MARK, Tokenizer, train_tokenizer

TRAIN = PARTS.index("train")
_NAMES = {"bpe": "subwords (BPE)", "unigram": "subwords (unigram)", "word": "words", "character": "characters"}


class PairExamples:
    """The sentence pairs of a recipe, read from files: training, validation and test pairs.

    If the recipe names no file for validation or test, some pairs of the training files are held out.
    """

    test_has_loss: ClassVar[bool] = False
    """Whether the loss is reported for the test part, too."""

    def __init__(self, data: DataSettings, seed: int):
        self.data = data
        self.counts = [0] * len(data.train)
        self.lengths: Counter[int] = Counter()
        self.parts = b""
        require_train(data, "--source and --target")
        self._own: dict[str, list[Pair]] = {}
        for part in HELD_OUT:
            corpora: tuple[Corpus, ...] = getattr(data, part)
            self._own[part] = [pair for corpus in corpora for pair in self._read(corpus) if _has_text(pair)]
            if corpora and not self._own[part]:
                raise CorpusError(
                    corpora[0].source, f"source or target is empty in every pair of the {part} data; give other files"
                )
        for number, corpus in enumerate(data.train):
            for pair in self._read(corpus):
                self.counts[number] += 1
                self.lengths[(len(pair.source) + len(pair.target)) // 2] += 1
        total = sum(self.counts)
        if total < FEWEST:
            raise CorpusError(data.train[0].source, f"{total} pairs are too few to train on; give at least {FEWEST}")
        valid, test = held_out_sizes(data, max(total // 20, self.smallest_limit))
        if valid or test:
            self.parts = self._split(valid, test, seed).parts

    def __len__(self) -> int:
        return self.parts.count(TRAIN) if self.parts else sum(self.counts)

    def describe(self) -> str:
        held_out = (len(self._own[part]) or self.parts.count(PARTS.index(part)) for part in HELD_OUT)
        return describe_parts("pairs", len(self), *held_out)

    def facts(self) -> PairFacts:
        """Return the number of training pairs and the lengths of pairs, from which the plan chooses settings."""
        total = sum(self.counts)
        mean = sum(length * count for length, count in self.lengths.items()) / total
        longest_first = (repeat(length, self.lengths[length]) for length in sorted(self.lengths, reverse=True))
        long = next(islice(chain.from_iterable(longest_first), total // 100, None))
        return PairFacts(len(self), mean, long)

    def corpora(self) -> Iterator[tuple[Iterator[Pair], float]]:
        """For each training file, yield its pairs (without held-out ones) and its weight."""
        for number, corpus in enumerate(self.data.train):
            yield (pair for part, pair in self._with_parts(number) if part == TRAIN), corpus.weight

    def train(self) -> Iterator[Pair]:
        return chain.from_iterable(pairs for pairs, _ in self.corpora())

    def held_out(self, part: str) -> list[Pair]:
        """Return the validation or test pairs: from their own files, or held out from the training files.

        `part` is "valid" or "test".
        """
        return self._own[part] or self._held_out[part]

    def texts(self) -> Iterator[str]:
        """Yield the sources and targets of all training pairs, to train a joint vocabulary."""
        return chain.from_iterable(self.train())

    def fit_to(self, source: Tokenizer, max_length: int) -> None:
        """Do nothing. (In chat, this shortens sources to `max_length` tokens; here, longer pairs are left out.)"""

    @property
    def smallest_limit(self) -> int:
        """A held-out part may have at most 1/20 of all pairs or, if it is more, this number of pairs."""
        return 1

    def _split(self, valid: int, test: int, seed: int) -> Split:
        pairs = chain.from_iterable(map(self._read, self.data.train))
        return plan_split(pairs, valid, test, seed, where=self.data.train[0].source)

    @cached_property
    def _held_out(self) -> dict[str, list[Pair]]:
        found: dict[str, list[Pair]] = {part: [] for part in PARTS}
        for number in range(len(self.counts)) if self.parts else ():
            for part, pair in self._with_parts(number):
                if part != TRAIN:
                    found[PARTS[part]].append(pair)
        return found

    def _with_parts(self, number: int) -> Iterator[tuple[int, Pair]]:
        """Yield (part, pair) for all pairs of the training file with index `number`; `part` is an index in `PARTS`."""
        parts = islice(self.parts, sum(self.counts[:number]), None) if self.parts else repeat(TRAIN)
        return zip(parts, self._read(self.data.train[number]), strict=False)

    def _read(self, corpus: Corpus) -> Iterator[Pair]:
        return read_corpus(corpus, self.data.source_language, self.data.target_language)


def prepare(
    run: Run, recipe: Recipe, examples: PairExamples, log: Log, vocabularies: tuple[Tokenizer, Tokenizer] | None
) -> None:
    """Write source and target vocabulary, encoded training pairs and held-out pairs into the run.

    The vocabularies are trained unless they are given.
    """
    if not vocabularies:
        settings, seed = recipe.tokenizer, recipe.train.seed
        log(f"training a vocabulary of {settings.vocab_size:,} {_NAMES[settings.kind]}")
        if settings.joint:
            vocabularies = (train_tokenizer(examples.texts(), settings, seed),) * 2
        else:
            sources = train_tokenizer((pair.source for pair in examples.train()), settings, seed)
            vocabularies = sources, train_tokenizer((pair.target for pair in examples.train()), settings, seed)
    run.write_tokenizers(*vocabularies)
    write_store(run, recipe, examples, vocabularies, log)


def write_store(
    run: Run, recipe: Recipe, examples: PairExamples, vocabularies: tuple[Tokenizer, Tokenizer], log: Log
) -> None:
    """Encode the training pairs with source and target vocabulary; write them and the held-out pairs into the run."""
    source, target = vocabularies
    examples.fit_to(source, recipe.data.max_length)
    parts = {part: list(filter(_has_text, examples.held_out(part))) for part in HELD_OUT}
    if not parts["valid"]:
        raise CorpusError(
            recipe.data.train[0].source, "source or target is empty in every held-out pair; check the data"
        )
    for part, pairs in parts.items():
        if pairs:
            parts[part] = _leave_out_long(pairs, part, recipe.data, vocabularies, log, examples.test_has_loss)
    log(f"encoding {len(examples):,} pairs")
    with new_store(run, parts) as folder:
        # No variable holds the store: Windows cannot rename the folder while a file in it is mapped.
        if not len(build_store(folder / "train", examples.corpora(), source, target, recipe.data.max_length)):
            problem = f"every pair has an empty side, or more than data.max_length = {recipe.data.max_length} tokens"
            raise CorpusError("training data", f"{problem}; raise this limit, or check the files")


def write_dictionary(run: Run, examples: PairExamples, log: Log, base: Mapping[str, str]) -> None:
    """Learn translations of words from the training pairs, and write them into the run.

    They are added to `base`, the dictionary of the run that is fine-tuned. Of a large corpus, only some pairs are used,
    at regular distances.
    """
    source, target = run.tokenizers
    some = islice(examples.train(), None, None, every_nth(len(examples), examples.facts().characters))
    pairs = ((_words(source, pair.source), _words(target, pair.target)) for pair in some)
    found = learn_dictionary(pairs, {token.removeprefix(SPACE_MARK) for token in target.tokens})
    run.write_dictionary(dict(sorted({**base, **found}.items())))
    log(f"learned a dictionary of {len(found):,} words, to replace unknown words")


def _words(tokenizer: Tokenizer, text: str) -> list[str]:
    """The words of a text, whether they are in the vocabulary or not, as `Translator` looks them up."""
    text = tokenizer.normalize(text)
    return [text[piece.start : piece.end] for piece in tokenizer.pieces(text)]


def _has_text(pair: Pair) -> bool:
    return bool(pair.source.strip() and pair.target.strip())


def _leave_out_long(
    pairs: list[Pair], part: str, data: DataSettings, vocabularies: Sequence[Tokenizer], log: Log, test_has_loss: bool
) -> list[Pair]:
    """Remove held-out pairs with more than 4 * `data.max_length` tokens in source or target.

    Other pairs with more than `data.max_length` tokens stay: they are translated and scored, but do not count in the
    loss. Both numbers of pairs are logged. `part`: "valid" or "test"; `test_has_loss`: whether "test" has a loss.
    """
    name, has_loss = ("validation", True) if part == "valid" else (part, test_has_loss)
    limit, scored = data.max_length, 4 * data.max_length  # the time of TER grows with the cube of the length
    sides = (side.encode_many(list(texts)) for side, texts in zip(vocabularies, zip(*pairs, strict=True), strict=True))
    lengths = [max(len(one), len(other)) for one, other in zip(*sides, strict=True)]
    if has_loss and min(lengths) > limit:
        corpora: tuple[Corpus, ...] = getattr(data, part) or data.train
        problem = f"every {name} pair has a source or target of more than {limit} tokens"
        raise CorpusError(corpora[0].source, f"{problem}; raise data.max_length")
    left_out, no_loss = sum(length > scored for length in lengths), sum(limit < length <= scored for length in lengths)
    if left_out:
        log(f"{name}: {left_out:,} of {len(pairs):,} pairs left out: more than {scored:,} tokens on a side")
    if no_loss and has_loss:
        log(f"{name}: {no_loss:,} of {len(pairs):,} pairs left out of the loss: more than {limit:,} tokens on a side")
    return [pair for pair, length in zip(pairs, lengths, strict=True) if length <= scored]
