"""`regard index`: the knowledge base that a run answers from."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from regard.config import Corpus
from regard.data.pairs import Pair
from regard.errors import CorpusError, SettingsError
from regard.run import Run
from regard.tasks.retrieve import RetrieveSettings
from regard.tasks.retrieve.data import FORMATS, KnowledgeEntry, add, gather, read_knowledge, remove
from regard.terminal import add_set, settings_help

if TYPE_CHECKING:
    from regard.tasks.retrieve.index import IndexChange


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Fill or change the knowledge base that a run answers from; nothing is trained. Entries are added unless\n"
        "--replace is given; a question that is known already gets its new answer. --new makes a run that compares\n"
        "words alone (BM25), or uses the sentence-embedding model in a folder.\n\n"
        "  regard index --new runs/faq faq.md\n"
        "  regard index --new runs/faq faq.md --encoder models/minilm\n"
        "  regard index runs/faq more.tsv\n"
        "  regard index runs/faq --remove 'Do you sell stamps?'\n"
        "  regard index runs/faq --set retrieve.threshold=0.3\n"
        "  regard index runs/faq --score questions.tsv"
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("files", metavar="FILE", nargs="*", help=f"questions and answers: {FORMATS}, also .gz .zst")
    parser.add_argument("--new", action="store_true", help="make a run that answers from these files, without training")
    parser.add_argument("--replace", action="store_true", help="forget what is known before")
    parser.add_argument(
        "--remove", action="append", default=[], metavar="TEXT", help="forget this question, or this answer; repeatable"
    )
    parser.add_argument("--encoder", metavar="DIR", help="with --new: folder of a sentence-embedding model")
    parser.add_argument(
        "--score", metavar="FILE", help="recall and reciprocal rank of the questions in a file with their answers"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_set(parser)
    parser.epilog = settings_help(RetrieveSettings)


def run(options: argparse.Namespace) -> int:
    """Fill, change, score or show."""
    _refuse(options)
    new = gather(entry for name in options.files for entry in read_knowledge(Corpus(name)))
    if options.new:
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
    with opened.locked():
        before = [] if options.replace else _known(opened)
        show(change(opened, before, _remove(opened, add(before, new) if new else before, options)), options)
    return 0


def score(opened: Run, options: argparse.Namespace) -> int:
    """Ask what the answers are known of."""
    pairs = [
        Pair(question, entry.answer) for entry in read_knowledge(Corpus(options.score)) for question in entry.questions
    ]

    from regard.tasks.retrieve.retriever import load

    found = load(opened.folder).score(pairs)
    if options.json:
        print(json.dumps(found.as_dict()))
        return 0
    print(f"recall@1    {found.recall_1:.2%}")
    print(f"recall@5    {found.recall_5:.2%}")
    print(f"MRR         {found.mrr:.4f}")
    print(f"answered    {found.answered:.2%}")
    print(f"questions   {found.questions:,}")
    return 0


def show(change: IndexChange, options: argparse.Namespace, *, is_changed: bool = True) -> None:
    """What has changed, if anything was to, and what there is now."""
    if options.json:
        print(json.dumps({"run": str(options.run)} | change.as_dict()))
        return
    if change.added or change.removed or change.changed:
        print(f"{_many(change.added, 'answer')} added, {change.changed:,} changed, {change.removed:,} removed")
    elif is_changed:
        print("nothing changed")
    print(f"{options.run} answers from {_many(change.questions, 'question')} with {_many(change.answers, 'answer')}")


def _many(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _refuse(options: argparse.Namespace) -> None:
    """What does not go together."""
    if options.new and not options.files:
        raise SettingsError("--new needs a file of questions and answers")
    if options.new and (options.replace or options.remove or options.score):
        raise SettingsError("--new makes a run; --replace, --remove and --score are for one that exists")
    if options.replace and not options.files:
        raise SettingsError("--replace needs a file of questions and answers")
    if options.score and (options.files or options.remove):
        raise SettingsError("--score changes nothing; give the files, or --remove, in another command")
    if options.score and options.set:
        raise SettingsError("--score changes nothing; give --set in another command")
    if not options.new and options.encoder:
        raise SettingsError("--encoder is for --new; what a run is does not change")


def _known(opened: Run) -> list[KnowledgeEntry]:
    """What a run knows already; a folder without a knowledge base knows nothing."""
    from regard.tasks.retrieve.data import KNOWLEDGE, read_entries

    path = opened.folder / KNOWLEDGE
    return read_entries(path) if path.is_file() else []


def _remove(opened: Run, entries: list[KnowledgeEntry], options: argparse.Namespace) -> list[KnowledgeEntry]:
    """The entries without what is to be forgotten."""
    left, unknown = remove(entries, options.remove)
    if unknown:
        raise CorpusError("--remove", f'"{unknown[0]}" is neither a question nor an answer of {opened.folder}')
    if not left:
        raise CorpusError(opened.folder, "the knowledge base would be empty; --replace it, or remove the folder")
    return left
