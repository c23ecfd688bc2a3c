"""`regard chat`: a conversation with any run whose predictor replies: a chat model, or a knowledge base."""

from __future__ import annotations

import argparse
import contextlib
import heapq
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from regard.config.recipe import make_recipe, with_overrides
from regard.errors import SettingsError
from regard.files import is_typed, read_input_lines
from regard.run import Run
from regard.tasks import find, load, names, part
from regard.tasks.chat import TASK
from regard.terminal import (
    QUIET,
    Command,
    Parser,
    add_search,
    console,
    for_people,
    search_settings,
    show_weights,
    show_words,
)

SHOWN_WORDS, LEAST_SHOWN = 5, 0.005
"""Words that are named, at most, and the share from which a word is named."""
SHADED_WORDS = 200
"""A question of more words is not repeated."""
HELP = "/reset starts again, /quit (or Ctrl-D) exits"


def configure(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--explain", action="store_true", help="show turns and words shaded by their weight")
    parser.add_argument("--json", action="store_true", help="print each reply as a JSON object")
    known = parser.add_argument_group("knowledge base")
    known.add_argument("--top", type=int, default=0, metavar="K", help="show the best K matches and their scores")
    known.add_argument("--fallback", metavar="RUN", help="a chat run that replies where no answer is known")
    add_search(parser)


def run(options: argparse.Namespace) -> int:
    talking = [name for name in names() if find(name).command == TASK.command]  # their runs have `reply`
    opened = Run.open(options.run).require(*talking)  # a wrong name is reported before anything is read
    is_written = find(opened.recipe.data.task).writes  # by a model, not found in a knowledge base
    conversation = (_open_writer if is_written else _open_knowledge)(opened, options)
    if is_typed() and not options.json:
        talk(conversation)
    else:
        answer_lines(conversation, read_input_lines(forgiving=True), as_json=options.json)
    return 0


def _open_writer(opened: Run, options: argparse.Namespace) -> Conversation:
    if options.top or options.fallback:
        raise SettingsError(f"--top and --fallback are for a knowledge base; {opened.folder} writes its replies")
    search = search_settings(options, opened.recipe.search)
    return Conversation(None, load(opened, *options.ensemble), search, explain=options.explain)


def _open_knowledge(opened: Run, options: argparse.Namespace) -> Conversation:
    """Settings of the knowledge base may be in --set; search settings are for the run given by --fallback."""
    if options.top < 0:
        raise SettingsError("--top must not be negative")
    task = find(opened.recipe.data.task)
    own = [override for override in options.set if override.strip().startswith(f"{task.name}.")]
    options.set = [override for override in options.set if override not in own]
    given = with_overrides({}, own).get(task.name, {})
    checked = make_recipe({"data": {"task": task.name}, task.name: given}, where="options").task
    settings = {name: getattr(checked, name) for name in given}
    other = Run.open(options.fallback).require("chat") if options.fallback else None
    search = search_settings(options, *([other.recipe.search] if other else []))
    if (search or options.ensemble) and not other:
        raise SettingsError("a knowledge base has no search settings; they are for a --fallback run")
    if options.top:
        settings["matches"] = max(options.top, settings.get("matches", opened.recipe.task.matches))
    knowledge = part(task.name, task.module).load(opened.folder, **settings)
    writer = load(other, *options.ensemble) if other else None
    return Conversation(knowledge, writer, search, explain=options.explain, top=options.top)


@dataclass
class Conversation:
    """The turns so far, and what replies: a knowledge base, a model that writes, or first one and then the other."""

    knowledge: Any
    """Has `reply(turns)`, whose result has `answered`, `text` and `matches`; or None."""
    writer: Any
    """Has `reply(turns, **search)` and `stream(turns, **search)`; or None."""
    search: dict[str, Any]
    explain: bool = False
    top: int = 0
    """Matches to show."""
    turns: list[str] = field(default_factory=list)
    found: Any = None
    """The last reply of the knowledge base."""

    def stream(self, said: str) -> Iterator[str]:
        reply = ""
        for piece in [self.found.text] if self._ask(said) else self.writer.stream(self.turns, **self.search):
            reply += piece
            yield piece
        self.turns = [*self.turns, reply]

    def reply(self, said: str) -> str:
        """The reply on one line."""
        if self._ask(said):
            reply = " ".join(self.found.text.split())
        else:
            reply = self.writer.reply(self.turns, **self.search).text
        self.turns = [*self.turns, reply]
        return reply

    def details(self, said: str) -> dict[str, Any]:
        """The reply ("text") and all facts about it. "by" is "knowledge" or "model" if there are both."""
        is_found = self._ask(said)
        facts: dict[str, Any] = {}
        if self.knowledge:
            facts = self.found.as_dict()
            facts["matches"] = facts["matches"][: self.top or len(self.found.matches)]
            if self.explain:
                facts["words"] = [text.as_dict() for text in self.knowledge.explain(self.found)]
            if self.writer:
                facts["by"] = "knowledge" if is_found else "model"
        if not is_found:
            answer = self.writer.reply(self.turns, **self.search)
            facts = facts | {"text": answer.text} if self.knowledge else answer.as_dict()
            if self.explain and answer.text and not self.knowledge:
                facts["turns"] = [turn.as_dict() for turn in self.writer.explain(self.turns, answer.text)]
        self.turns = [*self.turns, str(facts["text"])]
        return facts

    def show(self) -> None:
        """Print what --explain and --top ask for, after the reply.

        Of a model, the turns shaded by attention. Of a knowledge base, the matching words of the question, shaded, and
        the best matches with their scores.
        """
        *turns, reply = self.turns
        if not self.knowledge:
            if self.explain and reply:
                show_weights(self.writer.explain(turns, reply))
            return

        from rich.text import Text

        screen = console()
        for text in self.knowledge.explain(self.found) if self.explain else ():
            if for_people() and len(text.words) <= SHADED_WORDS:
                show_words(text)
            heavy = heapq.nlargest(SHOWN_WORDS, text.words, key=lambda word: word.weight)
            named = ", ".join(f"{word.text} {word.weight:.0%}" for word in heavy if word.weight >= LEAST_SHOWN)
            screen.print(Text(f"  most matched: {named}", style=QUIET), soft_wrap=True)
        for match in self.found.matches[: self.top]:
            parts = ((name, getattr(match, name)) for name in ("bm25", "dense"))
            scores = "  ".join(f"{name} {value:.3f}" for name, value in parts if value is not None)
            screen.print(Text(f"  {match.score:.3f}  {match.question}  ({scores})", style=QUIET), soft_wrap=True)

    def _ask(self, said: str) -> bool:
        """Add a turn. Returns whether the knowledge base replies to it."""
        longest = 1 + max(predictor.turns for predictor in (self.knowledge, self.writer) if predictor)
        self.turns = [*self.turns, said][-longest:]
        self.found = self.knowledge.reply(self.turns) if self.knowledge else None
        return self.knowledge is not None and (self.found.answered or self.writer is None)


def talk(conversation: Conversation) -> None:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (gives `input` a line editor)
    print(f"({HELP})")
    while (said := _ask()) != "/quit":
        if said == "/reset":
            conversation.turns.clear()
        elif re.fullmatch(r"/[A-Za-z]+(\s.*)?", said):  # such as "/help", but not "/etc/hosts"
            print(f"(there is no {said.split()[0]}; {HELP})")
        elif said:
            reply = ""
            for piece in conversation.stream(said):
                print(piece, end="", flush=True)
                reply += piece
            print("" if reply else "(no reply)")
            conversation.show()


def answer_lines(conversation: Conversation, lines: Iterable[str], *, as_json: bool) -> None:
    """One reply per line; an empty line, answered by an empty line, starts another conversation."""
    for line in lines:
        if not line.strip():
            conversation.turns.clear()
            print(flush=True)
        elif as_json:
            print(json.dumps(conversation.details(line), ensure_ascii=False), flush=True)
        else:
            print(conversation.reply(line), flush=True)
            conversation.show()


def _ask() -> str:
    """What the user typed; "/quit" at the end of the input."""
    try:
        return input("> ").strip()
    except EOFError:
        print()
        return "/quit"
    except UnicodeDecodeError:
        print("(this was not UTF-8)")
        return ""


COMMANDS = {
    "chat": Command(
        "Talk to a run that was trained on conversations, or that answers from a knowledge base. On a terminal the\n"
        f"reply is shown while it is written; {HELP}. From a pipe, every line is a\n"
        "turn with its reply on one line; an empty line starts another conversation.",
        configure,
        run,
        examples=(
            "regard chat runs/demo-chat",
            "regard chat runs/demo-chat --sample --temperature 0.7 --top-p 0.9 --explain",
            "regard chat runs/faq --top 3 --explain --fallback runs/demo-chat",
            "printf 'hello\\nhow are you?\\n' | regard chat runs/demo-chat --json",
        ),
    )
}
