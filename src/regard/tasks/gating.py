"""Learning which heads a translator can do without: gates on all of them, of which ever fewer shall be open."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from regard.analysis.gates import Gated, HeadGates
from regard.analysis.importance import count_heads
from regard.config import Recipe
from regard.data.batch import Batch
from regard.models.base import Seq2Seq
from regard.tasks.prepare import Prepared
from regard.tasks.translation import TranslationTask
from regard.training.device import choose_device
from regard.training.loop import Trainer, Watcher
from regard.training.loss import Loss
from regard.training.signals import StopRequest
from regard.training.watch import LiveBar, PlainLog, share_done

GATE_STEP = 0.07  # how far log_alpha goes in an update, at most
STIFFNESS = 100.0  # nats a token, if all heads were open and none should be: gates follow the goal closely
CLOSING = 0.7  # of the time, over which the goal falls; the rest is for the gates to settle


class GatedTask(TranslationTask):
    """Translation through gates. The share of them that shall be open falls from all to the goal; a penalty sees to it.

    Its pull is the same on every gate, so those close first that the loss holds least, a few at a time.
    """

    def __init__(self, recipe: Recipe, prepared: Prepared, gated: Gated, goal: float, share_done: Callable[[], float]):
        """`goal`: the share of heads that shall stay open; `share_done`: of the training, so far."""
        super().__init__(recipe, prepared, gated.model)
        self.gates, self.goal, self.share_done = gated.gates, goal, share_done

    def loss(self, model: Seq2Seq, batch: Batch) -> Loss:
        """The loss, and while training the penalty on what is open beyond the goal of the moment."""
        loss = super().loss(model, batch)
        if not model.training:
            return loss
        now = 1 - (1 - self.goal) * min(self.share_done() / CLOSING, 1.0)
        excess = self.gates.open_share() - now
        return loss._replace(smoothed=loss.smoothed + STIFFNESS * excess.square() * loss.tokens)


def learn_gates(model: Seq2Seq, recipe: Recipe, prepared: Prepared, left: int, *, weights_follow: bool) -> HeadGates:
    """Train gates on the heads of a model, so that so many of them stay open; its weights follow if they may."""
    settings = replace(
        recipe.train, average=0.0, checkpoints=0, cooldown=0.0, patience=0,
        validate_every=recipe.train.max_steps, state_every=recipe.train.max_steps,
    )  # fmt: skip
    heads = count_heads(model, TranslationTask(recipe, prepared, model).batch(0))
    gates = HeadGates(heads, gain=GATE_STEP / settings.learning_rate)
    gated = Gated(model, gates, weights_follow=weights_follow).to(choose_device(settings, 0))
    recipe, goal = replace(recipe, train=settings), left / sum(heads.values())
    task = GatedTask(recipe, prepared, gated, goal, lambda: share_done(trainer.progress, settings))
    shown: Watcher = LiveBar(settings) if sys.stderr.isatty() else PlainLog(settings)
    with tempfile.TemporaryDirectory() as states, StopRequest() as stop:
        trainer = Trainer(gated, task, settings, Path(states), [shown])
        # What closes may cost much, yet less than knowing nothing: beyond that, the loop is to go back.
        trainer.progress.first_loss = math.log(prepared.target.size)
        progress = trainer.fit(lambda weights: None, stop)
    if not progress.stopped:
        raise stop.interruption()
    gated.eval().requires_grad_(False).cpu()
    return gates
