"""How `regard data` looks on a terminal: the two sides face each other, as on the pages of a bilingual book.

Away from a terminal the same numbers come as plain lines with tabs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from regard.data.clean import RULES, Report
from regard.data.split import PARTS, Split
from regard.data.statistics import Lengths, Statistics

SOURCE, TARGET, QUIET = "cyan", "magenta", "dim"
_WIDEST = 110
_GUTTER = 22
_MARGIN = 2
# Whatever would move the cursor or turn the direction of writing when printed.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

Row = tuple[str, str, str]
"""Source, label, target."""


def show_statistics(statistics: Statistics, title: str, names: tuple[str, str]) -> None:
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


def show_report(report: Report, title: str) -> None:
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


def _print_histogram(console: Console, what: str, source: Lengths, target: Lengths) -> None:
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


def _filled_buckets(source: Lengths, target: Lengths) -> list[str]:
    names = list(source.buckets)
    filled = [place for place, name in enumerate(names) if source.buckets[name] or target.buckets[name]]
    return names[filled[0] : filled[-1] + 1] if filled else names


def _spread(source: Lengths, target: Lengths) -> list[Row]:
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


def _print_plain(statistics: Statistics, counts: Sequence[tuple[int, str, int]]) -> None:
    print(f"pairs\t{statistics.pairs}\nrepeated pairs\t{statistics.duplicates}\nratio\t{statistics.ratio}")
    for source, label, target in counts:
        print(f"{label}\t{source}\t{target}")
    for what in ("words", "characters"):
        left: Lengths = getattr(statistics.source, what)
        right: Lengths = getattr(statistics.target, what)
        for name in ("mean", "median", "p95", "p99", "longest"):
            print(f"{what}, {name}\t{getattr(left, name)}\t{getattr(right, name)}")
        for name in _filled_buckets(left, right):
            print(f"sentences with {name} {what}\t{left.buckets[name]}\t{right.buckets[name]}")


def _repetition(statistics: Statistics) -> str:
    repeated = statistics.duplicates
    return "no pair comes twice" if not repeated else f"{_pairs(repeated)} came before, exactly the same"


def _ratio(statistics: Statistics) -> str:
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
