"""`regard data`: look at, clean and split a corpus."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar, get_type_hints

from regard.config import Corpus
from regard.data.clean import Cleaning, Report, clean
from regard.data.corpus import Pair, read_corpus
from regard.data.files import split_suffix
from regard.data.output import PairWriter, atomic_files, refuse_existing
from regard.data.split import PARTS, plan_split
from regard.data.statistics import measure
from regard.errors import SettingsError
from regard.recipe import describe

Item = TypeVar("Item")

_EXAMPLES = {
    "stats": "regard data stats --source a.en --target a.de",
    "clean": "regard data clean --source a.tsv.gz --from en --to es --out clean.tsv.gz --report",
    "split": "regard data split --source memory.tmx --from en --to de --valid 1000 --test 0.05 --out parts",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    examples = "\n".join(f"  {example}" for example in _EXAMPLES.values())
    parser.description = f"Look at, clean and split a corpus of sentence pairs.\n\n{examples}"
    actions = parser.add_subparsers(dest="action", required=True, metavar="stats|clean|split")
    _add_action(actions, "stats", "count sentences, words and repetitions, and draw their lengths")
    _configure_clean(_add_action(actions, "clean", "remove pairs that would harm training, and say why each went"))
    _configure_split(_add_action(actions, "split", "cut into train, valid and test, with no sentence in two of them"))


def run(options: argparse.Namespace) -> int:
    """Do what `configure`'s arguments ask for."""
    return {"stats": _run_stats, "clean": _run_clean, "split": _run_split}[options.action](options)


# ---------------------------------------------------------------------------------------------------------------------
# Arguments


def _add_action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, purpose: str
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=purpose)
    parser.description = f"{purpose[0].upper()}{purpose[1:]}.\n\n  {_EXAMPLES[name]}"
    corpus = describe(Corpus)
    language = "language code of the {}: finds it in files that name their languages, and its script"
    parser.add_argument("--source", metavar="FILE", required=True, help=corpus["source"])
    parser.add_argument("--target", metavar="FILE", default="", help=corpus["target"])
    for option, side in (("--from", "source"), ("--to", "target")):
        parser.add_argument(option, dest=f"{side}_language", metavar="CODE", default="", help=language.format(side))
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    return parser


def _configure_clean(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("where to (nowhere: a trial run that only counts)")
    where.add_argument("--out", metavar="FILE.tsv", type=Path, help="one TSV file, packed if it ends in .gz or .zst")
    where.add_argument("--out-source", metavar="FILE", type=Path, help="file of source sentences")
    where.add_argument("--out-target", metavar="FILE", type=Path, help="file of target sentences")
    where.add_argument("--force", action="store_true", help="write over files that exist")
    parser.add_argument(
        "--report",
        metavar="N",
        type=int,
        nargs="?",
        const=3,
        default=0,
        help="show the first N (3) pairs that each rule removed",
    )
    rules = parser.add_argument_group("rules")
    hints, texts = get_type_hints(Cleaning), describe(Cleaning)
    for field in dataclasses.fields(Cleaning):
        if field.name.endswith("_language"):
            continue
        option, text = f"--{field.name.replace('_', '-')}", texts[field.name]
        if hints[field.name] is bool:
            rules.add_argument(option, action=argparse.BooleanOptionalAction, default=field.default, help=text)
        else:
            text = f"{text} ({field.default})"
            rules.add_argument(option, metavar="N", type=hints[field.name], default=field.default, help=text)


def _configure_split(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--valid",
        metavar="N",
        type=_amount,
        required=True,
        help="pairs to hold out for validation: a number, or a share such as 0.05",
    )
    parser.add_argument(
        "--test", metavar="N", type=_amount, default=0, help="pairs to hold out for the test, likewise (0)"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="the same seed gives the same split (1)")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder for the parts, two files each")
    parser.add_argument("--force", action="store_true", help="write over files that exist")


def _amount(text: str) -> int | float:
    """A count is written as a whole number, a share with a point."""
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is neither a number of pairs nor a share such as 0.05') from None


# ---------------------------------------------------------------------------------------------------------------------
# Actions


def _run_stats(options: argparse.Namespace) -> int:
    statistics = measure(_watch(_read(options), "measuring"))
    if options.json:
        _print_json(dataclasses.asdict(statistics))
        return 0
    from regard.cli.data_view import show_statistics

    show_statistics(statistics, _title(options), _side_names(options))
    return 0


def _run_clean(options: argparse.Namespace) -> int:
    settings = Cleaning(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Cleaning)})
    outputs = _clean_outputs(options)
    kept, report = clean(_watch(_read(options), "cleaning"), settings, options.report)
    with atomic_files(outputs, force=options.force) as files:
        writer = PairWriter(files)
        for pair in kept:
            if files:
                writer.write(pair)
    if options.json:
        _print_json(
            {**_report_table(report), "flattened": writer.flattened, "outputs": [str(path) for path in outputs]}
        )
        return 0
    from regard.cli.data_view import show_report, show_written

    show_report(report, _title(options))
    show_written(outputs, writer.flattened)
    return 0


