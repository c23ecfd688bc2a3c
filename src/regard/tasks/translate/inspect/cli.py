"""`regard heads`: what the heads of a run do, which of them matter, and a run without the others."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from regard.config import Corpus, DataSettings
from regard.errors import SettingsError
from regard.run import Run
from regard.tasks.translate.inspect.heads import HeadReport, Role
from regard.tasks.translate.inspect.prune import Pruning, ScoreChange
from regard.terminal import add_set, status

if TYPE_CHECKING:
    from regard.tasks.translate.inspect.heads import AnnotatedExample
    from regard.tasks.translate.translator import Translator


JUDGED_BY = 500


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Show what each attention head of a run does, how confident it is and how much depends on it; or write a\n"
        "smaller run without the heads that can be spared. Judged by held-out pairs that the run keeps, unless other\n"
        "text is given.\n\n"
        "  regard heads runs/demo\n"
        "  regard heads runs/en-de --conllu parsed.conllu --json\n"
        "  regard heads runs/demo --source test.en --target test.it --links test.align --choose-alignment\n"
        "  regard heads runs/demo --prune 0.5 --out runs/demo-18-heads"
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--source", default="", metavar="FILE", help="source sentences, or one file with both sides")
    parser.add_argument("--target", default="", metavar="FILE", help="their translations, line by line")
    parser.add_argument(
        "--conllu", default="", metavar="FILE", help="source sentences with their grammar, in place of --source"
    )
    parser.add_argument(
        "--links",
        default="",
        metavar="FILE",
        help='word alignments as "0-0 1-2", line by line; words are what spaces divide',
    )
    parser.add_argument(
        "--gold-from", type=int, choices=(0, 1), metavar="N", help="index of the first word in --links (default: 0)"
    )
    parser.add_argument(
        "--sentences", type=int, default=JUDGED_BY, metavar="N", help=f"judge by so many pairs (default: {JUDGED_BY})"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--keep", action="store_true", help="keep it in the run folder, for the pages of regard inspect"
    )
    parser.add_argument(
        "--choose-alignment",
        action="store_true",
        help="choose the heads that align words best by --links, for regard translate --align",
    )
    parser.add_argument("--out", metavar="PATH", help="the picture to draw (.svg), or with --prune the run to make")
    pruning = parser.add_argument_group("pruning")
    pruning.add_argument("--prune", type=float, metavar="SHARE", help="take out this share of all heads, e.g. 0.5")
    pruning.add_argument(
        "--by", choices=("gates", "importance"), help="how to choose them: learn gates (default), or measure"
    )
    pruning.add_argument("--freeze", action="store_true", help="keep the weights as they are while the gates learn")
    pruning.add_argument(
        "--minutes", type=float, help="time for all the training (default: 0.6 of the run's own steps; 0: none)"
    )
    add_set(pruning)


def run(options: argparse.Namespace) -> int:
    """Show, or prune."""
    if options.conllu and options.source:
        raise SettingsError("--conllu holds the source sentences itself; leave out --source")
    if options.gold_from is not None and not options.links:
        raise SettingsError("--gold-from says how --links counts words; give --links too")
    if options.choose_alignment and (options.json or options.keep or options.out or options.prune is not None):
        raise SettingsError("--choose-alignment writes the run's card alone; leave out --json, --keep, --out, --prune")
    if options.sentences < 1:
        raise SettingsError("--sentences must be at least 1")
    opened = Run.open(options.run).require("translate")
    return show(opened, options) if options.prune is None else prune(opened, options)


def show(opened: Run, options: argparse.Namespace) -> int:
    """Roles, confidence, importance."""
    if options.set or options.by or options.freeze:
        raise SettingsError("--by, --freeze and --set go with --prune")
    if options.out and Path(options.out).suffix != ".svg":
        raise SettingsError(f"--out {options.out}: the picture is an .svg file (a run is made with --prune)")

    from regard.tasks.translate.inspect.heads import (
        describe_heads,
        given_examples,
        own_examples,
        parsed_examples,
        training_text,
        with_links,
    )
    from regard.tasks.translate.translator import load, texts_of

    with status() as log:
        log("reading")
        translator = load(opened.folder)
        if options.conllu:
            examples = parsed_examples(
                options.conllu, options.target, options.sentences, lambda texts: texts_of(translator.translate(texts))
            )
        elif options.source:
            examples = given_examples(opened, options.source, options.target, options.sentences)
        else:
            examples = own_examples(opened, options.sentences)
        if options.links:
            examples = with_links(examples, options.links, options.gold_from or 0)
        if options.choose_alignment:
            return choose(opened, translator, examples)
        heads = describe_heads(translator, examples, training_text(opened), log)
    if options.out:
        from regard.files import write_atomically
        from regard.pages.heads import draw_heads

        picture = draw_heads([head.as_dict() for head in heads], title=opened.folder.name)
        write_atomically(Path(options.out), picture.encode())
    facts = {"run": str(opened.folder), "sentences": len(examples), "heads": [head.as_dict() for head in heads]}
    if options.keep:
        from regard.tasks.translate.inspect.explain import HEADS, keep

        keep(opened, HEADS, facts)
    if options.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    else:
        show_heads(heads, str(opened.folder), len(examples))
    return 0


def choose(opened: Run, translator: Translator, examples: Sequence[AnnotatedExample]) -> int:
    """Write the heads that align words best to the run's card, if they are better than the mean of all heads."""
    from regard.tasks.translate.inspect.heads import choose_alignment

    found, plain = choose_alignment(translator, examples)
    names = ", ".join(f"{head.attention} {head.number}" for head in found.choice.heads)
    print(f"alignment error rate: {found.scores.aer:.3f} with {names} ({found.choice.rule})")
    print(f"                      {plain.aer:.3f} with all heads")
    if found.scores.aer >= plain.aer:
        print(f"{opened.folder}: regard translate --align goes on with all heads")
        return 0
    opened.write_card(opened.card | {"alignment": found.choice.as_dict()})
    print(f"{opened.folder}: regard translate --align now uses the chosen heads")
    return 0


