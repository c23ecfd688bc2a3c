"""Scores of translations: BLEU, chrF and TER with sacreBLEU's signatures, confidence intervals, comparison of systems.

Intervals and p-values come from bootstrap resampling of the test set (`regard.tasks.bootstrap`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard import __version__
from regard.data.pairs import Languages, Pair
from regard.errors import CorpusError
from regard.languages import language_scripts
from regard.tasks.bootstrap import (
    FEW,
    SAMPLES,
    SEED,
    Array,
    BootstrapScore,
    Interval,
    Metric,
    interval,
    p_value,
    score_all,
)
from regard.tasks.text_metrics import bleu_metric, chrf_metric, signature_of
from regard.tasks.translate.translation import Flag, find_flags

Rows = NDArray[np.intp]
Json = dict[str, Any]

METRICS = {
    "bleu": {"label": "BLEU", "better": "higher"},
    "chrf": {"label": "chrF", "better": "higher"},
    "ter": {"label": "TER", "better": "lower"},
}
BUCKETS = {"0": 0, "1-10": 10, "11-20": 20, "21-30": 30, "31-50": 50, "over 50": 10**9}
"""Groups of sentences: name, and maximum number of source words (separated by white space)."""


def measure(translations: Sequence[str], references: Sequence[str]) -> dict[str, Metric]:
    """Return BLEU, chrF and TER by name, as `Metric`s, for translations with one reference each."""
    pairs = list(zip(translations, references, strict=True))
    several = [(reference,) for reference in references]
    bleu, chrf = bleu_metric(translations, several), chrf_metric(translations, several)
    return {"bleu": bleu, "chrf": chrf._replace(name=""), "ter": _ter(pairs)}


def _ter(pairs: Sequence[tuple[str, str]]) -> Metric:
    """TER of pairs (translation, reference). Counts of a pair: edits, reference length."""
    from sacrebleu import TER

    metric = TER()
    scores = [metric.sentence_score(one, [reference]) for one, reference in pairs]
    rows = [[score.num_edits, score.ref_length] for score in scores]

    def of_totals(totals_C: Array) -> float:
        edits, length = totals_C.tolist()
        return 100 * (edits / length if length else float(edits > 0))

    return Metric(of_totals, signature_of(metric), np.array(rows, dtype=np.float64))


class Difference(NamedTuple):
    """Comparison of two systems by one metric: first score minus second score, 95 % interval, p-value, better system.

    `interval` and `p` are None if there are too few sentences.
    """

    difference: float
    interval: Interval | None
    p: float | None
    better: int | None
    """0 if the first system is better, 1 if the second is better, None if the difference is not significant."""


def compare(name: str, first: BootstrapScore, second: BootstrapScore) -> Difference:
    """Compare two systems by the metric `name` ("bleu", "chrf" or "ter")."""
    difference, difference_R = first.score - second.score, first.resampled_R - second.resampled_R
    p = p_value(difference, difference_R) if len(difference_R) else None
    is_first_better = (difference > 0) == (METRICS[name]["better"] == "higher")
    around = interval(difference_R)
    is_significant = p is not None and p < 0.05 and around is not None and (around[0] > 0 or around[1] < 0)
    return Difference(difference, around, p, int(not is_first_better) if is_significant else None)


def by_length(sources: Sequence[str]) -> dict[str, Rows]:
    """Return the indices of the sentences in each bucket of source lengths ("1-10" words, ...); no bucket is empty."""
    lengths = [len(source.split()) for source in sources]
    found = np.searchsorted(list(BUCKETS.values()), lengths)
    return {name: rows for place, name in enumerate(BUCKETS) if len(rows := np.flatnonzero(found == place))}


def score_translations(translations: Sequence[str], references: Sequence[str], names: Iterable[str] = METRICS) -> Json:
    """Return sacreBLEU's scores by name ("bleu", ...), "sentences" (their number) and "signatures" (one per metric).

    Each translation has one reference; `names` selects metrics.
    """
    if len(translations) != len(references):
        problem = f"{len(references)} lines for {len(translations)} translations"
        raise CorpusError("references", f"{problem}; give one reference for each translation")
    if not translations:
        raise CorpusError("references", "there is nothing to score; give at least one translation and its reference")
    from sacrebleu import BLEU, CHRF, TER

    known = {"bleu": BLEU, "chrf": CHRF, "ter": TER}
    metrics = {name: known[name]() for name in names}
    values = {name: metric.corpus_score(translations, [references]).score for name, metric in metrics.items()}
    signatures = {name: str(metric.get_signature()) for name, metric in metrics.items()}
    return values | {"sentences": len(translations), "signatures": signatures}


def quick_scores(translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return "bleu" and "chrf" for validation during training; TER is left out because it is slow."""
    found = score_translations(translations, references, ("bleu", "chrf"))
    return {name: found[name] for name in ("bleu", "chrf")}


