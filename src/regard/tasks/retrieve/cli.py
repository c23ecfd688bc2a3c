"""`regard index`: fills, changes and scores the knowledge base of a run."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from regard.config import Corpus
from regard.data.pairs import Pair
from regard.errors import CorpusError, SettingsError
from regard.run import Run
from regard.tasks.retrieve.data import FORMATS, KNOWLEDGE, add, gather, read_entries, read_knowledge, remove
from regard.terminal import Command, Parser, add_set, counted, show_table

if TYPE_CHECKING:
    from regard.tasks.retrieve.index import IndexChange


def configure(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("files", metavar="FILE", nargs="*", help=f"questions and answers: {FORMATS}, also .gz .zst")
    parser.add_argument("--create", action="store_true", help="make a run that answers from these files")
    parser.add_argument("--replace", action="store_true", help="remove all entries that the run had before")
    parser.add_argument(
        "--remove", action="append", default=[], metavar="TEXT", help="remove this question or answer; repeatable"
    )
    parser.add_argument("--encoder", metavar="DIR", help="with --create: folder of a sentence-embedding model")
    parser.add_argument(
        "--score", metavar="FILE", help="recall and reciprocal rank for the questions of a file with answers"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_set(parser, "retrieve.threshold=0.3")
    parser.epilog = "regard settings retrieve lists all settings of the knowledge base."


def run(options: argparse.Namespace) -> int:
    if options.create and not options.files:
        raise SettingsError("--create needs a file of questions and answers: regard index --create RUN FILE")
    if options.create and (options.replace or options.remove or options.score):
        raise SettingsError(
            "--create makes a new run; --replace, --remove and --score need a run that exists: leave out --create"
        )
    if options.replace and not options.files:
        raise SettingsError("--replace needs a file of questions and answers: regard index RUN FILE --replace")
    if options.score and (options.files or options.remove or options.set):
        raise SettingsError("--score changes nothing; give files, --remove and --set in another command")
    if not options.create and options.encoder:
        raise SettingsError("--encoder needs --create; the encoder of an existing run cannot be changed")
    new = gather(entry for name in options.files for entry in read_knowledge(Corpus(name)))
    if options.create:
        from regard.tasks.retrieve.index import make_run

        show(make_run(options.run, new, options.encoder or "", options.set), options)
        return 0
    opened = Run.open(options.run).require("retrieve")
    if options.score:
        return score(opened, options)

    from regard.tasks.retrieve.index import change, configure, count

    if options.set:
        with opened.locked():
            made = configure(opened, options.set)
        print(f"{options.run}: {', '.join(made)}", file=sys.stderr)
    if not (new or options.remove):
        show(count(opened), options, is_changed=False)
        return 0
    path = opened.folder / KNOWLEDGE
    with opened.locked():
        before = read_entries(path) if path.is_file() and not options.replace else []
        left, unknown = remove(add(before, new) if new else before, options.remove)
        if unknown:
            problem = f'"{unknown[0]}" is neither a question nor an answer of {opened.folder}'
            raise CorpusError("--remove", f"{problem}; {KNOWLEDGE} in this folder lists them")
        if not left:
            raise CorpusError(opened.folder, "the knowledge base would be empty; give new entries, or delete the run")
        show(change(opened, before, left), options)
    return 0


def score(opened: Run, options: argparse.Namespace) -> int:
    """Print recall, MRR and the share of answered questions, on the file of questions and answers given by --score."""
    pairs = [
        Pair(question, entry.answer) for entry in read_knowledge(Corpus(options.score)) for question in entry.questions
    ]

    from regard.tasks.retrieve.retriever import load

    found = load(opened.folder).score(pairs)
    if options.json:
        print(json.dumps(found.as_dict()))
        return 0
    figures = {
        "recall@1": f"{found.recall_1:.2%}",
        "recall@5": f"{found.recall_5:.2%}",
        "MRR": f"{found.mrr:.4f}",
        "answered": f"{found.answered:.2%}",
        "questions": found.questions,
    }
    show_table([], figures.items())
    return 0


def show(change: IndexChange, options: argparse.Namespace, *, is_changed: bool = True) -> None:
    if options.json:
        print(json.dumps({"run": str(options.run)} | change._asdict()))
        return
    if change.added or change.removed or change.changed:
        print(f"{counted(change.added, 'answer')} added, {change.changed:,} changed, {change.removed:,} removed")
    elif is_changed:
        print("nothing changed")
    print(
        f"{options.run} answers from {counted(change.questions, 'question')} with {counted(change.answers, 'answer')}"
    )


COMMANDS = {
    "index": Command(
        "Fill or change the knowledge base that a run answers from, without training. Entries are added unless\n"
        "--replace is given; a question that exists gets its new answer. --create makes a run that compares words\n"
        "(BM25), or uses the sentence-embedding model in a folder.",
        configure,
        run,
        examples=(
            "regard index --create runs/faq faq.md",
            "regard index --create runs/faq faq.md --encoder models/minilm",
            "regard index runs/faq more.tsv",
            "regard index runs/faq --remove 'Do you sell stamps?'",
            "regard index runs/faq --score questions.tsv",
        ),
    )
}