def prune(opened: Run, options: argparse.Namespace) -> int:
    """A smaller run."""
    if not options.out:
        raise SettingsError("--prune writes a new run: say where with --out")
    if options.conllu or options.links:
        raise SettingsError("--conllu and --links are for looking at heads; pruning learns from --source and --target")
    if Path(options.out).exists():  # told before anything is loaded
        raise SettingsError(f"--out {options.out}: exists already; choose another name")
    if options.minutes is not None and options.minutes < 0:
        raise SettingsError("--minutes must not be negative")

    from regard.tasks.translate.inspect.prune import prune_run

    data = opened.recipe.data
    given = None
    if options.source:
        given = DataSettings(
            train=(Corpus(options.source, options.target),),
            source_language=data.source_language,
            target_language=data.target_language,
        )
    pruning = prune_run(
        opened,
        options.out,
        options.prune,
        by=options.by or "gates",
        weights_follow=not options.freeze,
        minutes=options.minutes,
        data=given,
        overrides=options.set,
    )
    if options.json:
        print(json.dumps(pruning.as_dict(), indent=2))
    else:
        show_pruning(pruning, options.out)
    return 0


# How heads are shown: a grid of layers by heads for the eye, lines with tabs for programs.


STYLES = {"positional": "cyan", "rare": "magenta", "syntactic": "green", "alignment": "yellow"}
MEANINGS = {
    "positional": "looks at one offset",
    "rare": "looks at the rarest token",
    "syntactic": "follows a relation",
    "alignment": "looks at the word it translates",
}
OFFSETS = {"-1": "1 back", "+1": "1 ahead", "+0": "itself"}
KINDS = {"encoder": "encoder, source to source", "decoder": "decoder, target to target", "cross": "target to source"}
NARROWEST, WIDEST, LABEL, BAR = 17, 23, 11, 8
QUIET = "dim"


def show_heads(heads: Sequence[HeadReport], title: str, sentences: int) -> None:
    """Role, confidence and importance of every head."""
    console = Console(highlight=False)
    if not console.is_terminal:
        _print_plain(heads)
        return
    console.print(
        Text.assemble("\n  ", (title, "bold"), (f"  {len(heads)} heads, judged by {sentences:,} pairs", QUIET))
    )
    most = max(head.ablation for head in heads)
    for kind, of_kind in _by_kind(heads).items():
        console.print(Text.assemble("\n  ", (KINDS[kind], "bold")))
        for attention, row in groupby(of_kind, key=lambda head: head.attention):
            _print_layer(console, attention, list(row), most)
    _print_legend(console, heads, most)


