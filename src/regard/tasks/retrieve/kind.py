"""Retrieval as a kind of run: a knowledge base in, an encoder, an index, recall and a report out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.config import Recipe
from regard.data.pairs import Pair
from regard.errors import SettingsError
from regard.models.base import Network
from regard.run import Run
from regard.tasks.retrieve import RetrieveSettings
from regard.tasks.retrieve.embedding import open_embedder
from regard.tasks.retrieve.examples import PreparedKnowledge, TrainingKnowledge, prepare_knowledge, reopen_knowledge
from regard.tasks.retrieve.index import KnowledgeIndex, known_entries, store_entries
from regard.tasks.retrieve.plan import make_retrieval_plan
from regard.tasks.retrieve.retriever import Retriever
from regard.tasks.retrieve.scores import compare_all, right_entries, score, tune_run
from regard.tasks.retrieve.training import RetrieveTrainUnit
from regard.tasks.training import Json, Log, Scored, Tables, Training, Workload
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.plan import PlannedSetting


class RetrieveTraining(Training[TrainingKnowledge, PreparedKnowledge]):
    """From questions to answers that are known."""

    def check(self, recipe: Recipe) -> None:
        """Refuse methods that need no training."""
        settings: RetrieveSettings = recipe.task
        if settings.encoder or settings.method == "bm25":
            what = "retrieve.encoder" if settings.encoder else 'retrieve.method = "bm25"'
            raise SettingsError(f'{what} needs no training: "regard index --new RUN FILE"')

    def read(self, recipe: Recipe) -> TrainingKnowledge:
        """Read the files."""
        return TrainingKnowledge(recipe.data, recipe.train.seed)

    def plan(self, examples: TrainingKnowledge, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        """By the number of questions, and what the answers are."""
        return make_retrieval_plan(examples.known, given)

    def sizes(self, recipe: Recipe, examples: TrainingKnowledge) -> dict[str, int]:
        """The vocabulary has the size that the settings ask for."""
        return {"vocabulary": recipe.tokenizer.vocab_size}

    def workload(self, recipe: Recipe, examples: TrainingKnowledge) -> Workload:
        """Pairs of texts of mean length: two passes."""
        data = examples.known
        tokens = round(min(data.tokens, recipe.task.max_tokens))
        amounts = {"text": data.texts, "token": data.texts * tokens, "pair": data.texts * tokens**2}
        return Workload(amounts, tokens, passes=2)

    def prepare(self, run: Run, recipe: Recipe, examples: TrainingKnowledge, log: Log, base: Run | None) -> None:
        """Vocabulary, entries and held-out questions."""
        made = prepare_knowledge(run, recipe, examples, log, base)
        run.write_sizes(vocabulary=made.tokenizer.size)

    def open_data(self, run: Run, log: Log) -> PreparedKnowledge:
        """From the run's own folder."""
        return reopen_knowledge(run, log)

    def train_unit(
        self, recipe: Recipe, data: PreparedKnowledge, model: Network, group: ProcessGroup | None = None
    ) -> RetrieveTrainUnit:
        """Batches of pairs."""
        return RetrieveTrainUnit(recipe, data, model, group)

    def card(self, recipe: Recipe, prepared: PreparedKnowledge, base: Run | None) -> dict[str, Any]:
        """Numbers of questions and answers."""
        parts = {"train": sum(len(entry.questions) for entry in prepared.train)}
        parts |= {"valid": len(prepared.valid), "test": len(prepared.test)}
        return {
            "vocabulary": prepared.tokenizer.size,
            "questions": parts,
            "answers": len(prepared.train),
            "tuned": base.card.get("tuned", {}) if base else {},
        }

    def expected_initial_loss(self, recipe: Recipe, prepared: PreparedKnowledge) -> float:
        """Similarities lie between -1 and 1, so it cannot explode: about half of what it can be at most."""
        return 2.0 + 1 / recipe.task.temperature

    def predictor(self, run: Run, data: PreparedKnowledge, log: Log) -> TunedRetriever:
        """Weight and threshold, found on the held-out questions, and an index without these."""
        embedder = open_embedder(run, run.recipe.task)
        index = KnowledgeIndex(data.train, run.recipe.task, embedder)
        settings = tune_run(run, index, log)
        return TunedRetriever(index, settings, run.card.get("tuned", {}))

    def score(self, predictor: TunedRetriever, examples: Sequence[Pair]) -> Scored:
        """Recall and reciprocal rank, by each method."""
        return Scored(score_methods(predictor, predictor.tuned, examples))

    def held_out(self, data: PreparedKnowledge) -> list[Pair]:
        """Never the test part: what is tuned later is tuned on these."""
        return data.valid

    def result_line(self, part: str, scores: Json) -> str:
        """Recall and reciprocal rank."""
        return (
            f"recall@1 {scores['recall_1']:.2%}  recall@5 {scores['recall_5']:.2%}  MRR {scores['mrr']:.4f}"
            f"  on {scores['questions']:,} questions"
        )

    def complete(self, run: Run, data: PreparedKnowledge) -> None:
        """Index all that is known, held-out questions included."""
        store_entries(run, known_entries(run))

    def folder(self, recipe: Recipe) -> Path:
        """Named after the file."""
        name = Path(recipe.data.train[0].source).name.partition(".")[0]
        return Path("runs") / (name or recipe.model.arch)


class TunedRetriever(Retriever):
    """A retriever that knows what was tuned for each method."""

    def __init__(self, index: KnowledgeIndex, settings: RetrieveSettings, tuned: Mapping[str, Mapping[str, float]]):
        super().__init__(index, settings)
        self.tuned = tuned


def score_methods(
    retriever: Retriever, tuned: Mapping[str, Mapping[str, float]], pairs: Sequence[Pair]
) -> dict[str, Any]:
    """Scores of the method in use, and of each that it is made of."""
    compared = compare_all(retriever.index, [pair.source for pair in pairs])
    right = [number for number in right_entries(retriever.index.entries, pairs) if number is not None]
    by_method = {
        method: score(compared.by(method).total(found.get("dense_weight", 0.0)), right, found["threshold"]).as_dict()
        for method, found in tuned.items()
    }
    settings = retriever.settings
    own = score(compared.total(settings.dense_weight), right, settings.threshold)
    return own.as_dict() | {"methods": by_method}


TRAINING = RetrieveTraining()
