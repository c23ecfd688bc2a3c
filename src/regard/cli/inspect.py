"""`regard inspect`: one page that shows what happened inside while a sentence was translated."""

from __future__ import annotations

import argparse
import json
from itertools import islice
from pathlib import Path

from regard.config import Corpus
from regard.data.pairs import read_corpus
from regard.errors import CorpusError, SettingsError
from regard.files import read_lines, split_suffix
from regard.run import Run
from regard.tasks.chat.data import join_turns
from regard.tasks.tag.data import LOOKED_AT, OF_WORDS, looks_like_columns, read_words
from regard.terminal import status

FEWEST = 20
"""Sentences below which a comparison says nothing."""
TEXT_FILES = (".txt", ".md", ".html", ".tsv", ".jsonl", ".csv", ".conll", ".conllu")
"""What ends so and has no space is the name of a file."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Look inside one translation: every head, what each word looks at, the search, attributions, positions.\n"
        "Writes one HTML file that needs no network.\n\n"
        "  regard inspect runs/demo 'I am trendy' --out page.html\n"
        "  regard inspect runs/demo 'I am trendy' --target 'Io sono alla moda'\n"
        "  regard inspect runs/demo 'I am trendy' --json > inside.json\n"
        "  regard inspect runs/demo --survey       # over many sentences: which explanation to trust"
        "\n  regard inspect runs/reviews review.txt  # a classifier: words and sentences shaded by attention"
        "\n  regard inspect runs/chunks 'He took a dive.'  # a tagger: words and what made their labels likely"
        "\n  regard inspect runs/chat 'What is my name?' --before 'I am Anna.' --before 'Hello Anna!'"
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument(
        "sentence", metavar="SENTENCE", nargs="?", help="the sentence to translate, or the text to label"
    )
    parser.add_argument(
        "--target",
        metavar="TEXT",
        help="look at this translation, or the one in this file, not at the model's own",
    )
    parser.add_argument(
        "--before",
        action="append",
        default=[],
        metavar="TURN",
        help="chat: what was said before, the oldest turn first",
    )
    parser.add_argument("--out", default="inspect.html", metavar="FILE", help="the page (default: inspect.html)")
    parser.add_argument("--quick", action="store_true", help="leave out what takes seconds: attribution and mixing")
    parser.add_argument("--json", action="store_true", help="print the data instead of writing the page")
    parser.add_argument("--force", action="store_true", help="replace --out even if it is another kind of file")
    survey = parser.add_argument_group("over many sentences")
    survey.add_argument(
        "--survey",
        action="store_true",
        help="measure which explanation to trust, and how far states lead back to tokens; kept for the run's pages",
    )
    survey.add_argument("--pairs", metavar="FILE", default="", help="pairs to look at (default: what the run has kept)")
    survey.add_argument(
        "--sentences", type=int, default=30, metavar="N", help="compare explanations on so many (default: 30)"
    )


def run(options: argparse.Namespace) -> int:
    """Inspect."""
    opened = Run.open(options.run)  # what was mistyped is told before anything is loaded
    if opened.recipe.data.task in ("classify", "tag") and not options.survey:
        return document(opened, options)
    opened.require(*(["translate"] if options.survey else ["translate", "chat"]))
    if options.survey:
        return survey(opened, options)
    target = _target(options.target)
    if not (options.sentence or "").strip():
        raise SettingsError("the sentence is empty; give one to look at, or --survey")

    from regard.tasks.translate.inspect.page import inspect_run, refuse_other, write_inspection

    if not options.json:
        refuse_other(Path(options.out), force=options.force)
    with status() as log:
        data = inspect_run(opened, _with_turns(opened, options), target, quick=options.quick, log=log)
    if options.json:
        print(json.dumps(data, ensure_ascii=False))
        return 0
    path = write_inspection("inspect", data, options.out, force=options.force)
    print(data["target"]["text"])
    print(f"\nOpen {path} in a browser ({path.stat().st_size / 1e6:.1f} MB, needs no network).")
    return 0


def document(opened: Run, options: argparse.Namespace) -> int:
    """Look at one document of a classifier, or sentence of a tagger: a text, or that of the file of this name."""
    tags = opened.recipe.data.task == "tag"
    if options.target:
        raise SettingsError(f"--target is a translation; a {'tagger' if tags else 'classifier'} has none")
    if options.before:
        raise SettingsError("--before is for conversations; leave it out")
    words = _first_words(options.sentence) if tags else ()
    text = "" if words else _target(options.sentence) or ""
    if not words and not text.strip():
        raise SettingsError(f"the {'sentence' if tags else 'document'} is empty; give one to look at")

    from regard.tasks.classify.classifier import inspect_document
    from regard.tasks.tag.inspect import inspect as inspect_tags
    from regard.tasks.translate.inspect.page import refuse_other, write_inspection

    if not options.json:
        refuse_other(Path(options.out), force=options.force)
    with status("reading"):
        data = inspect_tags(opened, words or text) if tags else inspect_document(opened, text)
    if options.json:
        print(json.dumps(data, ensure_ascii=False))
        return 0
    path = write_inspection("tags" if tags else "document", data, options.out, force=options.force)
    print(data["title"])
    if tags:
        print(data["marked"])
    print(f"\nOpen {path} in a browser (needs no network).")
    return 0


def survey(opened: Run, options: argparse.Namespace) -> int:
    """Look at many sentences."""
    if options.sentence:
        raise SettingsError("--survey looks at many sentences; leave out the one")
    if options.sentences < FEWEST:
        raise SettingsError(f"--sentences must be at least {FEWEST}: fewer cannot tell one method from another")
    data = opened.recipe.data
    corpus = Corpus(options.pairs)
    pairs = list(read_corpus(corpus, data.source_language, data.target_language)) if options.pairs else []

    from regard.tasks.translate.inspect.explain import survey as look

    with status() as log:
        found = look(opened, pairs, sentences=options.sentences, log=log)
    if options.json:
        facts = {"faithfulness": found.faithfulness.as_dict(), "identifiability": found.identifiability.as_dict()}
        print(json.dumps(facts, ensure_ascii=False))
    else:
        print(found)
    return 0


def _with_turns(opened: Run, options: argparse.Namespace) -> str:
    """The sentence; in a conversation, after what was said before."""
    if opened.recipe.data.task == "chat":
        return join_turns([*options.before, options.sentence])
    if options.before:
        raise SettingsError("--before is for conversations; a translation has none")
    sentence: str = options.sentence
    return sentence


def _first_words(given: str | None) -> tuple[str, ...]:
    """The first sentence of the file of this name, if that holds words and no text."""
    if given is None or len(given) > 255 or not Path(given).is_file():
        return ()
    if split_suffix(given)[0] not in OF_WORDS and not looks_like_columns(list(islice(read_lines(given), LOOKED_AT))):
        return ()
    first = next(iter(read_words(given)), ())
    if not first:
        raise CorpusError(given, "no word here")
    return first


def _target(given: str | None) -> str | None:
    """A text, or that of the file of this name."""
    if given is None or len(given) > 255 or not Path(given).is_file():
        if given and not any(map(str.isspace, given)) and Path(given).suffix in TEXT_FILES:
            raise SettingsError(f"{given}: no such file")
        return given
    try:
        lines = Path(given).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        raise SettingsError(f"{given}: cannot read it as UTF-8 text") from None
    return " ".join(line.strip() for line in lines if line.strip())
