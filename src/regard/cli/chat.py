"""`regard chat`: a conversation with a trained run."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from regard.cli.search_options import add_search, search_settings
from regard.run import Run

if TYPE_CHECKING:
    from regard.tasks.chat import Chatter

COMMANDS = "/reset forgets what was said, /quit (or Ctrl-D) leaves"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Talk to a run that was trained on conversations. On a terminal the reply is shown while it is written;\n"
        f"{COMMANDS}. From a pipe, every line is a turn and has its reply on\n"
        "a line; an empty line begins another conversation.\n\n"
        "  regard chat runs/demo-chat\n"
        "  regard chat runs/demo-chat --sample --temperature 0.7 --top-p 0.9 --explain\n"
        "  printf 'hello\\nhow are you?\\n' | regard chat runs/demo-chat --json"
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--explain", action="store_true", help="show turns and words shaded by attention")
    parser.add_argument("--json", action="store_true", help="print each reply as a JSON object")
    add_search(parser)


def run(options: argparse.Namespace) -> int:
    """Talk."""
    search = search_settings(options)
    Run.open(options.run).require("chat")  # a mistyped name is told before anything is read

    from regard.tasks.chat import load

    chatter = load(options.run, *options.ensemble)
    if sys.stdin.isatty() and not options.json:
        talk(chatter, search, options)
    else:
        answer_lines(chatter, _lines(), search, options)
    return 0


def talk(chatter: Chatter, search: dict[str, Any], options: argparse.Namespace) -> None:
    """Turn by turn at a terminal."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (gives `input` a line editor)
    print(f"({COMMANDS})")
    turns: list[str] = []
    while (said := _ask()) != "/quit":
        if said == "/reset":
            turns.clear()
        if not said or said == "/reset":
            continue
        turns.append(said)
        reply = ""
        for piece in chatter.stream(turns, **search):
            print(piece, end="", flush=True)
            reply += piece
        print("" if reply else "(it has nothing to say)")
        if options.explain and reply:
            _explain(chatter, turns, reply)
        turns = [*turns, reply][-chatter.turns :]


def answer_lines(chatter: Chatter, lines: Iterable[str], search: dict[str, Any], options: argparse.Namespace) -> None:
    """A reply for each line; an empty line, answered by one, begins another conversation."""
    turns: list[str] = []
    for line in lines:
        if not line.strip():
            turns.clear()
            print(flush=True)
            continue
        turns.append(line)
        answer = chatter.reply(turns, **search)
        if options.json:
            facts = answer.as_dict()
            if options.explain and answer.text:
                facts["turns"] = [turn.as_dict() for turn in chatter.explain(turns, answer.text)]
            print(json.dumps(facts, ensure_ascii=False), flush=True)
        else:
            print(answer.text, flush=True)
            if options.explain and answer.text:
                _explain(chatter, turns, answer.text)
        turns = [*turns, answer.text][-chatter.turns :]


def _ask() -> str:
    """What the user says; at the end of the input, that it is over."""
    try:
        return input("> ").strip()
    except EOFError:
        print()
        return "/quit"
    except UnicodeDecodeError:
        print("(this was not UTF-8)")
        return ""


def _lines() -> Iterator[str]:
    for raw in sys.stdin.buffer:
        yield raw.decode("utf-8", errors="replace").rstrip("\r\n")


def _explain(chatter: Chatter, turns: list[str], reply: str) -> None:
    from rich.console import Console

    from regard.cli.shading import show_weights

    show_weights(chatter.explain(turns, reply), Console(highlight=False))
