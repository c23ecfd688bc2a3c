"""From knowledge bases to what training reads: held-out questions, vocabulary, texts that belong together."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from regard.config import Corpus, DataSettings, Recipe
from regard.data.pairs import Pair
from regard.data.records import read_kept
from regard.data.split import SHARE, held_out_sizes, normalise
from regard.errors import CorpusError, RunError, SettingsError
from regard.files import write_atomically
from regard.run import Run
from regard.tasks.retrieve.data import (
    KnowledgeEntry,
    are_names,
    gather,
    read_entries,
    read_knowledge,
    texts_of,
    write_entries,
)
from regard.tasks.retrieve.index import KNOWLEDGE
from regard.tasks.retrieve.plan import KnowledgeFacts
from regard.tasks.training import Log
from regard.text.tokenizer import Tokenizer, train_tokenizer

FEWEST_QUESTIONS = 20


@dataclass(frozen=True)
class PreparedKnowledge:
    """Everything that training reads."""

    tokenizer: Tokenizer
    train: list[KnowledgeEntry]
    """Without the held-out questions; an entry may be left with nothing but its answer."""
    valid: list[Pair]
    """Questions and their answers."""
    test: list[Pair]


class TrainingKnowledge:
    """The questions and answers of all parts. No question is in two of them."""

    def __init__(self, data: DataSettings, seed: int):
        if not data.train:
            raise SettingsError("nothing to train on: give a knowledge base, or [[data.train]] in a recipe")
        where = data.train[0].source
        self.entries = gather(entry for corpus in data.train for entry in _read(corpus))
        """All of them, as they will be answered from."""
        total = sum(len(entry.questions) for entry in self.entries)
        if total < FEWEST_QUESTIONS or len(self.entries) < 2:
            hint = f'"regard index --new RUN {where}" answers from it without training'
            raise CorpusError(
                where, f"{total} questions with {len(self.entries)} answers are too few to train on; {hint}"
            )
        self.held_out = {part: self._given(part, data) for part in ("valid", "test")}
        self.train = self._hold_out(data, total, random.Random(seed))

    def __len__(self) -> int:
        return sum(len(entry.questions) for entry in self.train)

    def describe(self) -> str:
        """How the questions are shared out, for people."""
        valid, test = (len(self.held_out[part]) for part in ("valid", "test"))
        shared = f"{len(self):,} questions to train on, {valid:,} for validation, {test:,} for the test"
        return f"{shared}; {len(self.entries):,} answers"

    @cached_property
    def known(self) -> KnowledgeFacts:
        """What the plan must know."""
        names = are_names(self.entries)
        texts = [text for entry in self.train for text in texts_of(entry, answers=not names)]
        return KnowledgeFacts(len(texts), sum(len(text.split()) for text in texts) / len(texts), names)

    def _given(self, part: str, data: DataSettings) -> list[Pair]:
        """The questions of a file of their own. Their answers must be known."""
        answers = {normalise(entry.answer): entry.answer for entry in self.entries}
        pairs = []
        for corpus in getattr(data, part):
            for entry in _read(corpus):
                if normalise(entry.answer) not in answers:
                    problem = f'the answer "{entry.answer[:60]}" of the {part} data is not in the training data'
                    raise CorpusError(corpus.source, problem)
                pairs += [Pair(question, answers[normalise(entry.answer)]) for question in entry.questions]
        return pairs

    def _hold_out(self, data: DataSettings, total: int, chance: random.Random) -> list[KnowledgeEntry]:
        """Draw questions for the parts that have no file, and give what is left of the entries.

        An answer keeps one question at least; only where hardly any has two, it may keep none and be known by its text.
        """
        wanted = dict(zip(("valid", "test"), held_out_sizes(data, max(total // SHARE, 1)), strict=True))
        spare = sum(len(entry.questions) - 1 for entry in self.entries)
        keep = 1 if spare >= 2 * sum(wanted.values()) else 0
        places = [(number, question) for number, entry in enumerate(self.entries) for question in entry.questions]
        chance.shuffle(places)
        known = {normalise(pair.source) for pairs in self.held_out.values() for pair in pairs}
        left = [dict.fromkeys(entry.questions) for entry in self.entries]
        for number, question in places:
            if normalise(question) in known:  # it also stands in a file of held-out questions
                left[number].pop(question)
        for part, count in wanted.items():
            for number, question in places:
                if len(self.held_out[part]) >= count:
                    break
                if question in left[number] and len(left[number]) > keep:
                    left[number].pop(question)
                    self.held_out[part].append(Pair(question, self.entries[number].answer))
        return [KnowledgeEntry(tuple(found), entry.answer) for found, entry in zip(left, self.entries, strict=True)]


def prepare_knowledge(
    run: Run, recipe: Recipe, knowledge: TrainingKnowledge, log: Log, base: Run | None = None
) -> PreparedKnowledge:
    """Make the vocabulary, or take that of `base`; write everything into the run."""
    answers = recipe.task.match_answers
    if not any(len(texts_of(entry, answers=answers)) > 1 for entry in knowledge.train):
        raise SettingsError(
            "no answer has two questions, and retrieve.match_answers = false: there is nothing to bring together"
        )
    write_entries(run.folder / KNOWLEDGE, knowledge.entries)
    if base:
        tokenizer = base.tokenizers[0]
    else:
        log(f"learning a vocabulary of {recipe.tokenizer.vocab_size:,} tokens ({recipe.tokenizer.kind})")
        lines = (text for entry in knowledge.train for text in texts_of(entry, answers=answers))
        tokenizer = train_tokenizer(lines, recipe.tokenizer, recipe.train.seed)
    run.write_tokenizers(tokenizer, tokenizer)
    return _build(run, knowledge, tokenizer)


def reopen_knowledge(run: Run, log: Log) -> PreparedKnowledge:
    """What `prepare_knowledge` made, for going on; made again from the files where a finished run has put it away."""
    folder = run.folder / "store"
    if not run.recipe.data.train:
        raise RunError(f'{run.folder}: was made by "regard index" and not trained; there is nothing to resume')
    if not folder.is_dir():
        return _build(run, TrainingKnowledge(run.recipe.data, run.recipe.train.seed), run.tokenizers[0])
    valid, test = (_read_pairs(folder / f"{part}.jsonl") for part in ("valid", "test"))
    return PreparedKnowledge(run.tokenizers[0], read_entries(folder / "train.jsonl"), valid, test)


def _build(run: Run, knowledge: TrainingKnowledge, tokenizer: Tokenizer) -> PreparedKnowledge:
    with run.new_store() as folder:
        write_entries(folder / "train.jsonl", knowledge.train)
        for part, pairs in knowledge.held_out.items():
            _write_pairs(folder / f"{part}.jsonl", pairs)
    return PreparedKnowledge(tokenizer, knowledge.train, knowledge.held_out["valid"], knowledge.held_out["test"])


def _write_pairs(path: Path, pairs: Sequence[Pair]) -> None:
    write_atomically(path, "".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs).encode())


def _read_pairs(path: Path) -> list[Pair]:
    return [Pair(*pair) for pair in read_kept(path, "held-out questions")]


def _read(corpus: Corpus) -> list[KnowledgeEntry]:
    if corpus.weight != 1:
        raise SettingsError(f"data: a weight means nothing in a knowledge base; leave it out of {corpus.source}")
    return read_knowledge(corpus)
