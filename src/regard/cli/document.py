"""`regard translate` for a file that is more than lines: HTML, Markdown, subtitles, messages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from regard.data.files import STDIN, opened, split_suffix, standard_input
from regard.documents import FORMAT_NAMES, Document, parse
from regard.durable import is_stream, write_atomically
from regard.errors import SettingsError
from regard.registry import FORMATS
from regard.run import Run

if TYPE_CHECKING:
    from regard.tasks.answer import Answer

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
        from regard.tasks.document import looks_back

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
    translate: Callable[[list[str]], list[Answer]],
    bar: AbstractContextManager[Advance],
) -> int:
    """Translate a document into --out, or to standard output."""
    from regard.tasks.document import translate_document

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
