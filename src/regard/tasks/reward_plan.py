"""The plan of reward fine-tuning: training settings for small, noisy steps, and the data that a run was trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from regard.config.recipe import to_table
from regard.errors import RegardError, RunError, SettingsError
from regard.run import Run
from regard.tasks.dataset import require_unchanged
from regard.tasks.rewards import ObjectiveSettings
from regard.training.plan import PlannedSetting

Tables = Mapping[str, Mapping[str, Any]]

GIVE_DATA = "give the data with --source and --target"


def wants_reward(base: Run, given: Tables) -> bool:
    """Whether the user asked for reward fine-tuning of the run `base`."""
    return given.get(base.recipe.data.task, {}).get("objective") == "reward"


def without_objective(table: dict[str, Any], task: str) -> dict[str, Any]:
    """The settings `table` of a run without its objective, which fine-tuning does not take over.

    Otherwise the run folder, which may come from anybody, could name a function that fine-tuning imports.
    """
    own = {field.name for field in fields(ObjectiveSettings)}
    changed = dict(table)
    if task in table:
        changed[task] = {key: value for key, value in table[task].items() if key not in own}
    changed["train"] = dict(table["train"])
    if changed["train"].get("metric") == "reward":
        del changed["train"]["metric"]
    return changed


def data_of(base: Run, given: Tables) -> dict[str, Any]:
    """The settings of [data] with the corpora of the run `base`, which must be unchanged."""
    data = base.recipe.data
    if not data.train:
        raise RunError(f"{base.folder}: does not say what it was trained on; {GIVE_DATA}")
    seed = given.get("train", {}).get("seed", base.recipe.train.seed)
    if seed != base.recipe.train.seed and not (data.valid or given.get("data", {}).get("valid")):
        raise SettingsError(
            f"train.seed = {seed} would hold out other pairs than {base.folder} did, which it was trained on; "
            "leave out --seed, or give --valid-source and --valid-target"
        )
    try:
        require_unchanged(base, f"; {GIVE_DATA}")
    except RunError:
        raise
    except RegardError as error:  # a file is missing
        raise RunError(f"{base.folder}: its training data cannot be read ({error}); {GIVE_DATA}") from None
    return dict(to_table(data))


def plan_reward(base: Run, given: Tables) -> Iterator[PlannedSetting]:
    """Choose the training settings for the reward fine-tuning of the run `base`."""
    train = given.get("train", {})
    chosen = {
        "optimizer": ("adam", "its steps adapt to noisy gradients"),
        "learning_rate": (2e-5, "small steps: larger ones soon make a trained model worse"),
        "warmup_steps": (20, "the weights are already trained"),
        "schedule": ("constant", "the best validated weights are kept"),
        "cooldown": (0.0, "the averages of the weights replace it"),
        "ema_decay": (0.98, "averages over about 50 steps"),
        "regularization_warmup": (0, "a trained model can overfit from the first step"),
        "r_drop": (0.0, "one pass per batch"),
        "batch_tokens": (1024, "each source text is computed with several candidates"),
        "gradient_accumulation": (1, "small batches, many steps"),
        "validate_every": (50, "rewards change fast"),
        "validate_at_start": (True, "the weights of the run are kept if no better ones are found"),
        "validation_sentences": (1000, "the differences are small"),
        "checkpoint_every": (50, "few steps are lost if training is killed"),
        "patience": (8, "validations without improvement; then the end"),
        "metric": ("reward", "of greedy translations of the validation part"),
    }
    if not (train.get("max_minutes") or train.get("max_flops")):
        chosen["max_steps"] = (1000, "most of the gain comes early")
    return (PlannedSetting(f"train.{key}", value, reason) for key, (value, reason) in chosen.items())
