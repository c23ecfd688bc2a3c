"""A knowledge base that is ready to be searched: by words, by vectors, or by both.

A run keeps the entries as JSON lines and their vectors beside them. Which entries and which encoder the vectors are of
stands with them; those that do not fit, because writing was cut short between the two files, are made anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.split import normalise
from regard.errors import RunError
from regard.files import write_atomically
from regard.run import Run
from regard.tasks.retrieve import RetrieveSettings
from regard.tasks.retrieve.bm25 import QueryCoverage, WordIndex
from regard.tasks.retrieve.data import KnowledgeEntry, read_entries, texts_of, write_entries

if TYPE_CHECKING:
    from regard.tasks.retrieve.embedding import Embedder, Vectors


KNOWLEDGE, VECTORS = "knowledge.jsonl", "vectors.safetensors"
BEST, POWER = 3, 4.0
"""An answer is as near as the power mean of its nearest texts, so many: those that agree are worth more than one."""
JUDGED = 5
"""Entries that are held against what they cover of a question; on BANKING77 this leaves the first five the same."""

Scores = NDArray[np.float32]
TINY = np.float32(1e-6)


class MatchScores(NamedTuple):
    """How near questions are to what is known: [Q, T] by text, or [Q, E] by entry."""

    bm25: Scores | None
    dense: Scores | None

    def by(self, method: str) -> MatchScores:
        """By this method alone; "both" is all there is."""
        return MatchScores(None if method == "dense" else self.bm25, None if method == "bm25" else self.dense)

    def total(self, weight: float) -> Scores:
        """One score: that of the only method, or of both together.

        Of each question, both are brought to the same scale, where their best is 1, and added with this share of the
        dense one; then brought back to the two best, weighed alike, so that questions can be compared with each other.
        """
        if self.bm25 is None or self.dense is None:
            only = self.dense if self.bm25 is None else self.bm25
            assert only is not None
            return only
        words, vectors = (scores.max(1, keepdims=True, initial=TINY) for scores in (self.bm25, self.dense))
        share, rest = np.float32(weight), np.float32(1 - weight)
        total: Scores = (share * self.dense / vectors + rest * self.bm25 / words) * (share * vectors + rest * words)
        return total


class KnowledgeIndex:
    """Entries and what is needed to compare questions with them."""

    def __init__(
        self,
        entries: Sequence[KnowledgeEntry],
        settings: RetrieveSettings,
        embedder: Embedder | None = None,
        vectors: Vectors | None = None,
    ):
        """`vectors` of the texts, if they are known already."""
        self.entries, self.settings, self.embedder = list(entries), settings, embedder
        by_entry = [texts_of(entry, answers=settings.match_answers) for entry in self.entries]
        sizes = [len(texts) for texts in by_entry]
        self.texts = [text for texts in by_entry for text in texts]
        self._texts_E = by_entry
        self.owner_T = np.repeat(np.arange(len(sizes)), sizes)
        self._sizes_E = np.array(sizes)
        self._first_E = np.cumsum([0, *sizes[:-1]])
        self._vectors = vectors

    @cached_property
    def words(self) -> WordIndex:
        """The texts by their words."""
        return WordIndex(self.texts)

    @cached_property
    def coverage(self) -> QueryCoverage:
        """How much of a question an entry covers."""
        return QueryCoverage([entry.questions for entry in self.entries], self._texts_E)

    @property
    def vectors(self) -> Vectors:
        """Of the texts, in order."""
        if self._vectors is None:
            assert self.embedder is not None
            self._vectors = self.embedder.encode(self.texts)
        return self._vectors

    def without(self, questions: Iterable[str]) -> KnowledgeIndex:
        """The same, but these questions are not known."""
        gone = set(map(normalise, questions))
        entries = [
            entry._replace(questions=tuple(text for text in entry.questions if normalise(text) not in gone))
            for entry in self.entries
        ]
        if entries == self.entries:
            return self
        other = KnowledgeIndex(entries, self.settings, self.embedder)
        if self._vectors is not None and other.texts:
            row = {text: place for place, text in enumerate(self.texts)}
            other._vectors = self._vectors[[row[text] for text in other.texts]]
        return other

    def compare(self, questions: Sequence[str]) -> MatchScores:
        """Questions with texts."""
        bm25 = dense = None
        if self.settings.method != "dense":
            bm25 = np.stack([self.words.scores(question) for question in questions])
        if self.settings.method != "bm25":
            assert self.embedder is not None
            dense = np.maximum(self.embedder.encode(questions) @ self.vectors.T, 0.0)
        return MatchScores(bm25, dense)

    def by_entry(self, questions: Sequence[str], compared: MatchScores) -> MatchScores:
        """Questions with entries. One that is known word for word is nearest to its own; one without texts to none.

        By words, the best entry scores what it covers of the question, and the others in proportion.
        """
        bm25, dense = (None if scores is None else self._join(scores) for scores in compared)
        if bm25 is not None:
            for question, scores_E in zip(questions, bm25, strict=True):
                self._judge(question, scores_E)
        own = [self._known.get(normalise(question)) for question in questions]
        for scores in (bm25, dense):
            for row, number in enumerate(own):
                if scores is not None and number is not None:
                    scores[row, number] = 1.0
        return MatchScores(bm25, dense)

    @cached_property
    def _known(self) -> dict[str, int]:
        numbered = reversed(list(enumerate(self.entries)))  # of two answers to one question, the first
        return {normalise(question): number for number, entry in numbered for question in entry.questions}

    def _judge(self, question: str, scores_E: Scores) -> None:
        """Weigh the first few entries by what they cover of the question; the others stay behind them."""
        first = np.argsort(-scores_E, kind="stable")[:JUDGED]
        covered = np.array([self.coverage.share(question, int(number)) for number in first], np.float32)
        weight_E = np.full_like(scores_E, np.sqrt(covered.min(initial=1.0)))
        weight_E[first] = np.sqrt(covered)
        nearest = scores_E.max(initial=TINY)
        best = int((scores_E[first] * weight_E[first]).argmax())
        level = covered[best] * scores_E[first[best]] / nearest  # less, where words alone would prefer another entry
        scores_E *= weight_E
        scores_E *= level / max(scores_E[first[best]], TINY)

    def _join(self, scores_QT: Scores) -> Scores:
        """The power mean of the best scores of each entry, all between 0 and 1."""
        # Sorted by entry, and inside each from the best to the worst.
        sorted_QT = np.sort(2.0 * self.owner_T - scores_QT, axis=1)
        sum_QE = np.zeros((len(scores_QT), len(self.entries)))
        for place in range(BEST):
            has = np.flatnonzero(self._sizes_E > place)
            best_QE = 2.0 * has - sorted_QT[:, self._first_E[has] + place]
            sum_QE[:, has] += best_QE.clip(0.0) ** POWER
        counted_E = self._sizes_E.clip(1, BEST)
        joined_QE: Scores = ((sum_QE / counted_E) ** (1 / POWER)).astype(np.float32)
        return joined_QE


# ---------------------------------------------------------------------------------------------------------------------
# In a run folder


def open_index(run: Run, settings: RetrieveSettings) -> KnowledgeIndex:
    """The knowledge base of a run, to be searched as these settings say."""
    index = KnowledgeIndex(known_entries(run), settings)
    if settings.method == "bm25":
        return index
    from regard.tasks.retrieve.embedding import open_embedder

    embedder = open_embedder(run, settings)
    return KnowledgeIndex(index.entries, settings, embedder, _stored_vectors(run, _mark(index, embedder)))


def known_entries(run: Run) -> list[KnowledgeEntry]:
    """The entries of a run; that there are none is an error."""
    hint = f'"regard index {run.folder} FILE" fills it'
    if not (run.folder / KNOWLEDGE).is_file():
        raise RunError(f"{run.folder}: has no knowledge base ({KNOWLEDGE} is missing); {hint}")
    entries = read_entries(run.folder / KNOWLEDGE)
    if not entries:
        raise RunError(f"{run.folder}: the knowledge base is empty; {hint}")
    return entries


def store_entries(
    run: Run, entries: Sequence[KnowledgeEntry], log: Callable[[str], None] | None = None
) -> KnowledgeIndex:
    """Make these the knowledge base of a run. Vectors of texts that are known already are taken over."""
    settings = run.recipe.task
    if settings.method == "bm25":
        write_entries(run.folder / KNOWLEDGE, entries)
        return KnowledgeIndex(entries, settings)
    from regard.tasks.retrieve.embedding import open_embedder

    embedder = open_embedder(run, settings)
    index = KnowledgeIndex(entries, settings, embedder, _vectors_for(run, entries, embedder, log))
    write_entries(run.folder / KNOWLEDGE, entries)
    _store_vectors(run, index.vectors, _mark(index, embedder))
    return index


def _vectors_for(
    run: Run, entries: Sequence[KnowledgeEntry], embedder: Embedder, log: Callable[[str], None] | None
) -> Vectors:
    """Of all texts of these entries; only those that the run has none of are encoded."""
    settings = run.recipe.task
    known: dict[str, NDArray[np.float32]] = {}
    if (run.folder / KNOWLEDGE).is_file():
        before = KnowledgeIndex(read_entries(run.folder / KNOWLEDGE), settings)
        stored = _stored_vectors(run, _mark(before, embedder))
        known = dict(zip(before.texts, stored, strict=True)) if stored is not None else {}
    texts = KnowledgeIndex(entries, settings).texts
    new = list(dict.fromkeys(text for text in texts if text not in known))
    if log and new:
        log(f"encoding {len(new):,} texts")
    known |= zip(new, embedder.encode(new), strict=True) if new else {}
    return np.stack([known[text] for text in texts])


def _mark(index: KnowledgeIndex, embedder: Embedder) -> str:
    digest = hashlib.sha256(embedder.mark.encode())
    for text in index.texts:
        digest.update(f"{len(text)} {text}".encode())
    return digest.hexdigest()


def _store_vectors(run: Run, vectors: Vectors, mark: str) -> None:
    from safetensors.numpy import save

    content = save({"vectors": np.ascontiguousarray(vectors)}, metadata={"of": mark})
    write_atomically(run.folder / VECTORS, content)


def _stored_vectors(run: Run, mark: str) -> Vectors | None:
    """What lies in the run, if it is of these texts and this encoder."""
    from safetensors import safe_open

    path = run.folder / VECTORS
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            if (file.metadata() or {}).get("of") != mark:
                return None
            vectors: Vectors = file.get_tensor("vectors")
            return vectors
    except Exception:  # safetensors raises its own untyped errors; the vectors can be made anew
        return None
