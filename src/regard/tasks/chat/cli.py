"""`regard chat`: a conversation with a chat model, a knowledge base, or both."""

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
from regard.registry import TASKS
from regard.run import Run
from regard.tasks import find, load, part
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

HELP = "/reset starts again, /quit (or Ctrl-D) exits"


def configure(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--explain", action="store_true", help="show turns and words shaded by their weight")
    parser.add_argument("--json", action="store_true", help="print each reply as a JSON object")
    known = parser.add_argument_group("knowledge base")
    known.add_argument("--top", type=int, default=0, metavar="K", help="show the best K matches and their scores")
    known.add_argument("--fallback", metavar="RUN", help="a chat run that replies if the knowledge base has no answer")
    add_search(parser)


def run(options: argparse.Namespace) -> int:
    replying = [name for name in TASKS if find(name).command == TASK.command]  # tasks whose predictors have `reply`
    opened = Run.open(options.run).require(*replying)
    if not find(opened.recipe.data.task).writes:
        conversation = _open_knowledge(opened, options)
    elif options.top or options.fallback:
        problem = f"{opened.folder} is a chat model, not a knowledge base"
        raise SettingsError(f"{problem}; leave out --top and --fallback")
    else:
        search = search_settings(options, opened.recipe.search)
        conversation = Conversation(None, load(opened, *options.ensemble), search, explain=options.explain)
    if is_typed() and not options.json:
        talk(conversation)
    else:
        answer_lines(conversation, read_input_lines(forgiving=True), as_json=options.json)
    return 0


def _open_knowledge(opened: Run, options: argparse.Namespace) -> Conversation:
    """Open the knowledge base `opened` and, if given, the chat model of --fallback. Only the model uses [search]."""
    if options.top < 0:
        raise SettingsError(f"--top must be 0 or more matches, not {options.top}")
    task = find(opened.recipe.data.task)
    own = [override for override in options.set if override.strip().startswith(f"{task.name}.")]
    options.set = [override for override in options.set if override not in own]
    given = with_overrides({}, own).get(task.name, {})
    checked = make_recipe({"data": {"task": task.name}, task.name: given}, where="options").task
    settings = {name: getattr(checked, name) for name in given}
    other = Run.open(options.fallback).require("chat") if options.fallback else None
    search = search_settings(options, *([other.recipe.search] if other else []))
    if (search or options.ensemble) and not other:
        raise SettingsError(
            "a knowledge base takes no --ensemble and no search settings; name a chat run: --fallback RUN"
        )
    if options.top:
        settings["matches"] = max(options.top, settings.get("matches", opened.recipe.task.matches))
    knowledge = part(task.name, task.module).load(opened.folder, **settings)
    model = load(other, *options.ensemble) if other else None
    return Conversation(knowledge, model, search, explain=options.explain, top=options.top)


@dataclass
class Conversation:
    """The turns so far, and what replies to them: a knowledge base, a chat model, or both.

    With both, the model replies if the knowledge base has no answer.
    """

    knowledge: Any
    """A predictor with `reply(turns)`, whose result has `answered`, `text` and `matches`; or None."""
    model: Any
    """A predictor with `reply(turns, **search)` and `stream(turns, **search)`; or None."""
    search: dict[str, Any]
    """Search settings given on the command line, by name."""
    explain: bool = False
    top: int = 0
    """Number of matches of the knowledge base to show."""
    turns: list[str] = field(default_factory=list)
    found: Any = None
    """The last reply of the knowledge base."""

    def stream(self, said: str) -> Iterator[str]:
        reply = ""
        for piece in [self.found.text] if self._add(said) else self.model.stream(self.turns, **self.search):
            reply += piece
            yield piece
        self.turns = [*self.turns, reply]

    def reply(self, said: str) -> str:
        """Add the user's turn `said` and its reply to the conversation; return the reply, on one line."""
        if self._add(said):
            reply = " ".join(self.found.text.split())
        else:
            reply = self.model.reply(self.turns, **self.search).text
        self.turns = [*self.turns, reply]
        return reply

    def details(self, said: str) -> dict[str, Any]:
        """Add the user's turn `said` and its reply to the conversation; return the reply with details, for --json.

        A model gives text and scores, a knowledge base text and matches; with --explain, weights of words are added.
        If there are both, the field "by" says which of the two replied.
        """
        is_found = self._add(said)
        facts: dict[str, Any] = {}
        if self.knowledge:
            facts = self.found.as_dict()
            facts["matches"] = facts["matches"][: self.top or len(self.found.matches)]
            if self.explain:
                facts["words"] = [text.as_dict() for text in self.knowledge.explain(self.found)]
            if self.model:
                facts["by"] = "knowledge" if is_found else "model"
        if not is_found:
            answer = self.model.reply(self.turns, **self.search)
            facts = facts | {"text": answer.text} if self.knowledge else answer.as_dict()
            if self.explain and answer.text and not self.knowledge:
                facts["turns"] = [turn.as_dict() for turn in self.model.explain(self.turns, answer.text)]
        self.turns = [*self.turns, str(facts["text"])]
        return facts

    def show(self) -> None:
        """Print details of the last reply: weights of words (with --explain), best matches with scores (with --top)."""
        *turns, reply = self.turns
        if not self.knowledge:
            if self.explain and reply:
                show_weights(self.model.explain(turns, reply))
            return

        from rich.text import Text

        screen = console()
        for text in self.knowledge.explain(self.found) if self.explain else ():
            if for_people() and len(text.words) <= 200:  # a longer question is not printed again
                show_words(text)
            heavy = heapq.nlargest(5, text.words, key=lambda word: word.weight)
            named = ", ".join(f"{word.text} {word.weight:.0%}" for word in heavy if word.weight >= 0.005)
            screen.print(Text(f"  most matched: {named}", style=QUIET), soft_wrap=True)
        for match in self.found.matches[: self.top]:
            parts = ((name, getattr(match, name)) for name in ("bm25", "dense"))
            scores = "  ".join(f"{name} {value:.3f}" for name, value in parts if value is not None)
            screen.print(Text(f"  {match.score:.3f}  {match.question}  ({scores})", style=QUIET), soft_wrap=True)

    def _add(self, said: str) -> bool:
        """Add the user's turn `said`; search the knowledge base. Returns True if the result, `found`, is the reply."""
        longest = 1 + max(predictor.turns for predictor in (self.knowledge, self.model) if predictor)
        self.turns = [*self.turns, said][-longest:]
        self.found = self.knowledge.reply(self.turns) if self.knowledge else None
        return self.knowledge is not None and (self.found.answered or self.model is None)


def talk(conversation: Conversation) -> None:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (gives `input` a line editor)
    print(f"({HELP})")
    while (said := _read_turn()) != "/quit":
        if said == "/reset":
            conversation.turns.clear()
        elif re.fullmatch(r"/[A-Za-z]+(\s.*)?", said):  # such as "/help", but not "/etc/hosts"
            print(f"(there is no {said.split()[0]}; {HELP})")
        elif said:
            for piece in conversation.stream(said):
                print(piece, end="", flush=True)
            print("" if conversation.turns[-1] else "(no reply)")
            conversation.show()


def answer_lines(conversation: Conversation, lines: Iterable[str], *, as_json: bool) -> None:
    """Print a reply to each of `lines`, the user's turns. An empty line starts a new conversation and is printed."""
    for line in lines:
        if not line.strip():
            conversation.turns.clear()
            print(flush=True)
        elif as_json:
            print(json.dumps(conversation.details(line), ensure_ascii=False), flush=True)
        else:
            print(conversation.reply(line), flush=True)
            conversation.show()


def _read_turn() -> str:
    """Read a line from the terminal. Returns "/quit" at the end of the input (Ctrl-D)."""
    try:
        return input("> ").strip()
    except EOFError:
        print()
        return "/quit"
    except UnicodeDecodeError:
        print("(this line is not UTF-8; check the encoding of the terminal)")
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
