"""From text files to what training reads: held-out pairs, vocabularies, and the token store, all in the run folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice, repeat
from pathlib import Path

from regard.config import Corpus, DataSettings, Recipe
from regard.data.pairs import Pair, read_corpus
from regard.data.records import read_kept
from regard.data.split import PARTS, Split, held_out_sizes, plan_group_split, plan_split
from regard.data.store import TokenStore, build_store, open_store
from regard.errors import CorpusError, SettingsError
from regard.files import write_atomically
from regard.run import Run
from regard.tasks.chat.data import Dialogue, fit, make_pairs, read_dialogues, split_turns
from regard.text.tokenizer import Tokenizer, train_tokenizer

FEWEST_PAIRS = 20
TRAIN = PARTS.index("train")
HELD_OUT_SHARE = 20  # at most one pair in so many is held out for each part
LONGEST_SCORED = 4
"""Held-out pairs may have up to this many times `data.max_length` tokens on a side. They are translated in pieces; the
time that TER takes grows with the cube of the length."""

Log = Callable[[str], None]


@dataclass(frozen=True)
class PreparedPairs:
    """Everything that training reads."""

    source: Tokenizer
    target: Tokenizer
    train: TokenStore
    valid: list[Pair]
    test: list[Pair]


class TrainingPairs:
    """The training corpora as streams that can be read again and again, without the pairs that are held out."""

    def __init__(self, data: DataSettings, seed: int):
        self.data = data
        self.counts = [0] * len(data.train)
        self.lengths: Counter[int] = Counter()
        self.parts = b""
        if not data.train:
            raise SettingsError("nothing to train on: give --source and --target, or [[data.train]] in a recipe")
        self._own = {part: self._read_own(part) for part in ("valid", "test")}
        self._count()
        total = sum(self.counts)
        if total < FEWEST_PAIRS:
            raise CorpusError(
                data.train[0].source, f"{total} pairs are too few to train on; give at least {FEWEST_PAIRS}"
            )
        valid, test = held_out_sizes(data, max(total // HELD_OUT_SHARE, self.smallest))
        if valid or test:
            self.parts = self._split(valid, test, seed).parts

    def __len__(self) -> int:
        return sum(self.counts) - self.parts.count(PARTS.index("valid")) - self.parts.count(PARTS.index("test"))

    def describe(self) -> str:
        """How the pairs are shared out, for people."""
        valid, test = (len(self._own[part]) or self.parts.count(PARTS.index(part)) for part in ("valid", "test"))
        return f"{len(self):,} pairs to train on, {valid:,} for validation, {test:,} for the test"

    @property
    def mean_characters(self) -> float:
        """Mean length of a sentence, over both sides."""
        return sum(length * count for length, count in self.lengths.items()) / sum(self.counts)

    @property
    def long_characters(self) -> int:
        """The length that one sentence in a hundred exceeds."""
        left = sum(self.counts) // 100
        for length in sorted(self.lengths, reverse=True):
            left -= self.lengths[length]
            if left < 0:
                return length
        return 0

    def corpora(self) -> Iterator[tuple[Iterator[Pair], float]]:
        """Each corpus with its weight."""
        for number, corpus in enumerate(self.data.train):
            yield (pair for part, pair in self._dealt(number) if part == TRAIN), corpus.weight

    def train(self) -> Iterator[Pair]:
        """All training pairs."""
        return chain.from_iterable(pairs for pairs, _ in self.corpora())

    def held_out(self, part: str) -> list[Pair]:
        """The pairs of "valid" or "test": from their own corpora, or held out of the training data."""
        return self._own[part] or self._kept_back[part]

    def texts(self) -> Iterator[str]:
        """What a vocabulary of both sides is learnt from."""
        return chain.from_iterable(self.train())

    def fit_to(self, source: Tokenizer, most: int) -> None:
        """Hear how many tokens a source may have. A sentence that has more is left out later."""

    @property
    def smallest(self) -> int:
        """Pairs that a held-out part has at least."""
        return 1

    def _split(self, valid: int, test: int, seed: int) -> Split:
        pairs = chain.from_iterable(map(self._read, self.data.train))
        return plan_split(pairs, valid, test, seed, where=self.data.train[0].source)

    def _read_own(self, part: str) -> list[Pair]:
        corpora: tuple[Corpus, ...] = getattr(self.data, part)
        pairs = [pair for corpus in corpora for pair in self._read(corpus) if _is_real(pair)]
        if corpora and not pairs:
            raise CorpusError(corpora[0].source, f"the {part} data has no pair with text on both sides")
        return pairs

    @cached_property
    def _kept_back(self) -> dict[str, list[Pair]]:
        """The held-out pairs of both parts, found in one pass over the training corpora."""
        found: dict[str, list[Pair]] = {"valid": [], "test": []}
        for number in range(len(self.counts)) if self.parts else ():
            for part, pair in self._dealt(number):
                if part != TRAIN:
                    found[PARTS[part]].append(pair)
        return found

    def _dealt(self, number: int) -> Iterator[tuple[int, Pair]]:
        """The pairs of a training corpus, each after the number of its part."""
        pairs = self._read(self.data.train[number])
        if not self.parts:
            return zip(repeat(TRAIN), pairs)
        return zip(islice(self.parts, sum(self.counts[:number]), None), pairs, strict=False)

    def _count(self) -> None:
        for number, corpus in enumerate(self.data.train):
            for pair in self._read(corpus):
                self.counts[number] += 1
                self.lengths[(len(pair.source) + len(pair.target)) // 2] += 1

    def _read(self, corpus: Corpus) -> Iterator[Pair]:
        return read_corpus(corpus, self.data.source_language, self.data.target_language)


class DialoguePairs(TrainingPairs):
    """Conversations as pairs of a context and a reply. They are held out as wholes, whatever sentences they share."""

    def __init__(self, data: DataSettings, seed: int, context_turns: int):
        self._fit: Callable[[str], str] | None = None
        self.context_turns = context_turns
        super().__init__(data, seed)

    def held_out(self, part: str) -> list[Pair]:
        """The pairs of whole conversations."""
        return list(map(self._fitted, super().held_out(part)))

    def corpora(self) -> Iterator[tuple[Iterator[Pair], float]]:
        """Each corpus with its weight."""
        return ((map(self._fitted, pairs), weight) for pairs, weight in super().corpora())

    def texts(self) -> Iterator[str]:
        """The last turn of each context and the reply: no turn more often for standing in more contexts."""
        return (text for source, target in self.train() for text in (split_turns(source)[-1], target))

    def fit_to(self, source: Tokenizer, most: int) -> None:
        """From here on, contexts come without the turns that make them longer than so many tokens."""
        self._fit = partial(fit, size=lambda text: len(source.encode(text)), most=most)

    @property
    def smallest(self) -> int:
        """A conversation, be it the longest."""
        return max((len(dialogue.replies) for dialogue in self._dialogues()), default=1)

    def _fitted(self, pair: Pair) -> Pair:
        return pair if self._fit is None else Pair(self._fit(pair.source), pair.target)

    def _split(self, valid: int, test: int, seed: int) -> Split:
        groups = (("\n".join(dialogue.turns), len(dialogue.replies)) for dialogue in self._dialogues())
        return plan_group_split(groups, valid, test, seed, where=self.data.train[0].source)

    def _dialogues(self) -> Iterator[Dialogue]:
        return chain.from_iterable(map(read_dialogues, self.data.train))

    def _read(self, corpus: Corpus) -> Iterator[Pair]:
        return (pair for dialogue in read_dialogues(corpus) for pair in make_pairs(dialogue, self.context_turns))


def read_pairs(recipe: Recipe) -> TrainingPairs:
    """The pairs of a task that learns from pairs."""
    data, seed = recipe.data, recipe.train.seed
    if data.task == "chat":
        return DialoguePairs(data, seed, recipe.task.context_turns)
    return TrainingPairs(data, seed)


def prepare(
    run: Run,
    recipe: Recipe,
    pairs: TrainingPairs,
    log: Log,
    vocabularies: tuple[Tokenizer, Tokenizer] | None = None,
) -> PreparedPairs:
    """Make the token store and the held-out parts, and vocabularies if none are given; write them into the run."""
    source, target = vocabularies or _make_tokenizers(recipe, pairs, log)
    run.write_tokenizers(source, target)
    return _build(run, recipe, pairs, source, target, log)


def open_prepared(run: Run, log: Log) -> PreparedPairs:
    """What `prepare` made, for going on; made again from the corpora where a finished run has put it away."""
    folder = run.folder / "store"
    source, target = run.tokenizers
    if not folder.is_dir():
        pairs = read_pairs(run.recipe)
        return _build(run, run.recipe, pairs, source, target, log)
    return PreparedPairs(
        source, target, open_store(folder / "train"), _read_pairs(folder / "valid.jsonl"),
        _read_pairs(folder / "test.jsonl"),
    )  # fmt: skip


def _build(
    run: Run, recipe: Recipe, pairs: TrainingPairs, source: Tokenizer, target: Tokenizer, log: Log
) -> PreparedPairs:
    """Encode, and write the store."""
    pairs.fit_to(source, recipe.data.max_length)
    valid, test = (list(filter(_is_real, pairs.held_out(part))) for part in ("valid", "test"))
    if not valid:
        raise CorpusError(recipe.data.train[0].source, "no pair that was held out has text on both sides")
    valid = _leave_out_long(valid, "validation", recipe.data, source, target, log)
    test = _leave_out_long(test, "test", recipe.data, source, target, log) if test else []
    log(f"encoding {len(pairs):,} pairs")
    with run.new_store() as folder:
        # The store is not kept: Windows cannot rename the folder while a file in it is mapped.
        if not len(build_store(folder / "train", pairs.corpora(), source, target, recipe.data.max_length)):
            raise CorpusError("training data", f"no pair has text on both sides within {recipe.data.max_length} tokens")
        for part, held_out in (("valid", valid), ("test", test)):
            lines = "".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in held_out)
            write_atomically(folder / f"{part}.jsonl", lines.encode())
    return PreparedPairs(source, target, open_store(run.folder / "store" / "train"), valid, test)


def _make_tokenizers(recipe: Recipe, pairs: TrainingPairs, log: Log) -> tuple[Tokenizer, Tokenizer]:
    settings, seed = recipe.tokenizer, recipe.train.seed
    log(f"learning a vocabulary of {settings.vocab_size:,} {_NAMES[settings.kind]}")
    if settings.joint:
        joint = train_tokenizer(pairs.texts(), settings, seed)
        return joint, joint
    return (
        train_tokenizer((pair.source for pair in pairs.train()), settings, seed),
        train_tokenizer((pair.target for pair in pairs.train()), settings, seed),
    )


_NAMES = {"bpe": "subwords (BPE)", "unigram": "subwords (unigram)", "word": "words", "character": "characters"}


def _is_real(pair: Pair) -> bool:
    return bool(pair.source.strip() and pair.target.strip())


def _leave_out_long(
    pairs: list[Pair], part: str, data: DataSettings, source: Tokenizer, target: Tokenizer, log: Log
) -> list[Pair]:
    """The held-out pairs that are short enough to be scored. Says how many are left out, and how many of the loss."""
    most, scored = data.max_length, LONGEST_SCORED * data.max_length
    sides = (source.encode_many([pair.source for pair in pairs]), target.encode_many([pair.target for pair in pairs]))
    lengths = [max(len(one), len(other)) for one, other in zip(*sides, strict=True)]
    has_loss = part == "validation" or data.task == "chat"
    if has_loss and min(lengths) > most:
        corpora = (data.valid if part == "validation" else data.test) or data.train
        raise CorpusError(
            corpora[0].source, f"no {part} pair has at most {most} tokens on each side; raise data.max_length"
        )
    left_out, no_loss = sum(length > scored for length in lengths), sum(most < length <= scored for length in lengths)
    if left_out:
        log(f"{part}: {left_out:,} of {len(pairs):,} pairs left out: more than {scored:,} tokens on a side")
    if no_loss and has_loss:
        log(f"{part}: {no_loss:,} of {len(pairs):,} pairs left out of the loss: more than {most:,} tokens on a side")
    return [pair for pair, length in zip(pairs, lengths, strict=True) if length <= scored]


def _read_pairs(path: Path) -> list[Pair]:
    return [Pair(*pair) for pair in read_kept(path, "held-out pairs")]
