"""`regard inspect`: write a page that shows how a model reached one result.

The module inspect.py of the run's task has OPTIONS, PAGE, read(argument), inspect(run, input, log=..., **options),
summary(data) and, if "measure" is one of its options, measure(run, pairs, sentences, log).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from regard.errors import SettingsError
from regard.files import write_atomically
from regard.pages import PAGES, render_page
from regard.run import Run
from regard.tasks import has_part, part_of_run
from regard.terminal import Command, Parser, status

MIN_SENTENCES = 20
"""Minimum number of sentences for --measure."""
TASK_OPTIONS = {
    "target": "is for translations and captions",
    "context": "is for conversations",
    "language": "is for captions",
    "quick": "leaves out attribution and mixing",
    "measure": "measures explanations of translations and captions",
}
"""Options that only some tasks have, with a phrase for the error message."""


def configure(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    about = "the sentence to translate, the text to label (or its file), or the picture"
    parser.add_argument("sentence", metavar="TEXT", nargs="?", help=about)
    about = "translation, caption: explain this one (or the one in this file), not the model's own"
    parser.add_argument("--target", metavar="TEXT", help=about)
    parser.add_argument(
        "--context", action="append", default=[], metavar="TURN", help="chat: an earlier turn; oldest first; repeatable"
    )
    parser.add_argument("--language", metavar="CODE", default="", help="caption: its language (default: the first)")
    parser.add_argument("--out", default="inspect.html", metavar="FILE", help="the page (default: inspect.html)")
    parser.add_argument("--quick", action="store_true", help="leave out the slow parts: attribution and mixing")
    parser.add_argument("--json", action="store_true", help="print the data instead of writing the page")
    parser.add_argument("--force", action="store_true", help="replace --out even if it is another kind of file")
    many = parser.add_argument_group("over many sentences")
    many.add_argument(
        "--measure", action="store_true", help="measure how faithful the explanations are; stored in the run"
    )
    many.add_argument("--pairs", metavar="FILE", default="", help="pairs to use (default: held-out pairs of the run)")
    many.add_argument(
        "--sentences", type=int, default=30, metavar="N", help="number of sentences to compare on (default: 30)"
    )


def run(options: argparse.Namespace) -> int:
    opened = Run.open(options.run)  # a wrong name is reported before anything is loaded
    task = opened.recipe.data.task
    if not has_part(task, "inspect"):
        raise SettingsError(f"{opened.folder}: a run of the task {task} cannot be inspected; choose another run")
    content = part_of_run(opened, "inspect")
    for name, purpose in TASK_OPTIONS.items():
        if getattr(options, name) and name not in content.OPTIONS:
            raise SettingsError(f"--{name} {purpose}; {opened.folder} is a run of the task {task}: leave out --{name}")
    if options.measure:
        if options.sentence:
            raise SettingsError("--measure uses the sentences of --pairs or held-out ones; leave out the text")
        if options.sentences < MIN_SENTENCES:
            raise SettingsError(
                f"--sentences must be at least {MIN_SENTENCES}, not {options.sentences}: fewer are not enough"
            )
        with status() as log:
            found = content.measure(opened, options.pairs, options.sentences, log)
        print(json.dumps(found.as_dict(), ensure_ascii=False) if options.json else found)
        return 0
    if not (options.sentence or "").strip():
        hint = ", or --measure" if "measure" in content.OPTIONS else ""
        raise SettingsError(f"there is no {getattr(content, 'INPUT', 'text')} to inspect; give one{hint}")
    out = Path(options.out)
    if not options.json:
        check_out(out, force=options.force)
    given = {name: getattr(options, name) for name in content.OPTIONS if name != "measure"}
    text = content.read(options.sentence)
    with status() as log:
        data = content.inspect(opened, text, log=log, **given)
    if options.json:
        print(json.dumps(data, ensure_ascii=False))
        return 0
    write_atomically(out, render_page(content.PAGE, data).encode())
    print(content.summary(data))
    print(f"\nOpen {out} in a browser ({out.stat().st_size / 1e6:.1f} MB, needs no network).")
    return 0


def check_out(path: Path, *, force: bool = False) -> None:
    """Raise an error if `path` is a folder, is in a missing folder, or is a file that `regard inspect` did not write.

    With `force`, such a file may be replaced.
    """
    if path.is_dir():
        raise SettingsError(f"--out {path}: this is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise SettingsError(f"--out {path}: there is no folder {path.parent}; make it first")
    if path.exists() and not force:
        mark = f'<meta name="generator" content="{PAGES["inspect"].command}">'.encode()
        with path.open("rb") as file:
            if mark not in file.read(1024):
                raise SettingsError(
                    f"{path}: exists and was not made by regard inspect; choose another --out, or add --force"
                )


COMMANDS = {
    "inspect": Command(
        "Show how a model reached one result: every attention head, the search, attributions, positions; words and\n"
        "sentences shaded by attention for labels, pictures for captions. Writes one HTML file that needs no network.",
        configure,
        run,
        examples=(
            "regard inspect runs/demo 'I am trendy' --out page.html",
            "regard inspect runs/demo 'I am trendy' --target 'Io sono alla moda'",
            "regard inspect runs/demo --measure                # how faithful each explanation is",
            "regard inspect runs/reviews review.txt            # a classifier",
            "regard inspect runs/emoji picture.png            # a caption model",
            "regard inspect runs/chunks 'He took a dive.'      # a tagger",
            "regard inspect runs/chat 'What is my name?' --context 'I am Anna.' --context 'Hello Anna!'",
        ),
    )
}
