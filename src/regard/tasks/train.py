"""Training for any task: makes a run folder from a recipe; resumes and fine-tunes runs.

The steps that depend on the task are methods of its `TRAINING` (see `tasks/training.py`).
"""

from __future__ import annotations

import datetime
import functools
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec

import torch

from regard import __version__, models, plugins, tasks
from regard.config import Recipe
from regard.config.recipe import join_tables, make_recipe, read_table, to_table, with_overrides
from regard.data.pairs import content_hash
from regard.errors import RunError, SettingsError, VocabularySizeError, VocabularyTooSmallError
from regard.files import remove_folder, write_atomically
from regard.models.base import Network, count_parameters
from regard.models.transformer import zero_init_residual
from regard.run import METRICS, PREPARING, REPORT, Run
from regard.system import peak_memory
from regard.tasks.dataset import require_unchanged
from regard.tasks.finetuning import compare_with_base, describe, describe_interval, score_base, with_interval
from regard.tasks.report import last_part, write_report
from regard.tasks.start_from import adapt, start_encoder, with_origin
from regard.tasks.start_vectors import SETTINGS as VECTORS
from regard.tasks.start_vectors import check_vectors, files_of, frozen_rows, start_embeddings, with_words
from regard.tasks.training import Examples, Training, training_of, training_of_run
from regard.training.checkpoint import TrainingProgress, has_checkpoint, last_step
from regard.training.device import check_memory, choose_device, measure_machine
from regard.training.distributed import ProcessGroup, this_group
from regard.training.metrics_log import make_logs, mean_statistics
from regard.training.plan import Estimate, PlannedSetting, leave_given, merge
from regard.training.signals import StopRequest
from regard.training.trainer import Trainer, TrainingLog

MOST_SIZES = 4
"""Number of vocabulary sizes to try after the planned one. Each side may need two: a larger, then a smaller one."""
FIXED = ("seed", "optimizer", "metric", "ema_decay", "average_checkpoints", *VECTORS.values(), "freeze_embeddings")
"""Settings of [train] that cannot change when training continues."""
LAUNCH = ".launch"
"""File in a run folder with the name of the torchrun launch that made the run."""


