"""`regard evaluate`: a run against a test set, and against another run."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.config import Corpus
from regard.data.pairs import Languages, Pair, read_corpus
from regard.errors import CorpusError, SettingsError
from regard.files import read_lines, write_atomically
from regard.run import Run
from regard.tasks.translate.cli import add_search, search_settings
from regard.terminal import status

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from regard.tasks.translate.engine import EngineName
    from regard.tasks.translate.evaluate import System
    from regard.tasks.translate.translation import Translation


Json = dict[str, Any]
Rows = list[list[str]]
"""A table, its headings first."""
TOGETHER = 500
"""Sentences between two movements of the bar."""
QUIET, AMISS = "dim", "yellow"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Translate the source side of a test set and score it against the target side: BLEU, chrF and TER with their\n"
        "signatures and 95 % intervals, by length, and sentence by sentence. With --against, tell whether chance may\n"
        "have made the difference between two systems (paired bootstrap), and where they differ most.\n\n"
        "  regard evaluate runs/en-de --source test.en --target test.de\n"
        "  regard evaluate runs/new --against runs/old --source test.en --target test.de --page scores.html\n"
        "  regard evaluate runs/en-de --against theirs.de --source test.en --target test.de\n"
        "  regard evaluate theirs.de --source test.en --target test.de --json"
    )
    parser.add_argument("run", metavar="RUN", help="the run folder, or a file of translations that were made elsewhere")
    parser.add_argument("--source", required=True, metavar="FILE", help="source sentences, or one file with both sides")
    parser.add_argument("--target", default="", metavar="FILE", help="reference translations, line by line")
    parser.add_argument("--against", metavar="RUN", help="another run, or file of translations, to compare with")
    parser.add_argument(
        "--engine",
        choices=["torch", "auto", "ctranslate2"],
        default="torch",
        help="torch: full precision (default); auto: what regard translate takes, CTranslate2 in int8 where it can",
    )
    parser.add_argument("--page", metavar="FILE.html", help="write all of it as one page that needs no network")
    parser.add_argument(
        "--examples", type=int, default=5, metavar="N", help="sentences to print: the worst, or the most different (5)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON: bleu, chrf, ter, their signatures, and all the rest"
    )
    search = add_search(parser)
    search.description = "for RUN and --against alike, except --ensemble, which joins RUN; by default each run's own"


def run(options: argparse.Namespace) -> int:
    """Score."""
    opened = [_open(name) for name in (options.run, options.against) if name]
    search = search_settings(options, *(one.recipe.search for one in opened if isinstance(one, Run)))
    check(options, opened, search)
    languages, notes = _languages(opened)
    pairs = list(read_corpus(Corpus(options.source, options.target), *languages))
    if not pairs:
        raise CorpusError(options.source, "holds no sentence pairs")
    # Whatever is wrong with a file is told before a model is loaded.
    texts = {one: _read_translations(one, options.source, len(pairs)) for one in opened if isinstance(one, Path)}

    from regard.tasks.translate.evaluate import System, evaluation

    systems = []
    for place, (one, name) in enumerate(zip(opened, _names(options), strict=True)):
        if isinstance(one, Path):
            systems.append(System.of_texts(name, texts[one], pairs, languages.target))
        else:
            joined = [] if place else options.ensemble
            systems.append(_translated(name, one, pairs, search, joined, options.engine))
    with status("scoring"):
        test = {side: Path(getattr(options, side)).name for side in ("source", "target")}
        notes += [f"{one.name} was translated by {one.made['engine']}" for one in systems if "engine" in one.made]
        found = evaluation(pairs, *systems, languages=languages, test=test, notes=notes)
    if options.page:
        from regard.pages import render_page

        write_atomically(Path(options.page), render_page("evaluation", found).encode())
    if options.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        show(found, options.examples)
        if options.page:
            print(f"Open {options.page} in a browser.")
    return 0


def check(options: argparse.Namespace, opened: Sequence[Run | Path], search: Json) -> None:
    """Refuse what does not go together, before anything is loaded."""
    if options.examples < 0:
        raise SettingsError("--examples must not be negative")
    if options.ensemble and not isinstance(opened[0], Run):
        raise SettingsError(f"--ensemble: {options.run} is a file of translations; an ensemble needs runs")
    if search and not any(isinstance(one, Run) for one in opened):
        raise SettingsError("search settings are for runs; the translations in a file are there already")
    if options.against and not options.ensemble and Path(options.run).resolve() == Path(options.against).resolve():
        raise SettingsError(f"--against {options.against}: the same as {options.run}; give another to compare with")
    if options.page:
        page = Path(options.page)
        if page.suffix.lower() not in (".html", ".htm") or page.is_dir():
            raise SettingsError(f"--page {page}: give the name of an HTML file, e.g. {page.with_suffix('.html')}")
        if not page.parent.is_dir():
            raise SettingsError(f"--page {page}: there is no folder {page.parent}; make it first")


# ---------------------------------------------------------------------------------------------------------------------
# What is scored


def _open(name: str) -> Run | Path:
    """A file holds translations; anything else should be a run."""
    return Path(name) if Path(name).is_file() else Run.open(name).require("translate")


def _names(options: argparse.Namespace) -> list[str]:
    """The last part of each path, or all of it where that says nothing; those of an ensemble are joined."""
    systems = [[options.run, *options.ensemble], *([[options.against]] if options.against else [])]
    paths = {Path(one).resolve() for members in systems for one in members}
    is_telling = len({path.name for path in paths}) == len(paths)
    return [" + ".join(Path(one).resolve().name if is_telling else one for one in members) for members in systems]


def _languages(opened: Sequence[Run | Path]) -> tuple[Languages, list[str]]:
    """What the first run translates, and a note where the second does not."""
    data = [one.recipe.data for one in opened if isinstance(one, Run)]
    found = [Languages(one.source_language, one.target_language) for one in data]
    if len(set(found)) < 2:
        return next(iter(found), Languages("", "")), []
    said = " and ".join(" to ".join(code or "?" for code in one) for one in found)
    return found[0], [f"the runs were trained for different languages: {said}"]


def _read_translations(path: Path, test: str, wanted: int) -> list[str]:
    """As many lines as the test set has."""
    lines = list(read_lines(path))
    if len(lines) != wanted:
        problem = f"ends here with {len(lines):,} lines, but {test} has {wanted:,}; the two must match line by line"
        raise CorpusError(path, problem, line=len(lines))
    return lines


def _translated(
    name: str, run: Run, pairs: Sequence[Pair], search: Json, ensemble: list[str], engine: EngineName
) -> System:
    """What a run, or an ensemble that it leads, makes of the test set; many sentences by several processes."""
    from rich.console import Console
    from rich.progress import track

    from regard.system import usable_cores
    from regard.tasks.translate.cli import MANY_LINES, Translate, by_torch, log
    from regard.tasks.translate.engine import open_fast
    from regard.tasks.translate.evaluate import System
    from regard.tasks.translate.output import chunks

    wanted = replace(run.recipe.search, **search)
    fast = open_fast(engine, run, wanted, ["--ensemble"] if ensemble else [], log=log)
    if fast:
        made_by = "CTranslate2, int8"
        translate: Translate = partial(fast.translate, **search)
    else:
        made_by = "PyTorch, float32"
        translate = by_torch([str(run.folder), *ensemble], usable_cores() if len(pairs) >= MANY_LINES else 1, search)
    parts = list(chunks((pair.source for pair in pairs), TOGETHER))
    is_quiet = not sys.stderr.isatty()
    answers: list[Translation] = []
    for part in track(parts, description=name, console=Console(stderr=True), transient=True, disable=is_quiet):
        answers += translate(part)
    made = {"arch": run.recipe.model.arch, "ensemble": ensemble, "engine": made_by, "search": asdict(wanted)}
    return System.of_translations(name, answers, made)


# ---------------------------------------------------------------------------------------------------------------------
# How it is shown


def show(found: Json, examples: int) -> None:
    """Scores, lengths, flags and sentences: laid out for the eye on a terminal, lines with tabs elsewhere."""
    from rich.console import Console

    from regard.tasks.translate.evaluate import most_telling

    console = Console(highlight=False)
    systems = [found, found["against"]] if found["against"] else [found]
    labels = {name: one["label"] for name, one in found["metrics"].items()}
    tables = [_scores(found, systems, labels), _lengths(systems, labels), _flags(systems)]
    telling = most_telling(found["lines"], examples)
    said = [sentence for sentence in (found["verdict"], *found["notes"]) if sentence]
    if console.is_terminal:
        _print_pretty(console, found, systems, said, tables, telling)
    else:
        _print_plain([*tables, _sentences(systems, telling)], said)


def _scores(found: Json, systems: Sequence[Json], labels: Mapping[str, str]) -> Rows:
    apart = found["differences"]
    names = [cell for one in systems for cell in (one["name"], "95 %")]
    rows = [["metric", *names, *(["difference", "95 %", "p"] if apart else []), "signature"]]
    for name, label in labels.items():
        cells = [cell for one in systems for cell in (f"{one[name]:.2f}", _between(one["intervals"][name]))]
        if apart:
            one = apart[name]
            p = "-" if one["p"] is None else f"{one['p']:.3f}"
            cells += [f"{one['difference']:+.2f}", _between(one["interval"], "+"), p]
        rows.append([label, *cells, found["signatures"][name]])
    return rows


def _between(ends: Sequence[float] | None, sign: str = "") -> str:
    return " to ".join(f"{end:{sign}.2f}" for end in ends) if ends else "-"


def _lengths(systems: Sequence[Json], labels: Mapping[str, str]) -> Rows:
    several = len(systems) > 1
    scores = [f"{label} {one['name']}" if several else label for label in labels.values() for one in systems]
    rows = [["words", "sentences", *scores]]
    for same in zip(*(one["buckets"] for one in systems), strict=True):
        cells = [f"{bucket[name]:.2f}" for name in labels for bucket in same]
        rows.append([same[0]["words"], f"{same[0]['sentences']:,}", *cells])
    return rows


def _flags(systems: Sequence[Json]) -> Rows:
    """No more than the headings where nothing was flagged."""
    names = dict.fromkeys(name for one in systems for name in one["flags"])
    counts = [[name, *(f"{one['flags'].get(name, 0):,}" for one in systems)] for name in names]
    return [["flag", *(one["name"] for one in systems)], *counts]


def _sentences(systems: Sequence[Json], telling: Sequence[tuple[int, Json]]) -> Rows:
    rows = [["line", "source", "reference", *(cell for one in systems for cell in (one["name"], "chrF"))]]
    for number, line in telling:
        cells = [cell for one in _made(line) for cell in (_printable(one["translation"]), f"{one['chrf']:.1f}")]
        rows.append([str(number), _printable(line["source"]), _printable(line["reference"]), *cells])
    return rows


def _made(line: Json) -> list[Json]:
    """What one system made of a sentence, or two."""
    return [line, line["against"]] if "against" in line else [line]


def _print_plain(tables: Sequence[Rows], said: Sequence[str]) -> None:
    for rows in tables:
        if len(rows) > 1:
            print(*("\t".join(row) for row in rows), "", sep="\n")
    for sentence in said:
        print(sentence)


def _print_pretty(
    console: Console,
    found: Json,
    systems: Sequence[Json],
    said: Sequence[str],
    tables: Sequence[Rows],
    telling: Sequence[tuple[int, Json]],
) -> None:
    from rich.text import Text

    (headings, *scores), *others = tables
    console.print(Text.assemble("\n  ", (found["title"], "bold"), (f"  {found['sentences']:,} sentences\n", QUIET)))
    console.print(_table([headings[:-1], *(row[:-1] for row in scores)]))
    for sentence in said:
        console.print(Text(f"\n  {sentence}"), soft_wrap=True)
    for rows in others:
        if len(rows) > 1:
            console.print("", _table(rows), sep="\n")
    _print_sentences(console, systems, telling)
    console.print()
    for label, *_, signature in scores:
        console.print(Text.assemble(f"  {label:<6}", (signature, QUIET)), soft_wrap=True)
    drawn = found["bootstrap"]
    console.print(Text(f"  Intervals hold 95 % of {drawn['samples']:,} resamples, seed {drawn['seed']}.\n", QUIET))


def _table(rows: Rows) -> Table:
    """Without rules, numbers to the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2), header_style=QUIET)
    for place, heading in enumerate(rows[0]):
        table.add_column(Text(heading), justify="right" if place else "left")
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    return table


