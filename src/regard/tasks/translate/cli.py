"""`regard translate`: lines in, lines out."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.config import Corpus, SearchSettings
from regard.config.recipe import describe, make_recipe, to_table, with_overrides
from regard.data.pairs import read_corpus
from regard.documents import FORMAT_NAMES, Document, parse
from regard.errors import SettingsError
from regard.files import (
    STDIN,
    first_of,
    is_stream,
    opened,
    read_input_lines,
    read_lines,
    split_suffix,
    standard_input,
    write_atomically,
)
from regard.registry import FORMATS
from regard.run import Run, open_together
from regard.tasks.translate.output import TranslationFile, chunks, chunks_as_they_come
from regard.terminal import add_set, add_setting, given_settings, settings_help
from regard.training.signals import interruptible

if TYPE_CHECKING:
    from regard.config import SearchSettings
    from regard.tasks.translate.engine import Quantization
    from regard.tasks.translate.translation import Translation
    from regard.text.tokenizer import Tokenizer


# `regard translate` for a file that is more than lines: HTML, Markdown, subtitles, messages.


LINES_ONLY = ("json", "scores", "align", "tree", "resume", "prefix")
"""Options that speak of lines."""
LINES = "txt"
"""The format whose lines are translated one by one."""
SHOWN = 5
"""Lost pieces that are named."""

Advance = Callable[[int], None]


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add the option that says what a file is."""
    parser.add_argument(
        "--format",
        choices=FORMAT_NAMES,
        help="format of the file (default: by its ending; other endings are txt, one sentence per line)",
    )


def document_format(options: argparse.Namespace) -> str | None:
    """The format of a file that is translated as a whole; None for lines of text."""
    ending = split_suffix(options.file)[0] if options.text is None else ""
    kind = options.format or (ending.removeprefix(".") if ending in FORMATS else LINES)
    return None if kind == LINES else kind


def read_document(options: argparse.Namespace, kind: str, run: Run) -> Document:
    """The document to translate; `options.align` then says whether its marks need to know which words render which."""
    for name in LINES_ONLY:
        if getattr(options, name):
            problem = f"--{name} is for lines of text, and {options.file} is translated as a whole ({kind})"
            raise SettingsError(f"{problem}; --format {LINES} takes it line by line")
    if options.nbest > 1:
        raise SettingsError(f"--nbest is for lines of text, and {options.file} is translated as a whole ({kind})")
    if options.out and not Path(options.out).absolute().parent.is_dir():
        raise SettingsError(f"--out {options.out}: there is no folder {Path(options.out).parent}")
    text = None if options.text is None else f"{options.text}\n".encode()
    document = _parse(options.file, kind) if text is None else parse("the text", text, format=kind)
    if document.needs_alignment and options.engine != "ctranslate2":
        from regard.tasks.translate.documents import looks_back

        options.align = looks_back(run.recipe.model)
    return document


def _parse(file: str, kind: str) -> Document:
    if file == "-":
        with standard_input() as stream:
            return parse(STDIN, stream.read(), format=kind)
    with opened(file) as stream:
        return parse(file, stream.read(), format=kind)


def translate_into(
    options: argparse.Namespace,
    document: Document,
    translate: Callable[[list[str]], list[Translation]],
    bar: AbstractContextManager[Advance],
) -> int:
    """Translate a document into --out, or to standard output."""
    from regard.tasks.translate.documents import translate_document

    with bar as advance:
        content, lost = translate_document(document, translate, advance)
    assert isinstance(content, bytes)
    if lost:
        named = ", ".join(dict.fromkeys(lost[:SHOWN])) + (", ..." if len(lost) > SHOWN else "")
        print(f"check {options.file}: the model left out {named}", file=sys.stderr)
    if options.out and is_stream(Path(options.out)):
        Path(options.out).write_bytes(content)
    elif options.out:
        write_atomically(Path(options.out).resolve(), content)
    else:
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
    return 0


# The options of every command that searches, such as translate, and of those that only score.


