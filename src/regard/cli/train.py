"""`regard train`: from sentence pairs to a run folder."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.config import DataSettings
from regard.config.recipe import find_task
from regard.errors import SettingsError
from regard.languages import is_language
from regard.registry import TASKS
from regard.run import Run
from regard.terminal import add_set, add_setting, all_sections, given_settings, settings_help

if TYPE_CHECKING:
    from regard.tasks.train import TrainingJob


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Train a translator, or for another task. What is not said is chosen from the data and the machine, or\n"
        "taken from a recipe.\n\n"
        "  regard train --source train.en --target train.de --out runs/en-de\n"
        "  regard train --source memory.tmx --from en --to de --minutes 20\n"
        "  regard train --task classify reviews.tsv --out runs/reviews\n"
        "  regard train --task retrieve faq.tsv --out runs/faq\n"
        "  regard train --task tag train.txt --test test.txt --out runs/chunks\n"
        "  regard train recipe.toml --set train.seed=2"
    )
    parser.add_argument("recipe", nargs="?", metavar="FILE", help="a recipe (TOML); with another --task also the data")
    helps = "; ".join(f"{name}: {find_task(name).help}" for name in TASKS)
    parser.add_argument("--task", dest="data.task", choices=TASKS, help=helps)
    add_data(parser)
    run = add_run(parser)
    run.add_argument("--arch", metavar="NAME", dest="model.arch", help="architecture, e.g. transformer-small, bahdanau")
    parser.epilog = settings_help(*all_sections().values())


def add_data(parser: argparse.ArgumentParser) -> None:
    """The options that name corpora."""
    data = parser.add_argument_group("data")
    data.add_argument(
        "--source", action="append", metavar="FILE", default=[],
        help="source sentences, or one file with both sides (.tsv .jsonl .tmx .po .parquet, also .gz .zst); repeatable",
    )  # fmt: skip
    data.add_argument("--target", action="append", metavar="FILE", default=[], help="target sentences, line by line")
    for part in ("valid", "test"):
        data.add_argument(f"--{part}-source", metavar="FILE", help=f"source side of the {part} data")
        data.add_argument(f"--{part}-target", metavar="FILE", help=f"target side of the {part} data")
        data.add_argument(f"--{part}", metavar="FILE", help=f"the {part} data, where it is one file")
    add_setting(data, "--from", "data.source_language", "CODE")
    add_setting(data, "--to", "data.target_language", "CODE")


def add_run(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """The options of a run."""
    run = parser.add_argument_group("run")
    run.add_argument(
        "--out", metavar="DIR", help="the run folder to make (default: runs/ and the languages, the file or the model)"
    )
    add_setting(run, "--seed", "train.seed", "N")
    add_setting(run, "--minutes", "train.max_minutes", "N")
    add_set(run)
    run.add_argument("--dry-run", action="store_true", help="print the plan and leave")
    return run


def run(options: argparse.Namespace) -> int:
    """Train."""
    is_data = (
        getattr(options, "data.task") not in (None, DataSettings.task) and Path(options.recipe or "").suffix != ".toml"
    )
    if options.recipe and is_data:
        options.source.append(options.recipe)
        options.recipe = None
    table = given_table(options)
    if not options.recipe and "train" not in table["data"]:
        raise SettingsError('nothing to train on: give --source and --target, or a recipe (see "regard train --help")')

    if options.out and not started_by_torchrun():
        Run.refuse_existing(options.out)

    from regard.tasks.train import resolve

    return follow(resolve(table, options.recipe, options.set), options)


def started_by_torchrun() -> bool:
    """Then it may have started us again, in a folder that we had made."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def given_table(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that the options say, as nested tables."""
    table = given_settings(options)
    data = table.setdefault("data", {})
    corpora = pair_up(options.source, options.target)
    if corpora:
        data["train"] = corpora
    for part in ("valid", "test"):
        source, target = getattr(options, f"{part}_source"), getattr(options, f"{part}_target")
        if source or target:
            data[part] = pair_up([source] if source else [], [target] if target else [], f"--{part}-")
        if whole := getattr(options, part):
            if source or target:
                raise SettingsError(f"--{part} is one file with all in it; leave out --{part}-source and -target")
            data[part] = [{"source": whole}]
    guess_languages(data)
    return table


def follow(job: TrainingJob, options: argparse.Namespace) -> int:
    """Tell the plan and, unless that was all that was asked for, carry it out."""
    from regard.tasks.train import log, start, tell_result
    from regard.training.device import choose_device
    from regard.training.plan import table

    if job.recipe.train.device == "cuda":
        choose_device(job.recipe.train, 0)  # where there is none, it is told before anything is made
    if job.examples is not None:
        log(job.examples.describe())
        for line in table(job.plan):
            log(line)
        log(job.estimate().describe(job.recipe.train.max_minutes))
    for note in job.training.notes(job.recipe):
        log(note)
    if not options.dry_run:
        tell_result(start(job, options.out or ""))
    return 0


def pair_up(sources: Sequence[str], targets: Sequence[str], prefix: str = "--") -> list[dict[str, Any]]:
    """Corpora from the files named with --source and --target."""
    if targets and len(sources) != len(targets):
        raise SettingsError(f"{len(sources)} {prefix}source for {len(targets)} {prefix}target: they must come in pairs")
    if not targets:
        return [{"source": source} for source in sources]
    return [{"source": source, "target": target} for source, target in zip(sources, targets, strict=True)]


def guess_languages(data: dict[str, Any]) -> None:
    """Take the languages from file names such as train.en and train.de, where they were not given."""
    first: dict[str, str] = next(iter(data.get("train", [])), {})
    for side in ("source", "target"):
        name = Path(first.get(side, "")).name.removesuffix(".gz").removesuffix(".zst")
        code = Path(name).suffix[1:]
        if first.get("target") and is_language(code):  # "src", "tgt", "tok" and the like are none
            data.setdefault(f"{side}_language", code)


# `regard finetune`: a trained run, other data.


def configure_finetune(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Go on from a trained run with another corpus, into a new run folder. Architecture and vocabulary stay; the\n"
        "schedule starts anew.\n\n"
        "  regard finetune runs/en-de --source ours.en --target ours.de --out runs/en-de-ours"
    )
    parser.add_argument("base", metavar="RUN", help="the run to start from")
    add_data(parser)
    add_run(parser)


def run_finetune(options: argparse.Namespace) -> int:
    """Fine-tune."""
    table = given_table(options)
    if "train" not in table["data"]:
        raise SettingsError('nothing to train on: give --source and --target (see "regard finetune --help")')

    if options.out and not started_by_torchrun():
        Run.refuse_existing(options.out)

    from regard.tasks.train import resolve_finetune

    return follow(resolve_finetune(options.base, table, options.set), options)


# `regard resume`: go on exactly where a run stopped.


def configure_resume(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Continue a run from its last state, with the very same arithmetic, whatever stopped it.\n\n"
        "  regard resume runs/en-de\n"
        "  regard resume runs/en-de --set train.max_steps=20000"
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=C",
        help="change a setting of the training itself, e.g. a later end; may be repeated",
    )  # fmt: skip


def run_resume(options: argparse.Namespace) -> int:
    """Go on."""
    from regard.tasks.train import resume, tell_result

    tell_result(resume(options.run, options.set))
    return 0