def _run_split(options: argparse.Namespace) -> int:
    asked = [part for part in PARTS if part == "train" or getattr(options, part)]
    outputs = [options.out / f"{part}.{name}" for part in asked for name in _side_names(options)]
    refuse_existing(outputs, force=options.force)  # now, not after minutes of reading
    pairs = _watch(_read(options), "comparing")
    split = plan_split(pairs, options.valid, options.test, options.seed, options.source)
    _make_folder(options.out)
    with atomic_files(outputs, force=options.force) as files:
        writers = {part: PairWriter(files[2 * place : 2 * place + 2]) for place, part in enumerate(asked)}
        for part, pair in split.deal(_watch(_read(options), "writing", len(split.parts)), options.source):
            writers[part].write(pair)
    flattened = sum(writer.flattened for writer in writers.values())
    if options.json:
        answer = {
            "sizes": split.sizes,
            "wanted": split.wanted,
            "components": split.components,
            "largest": split.largest,
        }
        _print_json({**answer, "flattened": flattened, "outputs": [str(path) for path in outputs]})
        return 0
    from regard.cli.data_view import show_split, show_written

    show_split(split, _title(options))
    show_written(outputs, flattened)
    return 0


def _read(options: argparse.Namespace) -> Iterator[Pair]:
    corpus = Corpus(options.source, options.target)
    return read_corpus(corpus, options.source_language, options.target_language)


def _clean_outputs(options: argparse.Namespace) -> list[Path]:
    """No file, one TSV file, or two files of text."""
    if options.out and (options.out_source or options.out_target):
        raise SettingsError("--out is one file with both sides; give it, or --out-source and --out-target")
    if bool(options.out_source) != bool(options.out_target):
        missing = "--out-target" if options.out_source else "--out-source"
        raise SettingsError(f"{missing} is missing; the two sides are written side by side")
    if options.out and split_suffix(options.out)[0] != ".tsv":
        raise SettingsError(f"--out {options.out}: one file with both sides is TSV; name it .tsv, .tsv.gz or .tsv.zst")
    if options.out_source and options.out_source == options.out_target:
        raise SettingsError(f"--out-source and --out-target are the same file, {options.out_source}")
    return [path for path in (options.out, options.out_source, options.out_target) if path]


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"--out {folder}: cannot make this folder ({error.strerror})") from None


def _side_names(options: argparse.Namespace) -> tuple[str, str]:
    source, target = options.source_language, options.target_language
    return (source, target) if source and target and source != target else ("source", "target")


def _title(options: argparse.Namespace) -> str:
    return " | ".join(Path(name).name for name in (options.source, options.target) if name)


# ---------------------------------------------------------------------------------------------------------------------
# Answers


def _report_table(report: Report) -> dict[str, object]:
    examples = {
        rule: [{"number": number, "source": pair.source, "target": pair.target} for number, pair in found]
        for rule, found in report.examples.items()
        if found
    }
    return {"read": report.read, "kept": report.kept, "removed": report.removed, "examples": examples}


def _print_json(answer: object) -> None:
    print(json.dumps(answer, ensure_ascii=False, indent=2))


def _watch(items: Iterable[Item], doing: str, total: int | None = None) -> Iterator[Item]:
    """Pass items on; once a second has gone by, show how many on the terminal (and only there)."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    count_column = TextColumn("{task.completed:,} pairs" + (" of {task.total:,}" if total else ""))
    columns = (TextColumn("{task.description}"), BarColumn(), count_column, TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task(doing, total=total)
    due = time.monotonic() + 1
    try:
        for count, item in enumerate(items):
            if count % 1000 == 0 and time.monotonic() > due:
                progress.start()
                progress.update(task, completed=count)
            yield item
    finally:
        if progress.live.is_started:
            progress.stop()