def add_scoring(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Options for what decides a score, --set for all search settings, and --ensemble."""
    search = parser.add_argument_group("search")
    search.add_argument(
        "--ensemble", action="append", default=[], metavar="RUN", help="another run that joins in; may be repeated"
    )
    add_setting(search, "--length-penalty", "search.length_penalty", "X")
    add_setting(search, "--coverage-penalty", "search.coverage_penalty", "X")
    add_setting(search, "--batch-tokens", "search.batch_tokens", "N")
    add_set(search)
    parser.epilog = settings_help(SearchSettings)
    return search


def add_search(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """The same, and options for the commonest settings of the search itself."""
    search = add_scoring(parser)
    add_setting(search, "--beam", "search.beam_size", "N")
    add_setting(search, "--min-length", "search.min_length", "N")
    add_setting(search, "--no-repeat", "search.no_repeat_ngram_size", "N")
    _add_switch(search, "--sample", "sample")
    add_setting(search, "--temperature", "search.temperature", "X")
    add_setting(search, "--top-k", "search.top_k", "N")
    add_setting(search, "--top-p", "search.top_p", "X")
    add_setting(search, "--seed", "search.seed", "N")
    _add_switch(search, "--replace-unknown", "replace_unknown")
    return search


def search_settings(options: argparse.Namespace, *own: SearchSettings) -> dict[str, Any]:
    """The search settings that were given, checked together with those of a run's `own` that they leave as they are.

    Several are the settings of several runs; without any, the defaults are taken for them.
    """
    table = with_overrides(given_settings(options), options.set)
    for section in table:
        if section != "search":
            raise SettingsError(f"--set {section}: a trained run takes only search settings, e.g. search.beam_size=8")
    given = table.get("search", {})
    for base in own or (SearchSettings(),):
        checked = make_recipe({"search": to_table(base) | given}, where="options").search
    return {name: getattr(checked, name) for name in given}


def _add_switch(parser: argparse._ActionsContainer, flag: str, name: str) -> None:
    help_text = describe(SearchSettings)[name].replace("%", "%%")
    parser.add_argument(flag, action="store_true", default=None, dest=f"search.{name}", help=help_text)


Translate = Callable[[list[str]], list["Translation"]]
MANY_LINES = 500
"""From so many on, processes of their own pay for their start."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Translate a text, a file or standard input line by line; HTML, Markdown and other formats as documents.\n\n"
        "  regard translate runs/demo 'I am trendy'\n"
        "  echo 'I am trendy' | regard translate runs/demo\n"
        "  regard translate runs/en-de news.en --out news.de\n"
        "  regard translate runs/en-de page.html --out page.de.html\n"
        "  regard translate runs/en-de news.en --ensemble runs/en-de-2 --beam 8 --nbest 3 --json"
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument(
        "file",
        metavar="FILE|-|TEXT",
        nargs="?",
        default="-",
        help="a file (text with one sentence per line, or a document), - for standard input (the default), or the text "
        "itself in quotes; a text that is the name of an existing file means the file",
    )
    add_format(parser)
    parser.add_argument("--out", metavar="FILE", help="write here instead of standard output; there only when whole")
    parser.add_argument("--resume", action="store_true", help="go on with an --out file that was interrupted")
    parser.add_argument(
        "--engine",
        choices=["auto", "torch", "ctranslate2"],
        default="auto",
        help="auto: CTranslate2 in int8 where it is installed and can do what is asked, else torch",
    )
    parser.add_argument(
        "--quantization", choices=["int8", "int16", "float32"], help="arithmetic of CTranslate2 (default: int8)"
    )
    parser.add_argument(
        "--workers", type=int, default=0, metavar="N", help="processes of the torch engine (default: as many as pay)"
    )
    parser.add_argument(
        "--nbest",
        type=int,
        default=1,
        metavar="N",
        help="print the N best translations of each line, each after its number",
    )
    parser.add_argument("--prefix", default="", metavar="TEXT", help="what every translation begins with")
    parser.add_argument(
        "--scores", action="store_true", help="print the score and the flags of each translation before it"
    )
    parser.add_argument(
        "--align", action="store_true", help="print after each translation which words render which, as 0-0 1-2 (torch)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object a line, with everything that is known"
    )
    parser.add_argument("--tree", action="store_true", help="with --json: all that the beam search tried, as data")
    add_search(parser)


def run(options: argparse.Namespace) -> int:
    """Translate."""
    with interruptible():
        return _translate(options)


def _translate(options: argparse.Namespace) -> int:
    opened = Run.open(options.run).require("translate")  # a wrong one is told before anything is read
    options.text = given_text(options.file)
    search = search_settings(options, opened.recipe.search)
    check(options, opened, search)
    if kind := document_format(options):
        document = read_document(options, kind, opened)
        translate, _ = open_translator(options, opened, search)
        return translate_into(options, document, translate, bar(lambda: len(set(document.texts)), 0))
    lines = _lines(options, opened, replace(opened.recipe.search, **search))
    first = first_of(lines)  # a missing file is told before the model is loaded
    if not first:
        if options.out:
            TranslationFile(Path(options.out), {}, resume=False).finish()
        return 0
    translate, engine = open_translator(options, opened, search)
    lines = chain(first, lines)
    if options.out:
        settings = replace(opened.recipe.search, **search)
        return into_file(options, lines, translate, {"engine": engine, "search": asdict(settings)})
    numbers = count(1)
    for chunk in chunks_as_they_come(lines) if options.file == "-" else chunks(lines):
        for answer in translate(chunk):
            print(show(answer, options, next(numbers)))
        sys.stdout.flush()
    return 0


def _lines(options: argparse.Namespace, opened: Run, settings: SearchSettings) -> Iterator[str]:
    """The lines to translate, of which there may be none; long ones refused with their number, if they shall be."""
    if options.text is not None:
        lines = iter(options.text.rstrip("\n").split("\n"))
    elif options.file == "-":
        lines = read_input_lines()
    else:
        lines = read_lines(options.file)
    if settings.long_lines == "split":
        return lines
    is_file = options.text is None and options.file != "-"
    return _without_long(lines, options.file if is_file else "line", opened.tokenizers[0], settings)


_FILE_NAME = re.compile(r"\S*[^\s.]\.\w*[a-z]\w*", re.ASCII | re.IGNORECASE)
"""One word that ends in a dot and a suffix, as in "news.en": a file name, even if there is no such file."""


def given_text(given: str) -> str | None:
    """The argument if it is the text itself; None if it is "-" or names a file, existing or not."""
    if given == "-" or os.path.exists(given) or _FILE_NAME.fullmatch(given):
        return None
    if not re.search(r"\s", given) and os.sep in given and os.path.isdir(os.path.dirname(given)):
        return None
    if not given.strip():
        raise SettingsError("the text to translate is empty; give a text, a file, or - for standard input")
    return given


def _without_long(lines: Iterable[str], name: str, tokenizer: Tokenizer, settings: SearchSettings) -> Iterator[str]:
    from regard.tasks.translate.pieces import TOO_LONG, refuse_long

    for number, line in enumerate(lines, 1):
        where = f"{name} {number:,}" if name == "line" else f"{name}:{number}"
        refuse_long(line, tokenizer, settings.max_source_tokens, where, TOO_LONG)
        yield line


def check(options: argparse.Namespace, opened: Run, search: dict[str, Any]) -> None:
    """Refuse options that do not go together."""
    settings = replace(opened.recipe.search, **search)
    if options.nbest < 1:
        raise SettingsError("--nbest must be at least 1")
    if options.nbest > settings.beam_size and not settings.sample:
        raise SettingsError(f"--nbest {options.nbest} needs a --beam of at least as many, not {settings.beam_size}")
    for name in ("temperature", "top_k", "top_p", "seed"):
        if name in search and not settings.sample:
            raise SettingsError(f"--{name.replace('_', '-')} is about drawing: add --sample")
    if options.workers < 0:
        raise SettingsError("--workers must not be negative")
    if options.tree and not options.json:
        raise SettingsError("--tree is shown as data: add --json")
    if options.out and options.file != "-" and os.path.realpath(options.out) == os.path.realpath(options.file):
        raise SettingsError(f"--out {options.out}: is the file to translate; name another")
    if options.quantization and options.engine == "torch":
        raise SettingsError("--quantization is CTranslate2's; the torch engine keeps float32")
    if options.resume and not options.out:
        raise SettingsError("--resume goes on with a file: say which with --out")
    if options.out and options.nbest > 1 and not options.json:
        raise SettingsError("--out with --nbest needs --json: one line for each line of the input")


def open_translator(options: argparse.Namespace, opened: Run, search: dict[str, Any]) -> tuple[Translate, str]:
    """The engine that suits what is asked, with its settings, and what it is called."""
    from regard.tasks.translate.engine import open_fast

    opened.require_weights()
    asked = [name for name in ("ensemble", "prefix", "tree", "align") if getattr(options, name)]
    settings = replace(opened.recipe.search, **search)
    quantization: Quantization = options.quantization or "int8"
    needs = [f"--{name}" for name in asked]
    fast = open_fast(options.engine, opened, settings, needs, quantization=quantization, log=log)
    if fast:
        translate = partial(fast.translate, nbest=options.nbest, details=options.json, **search)
        return translate, f"ctranslate2 {quantization}"
    asked_for = {name: getattr(options, name) for name in ("nbest", "prefix", "tree", "align")} | search
    hint = " --workers 1 needs less"
    if options.out and not document_format(options) and not is_stream(Path(options.out)):
        hint += ", and --resume goes on"
    return by_torch([options.run, *options.ensemble], options.workers, asked_for, hint), "torch"


def log(message: str) -> None:
    """Print a message beside the output."""
    print(message, file=sys.stderr)


def by_torch(runs: list[str], processes: int, asked_for: dict[str, Any], hint: str = "") -> Translate:
    """One process for a few lines; once there are many, one for each core, or as many as were asked for.

    `hint` is what to do where such a process is ended from outside.
    """
    open_together(*runs)  # what is wrong with them is told at once, and not by every process

    from regard.system import usable_cores
    from regard.tasks.translate.translator import load
    from regard.tasks.translate.workers import Workers

    opened: dict[str, Any] = {}

    def translate(texts: list[str]) -> list[Translation]:
        count = processes or (usable_cores() if len(texts) >= MANY_LINES else 1)
        if count > 1:
            workers = opened.get("workers") or opened.setdefault("workers", Workers(runs, count, hint))
            return workers.translate(texts, **asked_for)
        translator = opened.get("translator") or opened.setdefault("translator", load(*runs))
        return translator.translate(texts, **asked_for)

    return translate


_SHAPING = ("nbest", "prefix", "scores", "align", "json", "tree")
"""Options that change what an output file holds, beside runs, engine and search."""


def into_file(options: argparse.Namespace, lines: Iterable[str], translate: Translate, how: dict[str, Any]) -> int:
    """Translate into --out, from where an earlier attempt stopped, with a bar on a terminal.

    `how` is what else must be the same to go on: the engine that was found and the settings of the search.
    """
    job = {
        "file": _name(options.file),
        "runs": [_weights(Run.open(folder)) for folder in (options.run, *options.ensemble)],
        "options": {name: getattr(options, name) for name in _SHAPING},
        **how,
    }
    lines_there = (lambda: sum(1 for _ in read_lines(options.file))) if os.path.isfile(options.file) else None
    with (
        TranslationFile(Path(options.out), job, resume=options.resume) as output,
        bar(lines_there, output.done) as advance,
    ):
        try:
            piped = options.file == "-"
            for chunk in chunks(output.rest_of_pipe(lines) if piped else islice(lines, output.done, None)):
                output.write(show(answer, options) for answer in translate(chunk))
                if piped:
                    output.remember(chunk)
                advance(len(chunk))
        except KeyboardInterrupt:
            print(f"\n{output.part} keeps what is done; the same command with --resume goes on", file=sys.stderr)
            raise
        output.finish()
    return 0


def _weights(run: Run) -> list[str | int]:
    """A run by its path and by what changes when it is trained on."""
    status = run.require_weights().stat()
    return [str(run.folder.resolve()), status.st_size, status.st_mtime_ns]


def _name(file: str) -> list[str]:
    """A file by its path and its content; of a pipe the lines that were read are compared (`Output.rest_of_pipe`)."""
    if not os.path.isfile(file):
        return [file]
    with open(file, "rb") as content:
        return [os.path.realpath(file), hashlib.file_digest(content, "sha256").hexdigest()]


def show(answer: Translation, options: argparse.Namespace, number: int = 0) -> str:
    """One answer in the form asked for: a line for each alternative, after the number of the source line."""
    if options.json:
        return json.dumps(answer.as_dict(), ensure_ascii=False)
    lines = []
    for choice in (answer, *answer.others):
        notes = f"{choice.score:.4f}\t{', '.join(choice.flags) or '-'}\t" if options.scores else ""
        links = f"\t{choice.alignment.pharaoh}" if choice.alignment else ""
        whose = f"{number}\t" if options.nbest > 1 else ""
        lines.append(f"{whose}{notes}{choice.text}{links}")
    return "\n".join(lines)


@contextmanager
def bar(count: Callable[[], int] | None, done: int) -> Iterator[Callable[[int], None]]:
    """A bar with sentences a second and the time left, on a terminal; gives the function that moves it.

    `count` says how many there are, if that can be known.
    """
    if count is None or not sys.stderr.isatty():
        yield lambda lines: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(24, complete_style="cyan"), MofNCompleteColumn(), TextColumn("{task.fields[speed]}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=count(), completed=done, speed="")

        def advance(lines: int) -> None:
            progress.advance(task, lines)
            speed = progress.tasks[0].speed
            progress.update(task, speed=f"{speed:,.0f} sentences/s" if speed else "")

        yield advance


# `regard score`: what a run thinks of given translations.


CHUNK_PAIRS = 2000


def configure_score(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Score given translations: for each pair the log-probability of the target given the source, the same for\n"
        "each of its tokens, and the score that a search would have given it.\n\n"
        "  regard score runs/en-de --source test.en --target test.de\n"
        "  regard score runs/en-de --source pairs.tsv --json"
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--source", required=True, metavar="FILE", help="source sentences, or one file with both sides")
    parser.add_argument("--target", default="", metavar="FILE", help="the translations to score, line by line")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object a pair, with the log-probability of each token"
    )
    add_scoring(parser)


def run_score(options: argparse.Namespace) -> int:
    """Score."""
    from regard.run import Run

    recipe = Run.open(options.run).require("translate").recipe
    search, data = search_settings(options, recipe.search), recipe.data
    pairs = iter(read_corpus(Corpus(options.source, options.target), data.source_language, data.target_language))
    chunk = list(islice(pairs, CHUNK_PAIRS))  # a missing file is told before the model is loaded

    from regard.tasks.translate.translator import load

    translator = load(options.run, *options.ensemble)
    if not options.json:
        print("log-probability\tper token\tscore\ttarget")
    while chunk:
        for answer in translator.score([pair.source for pair in chunk], [pair.target for pair in chunk], **search):
            if options.json:
                print(json.dumps(answer.as_dict(), ensure_ascii=False))
                continue
            each = answer.log_prob / len(answer.log_probs)
            print(f"{answer.log_prob:.4f}\t{each:.4f}\t{answer.score:.4f}\t{answer.text}")
        chunk = list(islice(pairs, CHUNK_PAIRS))
    return 0
