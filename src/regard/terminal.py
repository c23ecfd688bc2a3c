"""Shared by all commands: argument parsing, options from settings, tables, shaded text, status line, progress bar.

Tables are aligned and styled on a terminal; elsewhere the same rows are printed as tab-separated lines.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeVar, get_args, get_origin, get_type_hints

from regard.config import SearchSettings
from regard.config.recipe import all_sections, describe, make_recipe, to_table, with_overrides
from regard.errors import SettingsError, nearest

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from regard.text.words import ShadedSentence

Item = TypeVar("Item")

QUIET = "dim"  # style of labels and notes


# Commands


@dataclass(frozen=True)
class Command:
    """A command, e.g. `regard train`. The dictionary COMMANDS of a module contains commands by name."""

    help: str
    """What the command does: the first lines of its --help."""
    configure: Callable[[Parser], None]
    """Adds the options of the command to a parser."""
    run: Callable[[argparse.Namespace], int]
    """Runs the command and returns the exit code."""
    examples: tuple[str, ...] = ()
    """Command lines shown in --help."""

    def parser(self, prog: str, arguments: Sequence[str] = ()) -> Parser:
        parser = Parser(prog, arguments)
        parser.description = "\n\n".join(filter(None, [self.help, "\n".join(f"  {line}" for line in self.examples)]))
        self.configure(parser)
        return parser


class Options(Protocol):
    """What an option can be added to: an argument parser, or an argument group of a parser."""

    description: str | None

    def add_argument(self, *names: str, **how: Any) -> argparse.Action: ...


class Parser(argparse.ArgumentParser):
    """An argument parser that raises a `SettingsError` instead of exiting; it suggests the right name of an option."""

    intermixed = True
    """Whether options may be placed between positional arguments; not possible if an argument names an action."""

    def __init__(self, prog: str, arguments: Sequence[str] = (), **_: object):
        """`prog`: the command, e.g. "regard train". `arguments`: the words after it, on which --help may depend."""
        self.arguments, self._needed = list(arguments), [prog]
        width = min(os.get_terminal_size().columns, 110) if sys.stdout.isatty() else 100
        formatter = partial(argparse.RawDescriptionHelpFormatter, max_help_position=28, width=width)
        super().__init__(prog=prog, allow_abbrev=False, formatter_class=formatter)

    def add_argument(self, *names: str, **how: Any) -> argparse.Action:
        """As in argparse. The usage line of --help shows all positional arguments, and the required options."""
        action = super().add_argument(*names, **how)
        if not action.option_strings:
            name = f"{action.metavar or action.dest}{'...' if action.nargs in ('*', '+') else ''}"
            self._needed.append(f"[{name}]" if action.nargs in ("?", "*") else name)
        elif action.required:
            self._needed.append(f"{names[0]} {action.metavar or action.dest.upper()}")
        self.usage = " ".join([*self._needed, "[options]"]).replace("%", "%%")
        return action

    def error(self, message: str) -> NoReturn:
        """Raise a `SettingsError` with this message, where argparse would print the usage and exit."""
        for word in message.partition("unrecognized arguments: ")[2].split():
            if word.startswith("-"):
                known = re.findall(r"(?m)^  (?:-\w, )?--([\w-]+)", self.format_help())
                guess = nearest(word.strip("-").partition("=")[0], known).replace('"', '"--', 1)
                message = f"unknown option {word}{guess}"
                break
        raise SettingsError(f'{message} (see "{self.prog} --help")')

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        if self.intermixed and not {"-h", "--help"} & set(arguments):
            return self.parse_intermixed_args(arguments)
        return self.parse_args(arguments)


# Options for settings: type and help text come from the settings class.


def add_setting(parser: Options, flag: str, path: str, metavar: str = "") -> None:
    """Add the option `flag` for the setting `path`, e.g. "train.seed". If the setting is boolean, it takes no value."""
    section, key = path.split(".")
    settings = all_sections()[section]
    kind, text = get_type_hints(settings)[key], brief(describe(settings)[key]).replace("%", "%%")
    if kind is bool:
        parser.add_argument(flag, action="store_true", default=None, dest=path, help=text)
    elif get_origin(kind) is Literal:
        parser.add_argument(flag, choices=get_args(kind), metavar=metavar, dest=path, help=text)
    else:
        parser.add_argument(flag, type=kind, metavar=metavar, dest=path, help=text)


def add_set(parser: Options, example: str = "train.warmup_steps=800", text: str = "any setting") -> None:
    """Add the option --set, which can change every setting. `text` and `example` are shown in its help."""
    help = f"{text}, e.g. {example}; repeatable"
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help=help)


def given_settings(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The settings that were given as options, as nested tables: {"train": {"seed": 2}}."""
    table: dict[str, dict[str, Any]] = {}
    for path, value in vars(options).items():
        section, dot, key = path.partition(".")
        if dot and value is not None:
            table.setdefault(section, {})[key] = value
    return table


