"""Conversations: files as streams of dialogues, and the pairs of context and reply that a model is trained on.

A context is one text in which `TURN` ends every turn but the last: "How are you?<turn> Fine, and you?<turn> Me too."
`TURN` is one token (`tokenizer.special_tokens`), so contexts and replies are used like sentence pairs.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.config import Corpus
from regard.data.builtin import corpus_of, part_of, read_conversations
from regard.data.pairs import READERS, Pair
from regard.data.records import read_json_lines
from regard.errors import CorpusError
from regard.files import read_lines, split_suffix
from regard.tasks.chat import TURN

FORMATS = '.jsonl (objects with "turns" or "messages", or lists of strings), or text with one turn per line'

_LITERAL = re.compile(re.escape(TURN), re.IGNORECASE)
_WRITER = "assistant"
"""The role whose messages are replies to learn."""


class Dialogue(NamedTuple):
    """The turns of a conversation, and the indices of those that are replies to learn."""

    turns: tuple[str, ...]
    replies: tuple[int, ...]


def join_turns(turns: Sequence[str]) -> str:
    """Turns as one context. Empty turns are left out; text that looks like `TURN` is changed (`neutral`)."""
    return f"{TURN} ".join(clean for turn in turns if (clean := neutral(turn)))


def split_turns(context: str) -> list[str]:
    return [turn.strip() for turn in context.split(TURN)]


def readable(context: str) -> str:
    """A context for people, with slashes between its turns."""
    return " / ".join(split_turns(context))


def neutral(text: str) -> str:
    """A text on one line without `TURN`, in upper or lower case: a space is inserted."""
    return " ".join(_LITERAL.sub(lambda found: f"{found[0][:-1]} >", text).split())


def fit(context: str, size: Callable[[str], int], most: int) -> str:
    """A context of at most `most` tokens (counted by `size`): oldest turns are dropped; a single turn keeps its end."""
    if len(context.encode()) < most:  # no token is shorter than a byte, except one space marker
        return context
    turns = split_turns(context)
    while len(turns) > 1 and size(f"{TURN} ".join(turns)) > most:
        del turns[0]
    if len(turns) > 1:
        return f"{TURN} ".join(turns)
    words = turns[0].split()[-most:]
    kept = bisect_right(range(len(words) + 1), most, key=lambda count: size(" ".join(words[len(words) - count :]))) - 1
    if not kept:  # a single word is too long: a number of characters that surely fits
        return turns[0][-max(most // 4, 1) :]
    return " ".join(words[len(words) - kept :])


def make_pairs(dialogue: Dialogue, most: int) -> Iterator[Pair]:
    """Each reply with at most `most` turns before it."""
    for place in dialogue.replies:
        yield Pair(join_turns(dialogue.turns[max(0, place - most) : place]), neutral(dialogue.turns[place]))


def read_dialogues(corpus: Corpus) -> Iterator[Dialogue]:
    """Stream the conversations of a file that have at least two turns."""
    if corpus.target:
        raise CorpusError(corpus.target, "a conversation holds both sides; leave out --target")
    if not corpus.source:
        raise CorpusError("--source", "no file given")
    if corpus_of(corpus.source) == "smalltalk":  # every second turn is the assistant's: a reply to learn
        found = read_conversations(part_of(corpus.source))
        return (Dialogue(turns, tuple(range(1, len(turns), 2))) for turns in found)
    path = Path(corpus.source)
    suffix = split_suffix(path)[0]
    if suffix in READERS and suffix != ".jsonl":
        raise CorpusError(path, f"not a file of conversations; they come as {FORMATS}")
    dialogues = _read_text(path)
    if suffix == ".jsonl":
        dialogues = (_from_record(value, path, number) for number, value in read_json_lines(path))
    return (dialogue for dialogue in dialogues if dialogue.replies)


def _read_text(path: Path) -> Iterator[Dialogue]:
    """One turn per line, blank lines between conversations."""
    turns: list[str] = []
    for line in read_lines(path):
        if line.strip():
            turns.append(line.strip())
        elif turns:
            yield _dialogue(turns)
            turns = []
    if turns:
        yield _dialogue(turns)


def _from_record(record: Any, path: Path, number: int) -> Dialogue:
    if isinstance(record, dict) and isinstance(record.get("messages"), list):
        return _from_messages(record["messages"], path, number)
    turns = record.get("turns") if isinstance(record, dict) else record
    if not isinstance(turns, list):
        problem = 'no conversation here; a line is {"turns": [...]}, {"messages": [...]} or a list of strings'
        raise CorpusError(path, problem, line=number)
    return _dialogue([_text(turn, path, number) for turn in turns])


def _from_messages(messages: list[Any], path: Path, number: int) -> Dialogue:
    """Turns from messages with roles: consecutive messages of one role are one turn; system messages are ignored."""
    turns: list[str] = []
    roles: list[str] = []
    for message in messages:
        if not (isinstance(message, dict) and isinstance(message.get("role"), str)):
            raise CorpusError(path, 'a message is an object with "role" and "content"', line=number)
        text = _text(message.get("content"), path, number)
        if message["role"] == "system" or not text:
            continue
        if roles and roles[-1] == message["role"]:
            turns[-1] += f" {text}"
        else:
            turns.append(text)
            roles.append(message["role"])
    return Dialogue(tuple(turns), tuple(place for place in range(1, len(turns)) if roles[place] == _WRITER))


def _text(turn: Any, path: Path, number: int) -> str:
    if not isinstance(turn, str):
        raise CorpusError(path, f"{json.dumps(turn)[:40]} is not a turn; turns are strings", line=number)
    return turn.strip().encode(errors="replace").decode()  # half a surrogate pair is not a character


def _dialogue(turns: Sequence[str]) -> Dialogue:
    """A dialogue without speakers: every turn but the first is a reply."""
    real = tuple(turn for turn in turns if turn)
    return Dialogue(real, tuple(range(1, len(real))))