def train(
    source: str | Path = "",
    target: str | Path = "",
    *,
    task: str = "",
    out: str | Path = "",
    recipe: str | Path | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Any:
    """Train a model and return its predictor, e.g. a Translator.

    `source` and `target` are the files of a translation corpus; other tasks take one file, as `source`. Without
    `task`, the task of the recipe is trained; without `task` and recipe, the task is translation. `out` is the run
    folder; by default, it is named after the data. `settings` by section: {"train": {"max_minutes": 20}}.
    """
    table = {section: dict(values) for section, values in (settings or {}).items()}
    if source:
        table.setdefault("data", {})["train"] = [{"source": str(source), "target": str(target)}]
    if task:
        table.setdefault("data", {}).setdefault("task", task)
    return tasks.load(start(resolve(table, recipe), out))


@dataclass(frozen=True)
class TrainingJob:
    """What `start` needs to train: a complete recipe, the examples, and which settings the plan chose."""

    recipe: Recipe
    examples: Examples | None
    """None in all processes except the first one, which prepares the data."""
    plan: list[PlannedSetting]
    base: Run | None = None
    """The run whose vocabulary and weights are fine-tuned."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling, without the examples, which are not sent to other processes."""
        return vars(self) | {"examples": None}

    @property
    def training(self) -> Training[Any, Any]:
        return training_of(self.recipe)

    @property
    def folder(self) -> Path:
        """The default run folder; in fine-tuning, it is beside that of the base, with "-finetuned" after the name."""
        if not self.base:
            return self.training.folder(self.recipe)
        base = self.base.folder
        base = base if base.name not in ("", "..") else base.resolve()
        return base.with_name(f"{base.name}-finetuned")

    def estimate(self) -> Estimate:
        """Estimate time and memory of training on this machine. Only for the first process: it has the examples."""
        return self.training.estimate(self.recipe, self.examples, measure_machine(self.recipe.train.device))


P = ParamSpec("P")


def _in_first_process(make: Callable[P, TrainingJob]) -> Callable[P, TrainingJob]:
    """Decorator: run `make` in the first process only; the other processes get its result, without the examples."""

    @functools.wraps(make)
    def call(*arguments: P.args, **named: P.kwargs) -> TrainingJob:
        with this_group() as group:
            return group.once(lambda: make(*arguments, **named))

    return call


@_in_first_process
def resolve(table: Mapping[str, Any], recipe: str | Path | None = None, overrides: Iterable[str] = ()) -> TrainingJob:
    """Read the data and decide all settings.

    Without a recipe file, settings that are not given are chosen to fit the data and the machine (the plan).
    `table`: settings by section; `overrides`: further settings such as "train.max_steps=9000".
    """
    table = with_overrides(join_tables(read_table(recipe), table) if recipe else table, overrides)
    given = with_words(with_origin(table))
    where = str(recipe) if recipe else "settings"
    checked = make_recipe(given, where=where)
    check(checked)
    training = training_of(checked)
    examples = training.read(checked)
    if recipe:
        return TrainingJob(checked, examples, [])
    plan = training.plan(examples, measure_machine(checked.train.device), given, where)
    if checked.train.start_from:
        plan = adapt(plan)
    return TrainingJob(make_recipe(merge(plan, given), where=where), examples, plan)


def check(recipe: Recipe) -> None:
    """Raise an error if the architecture, the metric or another setting does not fit the task."""
    task, model = tasks.find(recipe.data.task), recipe.model
    if model.kind != task.model_kind:
        fitting = ", ".join(models.presets(task.model_kind))
        raise SettingsError(f'model.arch = "{model.arch}" is not for data.task = "{task.name}"; choose from {fitting}')
    if recipe.train.metric not in task.metrics:
        known = ", ".join(task.metrics)
        raise SettingsError(
            f'train.metric = "{recipe.train.metric}" is not a metric of data.task = "{task.name}"; choose from {known}'
        )
    for name in task.unsupported:
        section, key = name.split(".")
        if getattr(getattr(recipe, section), key):
            raise SettingsError(f'{name} is not supported for data.task = "{task.name}"; leave it out')
    check_vectors(recipe)
    training_of(recipe).check(recipe)


@_in_first_process
def resolve_finetune(base: str | Path, table: Mapping[str, Any], overrides: Iterable[str] = ()) -> TrainingJob:
    """Read the data and decide the settings for fine-tuning the run in the folder `base`.

    Architecture, tokenizer and search settings stay. `Training.finetuning` chooses the learning rates and what else
    changes. Validation, the end of training and the precision are planned for the new data and machine.
    `table`: settings by section; `overrides`: further settings such as "train.max_steps=9000".
    """
    run = Run.open(base)
    task, training = tasks.find(run.recipe.data.task), training_of_run(run)
    given = with_overrides(table, overrides)
    for section in ("model", "tokenizer"):
        if section in given:
            raise SettingsError(f"[{section}] comes from {base} and cannot change in fine-tuning; leave it out")
    chosen = leave_given(training.finetuning(run, given), given)
    tables = join_tables(join_tables(training.inherited(run, given), merge(chosen, {})), given)
    if tables["data"]["task"] != task.name:
        raise SettingsError(f"data.task comes from {base} and cannot change in fine-tuning; leave it out")
    checked = make_recipe(tables)
    check(checked)
    if files_of(checked):
        raise SettingsError("train.embeddings: in fine-tuning, all weights come from the base; leave it out")
    examples = training.read(checked)
    again = training.plan(examples, measure_machine(checked.train.device), tables, str(base))
    return TrainingJob(make_recipe(merge(again, tables)), examples, [*chosen, *again], run)


def start(job: TrainingJob, out: str | Path = "") -> Run:
    """Make the run folder `out`, prepare the data and train. If the preparation fails, the folder is removed.

    If torchrun restarts the processes after a failure, training continues in the same folder.
    """
    with this_group() as group:
        ready = _for_all(group, lambda: _make(job, Path(out or job.folder)))
        _fit(group, ready)
        return ready.run


class PreparedRun(NamedTuple):
    """A run that is ready for training: its folder, its data, and the initial model."""

    run: Run
    data: Any
    """The result of `Training.open_data`."""
    model: Network


def _for_all(group: ProcessGroup, make: Callable[[], PreparedRun]) -> PreparedRun:
    """Call `make` in the first process, to prepare a run; then open the run in the other processes."""
    if group.is_first:
        ready = make()
        group.once(lambda: ready.run.folder)
        return ready
    return _open(Run.open(group.once(Path)))


def _open(run: Run) -> PreparedRun:
    return PreparedRun(run, training_of_run(run).open_data(run, log), _first_model(run))


def _make(job: TrainingJob, folder: Path) -> PreparedRun:
    """Make a new run in `folder`, or reopen the run that is there if this torchrun launch made it before a restart."""
    if _made_by_this_launch(job, folder):
        run = Run(folder)
        if run.card and not (folder / PREPARING).is_file():
            log(f"restarted: continuing in {folder}")
            return _reopen(run, ())
        with run.locked():
            shutil.rmtree(folder)  # the launch was interrupted while it prepared the data
    run = Run.create(folder)
    try:
        with run.preparing():
            if launch := _launch():
                write_atomically(folder / LAUNCH, launch.encode())
            job = _prepare(run, job)
            data = job.training.open_data(run, log)
            if job.base:
                score_base(run, job.base, log)
                run.write_weights(dict(job.base.load_network().named_parameters()))
            started = {} if job.base else _start(run)
            run.write_card(first_card(job, data) | started)
            model = _first_model(run)
            unit = job.training.train_unit(job.recipe, data, model)
            check_memory(model, unit.loss, unit.largest(), job.recipe.train)
    except BaseException:
        run.discard()
        raise
    return PreparedRun(run, data, model)


def _start(run: Run) -> dict[str, Any]:
    """If training starts from an encoder or from word vectors, write the weights. Return the facts for the card."""
    if not (run.recipe.train.start_from or files_of(run.recipe)):
        return {}
    network, facts = _random_model(run), dict[str, Any]()
    if run.recipe.train.start_from:
        start_encoder(network, run.recipe)
    else:
        facts["embeddings"] = start_embeddings(run, network, log)
    run.write_weights(dict(network.named_parameters()))
    return facts


def _prepare(run: Run, job: TrainingJob) -> TrainingJob:
    """Write recipe, vocabularies and encoded data into the run, and return the job.

    If the planned vocabulary size does not fit the data, the returned job has another one.
    """
    name = "tokenizer.vocab_size"
    for attempt in range(MOST_SIZES + 1):
        try:
            run.write_recipe(job.recipe)
            job.training.prepare(run, job.recipe, job.examples, log, job.base)
            break
        except VocabularySizeError as error:
            if attempt == MOST_SIZES or not any(choice.name == name for choice in job.plan):
                raise
            size = PlannedSetting(name, error.possible, "the largest that the data supports")
            if isinstance(error, VocabularyTooSmallError):
                planned = job.recipe.tokenizer.vocab_size
                reason = f"all characters of the text and {planned:,} subwords"
                size = PlannedSetting(name, error.possible + planned, reason)
            recipe = replace(job.recipe, tokenizer=replace(job.recipe.tokenizer, vocab_size=size.value))
            plan = [size if choice.name == name else choice for choice in job.plan]
            job = replace(job, recipe=recipe, plan=plan)
    return job


def _made_by_this_launch(job: TrainingJob, folder: Path) -> bool:
    """Whether this torchrun launch made the run in `folder` for the same job, before it restarted the processes.

    The settings of the run must be equal to those of the job, except settings that the plan chose.
    """
    launch, mark = _launch(), folder / LAUNCH
    if not launch or not mark.is_file() or mark.read_text(encoding="utf-8") != launch:
        return False
    run = Run(folder)
    if not run.card:
        return True
    planned = {choice.name for choice in job.plan}
    wanted, found = to_table(job.recipe), to_table(run.recipe)
    return wanted.keys() == found.keys() and all(
        wanted[section].get(key) == found[section].get(key)
        for section in wanted
        for key in wanted[section].keys() | found[section].keys()
        if f"{section}.{key}" not in planned
    )


def _launch() -> str:
    """An identifier of the torchrun launch: its --rdzv-id, otherwise host and process id of torchrun; "" without it."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return f"none {platform.node()} {os.getppid()}" if name == "none" else name


def resume(folder: str | Path, overrides: Iterable[str] = ()) -> Run:
    """Continue the training of a run from its last checkpoint.

    `overrides` may change settings of [train] and [search], e.g. "train.max_steps=9000".
    """
    changed = list(overrides)
    with this_group() as group:
        run = Run.open(folder)
        for override in changed:
            if not override.strip().startswith(("train.", "search.")):
                raise SettingsError(
                    f"--set {override}: an existing run can only change settings of [train] and [search]"
                )
        if lacking := group.once(lambda: _no_checkpoint(run)):
            raise RunError(f'{run.folder}: {lacking}; "regard finetune" continues from its weights')
        if not changed and group.once(lambda: run.is_finished):
            settings, reason = run.recipe.train, run.card["training"]["stopped"]
            later = f"train.max_steps={2 * settings.max_steps}"
            if "minutes" in reason:
                later = f"train.max_minutes={2 * settings.max_minutes:g}"
            elif "FLOPs" in reason:
                later = f"train.max_flops={2 * settings.max_flops:g}"
            elif "no better" in reason:
                later = f"train.patience={2 * settings.patience}"
            log(f"{run.folder}: finished already ({reason}); --set {later} continues it")
            return run
        _fit(group, _for_all(group, lambda: _reopen(run, changed)))
        return run


def _no_checkpoint(run: Run) -> str:
    """The reason, for the error message, why the training of a run cannot continue; "" if it can.

    It can continue from a checkpoint, or from the start if it stopped before the first checkpoint.
    """
    if has_checkpoint(run.folder / "checkpoints"):
        return ""
    if "imported" in run.card:
        return "was imported without a checkpoint"
    return "is finished, and its checkpoints were removed" if run.is_finished else ""


def _reopen(run: Run, changed: Iterable[str]) -> PreparedRun:
    """Open a run to continue its training. `changed`: settings to change, such as "train.max_steps=9000"."""
    with run.locked():
        before, recipe = run.recipe, make_recipe(with_overrides(to_table(run.recipe), changed))
        # The order of the data, the state of the optimizer, the best score and averages depend on these settings.
        for name in FIXED:
            if getattr(recipe.train, name) != getattr(before.train, name):
                raise SettingsError(
                    f'train.{name} cannot change in an existing run; use "regard finetune" to start a new run from it'
                )
        if recipe != before:
            check(recipe)
        made, end = last_step(run.folder / "checkpoints"), recipe.train.max_steps
        if end != before.train.max_steps and end <= made:
            raise SettingsError(f"train.max_steps={end}: {run.folder} has made {made:,} steps; give a larger number")
        if not run.card:
            raise RunError(f"{run.folder}: was stopped while its data was prepared; remove the folder and train again")
        if not (run.folder / "store").is_dir():
            # The data is read again. If it changed, held-out examples could become training examples.
            require_unchanged(run, ', which cannot continue; use "regard finetune" to train on the new file')
        if recipe != before:
            run.write_recipe(recipe)
        return _open(run)


def log_result(run: Run) -> None:
    """Log the scores of a finished run, its folder, and the command line to use it, e.g. "regard translate FOLDER"."""
    for part, scores in run.card.get("scores", {}).items():
        line = training_of_run(run).result_line(scores)
        log(f"{part}: {line}{describe_interval(run.recipe.data.task, scores)}")
    for line in describe(run):
        log(line)
    command = tasks.find(run.recipe.data.task).command
    log(f'the run is in {run.folder}; open {run.folder / REPORT}, or use "regard {command} {run.folder}"')


def log(message: str) -> None:
    """Print a line on standard error, in the first process only."""
    if os.environ.get("RANK", "0") == "0":
        print(message, file=sys.stderr, flush=True)


def _first_model(run: Run) -> Network:
    """The initial model of a run: the weights that `_make` stored if they are from another run, else random weights.

    If there is a checkpoint, the trainer loads its weights later.
    """
    device = choose_device(run.recipe.train, this_group().local_rank)
    stored = run.card.get("base") or run.card.get("started_from") or run.card.get("embeddings")
    if stored and not has_checkpoint(run.folder / "checkpoints"):
        return run.load_network().requires_grad_(True).to(device)
    return _random_model(run).to(device)


def _random_model(run: Run) -> Network:
    torch.manual_seed(run.recipe.train.seed)
    network = run.build_network()
    if run.recipe.train.zero_init_residual:
        zero_init_residual(network)
    return network


def _fit(group: ProcessGroup, ready: PreparedRun) -> None:
    run, data, model = ready
    settings, training = run.recipe.train, training_of_run(run)
    unit = training.train_unit(run.recipe, data, model, group)
    logs: list[TrainingLog] = []
    if group.is_first:
        task = tasks.find(run.recipe.data.task)
        logs = make_logs(run.folder / METRICS, settings, task.scores, training.unit or task.unit, group.size)
    group.advise(
        f'"regard resume {run.folder}" continues from the last checkpoint; torchrun --max-restarts 1 does so by itself'
    )
    # The group is entered once more inside `stop`: if one process fails, torchrun stops the others, and `stop` must
    # not end them too early.
    with run.locked() if group.is_first else nullcontext(), StopRequest() as stop, group:
        trainer = Trainer(model, unit, settings, run.folder / "checkpoints", logs, group, frozen_rows(run))
        trainer.progress.first_loss = training.expected_initial_loss(run.recipe, data)
        progress = trainer.fit(run.write_weights, stop)
        if not progress.stopped:
            log(f'stopped at step {progress.step:,}; "regard resume {run.folder}" continues from there')
            group.leave()
            raise stop.interruption() if group.is_first else SystemExit(143 if stop.terminated else 130)
        log(f"finished: {progress.stopped}; best at step {progress.best_step:,}")
        group.once(lambda: finish(run, data, progress))


def finish(run: Run, data: Any, progress: TrainingProgress) -> None:
    """Complete a run after training: tune and score the model, write card.json and report.html, remove store/."""
    training = training_of_run(run)
    run.write_held_out(training.held_out(data))
    tuned = training.tune(run, data, log)
    predictor = training.predictor(run, data, log)
    parts = {"valid": data.valid, "test": data.test}
    scored = {part: training.score(predictor, examples) for part, examples in parts.items() if examples}
    with torch.device("meta"):
        parameters = count_parameters(models.build(run.recipe.model, **run.sizes))
    scores = {part: with_interval(found.scores, found.metric) for part, found in scored.items()}
    results = {"parameters": parameters, "scores": scores}
    if comparison := compare_with_base(run):
        results["comparison"] = comparison
    if layers := mean_statistics(run.metrics()):
        results["layers"] = layers
    results |= {"memory": peak_memory()} | ({} if tuned is None else {"tuned": tuned})
    run.write_card(run.card | results | {"training": asdict(progress)})
    write_report(run, predictor, data, scored[last_part(scored)].answers)
    training.complete(run, data)
    if hasattr(data.train, "close"):
        data.train.close()  # Windows does not remove files that are open
    remove_folder(run.folder / "store")


def first_card(job: TrainingJob, data: Any) -> dict[str, Any]:
    """The content of card.json when training starts: date, task, data files with checksums, plan, versions."""
    recipe = job.recipe
    return {
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "arch": recipe.model.arch,
        "task": recipe.data.task,
        **job.training.card(recipe, data, job.base),
        "data": [
            {"part": part, "source": corpus.source, "target": corpus.target, "sha256": content_hash(corpus)}
            for part in ("train", "valid", "test")
            for corpus in getattr(recipe.data, part)
        ],
        "base": job.base.folder.name if job.base else "",
        "started_from": Path(recipe.train.start_from).name if recipe.train.start_from else "",
        "plugins": plugins.used_by(recipe),
        "plan": [asdict(choice) for choice in job.plan],
        "versions": {"regard": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }
