"""Retrieval as a kind of run: a knowledge base in, an encoder, an index, recall and a report out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch

from regard.config import Recipe
from regard.data.pairs import Pair
from regard.errors import SettingsError
from regard.models import build, presets
from regard.models.base import Network, count_parameters
from regard.pages import render_page
from regard.run import Run
from regard.tasks.contract import Kind, Log, Tables
from regard.tasks.report import run_data
from regard.tasks.retrieve.embedding import open_embedder
from regard.tasks.retrieve.examples import PreparedKnowledge, TrainingKnowledge, prepare_knowledge, reopen_knowledge
from regard.tasks.retrieve.index import KnowledgeIndex, known_entries, store_entries
from regard.tasks.retrieve.plan import make_retrieval_plan
from regard.tasks.retrieve.retriever import Retriever
from regard.tasks.retrieve.scores import compare_all, right_entries, score, tune_run
from regard.tasks.retrieve.training import RetrieveTrainUnit
from regard.training.checkpoint import TrainingProgress
from regard.training.device import Machine
from regard.training.distributed import ProcessGroup
from regard.training.flops import count_cost
from regard.training.plan import COPIES, FLOAT, PROCESS, SHARE_OF_PEAK, Estimate, PlannedSetting, amount, duration

SHOWN_SAMPLES = 40


class RetrieveTraining(Kind[TrainingKnowledge, PreparedKnowledge]):
    """From questions to answers that are known."""

    defaults: ClassVar[Tables] = {
        "model": {"arch": "text-encoder"},
        "tokenizer": {"lowercase": True, "vocab_size": 4000},
        "train": {"metric": "mrr", "label_smoothing": 0.0},
    }
    unit = "pairs"

    def check(self, recipe: Recipe) -> None:
        """Architecture, metric, and nothing that is for models that write or needs no training."""
        train, retrieve = recipe.train, recipe.retrieve
        if recipe.model.kind != "text-encoder":
            known = ", ".join(presets("text-encoder"))
            raise SettingsError(f'model.arch = "{recipe.model.arch}" makes no vectors of texts; choose from {known}')
        if train.metric != "mrr":
            raise SettingsError(f'train.metric = "{train.metric}": of answers that are found there is mrr')
        for name in ("r_drop", "fsdp", "label_smoothing"):
            if getattr(train, name):
                raise SettingsError(f"train.{name} is for models that write text; leave it out")
        if retrieve.encoder or retrieve.method == "bm25":
            what = "retrieve.encoder" if retrieve.encoder else 'retrieve.method = "bm25"'
            raise SettingsError(f'{what} needs no training: "regard index --new RUN FILE"')

    def read(self, recipe: Recipe) -> TrainingKnowledge:
        """Read the files."""
        return TrainingKnowledge(recipe.data, recipe.train.seed)

    def plan(self, examples: TrainingKnowledge, machine: Machine, given: Tables, where: str) -> list[PlannedSetting]:
        """By the number of questions, and what the answers are."""
        return make_retrieval_plan(examples.known, given)

    def estimate(self, recipe: Recipe, examples: TrainingKnowledge, machine: Machine) -> Estimate:
        """On this machine."""
        with torch.device("meta"):
            model = build(recipe.model, vocabulary=recipe.tokenizer.vocab_size)
        data = examples.known
        tokens = round(min(data.tokens, recipe.retrieve.max_tokens))
        flops = 2 * data.texts * count_cost(model).training(text=1, token=tokens, pair=tokens**2)
        parameters = count_parameters(model)
        kept = 2 * recipe.train.batch_tokens * FLOAT * recipe.model.kept_per_token(tokens)
        memory = PROCESS + COPIES * FLOAT * parameters + kept
        return Estimate(parameters, memory, flops, flops / (SHARE_OF_PEAK * machine.peak))

    def prepare(
        self, run: Run, recipe: Recipe, examples: TrainingKnowledge, log: Log, base: Run | None
    ) -> PreparedKnowledge:
        """Vocabulary, entries and held-out questions."""
        return prepare_knowledge(run, recipe, examples, log, base)

    def reopen(self, run: Run, log: Log) -> PreparedKnowledge:
        """From the run's own folder."""
        return reopen_knowledge(run, log)

    def task(
        self, recipe: Recipe, prepared: PreparedKnowledge, model: Network, group: ProcessGroup | None = None
    ) -> RetrieveTrainUnit:
        """Batches of pairs."""
        return RetrieveTrainUnit(recipe, prepared, model, group)

    def card(self, recipe: Recipe, prepared: PreparedKnowledge, base: Run | None) -> dict[str, Any]:
        """Numbers of questions and answers."""
        parts = {"train": sum(len(entry.questions) for entry in prepared.train)}
        parts |= {"valid": len(prepared.valid), "test": len(prepared.test)}
        return {
            "task": "retrieve",
            "vocabulary": prepared.tokenizer.size,
            "questions": parts,
            "answers": len(prepared.train),
            "tuned": base.card.get("tuned", {}) if base else {},
        }

    def expected_initial_loss(self, recipe: Recipe, prepared: PreparedKnowledge) -> float:
        """Similarities lie between -1 and 1, so it cannot explode: about half of what it can be at most."""
        return 2.0 + 1 / recipe.retrieve.temperature

    def finish(self, run: Run, prepared: PreparedKnowledge, progress: TrainingProgress, log: Log) -> None:
        """Find weight and threshold, score by each method, index all that is known, report.

        Held-out questions are judged by an index without them; what answers later knows them too.
        """
        run.write_held_out(prepared.valid)  # never the test part: what is tuned later is tuned on these
        embedder = open_embedder(run, run.recipe.retrieve)
        index = KnowledgeIndex(prepared.train, run.recipe.retrieve, embedder)
        retriever = Retriever(index, tune_run(run, index, log))
        parts = {"valid": prepared.valid, "test": prepared.test}
        scores = {
            part: score_methods(retriever, run.card.get("tuned", {}), pairs) for part, pairs in parts.items() if pairs
        }
        learnt = {"parameters": count_parameters(run.build_network()), "scores": scores}
        run.write_card(run.card | learnt | {"training": dataclasses.asdict(progress)})
        held_out = prepared.test or prepared.valid
        run.write_report(render_page("report", report(run, retriever, held_out)))
        store_entries(run, known_entries(run))
        run.put_store_away()

    def result(self, run: Run) -> list[str]:
        """Recall and reciprocal rank."""
        lines = [
            f"{part}: recall@1 {found['recall_1']:.2%}  recall@5 {found['recall_5']:.2%}  MRR {found['mrr']:.4f}"
            f"  on {found['questions']:,} questions"
            for part, found in run.card.get("scores", {}).items()
        ]
        look = f'look at {run.folder / "report.html"}, or "regard chat {run.folder}"'
        return [*lines, f"the run is in {run.folder}; {look}"]

    def folder(self, recipe: Recipe) -> Path:
        """Named after the file."""
        name = Path(recipe.data.train[0].source).name.partition(".")[0]
        return Path("runs") / (name or recipe.model.arch)


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


