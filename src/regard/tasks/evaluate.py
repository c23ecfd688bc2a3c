"""Scores of translations against references, each with the signature that makes the number travel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from regard import __version__
from regard.data.formats import Languages, Pair
from regard.data.languages import language_scripts
from regard.errors import CorpusError
from regard.tasks.answer import Answer, Flag, find_flags, texts_of
from regard.tasks.compare import FEW, METRICS, SAMPLES, SEED, Difference, Scored, by_length, compare, measure, score_all

Json = dict[str, Any]
UNSAID = Languages("", "")


@dataclass(frozen=True)
class Scores:
    """BLEU, chrF and TER of a set of translations, as sacreBLEU computes them."""

    bleu: float
    chrf: float
    ter: float
    sentences: int
    signatures: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> Json:
        """For JSON."""
        return asdict(self)


def score_translations(translations: Sequence[str], references: Sequence[str]) -> Scores:
    """Score translations against one reference each."""
    from sacrebleu import BLEU, CHRF, TER

    if len(translations) != len(references):
        raise CorpusError("references", f"{len(references)} lines for {len(translations)} translations")
    if not translations:
        raise CorpusError("references", "there is nothing to score")
    metrics = {"bleu": BLEU(), "chrf": CHRF(), "ter": TER()}
    values = {name: metric.corpus_score(translations, [references]).score for name, metric in metrics.items()}
    signatures = {name: str(metric.get_signature()) for name, metric in metrics.items()}
    return Scores(**values, sentences=len(translations), signatures=signatures)


def quick_scores(translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """BLEU and chrF alone: what a validation during training needs (TER is slow)."""
    from sacrebleu import BLEU, CHRF

    return {
        "bleu": BLEU().corpus_score(translations, [references]).score,
        "chrf": CHRF().corpus_score(translations, [references]).score,
    }


def count_flags(flags: Iterable[Iterable[Flag]]) -> dict[str, int]:
    """How many translations carry each flag, the commonest first."""
    return dict(Counter(flag for found in flags for flag in found).most_common())


# ---------------------------------------------------------------------------------------------------------------------
# All that can be said about the translations of a test set, by one system or by two


@dataclass(frozen=True)
class System:
    """Who translated the test set, and what came of it."""

    name: str
    translations: Sequence[str]
    flags: Sequence[tuple[Flag, ...]]
    made: Mapping[str, Any] = field(default_factory=dict)
    """How: architecture and search of a run; nothing is known of a file."""

    @classmethod
    def of_answers(cls, name: str, answers: Sequence[Answer], made: Mapping[str, Any]) -> System:
        """A run, by what it answered."""
        return cls(name, texts_of(answers), [answer.flags for answer in answers], made)

    @classmethod
    def of_texts(cls, name: str, texts: Sequence[str], pairs: Sequence[Pair], language: str) -> System:
        """Translations that were made elsewhere, with those flags that can be seen from outside."""
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
    languages: Languages = UNSAID,
    test: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Json:
    """Scores with intervals, by length and sentence by sentence; with a second system, how the two differ.

    `test` names the files of the test set. The terminal, the page and `--json` all show this (docs/evaluation.md).
    """
    systems = [one for one in (system, against) if one]
    measures = [measure(one.translations, [pair.target for pair in pairs]) for one in systems]
    whole = score_all(measures)
    groups = by_length([pair.source for pair in pairs])
    buckets = {
        name: (len(rows), score_all([{metric: one.part(rows) for metric, one in found.items()} for found in measures]))
        for name, rows in groups.items()
    }
    facts = [
        _facts(one, whole[place], {name: (count, found[place]) for name, (count, found) in buckets.items()})
        for place, one in enumerate(systems)
    ]
    bucket_of = {place: name for name, rows in groups.items() for place in rows.tolist()}
    each = [[round(score, 2) for score in found["chrf"].each()] for found in measures]
    apart = {name: compare(name, whole[0][name], whole[1][name]) for name in METRICS} if against else {}
    return {
        **facts[0],
        "sentences": len(pairs),
        "signatures": {name: one.signature for name, one in measures[0].items()},
        "against": facts[1] if against else None,
        "differences": _differences(systems, apart) if against else None,
        "verdict": _verdict(system.name, against.name, apart) if against else None,
        "metrics": METRICS,
        "bootstrap": {"samples": SAMPLES, "seed": SEED},
        "languages": languages._asdict(),
        "test": dict(test or {}),
        "notes": list(notes),
        "title": " against ".join(one.name for one in systems),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "lines": [
            {"source": pair.source, "reference": pair.target, "bucket": bucket_of[place]} | _line(place, systems, each)
            for place, pair in enumerate(pairs)
        ],
    }


def _facts(
    system: System, whole: Mapping[str, Scored], buckets: Mapping[str, tuple[int, Mapping[str, Scored]]]
) -> Json:
    """What is known of one system."""

    def scores(found: Mapping[str, Scored]) -> Json:
        intervals = {name: one.interval for name, one in found.items()}
        return {name: one.score for name, one in found.items()} | {"intervals": intervals}

    return {
        **scores(whole),
        "name": system.name,
        "made": dict(system.made),
        "flags": count_flags(system.flags),
        "buckets": [{"words": name, "sentences": count, **scores(found)} for name, (count, found) in buckets.items()],
    }


def _differences(systems: Sequence[System], apart: Mapping[str, Difference]) -> Json:
    """By each metric: how far apart, the interval, the p-value, and which is better if one is."""
    return {
        name: asdict(one) | {"better": None if one.better is None else systems[one.better].name}
        for name, one in apart.items()
    }


def _verdict(first: str, second: str, apart: Mapping[str, Difference]) -> str:
    """Which is better, and by what, in words."""
    if all(one.p == 1 for one in apart.values()):
        return f"{first} and {second} are the same by every measure."
    if any(one.p is None for one in apart.values()):
        return f"Fewer than {FEW} sentences cannot tell {first} and {second} apart."

    def labels(place: int | None) -> str:
        *most, last = ["", *(METRICS[name]["label"] for name, one in apart.items() if one.better == place)]
        return " and ".join(filter(None, (", ".join(filter(None, most)), last)))

    said = [
        f"{who} is better than {other} by {labels(place)}"
        for place, (who, other) in enumerate(((first, second), (second, first)))
        if labels(place)
    ]
    if not said:
        return f"Chance may have made every difference between {first} and {second}."
    if labels(None):
        said.append(f"by {labels(None)}, chance may have made the difference")
    return "; ".join(said) + "."


def _line(place: int, systems: Sequence[System], each: Sequence[Sequence[float]]) -> Json:
    """The translations of one sentence, with their chrF: on single sentences steadier than BLEU."""
    made: list[Json] = [
        {"translation": one.translations[place], "chrf": scores[place], "flags": list(one.flags[place])}
        for one, scores in zip(systems, each, strict=True)
    ]
    if len(made) == 1:
        return made[0]
    return made[0] | {"against": made[1], "difference": round(made[0]["chrf"] - made[1]["chrf"], 2)}


def most_telling(lines: Sequence[Json], count: int) -> list[tuple[int, Json]]:
    """The sentences to look at first, with their numbers from 1: where two systems differ most, or one is worst."""

    def rank(item: tuple[int, Json]) -> float:
        line = item[1]
        return -abs(line["difference"]) if "difference" in line else line["chrf"]

    return sorted(enumerate(lines, 1), key=rank)[:count]
