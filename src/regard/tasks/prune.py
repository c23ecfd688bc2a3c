"""A run with fewer heads: which of them can go is learnt with gates or told by importance; the rest is trained on.

The new run is complete: its recipe says how many heads each attention has, its card where it comes from, what was lost
and what was won. It appears under its name when all is done.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from regard import config
from regard.analysis.importance import importance_by_ablation
from regard.analysis.prune import pruned_settings, pruned_weights, scale_heads, strongest
from regard.durable import concerns, draft_of
from regard.errors import CorpusError, RunError, SettingsError
from regard.models.base import Seq2Seq
from regard.recipe import make_recipe, to_table, with_overrides
from regard.run import METRICS, Run
from regard.system import sync_folder
from regard.tasks.beside import Change, Comparison, compare_runs
from regard.tasks.gating import learn_gates
from regard.tasks.heads import text_batches
from regard.tasks.kinds.translate import finish
from regard.tasks.prepare import Prepared, TrainingPairs, prepare
from regard.tasks.train import Job, first_card, tell
from regard.tasks.translation import TranslationTask
from regard.training.device import choose_device
from regard.training.loop import Trainer
from regard.training.signals import StopRequest
from regard.training.state import Progress
from regard.training.watch import make_watchers

Method = Literal["gates", "importance"]

AGAIN = 0.6  # of the run's own updates are made again, unless minutes are given
GATES_SHARE = 0.3  # of them are for the gates; the rest is for training on without the heads that went
FULL_RATE = 0.25  # of the run's own training time; who trains on for less than that does it at a lower rate,
LEAST_RATE = 0.1  # but not below this share of the full one
JUDGED = 300  # pairs that importance is measured on
COMPARED = 1000  # sentences that BLEU and decoding time are compared on


@dataclass(frozen=True)
class Pruning:
    """What pruning did to a run."""

    parent: str
    by: Method
    kept: dict[str, tuple[int, ...]]
    """The heads that stayed, by attention, counted as in the parent."""
    had: dict[str, int]
    """How many there were."""
    compared: Comparison

    @property
    def heads(self) -> Change:
        """How many there were and are, in all attentions together."""
        return Change(sum(self.had.values()), sum(map(len, self.kept.values())))

    def as_dict(self) -> dict[str, Any]:
        """For JSON and the card."""
        figures = {"heads": self.heads} | vars(self.compared)
        told = {key: value._asdict() if isinstance(value, Change) else value for key, value in figures.items()}
        kept = {name: list(heads) for name, heads in self.kept.items()}
        return {"parent": self.parent, "by": self.by, "kept": kept, "had": self.had, **told}


def prune_run(
    run: Run,
    out: str | Path,
    share: float,
    *,
    by: Method = "gates",
    weights_follow: bool = True,
    minutes: float | None = None,
    data: config.Data | None = None,
    overrides: Iterable[str] = (),
) -> Pruning:
    """Take this share of all heads out of a run and write what is left as a new run.

    `weights_follow`: the weights learn while the gates do. `minutes` limit all the training, else a share of the run's
    own updates does; with 0 there is none, and importance must choose. `data` stands in for the run's own text.
    """
    out = Run.refuse_existing(out)
    settings = _require_transformer(run)
    had = {name: settings.heads_in(name) for name in settings.attentions if settings.heads_in(name)}
    left = _count_left(sum(had.values()), share)
    if minutes == 0 and by == "gates":
        raise SettingsError("gates must be learnt: give --minutes, or choose the heads with --by importance")
    recipe = _train_again(run, minutes, data, overrides)
    pairs = _read(run, recipe, own=data is None)
    with _drafted(out) as draft:
        prepared = prepare(draft, recipe, pairs, tell, run.tokenizers)
        model = run.load_model()
        tell(f"choosing {left} of {sum(had.values())} heads by {by}")
        if by == "gates":
            kept = _learn(model, _part(recipe, GATES_SHARE), prepared, left, weights_follow)
            recipe = _part(recipe, 1 - GATES_SHARE)
        else:
            judged = text_batches(prepared.valid[:JUDGED], *run.tokenizers)
            kept = strongest(importance_by_ablation(model, judged), left)
        recipe = replace(recipe, model=pruned_settings(settings, kept))
        draft.write_recipe(recipe)
        draft.write_weights(pruned_weights(model, kept))
        draft.write_card(first_card(Job(recipe, pairs, [], run), prepared))
        progress = Progress(stopped="pruned, and not trained since") if minutes == 0 else _train_on(draft, prepared)
        compared = compare_runs(run, draft, (prepared.test or prepared.valid)[:COMPARED])
        pruning = Pruning(run.folder.name, by, kept, had, compared)
        draft.write_card(draft.card | {"pruning": pruning.as_dict()})
        finish(draft, prepared, progress, tell)
    return pruning


def _require_transformer(run: Run) -> config.Transformer:
    if not isinstance(run.recipe.model, config.Transformer):
        raise SettingsError(f"{run.folder}: {run.recipe.model.arch} has one head, which cannot be pruned")
    return run.recipe.model


def _count_left(heads: int, share: float) -> int:
    left = heads - round(share * heads) if 0 < share < 1 else 0
    if not 0 < left < heads:
        raise SettingsError(f"--prune {share:g}: of {heads} heads, between 1 and {heads - 1} must go")
    return left


def _train_again(run: Run, minutes: float | None, data: config.Data | None, overrides: Iterable[str]) -> config.Recipe:
    """The recipe of a run, for a while more at rates that fall to zero in the end.

    Training again at the full rate mends more than fine-tuning does (Renda et al. 2020), if it has the time.
    """
    for override in (overrides := list(overrides)):
        if not override.strip().startswith(("train.", "search.")):
            raise SettingsError(f"--set {override}: only train. and search. settings can change in a run that exists")
    train, trained = run.recipe.train, run.card.get("training", {})
    updates, rate = config.Train.max_steps, 1.0
    if minutes is None:
        updates = round(AGAIN * trained.get("step", 0))
        if not updates:
            raise SettingsError(f"{run.folder}: does not know how long it was trained; say for how long with --minutes")
    else:
        rate = 60 * minutes / (FULL_RATE * trained.get("seconds", 0) or math.inf)
        rate = min(max(rate, LEAST_RATE), 1.0)
    train = replace(
        train, minutes=minutes or 0, max_steps=updates, warmup=20, schedule="constant", cooldown=0.5, ease_in=0,
        learning_rate=rate * train.learning_rate, matrix_rate=rate * train.matrix_rate,
        r_drop=0.0, patience=0, tensorboard=False, shard=False,
    )  # fmt: skip
    recipe = replace(run.recipe, train=train, data=data or run.recipe.data)
    return make_recipe(with_overrides(to_table(recipe), overrides))


def _part(recipe: config.Recipe, share: float) -> config.Recipe:
    """The recipe for a share of its time."""
    train = recipe.train
    updates = max(round(share * train.max_steps), 1)
    return replace(recipe, train=replace(train, minutes=share * train.minutes, max_steps=updates))


def _read(run: Run, recipe: config.Recipe, *, own: bool) -> TrainingPairs:
    try:
        return TrainingPairs(recipe.data, recipe.train.seed)
    except (CorpusError, SettingsError) as error:
        if not own:
            raise
        what = f"{run.folder}: the text that it learnt from is out of reach ({error})"
        raise SettingsError(f"{what}; give other with --source and --target") from None


def _learn(
    model: Seq2Seq, recipe: config.Recipe, prepared: Prepared, left: int, weights_follow: bool
) -> dict[str, tuple[int, ...]]:
    """The heads whose gates stay open longest. What is left of the gates goes into the model's weights."""
    gates = learn_gates(model, recipe, prepared, left, weights_follow=weights_follow)
    scale_heads(model, gates.settled())
    return strongest(gates.by_attention(), left)


