"""The index of a knowledge base: compares questions with entries by words, by vectors, or by both.

A run stores the entries as JSON lines, and their vectors in another file with a hash of the entries and the encoder. If
the hash is wrong, because writing was interrupted between the two files, the vectors are computed again.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard import __version__
from regard.config.recipe import make_recipe, with_overrides
from regard.data.split import normalize
from regard.errors import RunError, SettingsError
from regard.files import write_atomically
from regard.run import RECIPE, Run
from regard.tasks.retrieve.bm25 import QueryCoverage, WordIndex
from regard.tasks.retrieve.data import (
    KNOWLEDGE,
    KnowledgeEntry,
    are_names,
    read_entries,
    texts_of,
    without,
    write_entries,
)
from regard.tasks.retrieve.scores import TINY, MatchScores, Scores, tune_run
from regard.tasks.retrieve.settings import RetrieveSettings

if TYPE_CHECKING:
    from regard.tasks.retrieve.embedding import Embedder, Vectors


CHANGEABLE = ("retrieve.threshold", "retrieve.fallback_text", "retrieve.matches", "retrieve.dense_weight")
"""Settings that may change in an existing run."""
VECTORS = "vectors.safetensors"
BEST, POWER = 3, 4.0
"""The score of an entry is the power mean, with exponent `POWER`, of the scores of its `BEST` best texts."""


class KnowledgeIndex:
    """Scores the entries of a knowledge base for a question, by BM25, by vectors, or by both (`retrieve.method`).

    The texts of an entry are its questions and, if `retrieve.match_answers`, its answer. `embedder` makes the vectors;
    it is None if the method is "bm25".
    """

    def __init__(self, entries: Sequence[KnowledgeEntry], settings: RetrieveSettings, embedder: Embedder | None = None):
        self.entries, self.settings, self.embedder = list(entries), settings, embedder
        self._texts_E = [texts_of(entry, answers=settings.match_answers) for entry in self.entries]
        self.texts = [text for texts in self._texts_E for text in texts]
        sizes = [len(texts) for texts in self._texts_E]
        self.owner_T = np.repeat(np.arange(len(sizes)), sizes)
        self._sizes_E = np.array(sizes)
        self._first_E = np.cumsum([0, *sizes[:-1]])

    @cached_property
    def words(self) -> WordIndex:
        return WordIndex(self.texts)

    @cached_property
    def coverage(self) -> QueryCoverage:
        return QueryCoverage([entry.questions for entry in self.entries], self._texts_E)

    @cached_property
    def vectors(self) -> Vectors:
        """The vectors of `texts`, one row each: encoded at first use, unless stored vectors were assigned before."""
        assert self.embedder is not None
        return self.embedder.encode(self.texts)

    def without(self, questions: Iterable[str]) -> KnowledgeIndex:
        """Return a copy of the index without these questions; their answers stay, even without any question left."""
        gone = set(map(normalize, questions))
        entries = [without(entry, gone) for entry in self.entries]
        if entries == self.entries:
            return self
        other = KnowledgeIndex(entries, self.settings, self.embedder)
        if self.embedder is not None and other.texts:
            row = {text: place for place, text in enumerate(self.texts)}
            other.vectors = self.vectors[[row[text] for text in other.texts]]
        return other

    def compare(self, questions: Sequence[str]) -> MatchScores:
        """Return the scores [Q, T] of Q questions with the T texts of all entries, by BM25 and by vectors."""
        bm25 = dense = None
        if self.settings.method != "dense":
            bm25 = np.stack([self.words.scores(question) for question in questions])
        if self.settings.method != "bm25":
            assert self.embedder is not None
            dense = np.maximum(self.embedder.encode(questions) @ self.vectors.T, 0.0)
        return MatchScores(bm25, dense)

    def chunks(self, questions: Sequence[str]) -> list[Sequence[str]]:
        """Divide questions into chunks so small that `compare` returns at most about four million scores for each."""
        size = max(4_000_000 // max(len(self.texts), 1), 1)
        return [questions[start : start + size] for start in range(0, len(questions), size)]

    def compare_all(self, questions: Sequence[str]) -> MatchScores:
        """Return the scores [Q, E] of any number Q of questions with all E entries, computed in chunks of questions."""
        found = [self.by_entry(chunk, self.compare(chunk)) for chunk in self.chunks(questions)]
        bm25, dense = (
            None if parts[0] is None else np.concatenate([part for part in parts if part is not None])
            for parts in zip(*found, strict=True)
        )
        return MatchScores(bm25, dense)

    def by_entry(self, questions: Sequence[str], compared: MatchScores) -> MatchScores:
        """Return the scores [Q, E] of Q questions with E entries, from `compared`: their scores [Q, T] with the texts.

        If a question is in the knowledge base, its score with its own entry is 1. The BM25 scores of a question are
        scaled so that the best is at most the coverage: the share of the question that the best entry contains.
        """
        bm25, dense = (None if scores is None else self._join(scores) for scores in compared)
        for row, question in enumerate(questions):
            if bm25 is not None:
                self._weight_by_coverage(question, bm25[row])
            own = self._known.get(normalize(question))
            for scores in (bm25, dense):
                if scores is not None and own is not None:
                    scores[row, own] = 1.0
        return MatchScores(bm25, dense)

    @cached_property
    def _known(self) -> dict[str, int]:
        numbered = reversed(list(enumerate(self.entries)))  # if a question has two answers, the first is taken
        return {normalize(question): number for number, entry in numbered for question in entry.questions}

    def _weight_by_coverage(self, question: str, scores_E: Scores) -> None:
        """Weight the BM25 scores of a question with E entries by coverage; changes `scores_E`.

        Coverage is the share of the question that an entry contains (`QueryCoverage`). Each score is multiplied by the
        square root of the coverage. Then all are scaled so that the best score is at most the coverage of its entry.
        """
        # Coverage is computed for the first five entries (more make no difference on BANKING77); others get the lowest.
        first = np.argsort(-scores_E, kind="stable")[:5]
        covered = np.array([self.coverage.share(question, int(number)) for number in first], np.float32)
        weight_E = np.full_like(scores_E, np.sqrt(covered.min(initial=1.0)))
        weight_E[first] = np.sqrt(covered)
        nearest = scores_E.max(initial=TINY)
        best = int((scores_E[first] * weight_E[first]).argmax())
        level = covered[best] * scores_E[first[best]] / nearest  # lower if BM25 alone would prefer another entry
        scores_E *= weight_E
        scores_E *= level / max(scores_E[first[best]], TINY)

    def _join(self, scores_QT: Scores) -> Scores:
        """Convert scores [Q, T] of texts to scores [Q, E] of entries: power means of the `BEST` best texts of each."""
        # Sorted by entry, and within each entry from the highest to the lowest score.
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
    entries = known_entries(run)
    if settings.method == "bm25":
        return KnowledgeIndex(entries, settings)
    from regard.tasks.retrieve.embedding import open_embedder

    index = KnowledgeIndex(entries, settings, open_embedder(run, settings))
    if (stored := _stored_vectors(run, index)) is not None:
        index.vectors = stored
    return index


def known_entries(run: Run) -> list[KnowledgeEntry]:
    """Read the entries of the knowledge base of a run; raise an error if there are none, or no file."""
    hint = f'"regard index {run.folder} FILE" fills it'
    if not (run.folder / KNOWLEDGE).is_file():
        raise RunError(f"{run.folder}: has no knowledge base (the file {KNOWLEDGE} is missing); {hint}")
    entries = read_entries(run.folder / KNOWLEDGE)
    if not entries:
        raise RunError(f"{run.folder}: the knowledge base is empty; {hint}")
    return entries


def store_entries(
    run: Run, entries: Sequence[KnowledgeEntry], log: Callable[[str], None] | None = None
) -> KnowledgeIndex:
    """Write `entries` into a run as its knowledge base, with their vectors if the method uses them; return the index.

    Vectors that the run already stores are reused: only new texts are encoded. `log` receives progress messages.
    """
    settings, path = run.recipe.task, run.folder / KNOWLEDGE
    if settings.method == "bm25":
        write_entries(path, entries)
        return KnowledgeIndex(entries, settings)
    from safetensors.numpy import save

    from regard.tasks.retrieve.embedding import open_embedder

    embedder = open_embedder(run, settings)
    index = KnowledgeIndex(entries, settings, embedder)
    known: dict[str, NDArray[np.float32]] = {}
    if path.is_file():
        before = KnowledgeIndex(read_entries(path), settings, embedder)
        stored = _stored_vectors(run, before)
        known = dict(zip(before.texts, stored, strict=True)) if stored is not None else {}
    new = list(dict.fromkeys(text for text in index.texts if text not in known))
    if log and new:
        log(f"encoding {len(new):,} texts")
    known |= zip(new, embedder.encode(new), strict=True) if new else {}
    index.vectors = np.stack([known[text] for text in index.texts])
    write_entries(path, entries)
    write_atomically(run.folder / VECTORS, save({"vectors": index.vectors}, metadata={"of": _hash(index)}))
    return index


def _hash(index: KnowledgeIndex) -> str:
    """Return a hash of the encoder and the texts of an index, by which outdated stored vectors are recognized."""
    assert index.embedder is not None
    digest = hashlib.sha256(index.embedder.mark.encode())
    for text in index.texts:
        digest.update(f"{len(text)} {text}".encode())
    return digest.hexdigest()


def _stored_vectors(run: Run, index: KnowledgeIndex) -> Vectors | None:
    """Return the vectors of the texts of `index` that the run stores; None if they are missing or outdated."""
    from safetensors import safe_open

    current = _hash(index)
    try:
        with safe_open(run.folder / VECTORS, framework="numpy") as file:
            is_current = (file.metadata() or {}).get("of") == current
            vectors: Vectors | None = file.get_tensor("vectors") if is_current else None
            return vectors
    except Exception:  # no file, or an error of safetensors, which has no type; the vectors are computed again
        return None


# ---------------------------------------------------------------------------------------------------------------------
# Making and changing runs without training


class IndexChange(NamedTuple):
    """A change of a knowledge base: numbers of added, changed and removed answers; answers and questions afterwards."""

    added: int
    changed: int
    removed: int
    answers: int
    questions: int


def make_run(
    folder: str | Path, entries: Sequence[KnowledgeEntry], encoder: str = "", overrides: Iterable[str] = ()
) -> IndexChange:
    """Create the run `folder` with these entries, without training. It finds answers by BM25.

    If `encoder` names the folder of a sentence-embedding model, the run also compares vectors (method "hybrid").
    `overrides` are settings such as "retrieve.threshold=0.3".
    """
    retrieve: dict[str, Any] = {"method": "bm25", "match_answers": not are_names(entries)}
    if encoder:
        retrieve |= {"method": "hybrid", "encoder": str(Path(encoder).resolve())}
    table = {"data": {"task": "retrieve"}, "retrieve": retrieve}
    recipe = make_recipe(with_overrides(table, overrides), where="options")
    if recipe.data != make_recipe(table).data:
        raise SettingsError("--set: a run without training has no settings of [data]; leave them out")
    if (Path(folder) / RECIPE).is_file():
        hint = f'"regard index {folder} FILE" adds to it, and --replace replaces its entries'
        raise RunError(f"{folder}: exists already; {hint}")
    run = Run.create(folder)
    try:
        run.write_recipe(recipe)
        run.write_card(
            {
                "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "arch": recipe.task.method,
                "task": "retrieve",
                "versions": {"regard": __version__, "python": platform.python_version()},
            }
        )
        return change(run, [], entries)
    except BaseException:
        run.discard()
        raise


def log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def change(run: Run, before: Sequence[KnowledgeEntry], entries: Sequence[KnowledgeEntry]) -> IndexChange:
    """Replace the knowledge base of a run by `entries`, and tune the dense weight and the threshold again.

    Returns the numbers of changes from `before`, the entries that the run had.
    """
    index = store_entries(run, entries, log)
    tune_run(run, index, log)
    made = count_changes(before, entries)
    run.write_card(run.card | {"knowledge": {"answers": made.answers, "questions": made.questions}})
    return made


def count_changes(before: Sequence[KnowledgeEntry], entries: Sequence[KnowledgeEntry]) -> IndexChange:
    """Count the answers that were added, changed or removed between `before` and `entries`.

    An answer counts as changed if its questions differ, or if it replaces a removed answer to one of its questions.
    """
    old, new = ({normalize(entry.answer): entry for entry in some} for some in (before, entries))
    gone = {normalize(question): key for key in old.keys() - new.keys() for question in old[key].questions}
    added = 0
    replaced: set[str] = set()
    for key in new.keys() - old.keys():
        known = {gone[asked] for question in new[key].questions if (asked := normalize(question)) in gone} - replaced
        replaced |= set(sorted(known)[:1])
        added += not known
    changed = sum(set(old[key].questions) != set(new[key].questions) for key in old.keys() & new.keys())
    removed = len(old.keys() - new.keys())
    questions = sum(len(entry.questions) for entry in entries)
    return IndexChange(added, changed + len(replaced), removed - len(replaced), len(entries), questions)


def configure(run: Run, overrides: Iterable[str]) -> list[str]:
    """Change settings of a run, given as "retrieve.threshold=0.3"; return them in the form "retrieve.threshold = 0.3".

    Only the settings in `CHANGEABLE`, which need no new index, are allowed.
    """
    before = run.recipe
    table = with_overrides({}, overrides)
    for name in (f"{group}.{key}" for group, found in table.items() if isinstance(found, dict) for key in found):
        if name not in CHANGEABLE:
            raise SettingsError(f"--set {name}: cannot change in a run that exists; only {', '.join(CHANGEABLE)} can")
    given = table.get("retrieve", {})
    checked = make_recipe({"data": {"task": "retrieve"}, "retrieve": given}, where="options").task
    after = dataclasses.replace(before.task, **{name: getattr(checked, name) for name in given})
    run.write_recipe(dataclasses.replace(before, task=after))
    return [f"retrieve.{name} = {getattr(after, name)}" for name in given]


def count(run: Run) -> IndexChange:
    """Return the numbers of answers and questions in the knowledge base of a run, with 0 changes."""
    entries = known_entries(run)
    return count_changes(entries, entries)