def _print_layer(console: Console, attention: str, row: Sequence[HeadReport], most: float) -> None:
    """As many heads beside one another as there is room for: their roles, and below how much they matter."""
    room = console.width - LABEL
    cell = min(max(room // len(row), NARROWEST), WIDEST)
    fit = max(room // cell, 1)
    for first in range(0, len(row), fit):
        part = row[first : first + fit]
        upper, lower = Text(_layer(attention).ljust(LABEL) if not first else " " * LABEL), Text(" " * LABEL)
        for head in part:
            upper.append_text(_fit(Text.assemble((f"{head.head} ", QUIET), _role(head)), cell))
            lower.append_text(_fit(_weight(console, head, most), cell))
        console.print(upper, no_wrap=True, crop=True)
        console.print(lower, no_wrap=True, crop=True)


def _role(head: HeadReport) -> Text:
    if not head.roles:
        return Text("·", QUIET)
    role = head.roles[0]
    more = " +" if len(head.roles) > 1 else ""
    return Text(f"{role.evidence.share:.0%} {_name(role)}{more}", STYLES[role.kind])


def _name(role: Role) -> str:
    if role.kind == "positional":
        return OFFSETS.get(role.name, f"{role.name[1:]} {'back' if role.name.startswith('-') else 'ahead'}")
    return {"rare": "rarest", "alignment": "aligned"}.get(role.kind, role.name)


def _weight(console: Console, head: HeadReport, most: float) -> Text:
    """A bar for what is lost without the head, and its confidence."""
    filled = _bar(console, head.ablation / most if most > 0 else 0.0)
    style = STYLES[head.roles[0].kind] if head.roles else QUIET
    return Text.assemble("  ", (filled, style), (f" {head.confidence:.2f}", QUIET))


def _bar(console: Console, share: float) -> str:
    eighths = max(round(8 * BAR * min(share, 1.0)), 0)
    if not console.encoding.lower().startswith("utf"):
        return ("#" * (eighths // 8)).ljust(BAR, ".")
    full, rest = divmod(eighths, 8)
    return ("█" * full + " ▏▎▍▌▋▊▉"[rest] * bool(rest)).ljust(BAR)


def _print_legend(console: Console, heads: Sequence[HeadReport], most: float) -> None:
    found = {role.kind for head in heads for role in head.roles}
    console.print()
    for kind in STYLES:
        if kind in found:
            console.print(Text.assemble("  ", (f"{kind:<11}", STYLES[kind]), (MEANINGS[kind], QUIET)))
    counted = sum(bool(head.roles) for head in heads)
    lines = (
        f"{counted} of {len(heads)} heads have a role; the share: how often their largest weight goes there",
        f"bars: rise of the loss without the head, up to {most:.3f} a token",
        "beside them: mean of the head's largest weight (its confidence)",
    )
    for line in lines:
        console.print(Text(f"  {line}", QUIET))
    console.print()


def _print_plain(heads: Sequence[HeadReport]) -> None:
    print("attention\thead\tconfidence\tablation\tgradient\trole\tof\tshare\tlow\thigh\tbaseline")
    for head in heads:
        facts = f"{head.attention}\t{head.head}\t{head.confidence:.4f}\t{head.ablation:.5f}\t{head.gradient:.5f}"
        for role in head.roles or (None,):
            print(f"{facts}\t{_plain_role(role)}" if role else f"{facts}\t\t\t\t\t\t")


def _plain_role(role: Role) -> str:
    found = role.evidence
    numbers = "\t".join(f"{value:.4f}" for value in (found.share, found.low, found.high, found.baseline))
    return f"{role.kind}\t{role.name}\t{numbers}"


def show_pruning(pruning: Pruning, out: str) -> None:
    """What stayed, what was lost and what was won."""
    console = Console(highlight=False)
    figures = [
        ("heads", pruning.heads, "{:,.0f}"),
        ("parameters", pruning.compared.parameters, "{:,.0f}"),
        ("bytes", pruning.compared.bytes, "{:,.0f}"),
        ("BLEU", pruning.compared.bleu, "{:.2f}"),
        ("CPU seconds", pruning.compared.seconds, "{:.2f}"),
    ]
    if not console.is_terminal:
        for name, change, form in figures:
            print(f"{name}\t{form.format(change.before)}\t{form.format(change.after)}".replace(",", ""))
        print(f"run\t{out}")
        return
    console.print(Text.assemble("\n  ", (f"{pruning.parent} → {out}", "bold"), (f"  by {pruning.by}\n", QUIET)))
    _print_kept(console, pruning)
    console.print(Text(f"\n  {'':<12}{'before':>12}{'after':>12}", QUIET))
    for name, change, form in figures:
        line = f"  {name:<12}{form.format(change.before):>12}{form.format(change.after):>12}"
        console.print(Text.assemble(line, (f"  {_difference(name, change)}", QUIET)))
    console.print(
        Text(
            f"\n  BLEU and decoding on {pruning.compared.sentences:,} sentences, both runs in turn, one thread.\n",
            QUIET,
        )
    )


def _print_kept(console: Console, pruning: Pruning) -> None:
    utf = console.encoding.lower().startswith("utf")
    stays, gone = ("■", "·") if utf else ("#", ".")
    for attention, kept in pruning.kept.items():
        marks = " ".join(stays if head in kept else gone for head in range(pruning.had[attention]))
        console.print(Text.assemble(f"  {attention:<18}", (marks, "cyan")))


def _difference(name: str, change: ScoreChange) -> str:
    if name == "BLEU":
        return f"{change.after - change.before:+.2f}"
    return f"{change.after / change.before - 1:+.0%}"


def _by_kind(heads: Sequence[HeadReport]) -> dict[str, list[HeadReport]]:
    groups: dict[str, list[HeadReport]] = {}
    for head in heads:
        groups.setdefault(head.kind, []).append(head)
    return groups


def _layer(attention: str) -> str:
    parts = attention.split(".")
    return f"  layer {parts[1]}" if len(parts) == 3 else f"  {parts[0]}"


def _fit(text: Text, width: int) -> Text:
    text.truncate(width - 1, overflow="ellipsis")
    text.pad_right(width - text.cell_len)
    return text
