"""`regard heads`: what the heads of a run do, which of them matter, and a run without the others."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.settings import add_set
from regard.cli.status import status
from regard.config import Corpus, Data
from regard.errors import SettingsError
from regard.run import Run

if TYPE_CHECKING:
    from regard.tasks.annotated import Example
    from regard.tasks.translate import Translator

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
        "--minutes", type=float, help="time for all the training (default: 0.6 of the run's own updates; 0: none)"
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

    from regard.cli.heads_view import show_heads
    from regard.tasks.annotated import given_examples, own_examples, parsed_examples, training_text, with_links
    from regard.tasks.heads import describe_heads
    from regard.tasks.translate import load, texts_of

    with status() as tell:
        tell("reading")
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
        heads = describe_heads(translator, examples, training_text(opened), tell)
    if options.out:
        from regard.durable import write_atomically
        from regard.pages.heads import draw_heads

        picture = draw_heads([head.as_dict() for head in heads], title=opened.folder.name)
        write_atomically(Path(options.out), picture.encode())
    facts = {"run": str(opened.folder), "sentences": len(examples), "heads": [head.as_dict() for head in heads]}
    if options.keep:
        from regard.tasks.survey import HEADS, keep

        keep(opened, HEADS, facts)
    if options.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    else:
        show_heads(heads, str(opened.folder), len(examples))
    return 0


def choose(opened: Run, translator: Translator, examples: Sequence[Example]) -> int:
    """Write the heads that align words best to the run's card, if they are better than the mean of all heads."""
    from regard.tasks.heads import choose_alignment

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

    from regard.cli.heads_view import show_pruning
    from regard.tasks.prune import prune_run

    data = opened.recipe.data
    given = None
    if options.source:
        given = Data(
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