def brief(text: str) -> str:
    """Shorten a help text for a list: the first sentence up to its first semicolon, without references to papers."""
    text = re.sub(r" \([^()]*\bet al\.[^()]*\)", "", text)
    first = re.split(r"(?<!e\.g)\.\s|; ", text, maxsplit=1)[0].rstrip(".")
    is_word = re.match(r"(A|[A-Z][a-z]+)[ ,]", first)
    return first[:1].lower() + first[1:] if is_word else first


# Search options, for all commands that generate text


def add_scoring(parser: Parser) -> Options:
    """Add the search options that also apply to scoring: penalties, --ensemble, --batch-tokens and --set."""
    search = parser.add_argument_group("search")
    text = "average with the predictions of this run; repeatable"
    search.add_argument("--ensemble", action="append", default=[], metavar="RUN", help=text)
    add_setting(search, "--length-penalty", "search.length_penalty", "X")
    add_setting(search, "--coverage-penalty", "search.coverage_penalty", "X")
    add_setting(search, "--batch-tokens", "search.batch_tokens", "N")
    add_set(search, "search.beam_groups=5")
    parser.epilog = "regard settings search lists all search settings."
    return search


def add_search(parser: Parser) -> Options:
    """Add the options of `add_scoring`, and options for the most frequently used search settings."""
    search = add_scoring(parser)
    add_setting(search, "--beam", "search.beam_size", "N")
    others = {"min_length": "N", "no_repeat_ngram_size": "N", "sample": "", "temperature": "X", "top_k": "N"}
    for name, metavar in (others | {"top_p": "X", "seed": "N", "replace_unknown": ""}).items():
        add_setting(search, f"--{name.replace('_', '-')}", f"search.{name}", metavar)
    return search


def search_settings(options: argparse.Namespace, *own: SearchSettings) -> dict[str, Any]:
    """The search settings given as options, by name. Raises an error if they are not valid.

    `own` are the search settings stored in the runs (none: the defaults). The given settings must be valid in
    combination with each of them.
    """
    table = with_overrides(given_settings(options), options.set)
    for section in table:
        if section != "search":
            raise SettingsError(f"--set {section}: a trained run takes only search settings, e.g. search.beam_size=8")
    given = table.get("search", {})
    for base in own or (SearchSettings(),):
        checked = make_recipe({"search": to_table(base) | given}, where="options").search
    return {name: getattr(checked, name) for name in given}


def text_or_file(given: str) -> str:
    """If `given` is the name of a file, the text of the file, with lines joined by spaces. Otherwise `given` itself."""
    if len(given) > 255 or not Path(given).is_file():
        suffixes = (".txt", ".md", ".html", ".tsv", ".jsonl", ".csv", ".conll", ".conllu")
        if Path(given).suffix in suffixes and not any(map(str.isspace, given)):  # the name of a file, not a text
            raise SettingsError(f"{given}: no such file; give a text or the name of a file")
        return given
    try:
        lines = Path(given).read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise SettingsError(
            f"{given}: cannot read the file ({error.strerror}); check it, or give the text itself"
        ) from None
    except UnicodeDecodeError:
        raise SettingsError(f"{given}: not UTF-8; convert the file, e.g. iconv -f latin1 -t utf-8") from None
    return " ".join(line.strip() for line in lines if line.strip())


