"""`regard compare`: train and score several systems with the same budget, and write a table, a page and Markdown."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.cli.train import add_data, given_table
from regard.errors import SettingsError
from regard.files import write_atomically
from regard.terminal import Command, Parser, show_note, show_table, show_title

Json = Mapping[str, Any]


def configure(parser: Parser) -> None:
    parser.add_argument("recipe", metavar="RECIPE", help="the comparison: a TOML file with systems and a budget")
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="folder for runs and results; repeat the command to continue"
    )
    add_data(parser)
    budget = parser.add_argument_group("budget", "of each training; replaces the budget of the recipe")
    budget.add_argument("--minutes", type=float, metavar="N", help="minutes of training")
    budget.add_argument("--steps", type=int, metavar="N", help="training steps")
    budget.add_argument("--flops", type=float, metavar="N", help="floating-point operations, e.g. 1e15")
    chosen = parser.add_argument_group("systems")
    chosen.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only this system of the recipe; repeatable"
    )
    chosen.add_argument("--seeds", metavar="N,N", help="seeds, e.g. 1,2,3; replaces the seeds of the recipe")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="trainings side by side, each with its share of the cores"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.epilog = "docs/compare.md describes the recipe."


def run(options: argparse.Namespace) -> int:
    from regard.tasks.comparison import compare
    from regard.tasks.comparison_recipe import only, read_comparison

    comparison = read_comparison(options.recipe, given(options))
    if options.only:
        comparison = only(comparison, options.only)
    out = Path(options.out)
    found = compare(comparison, out, lambda line: print(line, file=sys.stderr, flush=True), options.jobs)

    from regard.pages import render_page

    for name, text in {
        "compare.json": json.dumps(found, indent=1, ensure_ascii=False),
        "compare.md": "\n".join(markdown(found)) + "\n",
        "compare.html": render_page("compare", found),
    }.items():
        write_atomically(out / name, text.encode())
    if options.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        show(found)
        print(f"Open {out / 'compare.html'} in a browser; {out / 'compare.md'} has the tables as Markdown.")
    return 0


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The tables of settings, the budget and the seeds that were given as options."""
    table = given_table(argparse.Namespace(**{**vars(options), "out": ""}), need="")
    budget = {name: value for name in ("minutes", "steps", "flops") if (value := getattr(options, name)) is not None}
    if budget:
        table["budget"] = {"minutes": 0.0, "steps": 0, "flops": 0.0} | budget
    if options.seeds:
        try:
            table["seeds"] = [int(seed) for seed in options.seeds.split(",")]
        except ValueError:
            raise SettingsError(f"--seeds {options.seeds}: write whole numbers, e.g. 1,2,3") from None
    return {name: value for name, value in table.items() if value}


# ---------------------------------------------------------------------------------------------------------------------
# Tables


def rows(found: Json) -> Iterator[list[str]]:
    """The cells of each system: scores with intervals, size, cost and speed."""
    for system in found["systems"]:
        scores = found["scores"][system["name"]]
        cells = [system["name"]]
        for metric in found["metrics"]:
            cells.append(f"{scores[metric]:.1f}")
            cells.append(" to ".join(f"{end:.1f}" for end in scores["intervals"][metric] or ()) or "-")
        yield [
            *cells,
            f"{system['parameters'] / 1e6:.1f}",
            f"{system['flops']:.1e}",
            f"{system['seconds'] / 60:.1f}",
            f"{system['memory'] / 1e9:.1f}" if system["memory"] else "-",
            f"{scores['sentences_per_second']:.0f}",
            system["trend"] or "-",
        ]


def headings(found: Json) -> list[str]:
    scores = [cell for one in found["metrics"].values() for cell in (one["label"], "95 %")]
    return ["system", *scores, "M parameters", "FLOPs", "minutes", "GB", "sentences/s", "curve"]


def show(found: Json) -> None:
    show_title(found["title"], f"{found['sentences']:,} test sentences, {found['budget']} each")
    show_table(headings(found), rows(found))
    print(found["verdict"])
    show_note("Intervals: 95 % of 1,000 resampled test sets. A rising curve would improve with a larger budget.")


def markdown(found: Json) -> Iterator[str]:
    """The tables as Markdown."""
    yield f"# {found['title']}"
    yield ""
    seeds = ", ".join(map(str, found["seeds"]))
    yield f"{found['sentences']:,} test sentences; budget: {found['budget']} per training; seeds: {seeds}."
    yield ""
    yield from _table(headings(found), rows(found))
    yield ""
    yield found["verdict"]
    yield ""
    yield "Intervals contain 95 % of 1,000 resampled test sets. `rising`: the last third of the training improved the"
    yield "best validation score by more than 1 %, so a larger budget would help; `flat`: it did not."
    if found["published"]:
        columns = list(dict.fromkeys(key for row in found["published"] for key in row if key != "name"))
        yield ""
        yield "Published results:"
        yield ""
        yield from _table(
            ["system", *columns],
            ([row["name"], *(str(row.get(key, "")) for key in columns)] for row in found["published"]),
        )
    yield ""
    yield " ".join(f"{found['metrics'][name]['label']}: `{text}`." for name, text in found["signatures"].items())


def _table(heads: Sequence[str], body: Iterator[list[str]]) -> Iterator[str]:
    yield _line(heads)
    yield f"|{'|'.join('---' for _ in heads)}|"
    for row in body:
        yield _line(row)


def _line(cells: Sequence[str]) -> str:
    """A row of a Markdown table; published rows may contain any text."""
    texts = (" ".join(cell.split()).replace("|", r"\|").replace("<", "&lt;") for cell in cells)
    return f"| {' | '.join(texts)} |"


COMMANDS = {
    "compare": Command(
        "Train several systems on the same data with the same budget, score them on the same test set, and write a\n"
        "table with intervals and significance tests, a page with learning curves, and Markdown. The same command\n"
        "continues a comparison that was interrupted.",
        configure,
        run,
        examples=(
            "regard compare recipes/compare/lectures.toml --source train.en --target train.de --valid-source val.en\n"
            "    --valid-target val.de --test-source test.en --test-target test.de --minutes 15 --out runs/lectures",
            "regard compare mine.toml --only transformer --only bahdanau --steps 2000 --out runs/mine",
        ),
    )
}
