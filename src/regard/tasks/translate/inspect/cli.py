"""`regard heads` and `regard prune`: show what attention heads do, and remove the least important heads of a run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from regard.config import Corpus, DataSettings
from regard.errors import SettingsError
from regard.files import write_atomically
from regard.pages.heads import KINDS, draw_heads
from regard.run import Run
from regard.terminal import (
    QUIET,
    Command,
    Parser,
    add_set,
    bar,
    console,
    for_people,
    show_note,
    show_table,
    show_title,
    status,
)  # fmt: skip

if TYPE_CHECKING:
    from regard.tasks.translate.inspect.heads import AnnotatedExample, HeadReport
    from regard.tasks.translate.inspect.prune import Pruning
    from regard.tasks.translate.translator import Translator


def configure(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    _add_pairs(parser)
    parser.add_argument(
        "--conllu", default="", metavar="FILE", help="source sentences with their grammar, instead of --source"
    )
    parser.add_argument(
        "--alignments", default="", metavar="FILE",
        help='word alignments such as "0-0 1-2", line by line; words are separated by spaces',
    )  # fmt: skip
    parser.add_argument(
        "--gold-from", type=int, choices=(0, 1), metavar="N", help="first index in --alignments (default: 0)"
    )
    parser.add_argument("--sentences", type=int, default=500, metavar="N", help="measure on N pairs (default: 500)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--save", action="store_true", help="store the result in the run, for the pages of inspect")
    parser.add_argument("--out", metavar="FILE.svg", help="draw the heads as a picture")
    parser.add_argument(
        "--choose-alignment", action="store_true",
        help="choose the heads that align words best by --alignments, for regard translate --align",
    )  # fmt: skip


def configure_prune(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--share", type=float, default=0.5, metavar="X", help="share of heads to remove (default: 0.5)")
    parser.add_argument("--out", required=True, metavar="DIR", help="the run folder to make")
    _add_pairs(parser)
    parser.add_argument(
        "--method", choices=("gates", "importance"), default="gates", metavar="NAME",
        help="how heads are chosen: gates (default, trained), or importance (measured)",
    )  # fmt: skip
    parser.add_argument("--freeze-weights", action="store_true", help="keep the weights fixed while gates are trained")
    parser.add_argument(
        "--minutes", type=float, metavar="N", help="maximum training time (0: none; default: 0.6 of the run's steps)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_set(parser, "train.learning_rate=0.0003")


def _add_pairs(parser: Parser) -> None:
    parser.add_argument(
        "--source", default="", metavar="FILE", help="source sentences, or both sides (default: data of the run)"
    )
    parser.add_argument("--target", default="", metavar="FILE", help="their translations, line by line")


def run(options: argparse.Namespace) -> int:
    if options.conllu and options.source:
        raise SettingsError("--conllu contains the source sentences; give --conllu or --source, not both")
    if options.gold_from is not None and not options.alignments:
        raise SettingsError("--gold-from is the first word index in the file --alignments; give --alignments too")
    if options.choose_alignment and (options.json or options.save or options.out):
        raise SettingsError("--choose-alignment only changes card.json of the run; leave out --json, --save and --out")
    if options.sentences < 1:
        raise SettingsError(f"--sentences must be at least 1, not {options.sentences}")
    if options.out and Path(options.out).suffix != ".svg":
        raise SettingsError(f"--out {options.out}: the picture is an .svg file; give a name that ends in .svg")
    opened = Run.open(options.run).require("translate")

    from regard.tasks.translate.inspect import heads as measuring
    from regard.tasks.translate.translation import texts_of
    from regard.tasks.translate.translator import load

    with status() as log:
        log("reading")
        translator = load(opened.folder)
        if options.conllu:
            examples = measuring.parsed_examples(
                options.conllu, options.target, options.sentences, lambda texts: texts_of(translator.translate(texts))
            )
        elif options.source:
            given = [Corpus(options.source, options.target)]
            examples = measuring.read_examples(opened, given, options.sentences)
        else:
            examples = measuring.own_examples(opened, options.sentences)
        if options.alignments:
            examples = measuring.with_links(examples, options.alignments, options.gold_from or 0)
        if options.choose_alignment:
            return choose(opened, translator, examples)
        heads = measuring.describe_heads(translator, examples, measuring.training_text(opened), log)
    described = [head.as_dict() for head in heads]
    if options.out:
        write_atomically(Path(options.out), draw_heads(described, title=opened.folder.name).encode())
    facts = {"run": str(opened.folder), "sentences": len(examples), "heads": described}
    if options.save:
        from regard.tasks.translate.inspect.explain import HEADS, write_measurements

        write_measurements(opened, HEADS, facts)
    if options.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    else:
        show_heads(heads, str(opened.folder), len(examples))
    return 0


def choose(opened: Run, translator: Translator, examples: Sequence[AnnotatedExample]) -> int:
    """Find the heads that align words best, print their error rate, and return the exit status 0.

    If they are better than the mean of all heads, they are stored in card.json, for `regard translate --align`.
    `examples` must have gold alignments.
    """
    from regard.tasks.translate.inspect.heads import choose_alignment

    found, plain = choose_alignment(translator, examples)
    names = ", ".join(f"{head.attention} {head.number}" for head in found.choice.heads)
    print(f"alignment error rate: {found.scores.aer:.3f} with {names} ({found.choice.rule})")
    print(f"                      {plain.aer:.3f} with all heads")
    is_better = found.scores.aer < plain.aer
    if is_better:
        opened.write_card(opened.card | {"alignment": found.choice.as_dict()})
    uses = "now uses the chosen heads" if is_better else "still uses all heads"
    print(f"{opened.folder}: regard translate --align {uses}")
    return 0


def run_prune(options: argparse.Namespace) -> int:
    opened = Run.open(options.run).require("translate")
    if Path(options.out).exists():  # reported before anything is loaded
        raise SettingsError(f"--out {options.out}: exists already; choose another folder")
    if options.minutes is not None and options.minutes < 0:
        raise SettingsError(f"--minutes must not be negative, but is {options.minutes:g}")

    from regard.tasks.translate.inspect.prune import prune_run

    given = None
    if options.source:
        languages = {name: getattr(opened.recipe.data, name) for name in ("source_language", "target_language")}
        given = DataSettings(train=(Corpus(options.source, options.target),), **languages)
    pruning = prune_run(
        opened, options.out, options.share,
        by=options.method, weights_follow=not options.freeze_weights, minutes=options.minutes,
        data=given, overrides=options.set,
    )  # fmt: skip
    if options.json:
        print(json.dumps(pruning.as_dict(), indent=2))
    else:
        show_pruning(pruning, options.out)
    return 0


# Output: on a terminal a grid with a row per layer and a column per head; otherwise one line per head and role


ROLES = {
    "positional": ("cyan", "attends to a fixed offset"),
    "rare": ("magenta", "attends to the rarest token"),
    "syntactic": ("green", "follows a grammatical relation"),
    "alignment": ("yellow", "attends to the word it translates"),
}
"""Color and meaning of each role."""
COLUMNS = ["attention", "head", "confidence", "ablation", "gradient", "role", "of", "share", "low", "high", "baseline"]


def show_heads(heads: Sequence[HeadReport], title: str, sentences: int) -> None:
    if not for_people():
        show_table(COLUMNS, _rows(heads))
        return
    from rich.text import Text

    show_title(title, f"{len(heads)} heads, measured on {sentences:,} pairs")
    most = max(head.ablation for head in heads)
    for kind, of_kind in groupby(heads, key=lambda head: head.kind):
        console().print(Text.assemble("  ", (KINDS[kind], "bold")))
        for attention, row in groupby(of_kind, key=lambda head: head.attention):
            _print_layer(attention, list(row), most)
        print()
    found = {role.kind for head in heads for role in head.roles}
    show_table([], [(Text(kind, style), Text(about, QUIET)) for kind, (style, about) in ROLES.items() if kind in found])
    show_note(
        f"{sum(bool(head.roles) for head in heads)} of {len(heads)} heads have a role; "
        "percent: how often the largest weight fits the role\n"
        f"bar: increase of the loss without the head, at most {most:.3f} per token\n"
        "number after the bar: mean of the largest weight (confidence)\n"
    )


def _rows(heads: Sequence[HeadReport]) -> Iterator[list[str]]:
    """Yield table rows with the cells `COLUMNS`: one for each role of a head, or one for a head without roles."""
    for head in heads:
        cells = [head.attention, str(head.head)]
        cells += [f"{head.confidence:.4f}", f"{head.ablation:.5f}", f"{head.gradient:.5f}"]
        if not head.roles:
            yield [*cells, *[""] * 6]
        for role in head.roles:
            found = role.evidence
            numbers = (f"{value:.4f}" for value in (found.share, found.low, found.high, found.baseline))
            yield [*cells, role.kind, role.name, *numbers]


def _print_layer(attention: str, row: Sequence[HeadReport], most: float) -> None:
    """Print the heads of the layer `attention` side by side: roles and, in the line below, importance and confidence.

    Importance is a bar: the increase of the loss without the head, relative to `most`, the largest increase of all.
    """
    from rich.text import Text

    screen, parts = console(), attention.split(".")
    label = f"  layer {parts[1]}" if len(parts) == 3 else f"  {parts[0]}"
    room = screen.width - 11  # the width of a label
    cell = min(max(room // len(row), 17), 23)
    fit = max(room // cell, 1)
    for first in range(0, len(row), fit):
        upper, lower = Text(("" if first else label).ljust(11)), Text(" " * 11)
        for head in row[first : first + fit]:
            style = ROLES[head.roles[0].kind][0] if head.roles else QUIET
            filled = bar(head.ablation / most if most > 0 else 0.0, 8).ljust(8)
            role = Text.assemble((f"{head.head} ", QUIET), (_role(head), style))
            weight = Text.assemble("  ", (filled, style), (f" {head.confidence:.2f}", QUIET))
            for line, text in ((upper, role), (lower, weight)):
                text.truncate(cell - 1, overflow="ellipsis")
                text.pad_right(cell - text.cell_len)
                line.append_text(text)
        screen.print(upper, no_wrap=True, crop=True)
        screen.print(lower, no_wrap=True, crop=True)


def _role(head: HeadReport) -> str:
    """Return the strongest role of a head as text, or "·" if it has no role. A final "+" means that it has more roles.

    E.g. "80% 1 back": for 80 % of the queries, the largest attention weight is on the token before.
    """
    if not head.roles:
        return "·"
    role, *others = head.roles
    name = {"rare": "rarest", "alignment": "aligned"}.get(role.kind, role.name)
    if role.kind == "positional":
        name = "itself" if name == "+0" else f"{name[1:]} {'back' if name.startswith('-') else 'ahead'}"
    return f"{role.evidence.share:.0%} {name}{' +' if others else ''}"


def show_pruning(pruning: Pruning, out: str) -> None:
    """Print which heads were kept, and the size, BLEU and speed of both runs. `out` is the folder of the pruned run."""
    labels = {"bleu": "BLEU", "seconds": "CPU seconds"}
    figures = [
        (labels.get(name, name), before, after, ".2f" if name in labels else ".0f")
        for name, (before, after) in pruning.changes.items()
    ]
    if not for_people():
        rows = [(name, f"{before:{form}}", f"{after:{form}}") for name, before, after, form in figures]
        show_table([], [*rows, ("run", out)])
        return
    show_title(f"{pruning.parent} → {out}", f"by {pruning.by}")
    utf = console().encoding.lower().startswith("utf")
    kept_mark, removed_mark = ("■", "·") if utf else ("#", ".")
    grid = []
    for attention, kept in pruning.kept.items():
        marks = (kept_mark if head in kept else removed_mark for head in range(pruning.had[attention]))
        grid.append((attention, " ".join(marks)))
    show_table([], grid)
    print()
    compared = []
    for name, before, after, form in figures:
        change = f"{after - before:+.2f}" if name == "BLEU" else f"{after / before - 1:+.0%}"
        compared.append((name, f"{before:,{form}}", f"{after:,{form}}", change))
    show_table(["", "before", "after", "change"], compared)
    show_note(f"\nBLEU and CPU time on {pruning.sentences:,} sentences; the two runs took turns on one thread.\n")


COMMANDS = {
    "heads": Command(
        "Show what each attention head of a run does, how confident it is and how much depends on it. Measured on\n"
        "held-out pairs of the run, unless other text is given.",
        configure,
        run,
        examples=(
            "regard heads runs/demo",
            "regard heads runs/en-de --conllu parsed.conllu --json",
            "regard heads runs/demo --source test.en --target test.it --alignments test.align --choose-alignment",
        ),
    ),
    "prune": Command(
        "Write a smaller run without the least important attention heads, and compare the two runs.",
        configure_prune,
        run_prune,
        examples=(
            "regard prune runs/demo --out runs/demo-pruned",
            "regard prune runs/demo --share 0.7 --method importance --minutes 5 --out runs/demo-small",
        ),
    ),
}
