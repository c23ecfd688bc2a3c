"""`regard train`, `regard finetune` and `regard resume`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.config import DataSettings
from regard.errors import SettingsError
from regard.languages import language_scripts
from regard.registry import TASKS
from regard.run import Run
from regard.tasks import find, settings_class
from regard.terminal import Command, Options, Parser, add_set, add_setting, given_settings

if TYPE_CHECKING:
    from regard.tasks.train import TrainingJob

SIDES = ("source", "target")


def configure(parser: Parser) -> None:
    """Add the options of `regard train`. With --task TASK, --help shows only those of the task, and its settings."""
    parser.add_argument("recipe", nargs="?", metavar="FILE", help="a recipe (TOML), or the training data of a task")
    words = [part for word in parser.arguments for part in word.split("=", 1)]
    task = next((after for word, after in pairwise(words) if word == "--task"), None)
    parser.add_argument("--task", dest="data.task", choices=TASKS, metavar="NAME", help=f"one of {', '.join(TASKS)}")
    add_data(parser, pairs=task in (None, DataSettings.task), pictures=task is None or find(task).reads_pictures)
    run = add_run(parser)
    run.add_argument("--arch", metavar="NAME", dest="model.arch", help="architecture, e.g. transformer-small, bahdanau")
    parser.epilog = "regard settings lists every setting; regard train --task NAME --help shows the options of a task."
    add_setting(run, "--tokenizer-from", "tokenizer.copy_from", "RUN")
    add_setting(run, "--start-from", "train.start_from", "RUN")
    if task and "--help" in parser.arguments:
        from regard.cli.settings import task_help

        parser.epilog = task_help(task)


def add_data(parser: Parser, *, pairs: bool = True, pictures: bool = True) -> None:
    """Add the options for the data.

    If not `pairs`, --help does not show those for sentence pairs, e.g. --target; if not `pictures`, not --images.
    """

    def text(shown: str) -> str:
        return shown if pairs else argparse.SUPPRESS

    data = parser.add_argument_group("data")
    data.add_argument(
        "--source", action="append", metavar="FILE", default=[],
        help=text("source sentences, or both sides: .tsv .jsonl .tmx .po .parquet (.gz .zst); repeatable"),
    )  # fmt: skip
    data.add_argument(
        "--target", action="append", metavar="FILE", default=[], help=text("target sentences, same order; repeatable")
    )
    for part in ("valid", "test"):
        data.add_argument(f"--{part}-source", metavar="FILE", help=text(f"source side of the {part} data"))
        data.add_argument(f"--{part}-target", metavar="FILE", help=text(f"target side of the {part} data"))
        data.add_argument(f"--{part}", metavar="FILE", help=f"the {part} data in one file")
    about = "folder or ZIP file with the pictures that the data names"
    data.add_argument(
        "--images", dest="pictures.images", metavar="DIR|ZIP", help=about if pictures else argparse.SUPPRESS
    )
    for flag, side in (("--from", "source"), ("--to", "target")):
        data.add_argument(
            flag, dest=f"data.{side}_language", metavar="CODE", help=text(f"language code of the {side}, e.g. en")
        )


def add_run(parser: Parser) -> Options:
    run = parser.add_argument_group("run")
    run.add_argument(
        "--out", metavar="DIR", help="the run folder to make (default: runs/ and the languages, file or model)"
    )
    add_setting(run, "--seed", "train.seed", "N")
    add_setting(run, "--minutes", "train.max_minutes", "N")
    add_set(run)
    run.add_argument("--dry-run", action="store_true", help="print the plan and exit")
    return run


def run(options: argparse.Namespace) -> int:
    task = getattr(options, "data.task") or DataSettings.task
    if options.recipe and task != DataSettings.task and Path(options.recipe).suffix != ".toml":
        options.source.append(options.recipe)
        options.recipe = None
    need = "" if options.recipe else 'give --source and --target, or a recipe (see "regard train --help")'
    table = given_table(options, need)

    from regard.tasks.train import resolve

    return train_job(resolve(table, options.recipe, options.set), options)


def given_table(options: argparse.Namespace, need: str) -> dict[str, Any]:
    """The settings given as options, as nested tables such as {"train": {"seed": 2}}.

    If no training data is given, an error with the advice `need` is raised, unless `need` is empty.
    """
    table = given_settings(options)
    data = table.setdefault("data", {})
    if corpora := pair_up(options.source, options.target):
        data["train"] = corpora
    for part in ("valid", "test"):
        sources, targets = ([file] if (file := getattr(options, f"{part}_{side}")) else [] for side in SIDES)
        whole = getattr(options, part)
        if whole and (sources or targets):
            raise SettingsError(f"--{part} is one file with both sides; leave out --{part}-source and --{part}-target")
        if found := [{"source": whole}] if whole else pair_up(sources, targets, f"--{part}-"):
            data[part] = found
    guess_languages(data)
    if need and "train" not in data:
        raise SettingsError(f"nothing to train on: {need}")
    if options.out and "TORCHELASTIC_RUN_ID" not in os.environ:  # torchrun may restart a process whose folder exists
        Run.refuse_existing(options.out)
    return table


def train_job(job: TrainingJob, options: argparse.Namespace) -> int:
    """Print the plan of `job` and, unless --dry-run is given, train. Returns the exit code."""
    from regard.tasks.finetuning import misfits
    from regard.tasks.train import log, start
    from regard.training.device import choose_device
    from regard.training.plan import table

    if job.recipe.train.device == "cuda":
        choose_device(job.recipe.train, 0)  # a missing GPU is reported before anything is written
    if job.examples is not None:
        log(job.examples.describe())
        for line in table(job.plan):
            log(line)
        log(job.estimate().describe(job.recipe.train.max_minutes))
    for note in job.training.notes(job.recipe):
        log(note)
    if job.base and job.examples is not None:
        for misfit in misfits(job.base, job.recipe, job.examples):
            log(f"warning: {misfit}")
    return 0 if options.dry_run else report(start(job, options.out or ""), force=getattr(options, "force", True))


def report(run: Run, *, force: bool) -> int:
    """Print the result of a training. Returns the exit code: 1 if fine-tuning made the run worse, unless `force`."""
    from regard.tasks.train import log_result

    log_result(run)
    return int(not force and bool(run.card.get("comparison", {}).get("is_worse")))


def pair_up(sources: Sequence[str], targets: Sequence[str], prefix: str = "--") -> list[dict[str, Any]]:
    """A table {"source": file, "target": file} per source file; if there are no target files, without "target".

    `prefix` is "--", "--valid-" or "--test-": the start of the options' names in the error message.
    """
    if targets and len(sources) != len(targets):
        files = f"{len(sources)} {prefix}source and {len(targets)} {prefix}target"
        raise SettingsError(f"{files} are given; each source file needs one target file")
    if not targets:
        return [{"source": source} for source in sources]
    return [{"source": source, "target": target} for source, target in zip(sources, targets, strict=True)]


def guess_languages(data: dict[str, Any]) -> None:
    """Add the missing languages to the settings `data`, from names of training files such as train.en and train.de."""
    first: dict[str, str] = next(iter(data.get("train", [])), {})
    for side in SIDES:
        name = Path(first.get(side, "")).name.removesuffix(".gz").removesuffix(".zst")
        code = Path(name).suffix[1:]
        if first.get("target") and language_scripts(code):  # "src", "tgt", "tok" are file endings, not languages
            data.setdefault(f"{side}_language", code)


def configure_finetune(parser: Parser) -> None:
    parser.add_argument("base", metavar="RUN", help="the run to start from")
    add_data(parser)
    run = add_run(parser)
    add_force(run)
    run.add_argument(
        "--objective", choices=("likelihood", "reward"),
        help="what to maximize; reward: the quality of the run's own outputs, by default on its own training data",
    )  # fmt: skip
    run.add_argument(
        "--reward", metavar="NAME", help="the reward: gleu, chrf, bleu, or your own function as module:function"
    )


def add_force(options: Options) -> None:
    options.add_argument(
        "--force", action="store_true",
        help="accept a run that fine-tuning made worse on the held-out examples of its base (otherwise exit code 1)",
    )  # fmt: skip


def run_finetune(options: argparse.Namespace) -> int:
    table = given_table(options, need="")
    if objective := {key: value for key in ("objective", "reward") if (value := getattr(options, key))}:
        task = Run.open(options.base).recipe.data.task
        if not _has_objective(task):
            able = " and ".join(filter(_has_objective, TASKS))
            raise SettingsError(f"{options.base}: --objective and --reward are for the tasks {able}, not {task}")
        table[task] = {"objective": "reward"} | objective

    from regard.tasks.train import resolve_finetune

    return train_job(resolve_finetune(options.base, table, options.set), options)


def _has_objective(task: str) -> bool:
    """Whether runs of the task can be trained with a reward."""
    return hasattr(settings_class(find(task)), "objective")


def configure_resume(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    add_set(parser, "train.max_steps=20000", "change a setting of the training")
    add_force(parser)


def run_resume(options: argparse.Namespace) -> int:
    from regard.tasks.train import resume

    return report(resume(options.run, options.set), force=options.force)


COMMANDS = {
    "train": Command(
        "Train a model. Settings that are not given are chosen from the data and the machine, or taken from a recipe.",
        configure,
        run,
        examples=(
            "regard train --source train.en --target train.de --out runs/en-de",
            "regard train --source memory.tmx --from en --to de --minutes 20",
            "regard train --task classify photos --out runs/photos     # a folder with a subfolder per label",
            "regard train --task tag train.txt --test test.txt --out runs/chunks",
            "regard train --task classify reviews.tsv --start-from runs/texts-masked",
            "regard train recipe.toml --set train.seed=2",
        ),
    ),
    "finetune": Command(
        "Train a finished run further on other data, or on its own data to maximize a reward, into a new run folder.\n"
        "Architecture and vocabulary are kept; the learning-rate schedule starts again.",
        configure_finetune,
        run_finetune,
        examples=(
            "regard finetune runs/en-de --source ours.en --target ours.de --out runs/en-de-ours",
            "regard finetune runs/en-de --source ours.tmx --minutes 10 --set train.learning_rate=0.0001",
            "regard finetune runs/en-de --objective reward --reward chrf --out runs/en-de-reward",
        ),
    ),
    "resume": Command(
        "Continue a run from its last checkpoint. The result is the same as that of an uninterrupted training.",
        configure_resume,
        run_resume,
        examples=("regard resume runs/en-de", "regard resume runs/en-de --set train.max_steps=20000"),
    ),
}