# Tables


Row = Sequence[Any]
"""Cells of a table: text, integers (printed with thousands separators on a terminal), or `Text` of rich."""
_NUMBER = re.compile(r"[-+]?[\d.,]+( ?%)?( to [-+]?[\d.,]+)?|-|")


def console() -> Console:
    """A console of the library rich that prints to standard output, without automatic highlighting."""
    from rich.console import Console

    return Console(highlight=False)


def for_people() -> bool:
    """Whether standard output is a terminal, or FORCE_COLOR is set."""
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def show_table(headings: Sequence[str], rows: Iterable[Row], *, note: str = "") -> None:
    """Print a table: on a terminal aligned and with `note` below, otherwise tab-separated. `headings` may be empty."""
    rows = [list(row) for row in rows]
    if not for_people():
        for row in ([list(headings)] if headings else []) + rows:
            print("\t".join(printable(str(cell)) for cell in row))
        return
    from rich.padding import Padding
    from rich.table import Table

    made = Table(box=None, padding=(0, 3, 0, 0), header_style=QUIET, show_header=bool(headings), pad_edge=False)
    width = max((len(row) for row in [headings, *rows]), default=0)
    for place in range(width):
        cells = [str(row[place]) for row in rows if place < len(row)]
        made.add_column(
            _text(headings[place] if headings else ""),
            justify="right" if any(cells) and all(map(_NUMBER.fullmatch, cells)) else "left",
            style="" if headings or place else QUIET,
            overflow="fold",
        )
    for row in rows:
        made.add_row(*map(_text, row))
    console().print(Padding(made, (0, 0, 0, 2)))
    if note:
        show_note(note)


def show_title(title: str, note: str = "") -> None:
    """Print a heading with a note beside it, on a terminal only."""
    if for_people():
        from rich.text import Text

        console().print(Text.assemble("\n  ", (title, "bold"), (f"  {note}" if note else "", QUIET), "\n"))


def show_note(text: str) -> None:
    """Print a remark below a table, on a terminal only."""
    if for_people():
        from rich.text import Text

        console().print(Text(textwrap.indent(text, "  "), QUIET), soft_wrap=True)


def show_confusion(names: Sequence[str], counts: Sequence[Sequence[int]]) -> None:
    """Print a confusion matrix (row: correct label, column: predicted label), unless there are more than 14 labels."""
    if not 0 < len(names) <= 14:
        return
    legend = "row: correct label, column: predicted label"
    print("" if for_people() else f"\nconfusion\t{legend}")
    rows: list[list[Any]] = [[name, *row] for name, row in zip(names, counts, strict=True)]
    if for_people():
        from rich.text import Text

        for place, row in enumerate(counts):
            for column, count in enumerate(row):
                style = ("bold " if 2 * count >= sum(row) else "") + ("green" if column == place else "yellow")
                rows[place][column + 1] = Text(f"{count:,}", style if count else QUIET)
    show_table(["", *names], rows, note=legend)


def _text(cell: Any) -> Text:
    from rich.text import Text

    if isinstance(cell, Text):
        return cell
    return Text(f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else printable(str(cell)))


# Characters that would move the cursor, split a line or change the direction of writing.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """The text with control characters written as escapes, safe for a terminal and for tab-separated lines."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def bar(share: float, width: int, *, grows_left: bool = False) -> str:
    """A horizontal bar: `share * width` block characters, rounded to an eighth of a character.

    `grows_left`: a bar whose right end is fixed, rounded to half a character. If `share` is above 0, the bar is never
    empty. If standard output is not UTF-8, the bar consists of "#" characters.
    """
    share = min(max(share, 0.0), 1.0)
    if not (sys.stdout.encoding or "").lower().startswith("utf"):
        return "#" * round(width * share + 0.49 * bool(share))
    steps = 2 if grows_left else 8  # per character
    full, rest = divmod(max(round(steps * width * share), 1 if share else 0), steps)
    return "▐" * rest + "█" * full if grows_left else "█" * full + " ▏▎▍▌▋▊▉"[rest] * bool(rest)


# Words and sentences shaded by attention weights