@dataclass(frozen=True)
class System:
    """A system to evaluate (a run, or a file of translations): its name, translations of the test set and flags."""

    name: str
    translations: Sequence[str]
    flags: Sequence[tuple[Flag, ...]]
    made: Mapping[str, Any] = field(default_factory=dict)
    """How the translations were made: architecture, engine and search settings of a run; empty for a file."""

    @classmethod
    def of_texts(cls, name: str, texts: Sequence[str], pairs: Sequence[Pair], language: str) -> System:
        """Return a system whose translations `texts` come from a file.

        `pairs` is the test set, `language` the code of the target language, used to flag translations in wrong scripts.
        """
        scripts = language_scripts(language)
        flags = [
            find_flags(pair.source, text, True, scripts) if pair.source.strip() else ()
            for pair, text in zip(pairs, texts, strict=True)
        ]
        return cls(name, texts, flags)


def evaluation(
    pairs: Sequence[Pair],
    system: System,
    against: System | None = None,
    *,
    languages: Languages | None = None,
    test: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Json:
    """Return scores with intervals, by sentence length and per sentence, and the comparison with the system `against`.

    This is what --json prints (docs/evaluation.md). `test` has the file names of the test set under "source" and
    "target"; `notes` are sentences that are shown below the scores.
    """
    systems = [one for one in (system, against) if one]
    measures = [measure(one.translations, [pair.target for pair in pairs]) for one in systems]
    whole, groups = score_all(measures), by_length([pair.source for pair in pairs])
    by_bucket = {
        name: score_all(
            [{key: one._replace(counts_NC=one.counts_NC[rows]) for key, one in found.items()} for found in measures]
        )
        for name, rows in groups.items()
    }
    facts: list[Json] = [
        {
            **_scores(whole[place]),
            "name": one.name,
            "made": dict(one.made),
            "flags": dict(Counter(flag for flags in one.flags for flag in flags).most_common()),
            "buckets": [
                {"words": name, "sentences": len(groups[name]), **_scores(found[place])}
                for name, found in by_bucket.items()
            ],
        }
        for place, one in enumerate(systems)
    ]
    compared = {name: compare(name, whole[0][name], whole[1][name]) for name in METRICS} if against else {}
    differences = {
        name: one._asdict() | {"better": None if one.better is None else systems[one.better].name}
        for name, one in compared.items()
    }
    return {
        **facts[0],
        "sentences": len(pairs),
        "signatures": {name: one.signature for name, one in measures[0].items()},
        "against": facts[1] if against else None,
        "differences": differences or None,
        "verdict": _conclude(system.name, against.name, compared) if against else None,
        "metrics": METRICS,
        "bootstrap": {"samples": SAMPLES, "seed": SEED},
        "languages": (languages or Languages("", ""))._asdict(),
        "test": dict(test or {}),
        "notes": list(notes),
        "title": " against ".join(one.name for one in systems),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "lines": list(_lines(pairs, systems, groups, [found["chrf"] for found in measures])),
    }


def _scores(found: Mapping[str, BootstrapScore]) -> Json:
    intervals = {name: interval(one.resampled_R) for name, one in found.items()}
    return {name: one.score for name, one in found.items()} | {"intervals": intervals}


def _conclude(first: str, second: str, compared: Mapping[str, Difference]) -> str:
    """Return a sentence that says which of two systems (names `first`, `second`) is better, and by which metrics."""
    if all(one.p == 1 for one in compared.values()):
        return f"{first} and {second} have the same score by every metric."
    if any(one.p is None for one in compared.values()):
        return f"Fewer than {FEW} sentences are too few to compare {first} and {second}."

    def labels(place: int | None) -> str:
        names = (METRICS[name]["label"] for name, one in compared.items() if one.better == place)
        return " and ".join(", ".join(names).rsplit(", ", 1))

    parts = [
        f"{better} is better than {other} by {labels(place)}"
        for place, (better, other) in enumerate(((first, second), (second, first)))
        if labels(place)
    ]
    if not parts:
        return f"No difference between {first} and {second} is significant."
    if labels(None):
        parts.append(f"by {labels(None)}, the difference is not significant")
    return "; ".join(parts) + "."


def _lines(
    pairs: Sequence[Pair], systems: Sequence[System], groups: Mapping[str, Rows], chrf: Sequence[Metric]
) -> Iterator[Json]:
    """Yield, for each sentence pair, the translations of all systems with their flags and sentence-level chrF.

    `groups`: indices of the sentences in each bucket of source lengths; `chrf`: the metric of each system.
    """
    bucket_of = {place: name for name, rows in groups.items() for place in rows.tolist()}
    scores = [[round(one.of_totals(counts_C), 2) for counts_C in one.counts_NC] for one in chrf]
    for place, pair in enumerate(pairs):
        made: list[Json] = [
            {"translation": one.translations[place], "chrf": each[place], "flags": list(one.flags[place])}
            for one, each in zip(systems, scores, strict=True)
        ]
        line = {"source": pair.source, "reference": pair.target, "bucket": bucket_of[place], **made[0]}
        if len(made) > 1:
            line |= {"against": made[1], "difference": round(made[0]["chrf"] - made[1]["chrf"], 2)}
        yield line


def select_examples(lines: Sequence[Json], count: int) -> list[tuple[int, Json]]:
    """Return the `count` sentences with the lowest chrF or, for two systems, with the largest difference in chrF.

    `lines` come from `evaluation`; each sentence is returned with its line number, starting at 1.
    """
    ranks = [-abs(line["difference"]) if "difference" in line else line["chrf"] for line in lines]
    return sorted(enumerate(lines, 1), key=lambda item: ranks[item[0] - 1])[:count]