def _print_sentences(console: Console, systems: Sequence[Json], telling: Sequence[tuple[int, Json]]) -> None:
    """Source, reference and translations below one another; what the reference has not stands out."""
    from rich.table import Table
    from rich.text import Text

    if not telling:
        return
    which = "where they differ most" if len(systems) > 1 else "the worst"
    console.print(Text(f"\n  {which}, by the chrF of each sentence", QUIET))
    table = Table.grid(padding=(0, 0, 0, 2))
    table.add_column(style=QUIET)
    table.add_column(style=QUIET, justify="right")
    table.add_column(overflow="fold")
    for number, line in telling:
        table.add_row()
        table.add_row(f"{number:,}", "", Text(_printable(line["source"]), "cyan"))
        table.add_row("reference", "", Text(_printable(line["reference"])))
        for system, made in zip(systems, _made(line), strict=True):
            flags = Text("".join(f" [{flag}]" for flag in made["flags"]), AMISS)
            text = _marked(made["translation"], line["reference"])
            table.add_row(Text(system["name"]), f"{made['chrf']:.1f}", text + flags)
    console.print(table)


def _marked(text: str, reference: str) -> Text:
    from rich.text import Text

    words, marked = _printable(text).split(), Text()
    same = SequenceMatcher(None, words, reference.split(), autojunk=False).get_matching_blocks()
    common = {place for block in same for place in range(block.a, block.a + block.size)}
    for place, word in enumerate(words):
        marked.append(" " if place else "").append(word, "" if place in common else AMISS)
    return marked


def _printable(text: str) -> str:
    """Without what would move the cursor, or split a line."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text)
