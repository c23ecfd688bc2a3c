"""`Retriever` finds the answer to a question in a knowledge base, or replies that there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.pairs import Pair
from regard.errors import RunError
from regard.run import Run
from regard.tasks.retrieve.index import KnowledgeIndex, open_index
from regard.tasks.retrieve.scores import RetrievalScores, right_entries, score
from regard.tasks.retrieve.settings import RetrieveSettings
from regard.text.words import ShadedSentence, ShadedWord, word_texts


@dataclass(frozen=True)
class RetrievalMatch:
    """A search result: an answer, its question that is most similar to the user's question, and scores from 0 to 1."""

    question: str
    answer: str
    score: float
    bm25: float | None
    """BM25 score; None if the method does not use BM25."""
    dense: float | None
    """Score by vectors; None if the method does not use vectors."""


@dataclass(frozen=True)
class Reply:
    """The reply to a question: the best answer, or the fallback text if no score reaches the threshold."""

    source: str
    """The question that was searched."""
    text: str
    """The answer, or the fallback text."""
    score: float
    """The score of the best match, even if it is below the threshold."""
    answered: bool
    matches: tuple[RetrievalMatch, ...]
    """All matches, best first, even below the threshold."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"matches": [asdict(match) for match in self.matches]}


class Retriever:
    """Answers questions from a knowledge base. `regard.load` makes a retriever from a run folder."""

    turns = 3
    """Number of turns that `reply` may use: the last turn, and the third last turn, which is by the same speaker."""

    tuned: Mapping[str, Mapping[str, float]] = {}
    """The tuned settings of each method, while training scores the retriever; otherwise empty."""

    def __init__(self, index: KnowledgeIndex, settings: RetrieveSettings | None = None):
        """Answer from `index`. `settings` are by default those of the index.

        Only `dense_weight`, `threshold`, `fallback_text` and `matches` of `settings` are used.
        """
        self.index, self.settings = index, settings or index.settings

    def __repr__(self) -> str:
        entries, method = self.index.entries, self.index.settings.method
        questions = sum(len(entry.questions) for entry in entries)
        return f"<Retriever: {questions:,} questions, {len(entries):,} answers, {method}>"

    def search(self, questions: str | Sequence[str], k: int = 0) -> list[list[RetrievalMatch]]:
        """Return for each question the answers with scores above 0, best first: at most `k` (0: `retrieve.matches`)."""
        chunks = self.index.chunks([questions] if isinstance(questions, str) else list(questions))
        return [found for chunk in chunks for found in self._search(chunk, k or self.settings.matches)]

    def reply(self, turns: str | Sequence[str]) -> Reply:
        """Answer the last of `turns`: a question, or the messages of a conversation by user and system in alternation.

        A question of at most four words ("And on Sundays?") is also searched together with the user's previous message.
        """
        turns = [turns] if isinstance(turns, str) else list(turns)
        last = turns[-1] if turns else ""
        alone = self._reply(last)
        is_short = len([word for word in word_texts(last) if any(map(str.isalnum, word))]) <= 4  # "And on Sundays?"
        if not is_short or not last.strip() or len(turns) < self.turns:
            return alone
        longer = self._reply(f"{turns[-self.turns]} {last}")
        own = {match.answer: match.score for match in alone.matches}.get(longer.text, 0.0)
        # The short turn alone must give this answer some score, so that a new topic does not get the old answer.
        is_related = own >= max(0.4 * self.settings.threshold, 0.5 * alone.score) and own > 0
        is_better = longer.answered and is_related and (not alone.answered or longer.score > alone.score)
        return longer if is_better else alone

    def explain(self, reply: Reply) -> list[ShadedSentence]:
        """Return the question of `reply` as one sentence, with the share of each word in the best match's BM25 score.

        The result is empty if this score is 0, or if the method does not use BM25.
        """
        if self.index.settings.method == "dense" or not reply.matches:
            return []
        best = reply.matches[0]
        places = [place for place, text in enumerate(self.index.texts) if text in (best.question, best.answer)]
        scores = self.index.words.scores(reply.source)
        place = max(places, key=lambda place: float(scores[place]))
        parts = self.index.words.explain(reply.source, place)
        total = sum(part.weight for part in parts)
        if not total:
            return []
        return [ShadedSentence(reply.source, 1.0, tuple(ShadedWord(part.text, part.weight / total) for part in parts))]

    def score(self, pairs: Sequence[Pair]) -> RetrievalScores:
        """Compute recall and MRR on (question, correct answer) pairs; the answers must be in the knowledge base."""
        right = right_entries(self.index.entries, pairs)
        totals = self.index.compare_all([pair.source for pair in pairs]).total(self.settings.dense_weight)
        return score(totals, right, self.settings.threshold)

    def _reply(self, question: str) -> Reply:
        matches = tuple(self.search([question])[0]) if question.strip() else ()
        best = matches[0].score if matches else 0.0
        known = bool(matches) and best >= self.settings.threshold and best > 0
        text = matches[0].answer if known else self.settings.fallback_text
        return Reply(question, text, best, known, matches)

    def _search(self, questions: Sequence[str], k: int) -> list[list[RetrievalMatch]]:
        index, weight = self.index, self.settings.dense_weight
        by_text = index.compare(questions)
        by_entry = index.by_entry(questions, by_text)
        totals_QE, totals_QT = by_entry.total(weight), by_text.total(weight)
        found: list[list[RetrievalMatch]] = []
        for row, (totals_E, totals_T) in enumerate(zip(totals_QE, totals_QT, strict=True)):
            found.append([])
            for number in np.argsort(-totals_E, kind="stable")[:k]:
                if totals_E[number] <= 0:
                    break
                entry, own = index.entries[number], np.flatnonzero(index.owner_T == number)
                nearest = index.texts[own[totals_T[own].argmax()]] if len(own) else entry.answer
                question = nearest if nearest in entry.questions else next(iter(entry.questions), "")
                bm25, dense = (None if part is None else float(part[row, number]) for part in by_entry)
                found[-1].append(RetrievalMatch(question, entry.answer, float(totals_E[number]), bm25, dense))
        return found


def load(run: str | Path | Run, *others: str | Path, **settings: Any) -> Retriever:
    """Open the run folder of a retriever. Keywords override [retrieve] settings, e.g. method="bm25".

    `others` must be empty: retrievers cannot form an ensemble.
    """
    opened = Run.open(run).require("retrieve")
    if others:
        raise RunError(f"{others[0]}: retrieval runs cannot form an ensemble; give only one run")
    tuned = opened.card.get("tuned", {}).get(settings.get("method", ""), {})  # each method has its own tuned threshold
    return Retriever(open_index(opened, replace(opened.recipe.task, **(tuned | settings))))
