"""The command line. One small file a command, which parses, calls the public API and prints.

A command's module has `configure(parser)` and `run(options) -> exit code`. Modules are imported when their command is
called, and nothing here imports torch, so that help and errors are immediate.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from importlib import import_module
from typing import NoReturn

from regard.errors import RegardError, SettingsError, Terminated, nearest
from regard.system import keep_memory, use_utf8_output

COMMANDS = {
    "demo": "train on the built-in corpus, test, translate, and write a report",
    "train": "train a translator on your own sentence pairs",
    "resume": "continue a run exactly where it stopped",
    "finetune": "go on from a trained run with another corpus",
    "translate": "translate a file or standard input",
    "chat": "talk to a run that was trained on conversations, or that answers from a knowledge base",
    "classify": "label documents, and show the words and sentences that decided",
    "index": "fill, change or score the knowledge base that a run answers from",
    "tag": "label the words of sentences: chunks, names, parts of speech",
    "evaluate": "score a run on a test set, or compare two: BLEU, chrF, TER",
    "score": "log-probabilities of given translations",
    "inspect": "look inside one translation: a page with every head, the search, attributions",
    "heads": "show what attention heads do and which matter; prune the others",
    "serve": "put runs behind a page and a REST API",
    "export": "write a run for CTranslate2, Marian (Hugging Face transformers) or ONNX",
    "import": "make a run of a published Marian model",
    "info": "show what is known about a run, or about an architecture",
    "verify": "check the files of a run against their checksums",
    "data": "look at, clean and split a corpus",
}

HOMES = {
    "resume": "regard.cli.train:_resume",
    "finetune": "regard.cli.train:_finetune",
    "import": "regard.cli.export:_import_",
    "translate": "regard.tasks.translate.cli",
    "score": "regard.tasks.translate.cli:_score",
    "evaluate": "regard.tasks.translate.evaluate_cli",
    "heads": "regard.tasks.translate.inspect.cli",
    "chat": "regard.tasks.chat.cli",
    "classify": "regard.tasks.classify.cli",
    "tag": "regard.tasks.tag.cli",
    "index": "regard.tasks.retrieve.cli",
}
"""Modules of the commands that do not stand in `regard/cli`, with the suffix of their two functions."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line, with the nearest right name."""

    def __init__(self, prog: str):
        super().__init__(prog=prog, allow_abbrev=False, formatter_class=HelpText)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving."""
        for word in message.partition("unrecognized arguments: ")[2].split():
            if word.startswith("-"):
                known = {option.strip("-"): option for action in self._actions for option in action.option_strings}
                guess = nearest(word.strip("-"), known).replace('"', '"--', 1)
                message = f"unknown option {word}{guess}"
                break
        raise SettingsError(f'{message} (see "{self.prog} --help")')


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What the system says where no more can be written."""


class HelpText(argparse.RawDescriptionHelpFormatter):
    """Help that keeps the line breaks of a description and uses the width of the terminal."""

    def __init__(self, prog: str):
        super().__init__(
            prog, max_help_position=30, width=min(os.get_terminal_size().columns, 110) if _has_tty() else 100
        )


def _has_tty() -> bool:
    return sys.stdout.isatty()


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns 0 when all went well, 2 for bad input, 130 when interrupted, 143 after SIGTERM."""
    # Threads that wait for one another should soon sleep, not spin: on a busy machine, spinning threads
    # take the cores from those they wait for (docs/log.md). To be said before torch is first imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    use_utf8_output()
    arguments, plugins = _split_plugins(list(sys.argv[1:] if argv is None else argv))
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        from regard import __version__

        print(f"regard {__version__}")
        return 0
    name = arguments[0]
    try:
        _load_plugins(plugins)
        if name not in COMMANDS:
            raise SettingsError(f'there is no command "{name}"{nearest(name, COMMANDS)} (see "regard --help")')
        return _run(name, arguments[1:])
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        print("\nregard: interrupted", file=sys.stderr)
        return 143 if isinstance(error, Terminated) else 130
    except BrokenPipeError:  # the reader of our output has left, e.g. `| head`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 0
    except OSError as error:
        if error.errno not in FULL:
            raise
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        print(f"regard: cannot write the output ({error.strerror})", file=sys.stderr)
        return 2


def _split_plugins(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The arguments from the command on, and the files given before it with --plugin."""
    plugins = []
    while arguments and arguments[0].partition("=")[0] == "--plugin":
        _, equals, file = arguments.pop(0).partition("=")
        plugins.append(file if equals else arguments.pop(0) if arguments else "")
    return arguments, plugins


def _load_plugins(files: list[str]) -> None:
    if not files:
        return
    from regard.plugins import load

    for file in files:
        load(file)


def _run(name: str, arguments: list[str]) -> int:
    home, _, suffix = HOMES.get(name, f"regard.cli.{name}").partition(":")
    module = import_module(home)
    parser = Parser(prog=f"regard {name}")
    getattr(module, f"configure{suffix}")(parser)
    options = parser.parse_args(arguments)
    if name != "serve":  # which does so for the runs that it opens with torch
        keep_memory()
    code: int = getattr(module, f"run{suffix}")(options)
    return code


def overview() -> str:
    """What `regard --help` says."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "Regard trains, runs and explains attention models that turn one sequence into another.",
            "",
            "usage: regard COMMAND [options]        regard COMMAND --help for details and an example",
            "       regard --plugin FILE COMMAND    with architectures from a Python file (docs/architecture.md)",
            "",
            *lines,
            "",
            "Start with:  regard demo",
        ]
    )
