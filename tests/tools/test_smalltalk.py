"""The built-in small talk: the same everywhere, and nothing in it that cannot be answered."""

import re

from regard.config import Corpus
from regard.data.builtin import PARTS, read_conversations
from regard.data.pairs import content_hash
from regard.registry import BUILTIN
from regard.tasks.chat.data import read_dialogues
from tools.packaged import FOLDER, pack
from tools.smalltalk import packaged_rows, smalltalk
from tools.smalltalk.grammar import REACH
from tools.smalltalk.topics import TOPICS

BOOK = smalltalk()


def test_the_parts_share_no_conversation():
    assert list(map(len, BOOK)) == [3000, 150, 300]
    assert len({*BOOK.train, *BOOK.valid, *BOOK.test}) == 3450
    assert smalltalk(seed=2, train=5, valid=1, test=1).train != BOOK.train[:5]
    assert smalltalk(train=5, valid=1, test=1).train == BOOK.train[:5]


def test_conversations_are_whole_exchanges():
    for turns in BOOK.train:
        assert len(turns) % 2 == 0
        assert all(turn.strip() == turn != "" for turn in turns)
        assert not any(re.search(r"[{}]", turn) for turn in turns)


def test_what_is_asked_for_stands_within_reach():
    """Every "Your name is Anna." has "Anna" in the turns before it that a model is shown."""
    remembered = 0
    for turns in BOOK.train:
        for place in range(1, len(turns), 2):
            for topic in TOPICS:
                found = re.fullmatch(re.escape(topic.known).replace(r"\{x\}", "(.+)"), turns[place])
                if found and found.groups():
                    before = " ".join(turns[max(0, place - REACH) : place]).casefold()
                    assert found[1].casefold() in before
                    remembered += 1
    assert remembered > 1400


def test_the_program_says_so_when_it_was_not_told():
    unknown = {topic.unknown: topic for topic in TOPICS if topic.name == "name"}
    for turns in BOOK.train:
        for place, turn in enumerate(turns):
            if turn in unknown:
                assert not any(re.match(r"(?i)(my name is|people call me)", said) for said in turns[:place:2])


def test_the_packaged_file_is_what_the_grammar_writes():
    assert (FOLDER / BUILTIN["smalltalk"]).read_bytes() == pack(packaged_rows())
    assert [read_conversations(part) for part in PARTS] == list(BOOK)


def test_it_is_a_corpus():
    dialogues = list(read_dialogues(Corpus("smalltalk:test")))
    assert [dialogue.turns for dialogue in dialogues] == list(BOOK.test)
    assert all(place % 2 for dialogue in dialogues for place in dialogue.replies)  # the program's turns are learnt
    hashes = {content_hash(Corpus(name)) for name in ("smalltalk", "smalltalk:valid", "smalltalk:test")}
    assert len(hashes) == 3
    assert all(len(found) == 64 for found in hashes)
