"""Training a translator: from a recipe to a finished run folder, or on from where it stopped."""

from __future__ import annotations

import dataclasses
import datetime
import platform
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard import __version__
from regard.config import Recipe
from regard.data.corpus import content_hash
from regard.errors import RunError, SettingsError, VocabularyTooLargeError
from regard.models.base import Seq2Seq, count_parameters
from regard.recipe import make_recipe, read_table, to_table, with_overrides
from regard.run import METRICS, Run
from regard.tasks.evaluate import score_translations
from regard.tasks.prepare import Prepared, TrainingPairs, open_prepared, prepare
from regard.tasks.report import Sample, write_report
from regard.tasks.translate import Translator, load, texts_of
from regard.tasks.translation import TranslationTask
from regard.training.loop import Trainer
from regard.training.plan import Choice, Corpus, make_plan, merge
from regard.training.signals import StopRequest
from regard.training.state import Progress
from regard.training.watch import make_watchers


def train(
    source: str | Path = "",
    target: str | Path = "",
    *,
    out: str | Path = "",
    recipe: str | Path | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Translator:
    """Train a translator and give it back. `settings` are nested tables such as {"train": {"minutes": 20}}."""
    table = {section: dict(values) for section, values in (settings or {}).items()}
    if source:
        table.setdefault("data", {})["train"] = [{"source": str(source), "target": str(target)}]
    run = start(resolve(table, recipe), out)
    return load(run.folder)


@dataclass(frozen=True)
class Job:
    """A recipe that is ready to run: every setting decided, the data looked at."""

    recipe: Recipe
    pairs: TrainingPairs
    plan: list[Choice]
    base: Run | None = None
    """The run whose vocabulary and weights this one starts from."""

    def with_vocabulary(self, error: VocabularyTooLargeError) -> Job:
        """The same with the largest vocabulary that the data supports, if it was the plan that asked for more."""
        if not any(choice.name == "tokenizer.size" for choice in self.plan):
            raise error
        size = Choice("tokenizer.size", error.largest, "the largest that the data supports")
        plan = [size if choice.name == size.name else choice for choice in self.plan]
        tokenizer = dataclasses.replace(self.recipe.tokenizer, size=size.value)
        return dataclasses.replace(self, recipe=dataclasses.replace(self.recipe, tokenizer=tokenizer), plan=plan)


def resolve(table: Mapping[str, Any], recipe: str | Path | None = None, overrides: Iterable[str] = ()) -> Job:
    """Decide every setting. A recipe file stands as it is; without one, the plan fills in what was not said."""
    given = with_overrides(_join(read_table(recipe), table) if recipe else table, overrides)
    where = str(recipe) if recipe else "settings"
    checked = make_recipe(given, where=where)
    pairs = TrainingPairs(checked.data, checked.train.seed)
    if recipe:
        return Job(checked, pairs, [])
    merged, plan = merge(make_plan(Corpus(len(pairs), pairs.mean_characters)), given)
    return Job(make_recipe(merged, where=where), pairs, plan)


def resolve_finetune(base: str | Path, table: Mapping[str, Any], overrides: Iterable[str] = ()) -> Job:
    """Decide the settings of a run that goes on from another one's weights with other data: its architecture, tokenizer
    and search stay; the schedule starts anew, with a third of the learning rate and a short warm-up.
    """
    run = Run.open(base)
    given = with_overrides(table, overrides)
    for section in ("model", "tokenizer"):
        if section in given:
            raise SettingsError(f"{section}. settings come from {base} and cannot change when it is fine-tuned")
    data, train = run.recipe.data, run.recipe.train
    below = to_table(run.recipe)
    below["data"] = {"source_language": data.source_language, "target_language": data.target_language}
    below["train"] |= {"learning_rate": train.learning_rate / 3, "warmup": 100}
    recipe = make_recipe(_join(below, given))
    reasons = {"learning_rate": f"a third of what trained {base}", "warmup": "the weights are good already"}
    plan = [Choice(f"train.{key}", getattr(recipe.train, key), why) for key, why in reasons.items()]
    kept = [choice for choice in plan if choice.name.split(".")[1] not in given.get("train", {})]
    return Job(recipe, TrainingPairs(recipe.data, recipe.train.seed), kept, run)


def start(job: Job, out: str | Path = "") -> Run:
    """Make the run folder, prepare the data and train. Bad input leaves no folder behind."""
    run = Run.create(out or default_folder(job.recipe))
    try:
        with run.locked():
            vocabularies = job.base.tokenizers if job.base else None
            try:
                prepared = prepare(run, job.recipe, job.pairs, tell, vocabularies)
            except VocabularyTooLargeError as error:
                job = job.with_vocabulary(error)
                prepared = prepare(run, job.recipe, job.pairs, tell)
            run.write_recipe(job.recipe)
            if job.base:
                run.write_weights(dict(job.base.load_model().named_parameters()))
            run.write_card(first_card(job, prepared))
            model = _first_model(run)
    except BaseException:
        run.discard()
        raise
    _fit(run, prepared, model)
    return run


def resume(folder: str | Path, overrides: Iterable[str] = ()) -> Run:
    """Continue a run. `overrides` may change how training goes on, e.g. its end, but not what the model is."""
    run = Run.open(folder)
    changed = list(overrides)
    for override in changed:
        if not override.strip().startswith(("train.", "search.")):
            raise SettingsError(f"--set {override}: only train. and search. settings can change in a run that exists")
    if run.card.get("scores") and not changed:
        reason = run.card["training"]["stopped"]
        tell(f"{run.folder}: finished already ({reason}); a later end goes on, e.g. --set train.max_steps=20000")
        return run
    with run.locked():
        if changed:
            run.write_recipe(make_recipe(with_overrides(to_table(run.recipe), changed)))
        if not run.card:
            raise RunError(f"{run.folder}: was stopped while its data was prepared; remove it and train anew")
        prepared = open_prepared(run, tell)
        model = _first_model(run)
    _fit(run, prepared, model)
    return run


def default_folder(recipe: Recipe) -> Path:
    """Where a run goes when nobody says: runs/en-de, or runs/ and the architecture."""
    languages = [recipe.data.source_language, recipe.data.target_language]
    return Path("runs") / ("-".join(languages) if all(languages) else recipe.model.arch)


def tell_result(run: Run) -> None:
    """Where a finished run lies and how good it is."""
    for part, scores in run.card.get("scores", {}).items():
        tell(f"{part}: BLEU {scores['bleu']:.1f}  chrF {scores['chrf']:.1f}  on {scores['sentences']:,} sentences")
    tell(f'the run is in {run.folder}; look at {run.folder / "report.html"}, or "regard translate {run.folder}"')


def tell(message: str) -> None:
    """A line about what is going on."""
    print(message, file=sys.stderr, flush=True)


def _first_model(run: Run) -> Seq2Seq:
    """The model before the first update. A state, if there is one, replaces its weights."""
    if run.card.get("base") and not (run.folder / "states").is_dir():
        return run.load_model().requires_grad_(True)
    torch.manual_seed(run.recipe.train.seed)
    return run.build_model()


def _fit(run: Run, prepared: Prepared, model: Seq2Seq) -> None:
    recipe = run.recipe
    task = TranslationTask(recipe, prepared, model)
    watchers = make_watchers(run.folder / METRICS, recipe.train)
    with run.locked(), StopRequest() as stop:
        progress = Trainer(model, task, recipe.train, run.folder / "states", watchers).fit(run.write_weights, stop)
        if not progress.stopped:
            tell(f'stopped at update {progress.step:,}; "regard resume {run.folder}" goes on from there')
            raise KeyboardInterrupt
        tell(f"done: {progress.stopped}, best at update {progress.best_step:,}")
        finish(run, prepared, progress)


def finish(run: Run, prepared: Prepared, progress: Progress) -> None:
    """Score the kept weights, fill in the card, write the report, and put the training data away."""
    translator = load(run.folder)
    scores: dict[str, Any] = {}
    samples: list[Sample] = []
    for part, pairs in (("valid", prepared.valid), ("test", prepared.test)):
        if pairs:
            answers = translator.translate([pair.source for pair in pairs])
            scores[part] = score_translations(texts_of(answers), [pair.target for pair in pairs]).as_dict()
            samples = [
                Sample(pair.source, answer.text, pair.target, answer.score)
                for pair, answer in zip(pairs, answers, strict=True)
            ]
    parameters = count_parameters(translator.model)
    run.write_card(run.card | {"parameters": parameters, "scores": scores, "training": dataclasses.asdict(progress)})
    write_report(run, translator, samples, prepared.train.lengths)
    shutil.rmtree(run.folder / "store", ignore_errors=True)


def first_card(job: Job, prepared: Prepared) -> dict[str, Any]:
    """What is known before the first update."""
    recipe = job.recipe
    return {
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "languages": {"source": recipe.data.source_language, "target": recipe.data.target_language},
        "arch": recipe.model.arch,
        "vocabulary": {"source": prepared.source.size, "target": prepared.target.size},
        "pairs": {"train": len(prepared.train), "valid": len(prepared.valid), "test": len(prepared.test)},
        "data": [
            {"part": part, "source": corpus.source, "target": corpus.target, "sha256": content_hash(corpus)}
            for part in ("train", "valid", "test")
            for corpus in getattr(recipe.data, part)
        ],
        "base": job.base.folder.name if job.base else "",
        "plan": [dataclasses.asdict(choice) for choice in job.plan],
        "versions": {"regard": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }


def _join(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two levels of tables, `above` winning."""
    merged = {key: dict(value) if isinstance(value, Mapping) else value for key, value in below.items()}
    for section, values in above.items():
        merged[section] = {**merged.get(section, {}), **values}
    return merged
