"""Conversations: read from files, and divided into pairs of context and reply to train on.

A context is one text in which `TURN` ends every turn except the last: "How are you?<turn> Fine, and you?<turn> Me
too." `TURN` is one token (`tokenizer.special_tokens`), so contexts and replies are used like sentence pairs.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from regard.config import Corpus
from regard.data.builtin import corpus_of, part_of, read_conversations
from regard.data.pairs import READERS, Pair
from regard.data.records import read_json_lines
from regard.errors import CorpusError
from regard.files import read_lines, split_suffix
from regard.tasks import single_file
from regard.tasks.chat import TURN

FORMATS = '.jsonl (objects with "turns" or "messages", or lists of strings), or text with one turn per line'

_LITERAL = re.compile(re.escape(TURN), re.IGNORECASE)


class Dialogue(NamedTuple):
    """The turns of a conversation, and the indices of the turns that the model learns to generate."""

    turns: tuple[str, ...]
    replies: tuple[int, ...]


def join_turns(turns: Sequence[str]) -> str:
    """Join the turns that are not empty, with the token `TURN` between them. The text "<turn>" in a turn is escaped."""
    return f"{TURN} ".join(clean for turn in turns if (clean := escape_turn(turn)))


def split_turns(context: str) -> list[str]:
    return [turn.strip() for turn in context.split(TURN)]


def readable(context: str) -> str:
    """Replace the token `TURN` between the turns of a context by " / ", for display."""
    return " / ".join(split_turns(context))


def escape_turn(text: str) -> str:
    """Put a text on one line, and replace "<turn>" by "<turn >" so that users cannot write the token `TURN`."""
    return " ".join(_LITERAL.sub(lambda found: f"{found[0][:-1]} >", text).split())


def fit(context: str, size: Callable[[str], int], most: int) -> str:
    """Shorten a context to at most `most` tokens. `size` counts the tokens of a text.

    The oldest turns are dropped first. If the last turn alone is too long, its start is dropped too.
    """
    if len(context.encode()) < most:  # each token has at least one byte, except one space marker
        return context
    turns = split_turns(context)
    while len(turns) > 1 and size(f"{TURN} ".join(turns)) > most:
        del turns[0]
    if len(turns) > 1:
        return f"{TURN} ".join(turns)
    words = turns[0].split()[-most:]
    kept = bisect_right(range(len(words) + 1), most, key=lambda count: size(" ".join(words[len(words) - count :]))) - 1
    if not kept:  # the last word alone is too long; a character has at most four tokens
        return turns[0][-max(most // 4, 1) :]
    return " ".join(words[len(words) - kept :])


def make_pairs(dialogue: Dialogue, most: int) -> Iterator[Pair]:
    """Yield (context, reply) for each reply of a dialogue. The context is the `most` turns before it, or fewer."""
    for place in dialogue.replies:
        yield Pair(join_turns(dialogue.turns[max(0, place - most) : place]), escape_turn(dialogue.turns[place]))


def read_dialogues(corpus: Corpus) -> Iterator[Dialogue]:
    """Read the conversations of a file or built-in corpus. A conversation without a reply is left out."""
    path = single_file(corpus, "the turns of all speakers")
    if corpus_of(corpus.source) == "smalltalk":  # every second turn is a reply of the assistant
        found = read_conversations(part_of(corpus.source))
        return (Dialogue(turns, tuple(range(1, len(turns), 2))) for turns in found)
    suffix = split_suffix(path)[0]
    if suffix in READERS and suffix != ".jsonl":
        raise CorpusError(path, f"not a file of conversations; the formats are {FORMATS}")
    if suffix == ".jsonl":
        dialogues = (_from_record(value, path, number) for number, value in read_json_lines(path))
    else:  # blank lines are between conversations
        dialogues = (_dialogue(turns) for _, turns in groupby(map(str.strip, read_lines(path)), key=bool))
    return (dialogue for dialogue in dialogues if dialogue.replies)


def _from_record(record: Any, path: Path, number: int) -> Dialogue:
    if isinstance(record, dict) and isinstance(record.get("messages"), list):
        return _from_messages(record["messages"], path, number)
    turns = record.get("turns") if isinstance(record, dict) else record
    if not isinstance(turns, list):
        problem = 'not a conversation; a line is {"turns": [...]}, {"messages": [...]} or a list of strings'
        raise CorpusError(path, problem, line=number)
    return _dialogue([_text(turn, path, number) for turn in turns])


def _from_messages(messages: list[Any], path: Path, number: int) -> Dialogue:
    """Make a dialogue out of chat messages (objects with "role" and "content"); `path` and `number` are for errors.

    System messages and empty messages are ignored. Consecutive messages of one role become one turn. The turns of the
    assistant, except a first turn, are the replies that the model learns.
    """
    said: list[tuple[str, str]] = []
    for message in messages:
        if not (isinstance(message, dict) and isinstance(message.get("role"), str)):
            raise CorpusError(path, 'each of "messages" must be an object with "role" and "content"', line=number)
        text = _text(message.get("content"), path, number)
        if message["role"] != "system" and text:
            said.append((message["role"], text))
    turns = [(role, " ".join(text for _, text in group)) for role, group in groupby(said, key=itemgetter(0))]
    replies = (place for place, (role, _) in enumerate(turns) if place and role == "assistant")
    return Dialogue(tuple(text for _, text in turns), tuple(replies))


def _text(turn: Any, path: Path, number: int) -> str:
    if not isinstance(turn, str):
        shown = json.dumps(turn)[:40]
        raise CorpusError(path, f'{shown} is not a turn; a turn or "content" must be a string', line=number)
    return turn.strip().encode(errors="replace").decode()  # half a surrogate pair is not a character


def _dialogue(turns: Iterable[str]) -> Dialogue:
    """Make a dialogue of turns without roles: every turn except the first is a reply. Empty turns are left out."""
    real = tuple(turn for turn in turns if turn)
    return Dialogue(real, tuple(range(1, len(real))))
