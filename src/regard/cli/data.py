"""`regard data`: look at, clean and split a corpus."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar, get_type_hints

from rich.console import Console
from rich.text import Text

from regard.config import Corpus
from regard.config.recipe import describe
from regard.data.clean import RULES, CleaningReport, CleaningSettings, clean
from regard.data.pairs import Pair, PairWriter, read_corpus
from regard.data.split import PARTS, Split, plan_split
from regard.data.statistics import CorpusStatistics, LengthStatistics, measure
from regard.errors import SettingsError
from regard.files import atomic_files, refuse_existing, split_suffix

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
    hints, texts = get_type_hints(CleaningSettings), describe(CleaningSettings)
    for field in dataclasses.fields(CleaningSettings):
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

    show_statistics(statistics, _title(options), _side_names(options))
    return 0


def _run_clean(options: argparse.Namespace) -> int:
    settings = CleaningSettings(
        **{field.name: getattr(options, field.name) for field in dataclasses.fields(CleaningSettings)}
    )
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


def _report_table(report: CleaningReport) -> dict[str, object]:
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


# How `regard data` looks on a terminal: the two sides face each other, as on the pages of a bilingual book.
#
# Away from a terminal the same numbers come as plain lines with tabs.


SOURCE, TARGET, QUIET = "cyan", "magenta", "dim"
_WIDEST = 110
_GUTTER = 22
_MARGIN = 2
# Whatever would move the cursor or turn the direction of writing when printed.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

Row = tuple[str, str, str]
"""Source, label, target."""


def show_statistics(statistics: CorpusStatistics, title: str, names: tuple[str, str]) -> None:
    """Counts first, then the lengths of both sides back to back."""
    console = Console(highlight=False)
    source, target = statistics.source, statistics.target
    counts = [
        (source.distinct, "distinct sentences", target.distinct),
        (source.empty, "empty sentences", target.empty),
        (source.words.total, "words", target.words.total),
        (source.vocabulary, "distinct words", target.vocabulary),
        (source.characters.total, "characters", target.characters.total),
    ]
    if not console.is_terminal:
        _print_plain(statistics, counts)
        return
    console.print(Text.assemble("\n  ", (title, "bold"), f"  {_pairs(statistics.pairs)}\n"))
    _print_facing(console, [(names[0], "", names[1])], style="bold")
    _print_facing(console, [(_number(left), label, _number(right)) for left, label, right in counts])
    for what, left, right in (
        ("words", source.words, target.words),
        ("characters", source.characters, target.characters),
    ):
        console.print()
        _print_histogram(console, what, left, right)
    console.print(Text(f"\n  {_repetition(statistics)}\n  {_ratio(statistics)}\n"))


def show_report(report: CleaningReport, title: str) -> None:
    """What each rule removed, with examples where the report holds some."""
    console = Console(highlight=False)
    if not console.is_terminal:
        for name, count in (("read", report.read), ("kept", report.kept), *report.removed.items()):
            print(f"{name}\t{count}")
        for name, found in report.examples.items():
            for number, pair in found:
                print(f"{name}\t{number}\t{_printable(pair.source)}\t{_printable(pair.target)}")
        return
    removed = report.read - report.kept
    console.print(Text.assemble("\n  ", (title, "bold"), f"  {_pairs(report.read)}"))
    console.print(f"  {_number(report.kept)} kept, {_number(removed)} removed ({_percent(removed, report.read)})\n")
    width = max(len(_number(count)) for count in report.removed.values())
    for rule in RULES:
        count = report.removed[rule.name]
        line = Text.assemble("  ", (f"{rule.name:<10}", "bold"), f"{_number(count):>{width}}  ", (rule.meaning, QUIET))
        if not count:
            line.stylize(QUIET)
        console.print(line)
        for number, pair in report.examples[rule.name]:
            _print_line(console, Text.assemble((f"{number:>10,}  ", QUIET), (_printable(pair.source), SOURCE)))
            _print_line(console, Text.assemble(" " * 12, (_printable(pair.target), TARGET)))
    console.print()


def show_split(split: Split, title: str) -> None:
    """The sizes of the parts, and what hangs together."""
    console = Console(highlight=False)
    sizes, total = split.sizes, len(split.parts)
    if not console.is_terminal:
        for part in PARTS:
            print(f"{part}\t{sizes[part]}")
        print(f"components\t{split.components}\nlargest\t{split.largest}")
        return
    console.print(Text.assemble("\n  ", (title, "bold"), f"  {_pairs(total)}\n"))
    width = len(_number(total))
    bar = min(console.width, _WIDEST) - 24 - width
    for part in PARTS:
        length = _bar(console, sizes[part], total, bar)
        shares = f"{_number(sizes[part]):>{width}}  {_percent(sizes[part], total):>6}  "
        console.print(Text.assemble("  ", (f"{part:<8}", "bold"), shares, (length, SOURCE)))
    for part in ("valid", "test"):
        if sizes[part] < split.wanted[part]:
            asked = f"{part} was to have {_number(split.wanted[part])}"
            console.print(f"\n  {asked}; the groups that are left are too large for it")
    together = f"{_number(split.components)} groups share no sentence; the largest has {_pairs(split.largest)}"
    console.print(Text(f"\n  {together}\n"))


def show_written(outputs: Sequence[Path], flattened: int) -> None:
    """Where the pairs went, and what had to be changed to get them there."""
    if not outputs:
        return
    if not Console().is_terminal:
        for path in outputs:
            print(f"wrote\t{path}")
        print(f"flattened\t{flattened}")
        return
    for path in outputs:
        print(f"  wrote {path}")
    if flattened:
        print(f"  sentences in which line ends or tabs became spaces: {_number(flattened)}")
    print()


# ---------------------------------------------------------------------------------------------------------------------
# Facing pages


def _print_facing(console: Console, rows: Sequence[Row], style: str = "") -> None:
    side = _side_width(console)
    for source, label, target in rows:
        line = Text.assemble(
            " " * _MARGIN,
            (source.rjust(side), f"{style} {SOURCE}"),
            (label.center(_GUTTER), QUIET),
            (target, f"{style} {TARGET}"),
        )
        console.print(line)


def _print_histogram(console: Console, what: str, source: LengthStatistics, target: LengthStatistics) -> None:
    """Bars that grow outwards from the gutter; a bucket is a line, and empty ones at the ends are left out."""
    names = _filled_buckets(source, target)
    counts = [source.buckets[name] for name in names] + [target.buckets[name] for name in names]
    most, digits = max(counts), max(len(_number(count)) for count in counts)
    room = _side_width(console) - digits - 1
    rows: list[Row] = []
    for name in names:
        left, right = source.buckets[name], target.buckets[name]
        left_bar = _bar(console, left, most, room, grows_left=True).rjust(room)
        right_bar = _bar(console, right, most, room)
        rows.append((f"{left_bar} {_number(left):>{digits}}", name, f"{_number(right):<{digits}} {right_bar}"))
    _print_facing(console, [("", f"{what} a sentence", "")])
    _print_facing(console, rows)
    _print_facing(console, [("", "", ""), *_spread(source, target)])


def _filled_buckets(source: LengthStatistics, target: LengthStatistics) -> list[str]:
    names = list(source.buckets)
    filled = [place for place, name in enumerate(names) if source.buckets[name] or target.buckets[name]]
    return names[filled[0] : filled[-1] + 1] if filled else names


def _spread(source: LengthStatistics, target: LengthStatistics) -> list[Row]:
    return [
        (f"{source.mean:.1f}", "mean", f"{target.mean:.1f}"),
        (_number(source.p95), "95 % have at most", _number(target.p95)),
        (_number(source.longest), "longest", _number(target.longest)),
    ]


def _side_width(console: Console) -> int:
    return (min(console.width, _WIDEST) - _GUTTER) // 2 - _MARGIN


def _bar(console: Console, count: int, most: int, width: int, *, grows_left: bool = False) -> str:
    """A bar in half characters. What is there at all is seen, however little."""
    halves = round(2 * width * count / most) if most else 0
    if not console.encoding.lower().startswith("utf"):
        return "#" * ((halves + 1) // 2)
    halves = max(halves, 1 if count else 0)
    full, half = "█" * (halves // 2), halves % 2
    return ("▐" * half) + full if grows_left else full + ("▌" * half)


# ---------------------------------------------------------------------------------------------------------------------
# Words and numbers


def _print_plain(statistics: CorpusStatistics, counts: Sequence[tuple[int, str, int]]) -> None:
    print(f"pairs\t{statistics.pairs}\nrepeated pairs\t{statistics.duplicates}\nratio\t{statistics.ratio}")
    for source, label, target in counts:
        print(f"{label}\t{source}\t{target}")
    for what in ("words", "characters"):
        left: LengthStatistics = getattr(statistics.source, what)
        right: LengthStatistics = getattr(statistics.target, what)
        for name in ("mean", "median", "p95", "p99", "longest"):
            print(f"{what}, {name}\t{getattr(left, name)}\t{getattr(right, name)}")
        for name in _filled_buckets(left, right):
            print(f"sentences with {name} {what}\t{left.buckets[name]}\t{right.buckets[name]}")


def _repetition(statistics: CorpusStatistics) -> str:
    repeated = statistics.duplicates
    return "no pair comes twice" if not repeated else f"{_pairs(repeated)} came before, exactly the same"


def _ratio(statistics: CorpusStatistics) -> str:
    between = f"{statistics.ratio_p05:.2f} to {statistics.ratio_p95:.2f} in 9 pairs of 10"
    return f"{statistics.ratio:.2f} target characters a source character; {between}"


def _print_line(console: Console, line: Text) -> None:
    console.print(line, no_wrap=True, overflow="ellipsis", crop=True)


def _printable(text: str) -> str:
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _number(value: int) -> str:
    return f"{value:,}"


def _pairs(count: int) -> str:
    return "1 pair" if count == 1 else f"{_number(count)} pairs"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"