def report(run: Run, retriever: Retriever, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Everything the page shows, ready for JSON."""
    card = run.card
    part = "test" if "test" in card["scores"] else "valid"
    scores, training = card["scores"][part], card["training"]
    threshold = f"{scores['answered']:.1%} reach the threshold of {retriever.settings.threshold:g}"
    figures = (
        (f"recall@1 on {scores['questions']:,} held-out questions", f"{scores['recall_1']:.1%}", threshold),
        ("recall@5", f"{scores['recall_5']:.1%}", f"MRR {scores['mrr']:.3f}"),
        (
            "of training",
            duration(training["seconds"]),
            f"{training['step']:,} steps, {amount(training['flops'])}FLOP",
        ),
        ("parameters", amount(card["parameters"]), card["arch"]),
        ("answers", f"{card['answers']:,}", f"{card['questions']['train']:,} questions"),
    )
    shown = pairs[:SHOWN_SAMPLES]
    replies = [retriever.reply(pair.source) for pair in shown]
    return run_data(run) | {
        "title": run.folder.name,
        "summary": [dict(zip(("label", "value", "note"), figure, strict=True)) for figure in figures],
        "samples": [
            {
                "source": pair.source,
                "translation": reply.text,
                "reference": pair.target,
                "score": reply.score,
                "correct": reply.text == pair.target,
            }
            for pair, reply in zip(shown, replies, strict=True)
        ],
    }
