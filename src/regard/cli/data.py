"""`regard data`: measure, clean and split a corpus of sentence pairs."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

from regard.config import Corpus
from regard.config.recipe import describe
from regard.data.clean import RULES, CleaningReport, CleaningSettings, clean, keep_domain
from regard.data.pairs import Pair, PairWriter, read_corpus
from regard.data.split import PARTS, Split, plan_split
from regard.data.statistics import CorpusStatistics, LengthStatistics, measure
from regard.errors import SettingsError
from regard.files import atomic_files, refuse_existing, split_suffix
from regard.terminal import (
    QUIET,
    Command,
    Parser,
    bar,
    console,
    counted,
    for_people,
    printable,
    show_note,
    show_table,
    show_title,
    watch,
)  # fmt: skip


def configure(parser: Parser) -> None:
    parser.intermixed, parser.usage = False, f"{parser.prog} ACTION [options]"
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", prog=parser.prog)
    for name, action in ACTIONS.items():
        one = actions.add_parser(name, help=action.help[0].lower() + action.help[1:].rstrip("."))
        one.description = "\n".join([action.help, "", *(f"  {example}" for example in action.examples)])
        one.add_argument(
            "--source", metavar="FILE", required=True, help="source sentences, or one file with both sides"
        )
        one.add_argument("--target", metavar="FILE", default="", help="target sentences, in the same order")
        for option, side in (("--from", "source"), ("--to", "target")):
            text = f"language code of the {side}; selects it in files with several languages, and gives its script"
            one.add_argument(option, dest=f"{side}_language", metavar="CODE", default="", help=text)
        one.add_argument("--json", action="store_true", help="print JSON")
        action.configure(one)


def _configure_clean(parser: Parser) -> None:
    where = parser.add_argument_group("output (none: only count)")
    where.add_argument("--out", metavar="FILE.tsv", type=Path, help="one TSV file, also .tsv.gz or .tsv.zst")
    where.add_argument("--out-source", metavar="FILE", type=Path, help="file of source sentences")
    where.add_argument("--out-target", metavar="FILE", type=Path, help="file of target sentences")
    where.add_argument("--force", action="store_true", help="overwrite existing files")
    parser.add_argument(
        "--report", metavar="N", type=int, nargs="?", const=3, default=0,
        help="show the first N pairs that each rule removed (without N: 3)",
    )  # fmt: skip
    rules = parser.add_argument_group("rules")
    hints, texts = get_type_hints(CleaningSettings), describe(CleaningSettings)
    for name, default in dataclasses.asdict(CleaningSettings()).items():
        option, text = f"--{name.replace('_', '-')}", texts[name]
        if hints[name] is bool:
            rules.add_argument(option, action=argparse.BooleanOptionalAction, default=default, help=text)
        elif not name.endswith("_language"):  # these have the options --from and --to
            rules.add_argument(option, metavar="N", type=hints[name], default=default, help=f"{text} ({default})")

    domain = parser.add_argument_group("domain (both runs, or none)")
    domain.add_argument("--in-domain", metavar="RUN", help="keep pairs that are more probable by this language model")
    domain.add_argument("--general", metavar="RUN", help="than by this one, which was trained on texts of all kinds")
    domain.add_argument(
        "--keep", metavar="SHARE", type=float, help="keep this share of the pairs, those that fit the domain best"
    )
    domain.add_argument("--domain-side", choices=("source", "target"), default="source", metavar="SIDE",
                        help="the side that the language models read: source (default) or target")  # fmt: skip


def _configure_split(parser: Parser) -> None:
    parser.add_argument(
        "--valid", metavar="N", type=_amount, required=True,
        help="pairs to hold out for validation: a number, or a share such as 0.05",
    )  # fmt: skip
    parser.add_argument(
        "--test", metavar="N", type=_amount, default=0, help="pairs to hold out for the test: a number, or a share (0)"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="the same seed gives the same split (1)")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder for the parts, two files each")
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


def _amount(text: str) -> int | float:
    try:
        return float(text) if "." in text else int(text)  # a share, or a count
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is neither a number of pairs nor a share such as 0.05') from None


# ---------------------------------------------------------------------------------------------------------------------
# Actions


def _run_stats(options: argparse.Namespace) -> int:
    statistics = measure(watch(_read(options), "pairs", doing="measuring"))
    if options.json:
        _print_json(dataclasses.asdict(statistics))
    else:
        show_statistics(statistics, _title(options), _side_names(options))
    return 0


def _run_clean(options: argparse.Namespace) -> int:
    names = [field.name for field in dataclasses.fields(CleaningSettings)]
    settings = CleaningSettings(**{name: getattr(options, name) for name in names})
    outputs = _clean_outputs(options)
    differences = _domain_differences(options)
    kept, report = clean(watch(_read(options), "pairs", doing="cleaning"), settings, options.report)
    if differences:
        kept = keep_domain(kept, report, differences, options.keep, options.report)
    with atomic_files(outputs, force=options.force) as files:
        writer = PairWriter(files)
        for pair in kept:
            if files:
                writer.write(pair)
    if options.json:
        examples = {
            rule: [{"number": number, "source": pair.source, "target": pair.target} for number, pair in found]
            for rule, found in report.examples.items()
            if found
        }
        counts = {"read": report.read, "kept": report.kept, "removed": report.removed}
        _print_json(counts | {"examples": examples}, outputs, writer.flattened)
    else:
        show_report(report, _title(options))
        show_written(outputs, writer.flattened)
    return 0


def _domain_differences(options: argparse.Namespace) -> Callable[[list[Pair]], list[float]] | None:
    """The function that compares pairs with a domain, by the language models in the options; None without models."""
    given, keep = [options.in_domain, options.general], options.keep
    if not any(given) and keep is None:
        return None
    if not all(given):
        missing = "--general" if options.in_domain else "--in-domain"
        raise SettingsError(f"{missing} is missing: selecting a domain needs two language models; give both")
    if keep is not None and not 0 < keep <= 1:
        raise SettingsError(f"--keep must be a share above 0 and at most 1, not {keep}")
    from regard.tasks.text_scores import domain_differences, open_scorer

    domain, general = map(open_scorer, given)
    return lambda pairs: domain_differences(domain, general, [getattr(pair, options.domain_side) for pair in pairs])


def _run_split(options: argparse.Namespace) -> int:
    asked = [part for part in PARTS if part == "train" or getattr(options, part)]
    outputs = [options.out / f"{part}.{name}" for part in asked for name in _side_names(options)]
    refuse_existing(outputs, force=options.force)  # before the corpus is read, which may take minutes
    pairs = watch(_read(options), "pairs", doing="comparing")
    split = plan_split(pairs, options.valid, options.test, options.seed, options.source)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"--out {options.out}: cannot make this folder ({error.strerror}); choose another"
        ) from None
    with atomic_files(outputs, force=options.force) as files:
        writers = {part: PairWriter(files[2 * place : 2 * place + 2]) for place, part in enumerate(asked)}
        pairs = watch(_read(options), "pairs", len(split.parts), doing="writing")
        for part, pair in split.parts_of(pairs, options.source):
            writers[part].write(pair)
    flattened = sum(writer.flattened for writer in writers.values())
    if options.json:
        answer = {name: getattr(split, name) for name in ("sizes", "wanted", "components", "largest")}
        _print_json(answer, outputs, flattened)
    else:
        show_split(split, _title(options))
        show_written(outputs, flattened)
    return 0


def _read(options: argparse.Namespace) -> Iterator[Pair]:
    return read_corpus(Corpus(options.source, options.target), options.source_language, options.target_language)


def _clean_outputs(options: argparse.Namespace) -> list[Path]:
    if options.out and (options.out_source or options.out_target):
        raise SettingsError("give either --out (one file with both sides), or --out-source and --out-target")
    if bool(options.out_source) != bool(options.out_target):
        missing = "--out-target" if options.out_source else "--out-source"
        raise SettingsError(f"{missing} is missing: the source and the target are written to two files; give both")
    if options.out and split_suffix(options.out)[0] != ".tsv":
        raise SettingsError(f"--out {options.out}: one file with both sides is TSV; name it .tsv, .tsv.gz or .tsv.zst")
    if options.out_source and options.out_source == options.out_target:
        raise SettingsError(f"--out-source and --out-target are the same file, {options.out_source}; give two files")
    return [path for path in (options.out, options.out_source, options.out_target) if path]


def _side_names(options: argparse.Namespace) -> tuple[str, str]:
    source, target = options.source_language, options.target_language
    return (source, target) if source and target and source != target else ("source", "target")


def _title(options: argparse.Namespace) -> str:
    return " | ".join(Path(name).name for name in (options.source, options.target) if name)


def _print_json(answer: Mapping[str, Any], outputs: Sequence[Path] | None = None, flattened: int = 0) -> None:
    written = {} if outputs is None else {"flattened": flattened, "outputs": [str(path) for path in outputs]}
    print(json.dumps({**answer, **written}, ensure_ascii=False, indent=2))


# ---------------------------------------------------------------------------------------------------------------------
# Results. On a terminal, source and target are side by side with labels between them; elsewhere, tab-separated

SOURCE, TARGET = "cyan", "magenta"
_WIDEST = 110
_GUTTER = 22
_MARGIN = 2


def show_statistics(statistics: CorpusStatistics, title: str, names: tuple[str, str]) -> None:
    """Print counts of sentences and words, then histograms of the sentence lengths of source and target.

    The heading `title` and the `names` of source and target are printed on a terminal only.
    """
    source, target = statistics.source, statistics.target
    counts = [
        (source.distinct, "distinct sentences", target.distinct),
        (source.empty, "empty sentences", target.empty),
        (source.words.total, "words", target.words.total),
        (source.vocabulary, "distinct words", target.vocabulary),
        (source.characters.total, "characters", target.characters.total),
    ]
    if not for_people():
        show_table([], _plain_rows(statistics, counts))
        return
    show_title(title, counted(statistics.pairs, "pair"))
    _print_facing([(names[0], "", names[1])], style="bold")
    _print_facing([(f"{left:,}", label, f"{right:,}") for left, label, right in counts])
    for what in ("words", "characters"):
        print()
        _print_histogram(what, getattr(source, what), getattr(target, what))
    print()
    repeated = statistics.duplicates
    show_note(f"{counted(repeated, 'pair')} occurred before, exactly the same" if repeated else "no pair occurs twice")
    between = f"{statistics.ratio_p05:.2f} to {statistics.ratio_p95:.2f} in 9 of 10 pairs"
    show_note(f"{statistics.ratio:.2f} target characters per source character; {between}\n")


def show_report(report: CleaningReport, title: str) -> None:
    """Print how many pairs each cleaning rule removed, and the removed pairs that `report` has as examples.

    The heading `title` is printed on a terminal only.
    """
    if not for_people():
        show_table([], (("read", report.read), ("kept", report.kept), *report.removed.items()))
        show_table([], ((rule, number, *pair) for rule, found in report.examples.items() for number, pair in found))
        return
    from rich.text import Text

    removed = report.read - report.kept
    show_title(title, counted(report.read, "pair"))
    print(f"  {report.kept:,} kept, {removed:,} removed ({_percent(removed, report.read)})\n")
    width = max(len(f"{count:,}") for count in report.removed.values())
    for rule, meaning in RULES.items():
        count = report.removed[rule]
        line = Text.assemble("  ", (f"{rule:<10}", "bold"), f"{count:>{width},}  ", (meaning, QUIET))
        if not count:
            line.stylize(QUIET)
        console().print(line)
        for number, pair in report.examples[rule]:
            for start, side, style in ((f"{number:>10,}  ", pair.source, SOURCE), (" " * 12, pair.target, TARGET)):
                shown = Text.assemble((start, QUIET), (printable(side), style))
                console().print(shown, no_wrap=True, overflow="ellipsis", crop=True)
    print()


def show_split(split: Split, title: str) -> None:
    """Print the number of pairs in train, valid and test, the number of groups of pairs, and the size of the largest.

    The pairs of a group share sentences, directly or through other pairs, and are in the same part. The heading `title`
    is printed on a terminal only.
    """
    sizes, total = split.sizes, len(split.parts)
    if not for_people():
        show_table([], (*sizes.items(), ("components", split.components), ("largest", split.largest)))
        return
    from rich.text import Text

    room = min(console().width, _WIDEST) - 36
    show_title(title, counted(total, "pair"))
    parts = [(part, size, _percent(size, total), bar(size / (total or 1), room)) for part, size in sizes.items()]
    show_table([], ((*row, Text(shown, SOURCE)) for *row, shown in parts))
    print()
    for part in ("valid", "test"):
        if sizes[part] < split.wanted[part]:
            show_note(f"{part} has fewer than {split.wanted[part]:,} pairs: the remaining groups are too large")
    largest = counted(split.largest, "pair")
    show_note(
        f"{split.components:,} groups of pairs, which share no sentence with each other; the largest has {largest}\n"
    )


def show_written(outputs: Sequence[Path], flattened: int) -> None:
    """Print the names of the written files, and in how many sentences (`flattened`) tabs or line ends became spaces."""
    if outputs and not for_people():
        show_table([], [*(("wrote", path) for path in outputs), ("flattened", flattened)])
        return
    for path in outputs:
        print(f"  wrote {path}")
    if flattened:
        show_note(f"sentences in which line ends or tabs became spaces: {flattened:,}")


def _print_facing(rows: Sequence[tuple[str, str, str]], style: str = "") -> None:
    """Print rows of (source, label, target) as three columns; `style`: a style of rich for source and target."""
    from rich.text import Text

    for source, label, target in rows:
        left = " " * _MARGIN + source.rjust(_side_width())
        parts = (left, f"{style} {SOURCE}"), (label.center(_GUTTER), QUIET), (target, f"{style} {TARGET}")
        console().print(Text.assemble(*parts))


def _side_width() -> int:
    return (min(console().width, _WIDEST) - _GUTTER) // 2 - _MARGIN


def _print_histogram(what: str, source: LengthStatistics, target: LengthStatistics) -> None:
    """Print how many sentences have which length, in words or characters (`what`): a line per range of lengths.

    The bars of the source grow to the left, those of the target to the right.
    """
    names = _filled_buckets(source, target)
    counts = [source.buckets[name] for name in names] + [target.buckets[name] for name in names]
    most, digits = max(counts), max(len(f"{count:,}") for count in counts)
    room = _side_width() - digits - 1
    rows = [("", f"{what} per sentence", "")]
    for name in names:
        left, right = source.buckets[name], target.buckets[name]
        left_bar = bar(left / (most or 1), room, grows_left=True).rjust(room)
        right_bar = bar(right / (most or 1), room)
        rows.append((f"{left_bar} {left:>{digits},}", name, f"{right:<{digits},} {right_bar}"))
    rows += [
        ("", "", ""),
        (f"{source.mean:.1f}", "mean", f"{target.mean:.1f}"),
        (f"{source.p95:,}", "95 % have at most", f"{target.p95:,}"),
        (f"{source.longest:,}", "longest", f"{target.longest:,}"),
    ]
    _print_facing(rows)


def _filled_buckets(source: LengthStatistics, target: LengthStatistics) -> list[str]:
    names = list(source.buckets)
    filled = [place for place, name in enumerate(names) if source.buckets[name] or target.buckets[name]]
    return names[filled[0] : filled[-1] + 1] if filled else names


def _plain_rows(statistics: CorpusStatistics, counts: Sequence[tuple[int, str, int]]) -> Iterator[Sequence[object]]:
    yield "pairs", statistics.pairs
    yield "repeated pairs", statistics.duplicates
    yield "ratio", statistics.ratio
    yield from ((label, source, target) for source, label, target in counts)
    for what in ("words", "characters"):
        left: LengthStatistics = getattr(statistics.source, what)
        right: LengthStatistics = getattr(statistics.target, what)
        for name in ("mean", "median", "p95", "p99", "longest"):
            yield f"{what}, {name}", getattr(left, name), getattr(right, name)
        for name in _filled_buckets(left, right):
            yield f"sentences with {name} {what}", left.buckets[name], right.buckets[name]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


ACTIONS = {
    "stats": Command(
        "Count sentences, words and repetitions, and draw their lengths.",
        lambda parser: None,
        _run_stats,
        examples=(
            "regard data stats --source a.en --target a.de",
            "regard data stats --source memory.tmx --from en --to de --json",
        ),
    ),
    "clean": Command(
        "Remove pairs that would harm training, and report why.",
        _configure_clean,
        _run_clean,
        examples=(
            "regard data clean --source a.tsv.gz --from en --to es --report",
            "regard data clean --source a.tsv.gz --from en --to es --out clean.tsv.gz",
            "regard data clean --source a.tsv.gz --in-domain runs/news --general runs/web --keep 0.2 --out news.tsv",
        ),
    ),
    "split": Command(
        "Divide into train, valid and test, with no sentence in two of them.",
        _configure_split,
        _run_split,
        examples=(
            "regard data split --source a.en --target a.de --valid 1000 --out parts",
            "regard data split --source memory.tmx --from en --to de --valid 1000 --test 0.05 --out parts",
        ),
    ),
}
COMMANDS = {
    "data": Command(
        "Measure, clean and split a corpus of sentence pairs. `regard data ACTION --help` shows the options.",
        configure,
        lambda options: ACTIONS[options.action].run(options),
        examples=tuple(action.examples[0] for action in ACTIONS.values()),
    )
}
