"""`regard chat`: a conversation with a trained run, or with a knowledge base."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
from collections.abc import Iterable
from typing import Any

from regard.cli.search_options import add_search, search_settings
from regard.cli.speakers import Finder, Speaker, Writer
from regard.data.files import is_typed, read_input_lines
from regard.errors import SettingsError
from regard.recipe import make_recipe, with_overrides
from regard.run import Run

COMMANDS = "/reset forgets what was said, /quit (or Ctrl-D) leaves"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Talk to a run that was trained on conversations, or that answers from a knowledge base. On a terminal the\n"
        f"reply is shown while it is written; {COMMANDS}. From a pipe,\n"
        "every line is a turn and has its reply on a line; an empty line begins another conversation.\n\n"
        "  regard chat runs/demo-chat\n"
        "  regard chat runs/demo-chat --sample --temperature 0.7 --top-p 0.9 --explain\n"
        "  regard chat runs/faq --top 3 --explain\n"
        "  regard chat runs/faq --fallback runs/demo-chat --set retrieve.threshold=0.3\n"
        "  printf 'hello\\nhow are you?\\n' | regard chat runs/demo-chat --json"
    )
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--explain", action="store_true", help="show turns and words shaded by their weight")
    parser.add_argument("--json", action="store_true", help="print each reply as a JSON object")
    known = parser.add_argument_group("knowledge base")
    known.add_argument("--top", type=int, default=0, metavar="K", help="show the best K matches and their scores")
    known.add_argument("--fallback", metavar="RUN", help="a run that replies to what the knowledge base does not know")
    add_search(parser)


def run(options: argparse.Namespace) -> int:
    """Talk."""
    opened = Run.open(options.run).require("chat", "retrieve")  # a mistyped name is told before anything is read
    speaker = (open_writer if opened.recipe.data.task == "chat" else open_finder)(opened, options)
    if is_typed() and not options.json:
        talk(speaker)
    else:
        answer_lines(speaker, read_input_lines(forgiving=True), as_json=options.json)
    return 0


def open_writer(opened: Run, options: argparse.Namespace) -> Speaker:
    """A run that was trained on conversations."""
    if options.top or options.fallback:
        raise SettingsError(f"--top and --fallback are for a knowledge base; {opened.folder} writes its replies")
    return _writer(opened, options, search_settings(options, opened.recipe.search))


def open_finder(opened: Run, options: argparse.Namespace) -> Speaker:
    """A run that answers from a knowledge base. Settings of a search are for the run that it falls back to."""
    if options.top < 0:
        raise SettingsError("--top must not be negative")
    settings = _retrieve_settings(options)
    writer = Run.open(options.fallback).require("chat") if options.fallback else None
    search = search_settings(options, *([writer.recipe.search] if writer else []))
    if (search or options.ensemble) and not writer:
        raise SettingsError("nothing is searched for in a knowledge base; search settings are for a --fallback run")

    from regard.tasks.retrieve import load

    if options.top:
        settings["matches"] = max(options.top, settings.get("matches", opened.recipe.retrieve.matches))
    retriever = load(opened.folder, **settings)
    fallback = _writer(writer, options, search) if writer else None
    return Finder(retriever, top=options.top, explain=options.explain, fallback=fallback)


def _writer(opened: Run, options: argparse.Namespace, search: dict[str, Any]) -> Writer:
    from regard.tasks.chat import load

    return Writer(load(opened.folder, *options.ensemble), search, explain=options.explain)


def _retrieve_settings(options: argparse.Namespace) -> dict[str, Any]:
    """What --set says of the knowledge base, checked; it is taken out of the options."""
    own = [override for override in options.set if override.strip().startswith("retrieve.")]
    options.set = [override for override in options.set if override not in own]
    given = with_overrides({}, own).get("retrieve", {})
    checked = make_recipe({"retrieve": given}, where="options").retrieve
    return {name: getattr(checked, name) for name in given}


def talk(speaker: Speaker) -> None:
    """Turn by turn at a terminal."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (gives `input` a line editor)
    print(f"({COMMANDS})")
    turns: list[str] = []
    while (said := _ask()) != "/quit":
        if said == "/reset":
            turns.clear()
        elif _is_command(said):
            print(f"(there is no {said.split()[0]}; {COMMANDS})")
        if not said or said == "/reset" or _is_command(said):
            continue
        turns.append(said)
        reply = ""
        for piece in speaker.stream(turns):
            print(piece, end="", flush=True)
            reply += piece
        print("" if reply else "(it has nothing to say)")
        speaker.show(turns, reply)
        turns = [*turns, reply][-speaker.turns :]


def _is_command(said: str) -> bool:
    """Whether it looks like a command: a slash and a word, as in "/help", but not "/etc/hosts"."""
    return re.fullmatch(r"/[A-Za-z]+(\s.*)?", said) is not None


def answer_lines(speaker: Speaker, lines: Iterable[str], *, as_json: bool) -> None:
    """A reply for each line; an empty line, answered by one, begins another conversation."""
    turns: list[str] = []
    for line in lines:
        if not line.strip():
            turns.clear()
            print(flush=True)
            continue
        turns.append(line)
        if as_json:
            facts = speaker.facts(turns)
            reply = str(facts["text"])
            print(json.dumps(facts, ensure_ascii=False), flush=True)
        else:
            reply = speaker.reply(turns)
            print(reply, flush=True)
            speaker.show(turns, reply)
        turns = [*turns, reply][-speaker.turns :]


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