def _train_on(draft: Run, prepared: Prepared) -> Progress:
    """Train the smaller model as its recipe says, and keep its best weights."""
    recipe = draft.recipe
    model = draft.load_model().requires_grad_(True).to(choose_device(recipe.train, 0))
    task = TranslationTask(recipe, prepared, model)
    watchers = make_watchers(draft.folder / METRICS, recipe.train)
    tell("training on without the others")
    with tempfile.TemporaryDirectory() as states, StopRequest() as stop:
        trainer = Trainer(model, task, recipe.train, Path(states), watchers)
        trainer.progress.first_loss = math.log(prepared.target.size)  # as in learn_gates
        progress = trainer.fit(draft.write_weights, stop)
    if not progress.stopped:
        raise stop.interruption()
    return progress


@contextlib.contextmanager
def _drafted(out: Path) -> Iterator[Run]:
    """A run folder that stands elsewhere until the block ends well, and is gone if it does not."""
    home, inside = draft_of(out), True
    draft = Run.create(home / out.name)  # the name is shown in its report
    try:
        yield draft
        inside = False
        if out.is_dir():
            out.rmdir()  # an empty one was not refused
        os.replace(draft.folder, out)
        sync_folder(out.parent)
    except OSError as error:
        if inside and not concerns(error, home):
            raise
        raise RunError(f"{out}: cannot be written ({error.strerror})") from None
    finally:
        shutil.rmtree(home, ignore_errors=True)
