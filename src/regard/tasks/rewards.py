"""What training of encoder-decoders maximizes: the settings of the objective, and the rewards of single sentences.

A reward compares an output with its reference. All rewards of Regard are between 0 and 1, higher is better. A user's
own reward is any Python function, named "module:function". It is imported when training needs it, never when a run is
opened for use, because a run folder may come from anybody.

Nothing here imports torch; `reward_training.py` has the losses.
"""

from __future__ import annotations

import functools
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Literal

from regard.config import Recipe
from regard.config.ranges import CheckedSettings, NotNegative, Positive, Range, require
from regard.errors import RegardError, SettingsError, nearest

Reward = Callable[[str, str], float]
"""reward(output, reference): a number; higher is better."""

LONGEST_NGRAM = 4
LARGEST_REWARD = 1_000_000
"""Larger rewards, which only a mistake can give, would end training with a loss that is not finite."""


@dataclass(frozen=True)
class ObjectiveSettings(CheckedSettings):
    """What training maximizes: the likelihood of the references, or a reward of the model's own outputs."""

    objective: Literal["likelihood", "reward"] = "likelihood"
    """Maximize the likelihood of the references, or the expected reward of the model's outputs (for fine-tuning)."""
    method: Literal["minimum-risk", "gnmt", "self-critical"] = "minimum-risk"
    """Minimum risk (Shen et al. 2016), GNMT's mixed objective (Wu et al. 2016), self-critical (Rennie et al. 2017)."""
    reward: str = "gleu"
    """gleu (Wu et al. 2016), chrf or bleu of each sentence; or your own function, as "module:function"."""
    candidates: Literal["auto", "n-best", "sample"] = "auto"
    """Outputs that get rewards: the best of a beam search, or samples. auto: n-best for minimum-risk, else samples."""
    candidate_count: Annotated[int, Range(2, 1000)] = 5
    """Number of candidates per source text; equal ones are computed once."""
    temperature: Positive = 0.5
    """For samples: their temperature; below 1, samples are closer to the most likely outputs (1 in the papers)."""
    include_reference: bool = True
    """For minimum-risk: the reference is a candidate, too."""
    sharpness: Positive = 1.0
    """For minimum-risk: exponent of the probabilities of the candidates; higher values favor likely ones."""
    likelihood_weight: NotNegative = 0.017
    """Weight of the log-likelihood of the references, which is added to the reward; 0: only the reward."""

    def check(self) -> None:
        require(
            self.reward in REWARDS or bool(re.fullmatch(r"[^\W\d][\w.]*:[^\W\d]\w*", self.reward)),
            f'{self.section}.reward: there is no reward "{self.reward}"'
            + (nearest(self.reward, REWARDS) or f'; choose from {", ".join(REWARDS)}, or name a "module:function"'),
        )
        require(
            self.candidates != "n-best" or self.method == "minimum-risk",
            f'{self.section}.method = "{self.method}" needs random samples of the model: '
            f'leave out {self.section}.candidates, or set {self.section}.method = "minimum-risk"',
        )

    @property
    def by_reward(self) -> bool:
        return self.objective == "reward"

    @property
    def samples(self) -> bool:
        """Whether the candidates are random samples of the model."""
        return self.candidates == "sample" or (self.candidates == "auto" and self.method != "minimum-risk")


def objective_of(recipe: Recipe) -> ObjectiveSettings:
    """The objective in the section of the task; for a task without these settings, maximum likelihood."""
    return recipe.task if isinstance(recipe.task, ObjectiveSettings) else ObjectiveSettings()


# ---------------------------------------------------------------------------------------------------------------------
# Rewards


def gleu(output: str, reference: str) -> float:
    """GLEU (Wu et al. 2016): the share of n-grams of 1 to 4 words that match; the smaller of precision and recall.

    Words and punctuation marks are separated as in BLEU.
    """
    made, wanted = _ngrams(output), _ngrams(reference)
    most = max(made.total(), wanted.total())  # the smaller of the two shares has the larger denominator
    return (made & wanted).total() / most if most else 0.0


@functools.lru_cache(maxsize=4096)
def _ngrams(text: str) -> Counter[tuple[str, ...]]:
    """The n-grams of 1 to 4 words of a text, counted."""
    words = _tokenizer()(text).split()
    sizes = range(1, LONGEST_NGRAM + 1)
    return Counter(tuple(words[start : start + size]) for size in sizes for start in range(len(words) - size + 1))


@functools.cache
def _tokenizer() -> Any:
    return import_module("sacrebleu.tokenizers.tokenizer_13a").Tokenizer13a()


def chrf(output: str, reference: str) -> float:
    """The chrF score (Popović 2015) of a sentence, by sacreBLEU, as a share."""
    return float(_metric("CHRF").sentence_score(output, [reference]).score) / 100


def bleu(output: str, reference: str) -> float:
    """The BLEU score of a sentence, by sacreBLEU: smoothed, and without n-grams longer than the sentence."""
    return float(_metric("BLEU", effective_order=True).sentence_score(output, [reference]).score) / 100


@functools.cache
def _metric(name: str, **options: bool) -> Any:
    return getattr(import_module("sacrebleu"), name)(**options)


REWARDS: dict[str, Reward] = {"gleu": gleu, "chrf": chrf, "bleu": bleu}


def find_reward(settings: ObjectiveSettings) -> Reward:
    """The reward that the settings name. Imports the user's module if it is a "module:function"."""
    if settings.reward in REWARDS:
        return REWARDS[settings.reward]
    where = f'{settings.section}.reward = "{settings.reward}"'
    module, _, name = settings.reward.partition(":")
    folder = os.getcwd()
    sys.path.insert(0, folder)  # as for `python -m`; the command `regard` does not search the current folder
    try:
        function = getattr(import_module(module), name, None)
    except RegardError:
        raise
    except (Exception, SystemExit) as error:  # the module is the user's, so any error in it is bad input
        raise SettingsError(f"{where}: cannot import {module} ({_in_one_line(error)})") from error
    finally:
        sys.path.remove(folder)
    if not callable(function):
        known = "" if function is None else f", only a {type(function).__name__} of this name"
        raise SettingsError(f"{where}: the module {module} has no function {name}{known}; correct the name")

    def reward(output: str, reference: str) -> float:
        try:
            found = function(output, reference)
            value = math.nan if isinstance(found, str) else float(found)
        except (Exception, SystemExit) as error:
            problem = f"failed ({_in_one_line(error)}) for the output {output!r}"
            raise SettingsError(f"{where} {problem}; correct the function") from error
        if not abs(value) <= LARGEST_REWARD:
            rule = f"it must return a number between -{LARGEST_REWARD:,} and {LARGEST_REWARD:,}"
            raise SettingsError(f"{where} returned {found!r} for the output {output!r}; {rule}")
        return value

    return reward


def _in_one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def mean_reward(reward: Reward, outputs: Sequence[str], references: Sequence[str]) -> float:
    """The mean reward of outputs with one reference each; 0 if there are none."""
    rewards = [reward(output, reference) for output, reference in zip(outputs, references, strict=True)]
    return math.fsum(rewards) / max(len(rewards), 1)
