"""`regard evaluate`: score a run on a test set, and compare it with another run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.config import Corpus
from regard.data.pairs import Languages, Pair, read_corpus
from regard.errors import CorpusError, SettingsError
from regard.files import chunks, read_lines, write_atomically
from regard.run import Run
from regard.tasks.translate.cli import add_language_model
from regard.terminal import (
    QUIET,
    Command,
    Parser,
    add_search,
    console,
    for_people,
    printable,
    progress,
    search_settings,
    show_note,
    show_table,
    show_title,
    status,
)  # fmt: skip

if TYPE_CHECKING:
    from rich.text import Text

    from regard.tasks.translate.cli import Translate
    from regard.tasks.translate.evaluate import System
    from regard.tasks.translate.translation import Translation

Json = dict[str, Any]
UNMATCHED = "yellow"  # words that are not in the reference


def configure(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder, or a file of translations made elsewhere")
    parser.add_argument("--source", required=True, metavar="FILE", help="source sentences, or one file with both sides")
    parser.add_argument("--target", default="", metavar="FILE", help="reference translations, line by line")
    parser.add_argument("--compare-with", metavar="RUN", help="another run, or file of translations")
    parser.add_argument(
        "--engine", choices=["torch", "auto", "ctranslate2"], default="torch", metavar="NAME",
        help="torch (default, full precision), ctranslate2, or auto, as in regard translate",
    )  # fmt: skip
    parser.add_argument("--page", metavar="FILE.html", help="also write everything as one HTML page")
    parser.add_argument(
        "--examples", type=int, default=5, metavar="N", help="show the N worst or most different sentences (default: 5)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON: bleu, chrf, ter, their signatures, and all details"
    )
    parser.add_argument(
        "--tune-lm-weight", action="store_true",
        help="with --lm: only compare weights of the language model (use validation data)",
    )  # fmt: skip
    search = add_search(parser)
    add_language_model(search)
    search.description = (
        "for both runs (default: each run's own settings), except --ensemble and --lm, which are for RUN"
    )


def run(options: argparse.Namespace) -> int:
    # A file contains translations; anything else must be a run.
    opened = [
        Path(name) if Path(name).is_file() else Run.open(name).require("translate")
        for name in (options.run, options.compare_with)
        if name
    ]
    search = search_settings(options, *(one.recipe.search for one in opened if isinstance(one, Run)))
    check(options, opened, search)
    languages, notes = _languages(opened)
    pairs = list(read_corpus(Corpus(options.source, options.target), *languages))
    if not pairs:
        raise CorpusError(options.source, "contains no sentence pairs; give another test set")
    texts = {one: list(read_lines(one)) for one in opened if isinstance(one, Path)}
    if options.tune_lm_weight:
        return tune_lm_weight(options, opened[0], pairs, search)
    for path, lines in texts.items():  # reported before a model is loaded
        if len(lines) != len(pairs):
            problem = f"the file ends after {len(lines):,} lines, but {options.source} has {len(pairs):,}"
            raise CorpusError(path, f"{problem}; the two must match line by line", line=len(lines))

    from regard.tasks.translate.evaluate import System, evaluation

    systems = []
    for place, (one, name) in enumerate(zip(opened, _names(options), strict=True)):
        if isinstance(one, Path):
            systems.append(System.of_texts(name, texts[one], pairs, languages.target))
        else:
            alone = options if not place else argparse.Namespace(**vars(options) | {"ensemble": [], "lm": ""})
            systems.append(_translated(name, one, pairs, search, alone))
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
    """Raise an error if command-line options contradict each other.

    `opened`: the systems to score, runs or files of translations; `search`: search settings on the command line.
    """
    if options.examples < 0:
        raise SettingsError(f"--examples must be 0 or more, not {options.examples}")
    if options.ensemble and not isinstance(opened[0], Run):
        raise SettingsError(f"--ensemble: {options.run} is a file of translations; give a run, or leave out --ensemble")
    if options.lm and not isinstance(opened[0], Run):
        raise SettingsError(f"--lm: {options.run} is a file of translations; give a run, or leave out --lm")
    if options.tune_lm_weight and not options.lm:
        raise SettingsError("--tune-lm-weight compares weights of a language model: name its run with --lm")
    if search and not any(isinstance(one, Run) for one in opened):
        raise SettingsError("search settings are only for runs, not for files of translations; leave them out")
    other = options.compare_with
    if other and not (options.ensemble or options.lm) and Path(options.run).resolve() == Path(other).resolve():
        raise SettingsError(f"--compare-with {other}: this is the same as {options.run}; give another run or file")
    if options.page:
        page = Path(options.page)
        if page.suffix.lower() not in (".html", ".htm") or page.is_dir():
            raise SettingsError(f"--page {page}: give the name of an HTML file, e.g. {page.with_suffix('.html')}")
        if not page.parent.is_dir():
            raise SettingsError(f"--page {page}: there is no folder {page.parent}; create it first")


# Systems to score


def _names(options: argparse.Namespace) -> list[str]:
    """Return the names of the systems to score: the last parts of their paths, or whole paths if two are equal."""
    systems = [
        [options.run, *options.ensemble, *([options.lm] if options.lm else [])],
        *([[options.compare_with]] if options.compare_with else []),
    ]
    paths = {Path(one).resolve() for members in systems for one in members}
    is_unique = len({path.name for path in paths}) == len(paths)
    return [" + ".join(Path(one).resolve().name if is_unique else one for one in members) for members in systems]


def _languages(opened: Sequence[Run | Path]) -> tuple[Languages, list[str]]:
    """Return the languages of the first run, and a list of notes: one if the second run has other languages."""
    data = [one.recipe.data for one in opened if isinstance(one, Run)]
    found = [Languages(one.source_language, one.target_language) for one in data]
    if len(set(found)) < 2:
        return next(iter(found), Languages("", "")), []
    named = " and ".join(" to ".join(code or "?" for code in one) for one in found)
    return found[0], [f"the runs were trained for different languages: {named}"]


def _translated(name: str, run: Run, pairs: Sequence[Pair], search: Json, options: argparse.Namespace) -> System:
    """Translate the test set `pairs` with a run, with the ensemble and the language model in the `options`, if any.

    `name` is the name of the system in the output, `search` has search settings that differ from those of the run.
    """
    from regard.tasks.translate.cli import log
    from regard.tasks.translate.engine import open_fast
    from regard.tasks.translate.evaluate import System
    from regard.tasks.translate.translation import texts_of

    wanted = replace(run.recipe.search, **search)
    made_by = "PyTorch, float32"
    needs = [f"--{option}" for option in ("ensemble", "lm") if getattr(options, option)]
    if fast := open_fast(options.engine, run, wanted, needs, log=log):
        made_by = "CTranslate2, int8"
        translate: Translate = partial(fast.translate, **search)
    else:
        translate = _open_torch(run, pairs, search, options)
    answers: list[Translation] = []
    with progress("sentences", len(pairs), doing=name) as advance:
        for part in chunks((pair.source for pair in pairs), 500):
            answers += translate(part)
            advance(len(part))
    made = {"arch": run.recipe.model.arch, "ensemble": options.ensemble, "engine": made_by, "search": asdict(wanted)}
    made |= {"lm": options.lm} if options.lm else {}
    return System(name, texts_of(answers), [one.flags for one in answers], made)


def _open_torch(run: Run, pairs: Sequence[Pair], search: Json, options: argparse.Namespace) -> Translate:
    from regard.system import usable_cores
    from regard.tasks.translate.cli import MANY_LINES, by_torch, use_language_model

    lm = use_language_model(options, run, replace(run.recipe.search, **search)) if options.lm else ""
    count = usable_cores() if len(pairs) >= MANY_LINES else 1
    return by_torch([str(run.folder), *options.ensemble], count, search, lm=lm)


def tune_lm_weight(options: argparse.Namespace, run: Run | Path, pairs: Sequence[Pair], search: Json) -> int:
    """Print BLEU and chrF of `pairs` with several weights of the language model; returns the exit code."""
    assert isinstance(run, Run)
    from regard.tasks.translate.language_model import compare_weights

    search = {name: value for name, value in search.items() if name != "lm_weight"}
    rows = compare_weights(_open_torch(run, pairs, search, options), pairs)
    if options.json:
        print(json.dumps(rows))
        return 0
    best = max(rows, key=lambda row: row["bleu"])
    show_table(["weight", "BLEU", "chrF"], ([f"{value:.2f}" for value in row.values()] for row in rows))
    print(f"Highest BLEU: --lm-weight {best['lm_weight']:g}")
    return 0


# Output


def show(found: Json, examples: int) -> None:
    """Print an evaluation as text: scores, comparison, scores by length, numbers of flags, and `examples` sentences."""
    from regard.tasks.translate.evaluate import select_examples

    systems = [found, found["against"]] if found["against"] else [found]
    labels = {name: one["label"] for name, one in found["metrics"].items()}
    show_title(found["title"], f"{found['sentences']:,} sentences")
    _show_scores(found, systems, labels)
    sentences = [sentence for sentence in (found["verdict"], *found["notes"]) if sentence]
    if for_people():
        print(*(f"\n  {sentence}" for sentence in sentences), sep="\n")
    _show_lengths(systems, labels)
    if flags := dict.fromkeys(flag for one in systems for flag in one["flags"]):
        print()
        counts = ([flag, *(one["flags"].get(flag, 0) for one in systems)] for flag in flags)
        show_table(["flag", *(one["name"] for one in systems)], counts)
    _show_sentences(systems, select_examples(found["lines"], examples))
    if not for_people():
        print("", *sentences, sep="\n")
        return
    drawn = found["bootstrap"]
    signatures = [f"{label:<6}{found['signatures'][name]}" for name, label in labels.items()]
    resamples = f"Intervals contain 95 % of {drawn['samples']:,} resamples, seed {drawn['seed']}."
    show_note("\n".join(["", *signatures, resamples, ""]))


def _show_scores(found: Json, systems: Sequence[Json], labels: Mapping[str, str]) -> None:
    """Print a table with one row per metric; if the output is not a terminal, the last column is the signature.

    `systems`: the evaluated systems, one or two entries of `found`; `labels`: the displayed name of each metric.
    """
    differences = found["differences"]
    names = [cell for one in systems for cell in (one["name"], "95 %")]
    headings = ["metric", *names, *(["difference", "95 %", "p"] if differences else [])]
    rows = []
    for name, label in labels.items():
        cells = [cell for one in systems for cell in (f"{one[name]:.2f}", _between(one["intervals"][name]))]
        if differences:
            one = differences[name]
            p = "-" if one["p"] is None else f"{one['p']:.3f}"
            cells += [f"{one['difference']:+.2f}", _between(one["interval"], "+"), p]
        rows.append([label, *cells])
    if not for_people():
        headings.append("signature")
        rows = [[*row, found["signatures"][name]] for row, name in zip(rows, labels, strict=True)]
    show_table(headings, rows)


def _between(ends: Sequence[float] | None, sign: str = "") -> str:
    return " to ".join(f"{end:{sign}.2f}" for end in ends) if ends else "-"


def _show_lengths(systems: Sequence[Json], labels: Mapping[str, str]) -> None:
    several = len(systems) > 1
    scores = [f"{label} {one['name']}" if several else label for label in labels.values() for one in systems]
    rows = []
    for same in zip(*(one["buckets"] for one in systems), strict=True):
        cells = [f"{bucket[name]:.2f}" for name in labels for bucket in same]
        rows.append([same[0]["words"], same[0]["sentences"], *cells])
    print()
    show_table(["words", "sentences", *scores], rows)


def _show_sentences(systems: Sequence[Json], chosen: Sequence[tuple[int, Json]]) -> None:
    if not chosen:
        return
    print()
    if not for_people():
        headings = ["line", "source", "reference", *(cell for one in systems for cell in (one["name"], "chrF"))]
        rows = []
        for number, line in chosen:
            cells = [cell for one in _made(line) for cell in (one["translation"], f"{one['chrf']:.1f}")]
            rows.append([number, line["source"], line["reference"], *cells])
        show_table(headings, rows)
        return
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    show_note("largest differences by chrF" if len(systems) > 1 else "lowest chrF")
    table = Table.grid(padding=(0, 0, 0, 2))
    table.add_column(style=QUIET)
    table.add_column(style=QUIET, justify="right")
    table.add_column(overflow="fold")
    for number, line in chosen:
        table.add_row()
        table.add_row(f"{number:,}", "", Text(printable(line["source"]), "cyan"))
        table.add_row("reference", "", Text(printable(line["reference"])))
        for system, made in zip(systems, _made(line), strict=True):
            flags = Text("".join(f" [{flag}]" for flag in made["flags"]), UNMATCHED)
            text = _marked(made["translation"], line["reference"])
            table.add_row(Text(system["name"]), f"{made['chrf']:.1f}", text + flags)
    console().print(Padding(table, (0, 0, 0, 2)))


def _made(line: Json) -> list[Json]:
    return [line, line["against"]] if "against" in line else [line]


def _marked(text: str, reference: str) -> Text:
    """Return the translation `text`. Words that the reference does not have, or has elsewhere, are in color."""
    from rich.text import Text

    words, marked = printable(text).split(), Text()
    same = SequenceMatcher(None, words, reference.split(), autojunk=False).get_matching_blocks()
    common = {place for block in same for place in range(block.a, block.a + block.size)}
    for place, word in enumerate(words):
        marked.append(" " if place else "").append(word, "" if place in common else UNMATCHED)
    return marked


COMMANDS = {
    "evaluate": Command(
        "Translate the source side of a test set and score it against the target side: BLEU, chrF and TER with\n"
        "signatures and 95 % intervals, by length, and sentence by sentence. With --compare-with, test whether the\n"
        "difference between two systems may be chance (paired bootstrap), and show where they differ most.",
        configure,
        run,
        examples=(
            "regard evaluate runs/en-de --source test.en --target test.de",
            "regard evaluate runs/new --compare-with runs/old --source test.en --target test.de --page scores.html",
            "regard evaluate theirs.de --source test.en --target test.de --json",
            "regard evaluate runs/en-de --source valid.en --target valid.de --lm runs/de --tune-lm-weight",
        ),
    )
}
