"""Pruning of attention heads: choose heads by trained gates or by importance, remove them, and train the rest.

The result is a complete run: its recipe has the number of heads of each layer; its card names the original run, and
compares size, BLEU and speed. The run folder is created when everything is done.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from regard.analysis.head_roles import count_heads, importance_by_ablation
from regard.analysis.pruning import GatedModel, HeadGates, pruned_settings, pruned_weights, scale_heads, strongest
from regard.config import DataSettings, Recipe, TrainSettings
from regard.config.recipe import make_recipe, to_table, with_overrides
from regard.data.batches import Batch
from regard.data.pairs import Pair
from regard.errors import CorpusError, SettingsError
from regard.files import atomic_folder, chunks
from regard.models.base import Seq2Seq, count_parameters
from regard.models.transformer_settings import TransformerSettings
from regard.run import METRICS, WEIGHTS, Run
from regard.tasks.seq2seq import PairData
from regard.tasks.train import TrainingJob, finish, first_card, log
from regard.tasks.translate import TASK
from regard.tasks.translate.data import PairExamples, prepare
from regard.tasks.translate.evaluate import quick_scores
from regard.tasks.translate.inspect.heads import text_batches
from regard.tasks.translate.training import TRAINING, TranslateTrainUnit
from regard.tasks.translate.translation import texts_of
from regard.tasks.translate.translator import load
from regard.training.checkpoint import TrainingProgress
from regard.training.device import choose_device
from regard.training.loss import Loss
from regard.training.metrics_log import LiveBar, PlainLog, make_logs, share_done
from regard.training.signals import StopRequest
from regard.training.trainer import Trainer, TrainingLog

Method = Literal["gates", "importance"]

GATES_SHARE = 0.3
"""Share of all training steps that train the gates; the others train the model without the removed heads."""
FULL_RATE, LEAST_RATE = 0.25, 0.1
"""If pruning trains for less than 0.25 of the training time of the run, it uses a lower learning rate than the run: in
proportion to the time, but at least 0.1 of the learning rate of the run."""
CHUNK = 50
"""The two runs take turns, each with this many sentences, so that the load of the machine is the same for both."""


class GateTrainUnit(TranslateTrainUnit):
    """Trains a gate for each attention head, a factor from 0 (closed) to 1 (open) on its weights.

    A penalty decreases the share of open gates from 1 to `goal`. Its gradient is the same for every gate, so the gates
    of the least important heads close first. `share_done` returns the completed share of the training, from 0 to 1.
    """

    def __init__(
        self, recipe: Recipe, prepared: PairData, gated: GatedModel, goal: float, share_done: Callable[[], float]
    ):
        super().__init__(recipe, prepared, gated.model)
        self.gates, self.goal, self.share_done = gated.gates, goal, share_done

    def loss(self, model: Seq2Seq, batch: Batch) -> Loss:
        loss = super().loss(model, batch)
        if not model.training:
            return loss
        # In the last 30 % of the training, the goal is constant and the gates settle.
        excess = self.gates.open_share() - (1 - (1 - self.goal) * min(self.share_done() / 0.7, 1.0))
        return loss._replace(smoothed=loss.smoothed + 100.0 * excess.square() * loss.tokens)


def learn_gates(model: Seq2Seq, recipe: Recipe, prepared: PairData, left: int, *, weights_follow: bool) -> HeadGates:
    """Train a gate for each head of a model, with a penalty that leaves about `left` gates open; return the gates.

    `weights_follow` trains the weights of the model, too; otherwise they are fixed.
    """
    settings = replace(
        recipe.train, ema_decay=0.0, average_checkpoints=0, cooldown=0.0, patience=0,
        validate_every=recipe.train.max_steps, checkpoint_every=recipe.train.max_steps,
    )  # fmt: skip
    heads = count_heads(model, TranslateTrainUnit(recipe, prepared, model).batch(0))
    gates = HeadGates(heads, gain=0.07 / settings.learning_rate)  # log_alpha changes by at most 0.07 per step
    gated = GatedModel(model, gates, weights_follow=weights_follow).to(choose_device(settings, 0))
    recipe, goal = replace(recipe, train=settings), left / sum(heads.values())
    task = GateTrainUnit(recipe, prepared, gated, goal, lambda: share_done(trainer.progress, settings))
    shown: TrainingLog = LiveBar(settings, TASK.scores) if sys.stderr.isatty() else PlainLog(settings, TASK.scores)
    with tempfile.TemporaryDirectory() as states, StopRequest() as stop:
        trainer = Trainer(gated, task, settings, Path(states), [shown])
        # Closing gates increases the loss. The trainer must roll back only if the loss exceeds that of guessing.
        trainer.progress.first_loss = math.log(prepared.target.size)
        progress = trainer.fit(lambda weights: None, stop)
    if not progress.stopped:
        raise stop.interruption()
    gated.eval().requires_grad_(False).cpu()
    return gates


def compare_runs(runs: tuple[Run, Run], pairs: Sequence[Pair]) -> dict[str, list[float]]:
    """Measure two runs on `pairs`, each with its own search settings; return two values, one per run, for each measure.

    The measures are "parameters", "bytes" of the weights file, "bleu", and "seconds" of CPU time on one thread.
    """
    translators = [load(run.folder) for run in runs]
    texts: tuple[list[str], list[str]] = ([], [])
    seconds = [0.0, 0.0]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for translator in translators:
            translator.translate([pair.source for pair in pairs[:CHUNK]])  # warm-up
        for sources in chunks((pair.source for pair in pairs), CHUNK):
            for place, translator in enumerate(translators):
                began = time.process_time()
                texts[place].extend(texts_of(translator.translate(sources)))
                seconds[place] += time.process_time() - began
    finally:
        torch.set_num_threads(threads)
    references = [pair.target for pair in pairs]
    return {
        "parameters": [count_parameters(translator.model) for translator in translators],
        "bytes": [(run.folder / WEIGHTS).stat().st_size for run in runs],
        "bleu": [quick_scores(written, references)["bleu"] for written in texts],
        "seconds": seconds,
    }


@dataclass(frozen=True)
class Pruning:
    """The result of `prune_run`: the heads that were kept, and measurements of the parent (original) and pruned run."""

    parent: str
    by: Method
    kept: dict[str, tuple[int, ...]]
    """The remaining heads by layer, as indices of heads of the parent run."""
    had: dict[str, int]
    """Number of heads of the parent run, by layer."""
    changes: dict[str, list[float]]
    """Before and after: heads, parameters, bytes of the weights file, BLEU, CPU seconds of decoding on one thread."""
    sentences: int
    """Number of sentences that BLEU and decoding were measured on."""

    def as_dict(self) -> dict[str, Any]:
        kept = {name: list(heads) for name, heads in self.kept.items()}
        changes = {name: dict(zip(("before", "after"), both, strict=True)) for name, both in self.changes.items()}
        facts = {"parent": self.parent, "by": self.by, "kept": kept, "had": self.had}
        return facts | changes | {"sentences": self.sentences}


def prune_run(
    run: Run, out: str | Path, share: float, *,
    by: Method = "gates", weights_follow: bool = True, minutes: float | None = None,
    data: DataSettings | None = None, overrides: Iterable[str] = (),
) -> Pruning:  # fmt: skip
    """Remove the share `share` (between 0 and 1) of all heads from a run, and write the result as the new run `out`.

    `by` is how heads are chosen: by trained gates, or by the loss without each head. `weights_follow` trains the
    weights together with the gates. `minutes` limits the time of all training. If it is None, training takes 0.6 of
    the training steps of the run. If it is 0, there is no training, which needs `by="importance"`. `data` replaces the
    training data. `overrides` are train. and search. settings, e.g. "train.learning_rate=0.0003".
    """
    out = Run.refuse_existing(out)
    settings = run.recipe.model
    if not isinstance(settings, TransformerSettings):
        raise SettingsError(
            f"{run.folder}: {settings.arch} has only one head, which cannot be removed; choose a Transformer"
        )
    had = {name: settings.heads_in(name) for name in settings.attentions if settings.heads_in(name)}
    heads = sum(had.values())
    left = heads - round(share * heads) if 0 < share < 1 else 0
    if not 0 < left < heads:
        raise SettingsError(
            f"--share {share:g}: at least 1 and at most {heads - 1} of {heads} heads can be removed; the default is 0.5"
        )
    if minutes == 0 and by == "gates":
        raise SettingsError(
            "--minutes 0: gates must be trained; allow more minutes, or choose the heads with --method importance"
        )
    recipe = _train_again(run, minutes, data, overrides)
    pairs = _read(run, recipe, own=data is None)
    with atomic_folder(out) as folder:
        draft = Run.create(folder)
        draft.write_recipe(recipe)
        prepare(draft, recipe, pairs, log, run.tokenizers)
        if run.dictionary:
            draft.write_dictionary(run.dictionary)
        prepared = TRAINING.open_data(draft, log)
        model = run.load_model()
        log(f"choosing {left} of {heads} heads by {by}")
        if by == "gates":
            gates = learn_gates(model, _part(recipe, GATES_SHARE), prepared, left, weights_follow=weights_follow)
            scale_heads(model, gates)  # the final values of the gates become part of the weights
            kept = strongest(gates.by_attention(), left)
            recipe = _part(recipe, 1 - GATES_SHARE)
        else:
            kept = strongest(importance_by_ablation(model, text_batches(prepared.valid[:300], *run.tokenizers)), left)
        recipe = replace(recipe, model=pruned_settings(settings, kept))
        draft.write_recipe(recipe)
        draft.write_sizes(**run.sizes)
        draft.write_weights(pruned_weights(model, kept))
        draft.write_card(first_card(TrainingJob(recipe, pairs, [], run), prepared))
        untrained = TrainingProgress(stopped="pruned, not trained afterwards")
        progress = untrained if minutes == 0 else _train_on(draft, prepared)
        compared = (prepared.test or prepared.valid)[:1000]
        changes: dict[str, list[float]] = {"heads": [heads, left], **compare_runs((run, draft), compared)}
        pruning = Pruning(run.folder.name, by, kept, had, changes, len(compared))
        draft.write_card(draft.card | {"pruning": pruning.as_dict()})
        finish(draft, prepared, progress)
    return pruning


def _train_again(run: Run, minutes: float | None, data: DataSettings | None, overrides: Iterable[str]) -> Recipe:
    """Return the recipe for training during and after pruning: the recipe of the run, with a limit and `overrides`.

    With few `minutes`, the learning rate is lower than in the run (see `FULL_RATE`); otherwise it is the same, which is
    best (Renda et al. 2020). If `minutes` is None, the limit is 0.6 of the steps of the run.
    """
    for override in (overrides := list(overrides)):
        if not override.strip().startswith(("train.", "search.")):
            raise SettingsError(f"--set {override}: pruning can change only train. and search. settings; leave it out")
    train, trained = run.recipe.train, run.card.get("training", {})
    steps, rate = TrainSettings.max_steps, 1.0
    if minutes is None:
        steps = round(0.6 * trained.get("step", 0))
        if not steps:
            raise SettingsError(
                f"{run.folder}: card.json does not say how long the run was trained, so the length of the training"
                " after pruning is unknown; give --minutes"
            )
    else:
        rate = 60 * minutes / (FULL_RATE * trained.get("seconds", 0) or math.inf)
        rate = min(max(rate, LEAST_RATE), 1.0)
    train = replace(
        train, max_minutes=minutes or 0, max_steps=steps, warmup_steps=20, schedule="constant", cooldown=0.5,
        regularization_warmup=0,
        learning_rate=rate * train.learning_rate, muon_learning_rate=rate * train.muon_learning_rate,
        r_drop=0.0, patience=0, tensorboard=False, fsdp=False, expert_parallel=False,
    )  # fmt: skip
    recipe = replace(run.recipe, train=train, data=data or run.recipe.data)
    return make_recipe(with_overrides(to_table(recipe), overrides))


def _part(recipe: Recipe, share: float) -> Recipe:
    """Return the recipe with the limits `train.max_steps` and `train.max_minutes` multiplied by `share`."""
    train = recipe.train
    steps = max(round(share * train.max_steps), 1)
    return replace(recipe, train=replace(train, max_minutes=share * train.max_minutes, max_steps=steps))


def _read(run: Run, recipe: Recipe, *, own: bool) -> PairExamples:
    try:
        return PairExamples(recipe.data, recipe.train.seed)
    except (CorpusError, SettingsError) as error:
        if not own:
            raise
        what = f"{run.folder}: the training data of the run cannot be read ({error})"
        raise SettingsError(f"{what}; give other text with --source and --target") from None


def _train_on(draft: Run, prepared: PairData) -> TrainingProgress:
    recipe = draft.recipe
    model = draft.load_model().requires_grad_(True).to(choose_device(recipe.train, 0))
    task = TranslateTrainUnit(recipe, prepared, model)
    watchers = make_logs(draft.folder / METRICS, recipe.train, TASK.scores)
    log("training without the removed heads")
    with tempfile.TemporaryDirectory() as states, StopRequest() as stop:
        trainer = Trainer(model, task, recipe.train, Path(states), watchers)
        trainer.progress.first_loss = math.log(prepared.target.size)  # as in learn_gates
        progress = trainer.fit(draft.write_weights, stop)
    if not progress.stopped:
        raise stop.interruption()
    return progress
