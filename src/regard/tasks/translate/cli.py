"""`regard translate` and `regard score`: translate lines or documents, and score given translations."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from functools import cache, partial
from itertools import chain, count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.config import Corpus, SearchSettings
from regard.data.pairs import read_corpus
from regard.documents import FORMAT_NAMES, Document, parse
from regard.errors import SettingsError
from regard.files import (
    STDIN,
    chunks,
    file_sha256,
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
from regard.tasks.translate.output import CHUNK, TranslationFile, chunks_as_they_come, translate_document
from regard.terminal import Command, Options, Parser, add_scoring, add_search, add_setting, progress, search_settings
from regard.training.signals import interruptible

if TYPE_CHECKING:
    from regard.tasks.translate.engine import Quantization
    from regard.tasks.translate.translation import Translation

Translate = Callable[..., list["Translation"]]
"""Translates a list of texts; keywords are search settings."""

MANY_LINES = 500
"""Minimum number of lines for which worker processes are started."""


# Documents: HTML, Markdown, subtitles and other formats with markup or structure


def document_format(options: argparse.Namespace) -> str | None:
    """Return the format of the document to translate, e.g. "html"; None for plain text, translated line by line."""
    ending = split_suffix(options.file)[0] if options.text is None else ""
    kind = options.format or (ending.removeprefix(".") if ending in FORMATS else "txt")
    return None if kind == "txt" else kind


def read_document(options: argparse.Namespace, kind: str, run: Run) -> Document:
    """Read the document to translate, of the format `kind` (e.g. "html").

    Sets `options.align` if word alignments are needed to insert the markup into the translation.
    """
    for name in ("json", "scores", "align", "search_tree", "resume", "prefix"):
        if getattr(options, name):
            raise SettingsError(
                f"{_flag(name)} is for lines of text; {options.file} is translated as a whole ({kind}); "
                "--format txt translates it line by line"
            )
    if options.nbest > 1:
        raise SettingsError(
            f"--nbest is for lines of text; {options.file} is translated as a whole ({kind}); leave out --nbest"
        )
    if options.out and not Path(options.out).absolute().parent.is_dir():
        raise SettingsError(f"--out {options.out}: there is no folder {Path(options.out).parent}; create it first")
    if options.text is not None:
        document = parse("the text", f"{options.text}\n".encode(), format=kind)
    else:
        with standard_input() if options.file == "-" else opened(options.file) as stream:
            document = parse(STDIN if options.file == "-" else options.file, stream.read(), format=kind)
    if document.needs_alignment and options.engine != "ctranslate2":
        options.align = run.recipe.model.attends
    return document


def translate_whole(options: argparse.Namespace, kind: str, run: Run, search: dict[str, Any]) -> int:
    document = read_document(options, kind, run)
    translate, _ = open_translator(options, run, search)
    with progress("sentences", lambda: len(set(document.texts))) as advance:
        content, lost = translate_document(document, translate, advance)
    assert isinstance(content, bytes)
    if lost:
        named = ", ".join(dict.fromkeys(lost[:5])) + (", ..." if len(lost) > 5 else "")
        log(f"check {options.file}: the model left out {named}")
    if options.out and is_stream(Path(options.out)):
        Path(options.out).write_bytes(content)
    elif options.out:
        write_atomically(Path(options.out).resolve(), content)
    else:
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
    return 0


# `regard translate`


def configure(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument(
        "file", metavar="FILE|-|TEXT", nargs="?", default="-",
        help="a file, - for standard input (default), or the text itself in quotes",
    )  # fmt: skip
    parser.add_argument(
        "--format", choices=FORMAT_NAMES, metavar="NAME",
        help="format of the file, e.g. html, md, srt, po, txt (default: by its ending)",
    )  # fmt: skip
    parser.add_argument("--out", metavar="FILE", help="write here instead of standard output, once it is complete")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted --out file")
    parser.add_argument(
        "--engine", choices=["auto", "torch", "ctranslate2"], default="auto", metavar="NAME",
        help="torch, ctranslate2, or auto (default): ctranslate2 where possible",
    )  # fmt: skip
    parser.add_argument(
        "--quantization", choices=["int8", "int16", "float32"], metavar="NAME",
        help="precision of CTranslate2: int8 (default), int16 or float32",
    )  # fmt: skip
    parser.add_argument(
        "--workers", type=int, default=0, metavar="N", help="processes of the torch engine (default: chosen)"
    )
    parser.add_argument(
        "--nbest", type=int, default=1, metavar="N", help="print N translations per line, each after its line number"
    )
    parser.add_argument("--prefix", default="", metavar="TEXT", help="the beginning of every translation")
    parser.add_argument("--scores", action="store_true", help="print score and flags before each translation")
    parser.add_argument(
        "--align", action="store_true", help="print the word alignment after each translation, as 0-0 1-2 (torch)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line, with all details")
    parser.add_argument("--search-tree", action="store_true", help="with --json: every hypothesis of the beam search")
    add_language_model(add_search(parser))


def add_language_model(search: Options) -> None:
    search.add_argument("--lm", default="", metavar="RUN", help="a language model of the target language")
    add_setting(search, "--lm-weight", "search.lm_weight", "X")
    add_setting(search, "--lm-use", "search.lm_use", "NAME")


@interruptible()
def run(options: argparse.Namespace) -> int:
    opened = Run.open(options.run).require("translate")  # a wrong run is reported before anything is read
    options.text = given_text(options.file)
    search = search_settings(options, opened.recipe.search)
    settings = replace(opened.recipe.search, **search)
    check(options, search, settings)
    if kind := document_format(options):
        return translate_whole(options, kind, opened, search)
    lines = _lines(options, opened, settings)
    first = first_of(lines)  # a missing file is reported before the model is loaded
    if not first:
        if options.out:
            TranslationFile(Path(options.out), {}, resume=False).finish()
        return 0
    translate, engine = open_translator(options, opened, search)
    lines = chain(first, lines)
    if options.out:
        return into_file(options, lines, translate, {"engine": engine, "search": asdict(settings)})
    numbers = count(1)
    for chunk in chunks_as_they_come(lines) if options.file == "-" else chunks(lines, CHUNK):
        for answer in translate(chunk):
            print(show(answer, options, next(numbers)))
        sys.stdout.flush()
    return 0


def _lines(options: argparse.Namespace, opened: Run, settings: SearchSettings) -> Iterator[str]:
    """Yield the lines to translate: the argument TEXT, a file or standard input.

    With `search.long_lines = "refuse"`, a line of more than `search.max_source_tokens` tokens is an error.
    """
    if options.text is not None:
        lines = iter(options.text.rstrip("\n").split("\n"))
    elif options.file == "-":
        lines = read_input_lines()
    else:
        lines = read_lines(options.file)
    if settings.long_lines == "split":
        yield from lines
        return
    from regard.tasks.translate.translation import refuse_long

    is_file, tokenizer = options.text is None and options.file != "-", opened.tokenizers[0]
    for number, line in enumerate(lines, 1):
        where = f"{options.file}:{number}" if is_file else f"line {number:,}"
        refuse_long(line, tokenizer, settings.max_source_tokens, where)
        yield line


def given_text(given: str) -> str | None:
    """Return the command-line argument `given` if it is a text to translate; None if it is "-" or a file name."""
    # One word that ends in a dot and a suffix, as in "news.en", is a file name, even if there is no such file.
    named = re.fullmatch(r"\S*[^\s.]\.\w*[a-z]\w*", given, re.ASCII | re.IGNORECASE)
    if given == "-" or os.path.exists(given) or named:
        return None
    if not re.search(r"\s", given) and os.sep in given and os.path.isdir(os.path.dirname(given)):
        return None
    if not given.strip():
        raise SettingsError("the text to translate is empty; give a text, a file, or - for standard input")
    return given


def check(options: argparse.Namespace, search: dict[str, Any], settings: SearchSettings) -> None:
    """Raise an error if command-line options contradict each other.

    `search` has the search settings that the user gave, `settings` all search settings.
    """
    if options.nbest < 1:
        raise SettingsError(f"--nbest must be at least 1, not {options.nbest}")
    if options.nbest > settings.beam_size and not settings.sample:
        raise SettingsError(f"--nbest {options.nbest} needs --beam {options.nbest} or more, not {settings.beam_size}")
    for name in ("temperature", "top_k", "top_p", "seed"):
        if name in search and not settings.sample:
            raise SettingsError(f"{_flag(name)} is for sampling: add --sample")
    if options.workers < 0:
        raise SettingsError(f"--workers must be 0 (automatic) or more, not {options.workers}")
    if options.search_tree and not options.json:
        raise SettingsError("--search-tree is printed as JSON: add --json")
    if options.out and options.file != "-" and os.path.realpath(options.out) == os.path.realpath(options.file):
        raise SettingsError(f"--out {options.out} is the file to translate; choose another name for the output")
    if options.quantization and options.engine == "torch":
        raise SettingsError("--quantization is for --engine ctranslate2; --engine torch uses float32: leave one out")
    if options.resume and not options.out:
        raise SettingsError("--resume continues an output file: name the file with --out")
    if options.out and options.nbest > 1 and not options.json:
        raise SettingsError("--out with --nbest needs --json: then every input line gives one output line")


def open_translator(options: argparse.Namespace, opened: Run, search: dict[str, Any]) -> tuple[Translate, str]:
    """Choose CTranslate2 or torch by the options; return a function that translates texts, and the name of the engine.

    `search` has the search settings that the user gave.
    """
    from regard.tasks.translate.engine import open_fast

    opened.require_weights()
    needs = [_flag(name) for name in ("ensemble", "prefix", "search_tree", "align", "lm") if getattr(options, name)]
    settings = replace(opened.recipe.search, **search)
    quantization: Quantization = options.quantization or "int8"
    fast = open_fast(options.engine, opened, settings, needs, quantization=quantization, log=log)
    if fast:
        translate = partial(fast.translate, nbest=options.nbest, details=options.json, **search)
        return translate, f"ctranslate2 {quantization}"
    asked_for = {name: getattr(options, name) for name in ("nbest", "prefix", "align")}
    asked_for |= search | {"tree": options.search_tree}
    hint = "; --workers 1 needs less memory"
    if options.out and not document_format(options) and not is_stream(Path(options.out)):
        hint += ", and --resume continues the translation"
    runs = [options.run, *options.ensemble]
    return by_torch(runs, options.workers, asked_for, hint, lm=use_language_model(options, opened, settings)), "torch"


def use_language_model(options: argparse.Namespace, opened: Run, settings: SearchSettings) -> str:
    """Return the folder of the language model in --lm, or ""; raise an error if it cannot be used with the run."""
    for name in ("lm_weight", "lm_use"):
        if not options.lm and getattr(options, f"search.{name}") is not None:
            raise SettingsError(f"{_flag(name)} is for a language model: name its run with --lm")
    if options.lm:
        from regard.tasks.text_scores import find_language_model
        from regard.tasks.translate.language_model import check_language_model

        own, target = find_language_model(options.lm).tokenizers[0], opened.tokenizers[1]
        check_language_model(options.lm, own, target, settings, str(opened.folder))
    lm: str = options.lm
    return lm


def log(message: str) -> None:
    print(message, file=sys.stderr)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def by_torch(runs: list[str], processes: int, asked_for: dict[str, Any], hint: str = "", *, lm: str = "") -> Translate:
    """Return a function that translates texts with torch and the ensemble of `runs`, in `processes` processes.

    If `processes` is 0, they are one per core for many lines, otherwise one. `asked_for` has keyword arguments of
    `Translator.translate`; the function takes further ones. `hint` is added to the error message if a worker process is
    killed. `lm` is the folder of a language model, or empty.
    """
    open_together(*runs)  # errors are reported once, not by every process

    from regard.system import usable_cores
    from regard.tasks.translate.translator import Translator, Workers, load

    @cache
    def open_runs(count: int) -> Translator | Workers:
        return Workers(runs, count, hint, lm) if count > 1 else load(*runs, lm=lm)

    def translate(texts: list[str], **more: Any) -> list[Translation]:
        count = processes or (usable_cores() if len(texts) >= MANY_LINES else 1)
        return open_runs(count).translate(texts, **asked_for, **more)

    return translate


def into_file(options: argparse.Namespace, lines: Iterable[str], translate: Translate, how: dict[str, Any]) -> int:
    """Translate lines into the --out file; with --resume, continue it. Returns the exit code.

    `how` has the name of the engine and the search settings, which must be the same when the file is continued.
    """
    file: str = options.file
    shaping = ("nbest", "prefix", "scores", "align", "json", "search_tree")
    runs = [Run.open(folder) for folder in (options.run, *options.ensemble, *([options.lm] if options.lm else []))]
    weights = [run.require_weights().stat() for run in runs]  # they change when a run is trained further
    job = {  # a file is continued only if this has not changed
        # The lines of a pipe are compared by `TranslationFile.rest_of_pipe`.
        "file": [os.path.realpath(file), file_sha256(Path(file))] if os.path.isfile(file) else [file],
        "runs": [
            [str(run.folder.resolve()), status.st_size, status.st_mtime_ns]
            for run, status in zip(runs, weights, strict=True)
        ],
        "options": {name: getattr(options, name) for name in shaping},
        **how,
    }
    lines_there = (lambda: sum(1 for _ in read_lines(file))) if os.path.isfile(file) else None
    with (
        TranslationFile(Path(options.out), job, resume=options.resume) as output,
        progress("sentences", lines_there, done=output.done) as advance,
    ):
        try:
            piped = file == "-"
            for chunk in chunks(output.rest_of_pipe(lines) if piped else islice(lines, output.done, None), CHUNK):
                output.write(show(answer, options) for answer in translate(chunk))
                if piped:
                    output.remember(chunk)
                advance(len(chunk))
        except KeyboardInterrupt:
            log(f"\n{output.part} has the translations so far; continue with the same command and --resume")
            raise
        output.finish()
    return 0


def show(answer: Translation, options: argparse.Namespace, number: int = 0) -> str:
    """Format a translation for the output; with --nbest, one line per alternative, each with the line number."""
    if options.json:
        return json.dumps(answer.as_dict(), ensure_ascii=False)
    lines = []
    for choice in (answer, *answer.others):
        notes = f"{choice.score:.4f}\t{', '.join(choice.flags) or '-'}\t" if options.scores else ""
        links = f"\t{choice.alignment.pharaoh}" if choice.alignment else ""
        whose = f"{number}\t" if options.nbest > 1 else ""
        lines.append(f"{whose}{notes}{choice.text}{links}")
    return "\n".join(lines)


# `regard score`


def configure_score(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--source", required=True, metavar="FILE", help="source sentences, or one file with both sides")
    parser.add_argument("--target", default="", metavar="FILE", help="the translations to score, line by line")
    parser.add_argument("--json", action="store_true", help="print JSON lines, with log-probabilities of tokens")
    add_scoring(parser)


def run_score(options: argparse.Namespace) -> int:
    recipe = Run.open(options.run).require("translate").recipe
    search, data = search_settings(options, recipe.search), recipe.data
    pairs = iter(read_corpus(Corpus(options.source, options.target), data.source_language, data.target_language))
    first = first_of(pairs)  # a missing file is reported before the model is loaded

    from regard.tasks.translate.translator import load

    translator = load(options.run, *options.ensemble)
    if not options.json:
        print("log-probability\tper token\tscore\ttarget")
    for chunk in chunks(chain(first, pairs), CHUNK):
        for answer in translator.score([pair.source for pair in chunk], [pair.target for pair in chunk], **search):
            if options.json:
                print(json.dumps(answer.as_dict(), ensure_ascii=False))
                continue
            each = answer.log_prob / len(answer.log_probs)
            print(f"{answer.log_prob:.4f}\t{each:.4f}\t{answer.score:.4f}\t{answer.text}")
    return 0


COMMANDS: dict[str, Command | str] = {
    "translate": Command(
        "Translate a text, or a file or standard input line by line; HTML, Markdown and other formats as documents.",
        configure,
        run,
        examples=(
            "regard translate runs/demo 'I am trendy'",
            "regard translate runs/en-de news.en --out news.de",
            "regard translate runs/en-de page.html --out page.de.html",
            "regard translate runs/en-de news.en --ensemble runs/en-de-2 --beam 8 --nbest 3 --json",
            "regard translate runs/en-de news.en --lm runs/de --lm-weight 0.15",
        ),
    ),
    "score": Command(
        "Score given translations: for each pair the log-probability of the target given the source, the mean per\n"
        "token, and the score that a search would give it.",
        configure_score,
        run_score,
        examples=(
            "regard score runs/en-de --source test.en --target test.de",
            "regard score runs/en-de --source pairs.tsv --json",
        ),
    ),
    "evaluate": "regard.tasks.translate.evaluate_cli",
    "heads": "regard.tasks.translate.inspect.cli",
    "prune": "regard.tasks.translate.inspect.cli",
}
"""Commands of this task. A string names a module that defines the command, and is imported when it is used."""
