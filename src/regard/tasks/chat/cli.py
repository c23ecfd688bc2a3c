"""`regard chat`: a conversation with a trained run, or with a knowledge base."""

from __future__ import annotations

import argparse
import contextlib
import heapq
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from regard.config.recipe import make_recipe, with_overrides
from regard.errors import SettingsError
from regard.files import is_typed, read_input_lines
from regard.run import Run
from regard.tasks.translate.cli import add_search, search_settings

if TYPE_CHECKING:
    from rich.console import Console

    from regard.tasks.chat.chatbot import Chatbot
    from regard.tasks.retrieve.retriever import Reply, Retriever


# Who replies in `regard chat`: a model that writes, or a knowledge base, which may hand over to a model.


SHOWN_WORDS, LEAST_SHOWN = 5, 0.005
"""Words that are named, at most, and the share below which one is not."""
SHADED_WORDS = 200
"""A question of more words is not repeated."""


class Speaker(Protocol):
    """One side of a conversation."""

    @property
    def turns(self) -> int:
        """How many turns it looks back at."""

    def stream(self, turns: Sequence[str]) -> Iterator[str]:
        """The reply in pieces, as they are written."""

    def reply(self, turns: Sequence[str]) -> str:
        """The reply on a line."""

    def facts(self, turns: Sequence[str]) -> dict[str, Any]:
        """The reply as "text", and all that is known of it."""

    def show(self, turns: Sequence[str], reply: str) -> None:
        """Print what more was asked for, after the reply."""


class Writer:
    """A model that writes its replies."""

    def __init__(self, chatter: Chatbot, search: dict[str, Any], *, explain: bool = False):
        self.chatter, self.search, self.explain = chatter, search, explain
        self.turns = chatter.turns

    def stream(self, turns: Sequence[str]) -> Iterator[str]:
        """Token by token, where the search allows it."""
        return self.chatter.stream(turns, **self.search)

    def reply(self, turns: Sequence[str]) -> str:
        """All at once."""
        return self.chatter.reply(turns, **self.search).text

    def facts(self, turns: Sequence[str]) -> dict[str, Any]:
        """The answer; its turns by weight if they are to be explained."""
        answer = self.chatter.reply(turns, **self.search)
        facts = answer.as_dict()
        if self.explain and answer.text:
            facts["turns"] = [turn.as_dict() for turn in self.chatter.explain(turns, answer.text)]
        return facts

    def show(self, turns: Sequence[str], reply: str) -> None:
        """Turns and words, shaded by attention."""
        if self.explain and reply:
            from rich.console import Console

            from regard.terminal import show_weights

            show_weights(self.chatter.explain(turns, reply), Console(highlight=False))


class Finder:
    """A knowledge base; to what it does not know, `fallback` replies, if there is one."""

    def __init__(self, retriever: Retriever, *, top: int = 0, explain: bool = False, fallback: Writer | None = None):
        self.retriever, self.top, self.explain, self.fallback = retriever, top, explain, fallback
        self.turns = max(retriever.turns, fallback.turns if fallback else 0)
        self._found: Reply | None = None

    def stream(self, turns: Sequence[str]) -> Iterator[str]:
        """The answer is there at once; what a model writes comes as it is written."""
        self._found = self.retriever.reply(turns)
        return iter([self._found.text]) if self._answers() else self._writer().stream(turns)

    def reply(self, turns: Sequence[str]) -> str:
        """An answer of several lines is put on one."""
        self._found = self.retriever.reply(turns)
        return " ".join(self._found.text.split()) if self._answers() else self._writer().reply(turns)

    def facts(self, turns: Sequence[str]) -> dict[str, Any]:
        """The answer with its matches; who replied is "by", where there are two who may."""
        found = self._found = self.retriever.reply(turns)
        facts = found.as_dict()
        facts["matches"] = facts["matches"][: self.top or len(found.matches)]
        if self.explain:
            facts["words"] = [part.as_dict() for part in self.retriever.explain(found)]
        if self.fallback:
            facts["by"] = "knowledge" if found.answered else "model"
            facts |= {} if found.answered else {"text": self.fallback.reply(turns)}
        return facts

    def show(self, turns: Sequence[str], reply: str) -> None:
        """The best matches with their scores; the words that met, shaded."""
        if self._found is None or not (self.top or self.explain):
            return
        from rich.console import Console
        from rich.text import Text

        console = Console(highlight=False, soft_wrap=True)
        if self.explain:
            self._explain(self._found, console)
        for match in self._found.matches[: self.top]:
            parts = ((name, getattr(match, name)) for name in ("bm25", "dense"))
            scores = "  ".join(f"{name} {value:.3f}" for name, value in parts if value is not None)
            console.print(Text(f"  {match.score:.3f}  {match.question}  ({scores})", style="dim"))

    def _explain(self, found: Reply, console: Console) -> None:
        """The words of the question, shaded where there are colours; then those that met most of the match."""
        from rich.text import Text

        from regard.terminal import show_words

        for part in self.retriever.explain(found):
            if console.is_terminal and len(part.words) <= SHADED_WORDS:
                show_words(part, console)
            heavy = heapq.nlargest(SHOWN_WORDS, part.words, key=lambda word: word.weight)
            named = ", ".join(f"{word.text} {word.weight:.0%}" for word in heavy if word.weight >= LEAST_SHOWN)
            console.print(Text(f"  most matched: {named}", style="dim"))

    def _answers(self) -> bool:
        return self.fallback is None or (self._found is not None and self._found.answered)

    def _writer(self) -> Writer:
        assert self.fallback is not None
        return self.fallback


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

    from regard.tasks.retrieve.retriever import load

    if options.top:
        settings["matches"] = max(options.top, settings.get("matches", opened.recipe.task.matches))
    retriever = load(opened.folder, **settings)
    fallback = _writer(writer, options, search) if writer else None
    return Finder(retriever, top=options.top, explain=options.explain, fallback=fallback)


def _writer(opened: Run, options: argparse.Namespace, search: dict[str, Any]) -> Writer:
    from regard.tasks.chat.chatbot import load

    return Writer(load(opened.folder, *options.ensemble), search, explain=options.explain)


def _retrieve_settings(options: argparse.Namespace) -> dict[str, Any]:
    """What --set says of the knowledge base, checked; it is taken out of the options."""
    own = [override for override in options.set if override.strip().startswith("retrieve.")]
    options.set = [override for override in options.set if override not in own]
    given = with_overrides({}, own).get("retrieve", {})
    checked = make_recipe({"data": {"task": "retrieve"}, "retrieve": given}, where="options").task
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