def show_words(part: ShadedSentence) -> None:
    """Print the sentence `part`; the background of a word is brighter if its attention weight is larger."""
    console().print(_shade(part, part.weight * max((word.weight for word in part.words), default=0.0)))


def show_weights(parts: Sequence[ShadedSentence]) -> None:
    """Print a line per sentence: its attention weight as number and bar, then its words, shaded by their weights."""
    from rich.text import Text

    longest_bar = 6  # characters
    heaviest = max((part.weight for part in parts), default=0.0)
    strongest = max((part.weight * word.weight for part in parts for word in part.words), default=0.0)
    for part in parts:
        weight_bar = bar(part.weight / heaviest, longest_bar) if heaviest else ""
        line = Text().append(f"{part.weight:6.1%} {weight_bar:<{longest_bar}} ", style=QUIET)
        console().print(line.append_text(_shade(part, strongest)))


def _shade(part: ShadedSentence, strongest: float) -> Text:
    """The sentence with each word on a gray background; the product of sentence and word weight gives the brightness.

    `strongest` is the product that gets the brightest gray.
    """
    from rich.text import Text

    shaded, place = Text(), 0
    for word in part.words:
        start = max(part.text.find(word.text, place), place)
        shaded.append(part.text[place:start], style="default")
        level = round(5 * part.weight * word.weight / strongest) if strongest else 0  # five distinguishable grays
        gray = 232 + 4 * level  # of the 256 colors of terminals
        style = f"{'black' if level > 3 else 'white'} on color({gray})" if level else "default"
        shaded.append(word.text, style=style)
        place = start + len(word.text)
    shaded.append(part.text[place:], style="default")
    return shaded


# Status line and progress bar, on standard error of a terminal only


@contextmanager
def status(doing: str = "") -> Iterator[Callable[[str], None]]:
    """Show `doing` as a status line while the `with` block runs, on a terminal only. Yields a function to change it."""
    if not sys.stderr.isatty():
        yield lambda doing: None
        return
    from rich.console import Console

    with Console(stderr=True).status(f"[dim]{doing}[/]") as shown:
        yield lambda doing: shown.update(f"[dim]{doing}[/]")


@contextmanager
def progress(
    unit: str, total: Callable[[], int] | int | None = None, *, doing: str = "", done: int = 0
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar, on a terminal only, if the `with` block takes more than a second.

    Yields a function that adds a number to the count. `unit`: what is counted, e.g. "pairs". `total`: the final count,
    or a function that computes it, which is called only on a terminal. `doing`: text before the bar. `done`: the count
    at the start.
    """
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    number = total() if callable(total) else total
    counted = "{task.completed:,}" + (f" of {number:,}" if number is not None else "") + f" {unit}"
    columns = [TextColumn("{task.description}")] if doing else []
    columns += [BarColumn(24, complete_style="cyan"), TextColumn(counted), TextColumn("{task.fields[rate]}")]  # type: ignore[list-item]
    timer = TimeElapsedColumn() if number is None else TimeRemainingColumn()
    shown = Progress(*columns, timer, console=Console(stderr=True), transient=True)
    task = shown.add_task(doing, total=number, completed=done, rate="")
    due = time.monotonic() + 1

    def advance(count: int) -> None:
        shown.advance(task, count)
        if not shown.live.is_started:
            if time.monotonic() > due:
                shown.start()
            return
        speed = shown.tasks[0].speed
        shown.update(task, rate=f"{speed:,.0f} {unit}/s" if speed else "")

    try:
        yield advance
    finally:
        if shown.live.is_started:
            shown.stop()


def watch(items: Iterable[Item], unit: str, total: int | None = None, *, doing: str = "") -> Iterator[Item]:
    """Yield the items, and show their number on a progress bar; `unit`, `total`, `doing`: see `progress`."""
    every = 1000
    with progress(unit, total, doing=doing) as advance:
        for number, item in enumerate(items, 1):
            yield item
            if number % every == 0:
                advance(every)


def counted(number: int, thing: str) -> str:
    """A number with its noun in singular or plural: "1 pair", "2,000 pairs"."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
