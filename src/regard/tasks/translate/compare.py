"""Comparisons of translators (`regard compare`): translations of the test set, their scores, and tests of differences.

All systems are scored on the same resampled test sets, so that every pair of systems can be compared (evaluate.py). A
system that was trained with several seeds has the mean score of its seeds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import DataSettings
from regard.data.pairs import Pair, read_corpus
from regard.errors import CorpusError
from regard.tasks.bootstrap import FEW, BootstrapScore, interval, score_all
from regard.tasks.translate.evaluate import METRICS, compare, measure

Json = dict[str, Any]
SHOWN = ("bleu", "chrf")
WARM_UP = 8
"""Number of sentences that are translated before the time is measured."""


def check_data(data: DataSettings) -> str:
    """Raise an error if a corpus cannot be read or is empty, before the first training.

    Returns a warning if test pairs are in the training data; else the empty string.
    """
    test, known = set(read_pairs(data)), set[Pair]()
    for corpus in (*data.valid, *data.train):
        pairs = read_corpus(corpus, data.source_language, data.target_language)
        if (first := next(pairs, None)) is None:
            raise CorpusError(corpus.source, "contains no sentence pairs; give another file")
        if corpus in data.train:
            known.update(pair for pair in chain([first], pairs) if pair in test)
    if not known:
        return ""
    return f"warning: {len(known):,} of {len(test):,} test pairs are in the training data; the scores will be too high"


def read_pairs(data: DataSettings) -> list[Pair]:
    """The sentence pairs of the test data."""
    pairs = [pair for corpus in data.test for pair in read_corpus(corpus, data.source_language, data.target_language)]
    if not pairs:
        raise CorpusError(data.test[0].source, "contains no sentence pairs; give another test file")
    return pairs


def answer(runs: Sequence[Path], data: DataSettings) -> Json:
    """Translate the test set with a run, or with an ensemble of several runs, and measure the time."""
    from regard.tasks.translate.translator import load

    sources = [pair.source for pair in read_pairs(data)]
    translator = load(*runs)
    translator.translate(sources[:WARM_UP])
    began = time.perf_counter()
    found = translator.translate(sources)
    return {"translations": [one.text for one in found], "seconds": time.perf_counter() - began}


def table(answers: Mapping[str, Sequence[Json]], data: DataSettings) -> Json:
    """Scores with intervals for each system, and the differences between all pairs of systems.

    `answers`: for each system, the results of `answer` for each seed.
    """
    pairs = read_pairs(data)
    references = [pair.target for pair in pairs]
    seeds = [(name, one) for name, several in answers.items() for one in several]
    measured = [measure(one["translations"], references) for _, one in seeds]
    scored = score_all(measured)
    of_system = {
        name: [found for (other, _), found in zip(seeds, scored, strict=True) if other == name] for name in answers
    }
    means = {name: _mean(found) for name, found in of_system.items()}
    differences = _differences(means)
    return {
        "sentences": len(pairs),
        "verdict": _verdict({name: found[SHOWN[0]].score for name, found in means.items()}, differences, len(pairs)),
        "metrics": {name: METRICS[name] for name in SHOWN},
        "signatures": {name: measured[0][name].signature for name in SHOWN},
        "scores": {name: _scores(means[name], of_system[name], answers[name], len(pairs)) for name in answers},
        "differences": differences,
        "samples": _samples(pairs, answers),
    }


def _mean(seeds: Sequence[Mapping[str, BootstrapScore]]) -> dict[str, BootstrapScore]:
    """The means over the seeds: of the score, and of each resampled score."""
    return {
        name: BootstrapScore(
            float(np.mean([seed[name].score for seed in seeds])), np.mean([seed[name].resampled_R for seed in seeds], 0)
        )
        for name in SHOWN
    }


def _scores(
    mean: Mapping[str, BootstrapScore],
    seeds: Sequence[Mapping[str, BootstrapScore]],
    answers: Sequence[Json],
    sentences: int,
) -> Json:
    return {
        **{name: mean[name].score for name in SHOWN},
        "intervals": {name: interval(mean[name].resampled_R) for name in SHOWN},
        "seeds": {name: [seed[name].score for seed in seeds] for name in SHOWN},
        "sentences_per_second": sentences / float(np.mean([one["seconds"] for one in answers])),
    }


def _differences(means: Mapping[str, Mapping[str, BootstrapScore]]) -> list[Json]:
    """The difference, its interval and its p-value for each pair of systems and each metric."""
    names = list(means)
    return [
        {"first": first, "second": second, "metric": metric}
        | compare(metric, means[first][metric], means[second][metric])._asdict()
        for place, first in enumerate(names)
        for second in names[place + 1 :]
        for metric in SHOWN
    ]


def _verdict(scores: Mapping[str, float], differences: Sequence[Json], sentences: int) -> str:
    """A sentence about the best system and the systems that are not significantly worse."""
    metric = SHOWN[0]
    best = max(scores, key=lambda name: scores[name])
    worse = {
        name
        for one in differences
        if one["metric"] == metric and one["better"] is not None and one[("first", "second")[one["better"]]] == best
        for name in (one["first"], one["second"])
    }
    equal = [name for name in scores if name != best and name not in worse]
    if len(scores) > 1 and sentences < FEW:
        return f"{best} has the highest {METRICS[metric]['label']}, but {sentences} sentences are too few for a test."
    others = f"; not significantly worse: {', '.join(equal)}" if equal else ", significantly more than all others"
    return f"{best} has the highest {METRICS[metric]['label']}{others if len(scores) > 1 else ''}."


def _samples(pairs: Sequence[Pair], answers: Mapping[str, Sequence[Json]], count: int = 3) -> list[Json]:
    """The first `count` sentences of more than 6 words for which the translations (by the first seeds) differ."""
    found = []
    for place, pair in enumerate(pairs):
        made = {name: several[0]["translations"][place] for name, several in answers.items()}
        if len(set(made.values())) > 1 and len(pair.source.split()) > 6:
            found.append({"source": pair.source, "reference": pair.target, "outputs": made})
        if len(found) == count:
            break
    return found
