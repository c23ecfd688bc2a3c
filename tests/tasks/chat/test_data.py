"""Conversations from files, as contexts and replies."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import Corpus, DataSettings
from regard.data.pairs import Pair
from regard.data.split import plan_split
from regard.errors import CorpusError
from regard.tasks.chat.data import (
    TURN,
    Dialogue,
    escape_turn,
    fit,
    join_turns,
    make_pairs,
    read_dialogues,
    readable,
    split_turns,
)
from regard.tasks.chat.training import DialogueExamples


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return Corpus(str(path))


def test_text_has_a_turn_a_line_and_blank_lines_between_conversations(tmp_path):
    found = list(read_dialogues(write(tmp_path / "talk.txt", "Hi.", " Hello. ", "", "", "One", "Two", "Three")))
    assert [dialogue.turns for dialogue in found] == [("Hi.", "Hello."), ("One", "Two", "Three")]
    assert [dialogue.replies for dialogue in found] == [(1,), (1, 2)]


def test_json_lines_in_every_form(tmp_path):
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi."},
        {"role": "user", "content": "Anyone?"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Bye."},
    ]
    lines = [{"topic": "x", "turns": ["a", "", "b"]}, ["c", "d"], {"messages": messages}, ["alone"]]
    found = list(read_dialogues(write(tmp_path / "talk.jsonl", *map(json.dumps, lines))))
    assert found == [
        Dialogue(("a", "b"), (1,)),
        Dialogue(("c", "d"), (1,)),
        Dialogue(("Hi. Anyone?", "Hello.", "Bye."), (1,)),  # where roles are known, the assistant's turns are learnt
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", r"talk\.jsonl:1: broken JSON"),
        ('{"text": "a"}', "not a conversation"),
        ('"a"', "not a conversation"),
        ('{"turns": "a"}', "not a conversation"),
        ('{"turns": ["a", 1]}', "1 is not a turn"),
        ('{"messages": ["a"]}', '"role" and "content"'),
        ('{"messages": [{"role": "user"}]}', "null is not a turn"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_in_a_line(tmp_path, line, problem):
    with pytest.raises(CorpusError, match=problem) as told:
        list(read_dialogues(write(tmp_path / "talk.jsonl", line)))
    assert "\n" not in str(told.value)


def test_files_that_hold_no_conversations_are_refused(tmp_path):
    with pytest.raises(CorpusError, match="not a file of conversations"):
        read_dialogues(Corpus("memory.tmx"))
    with pytest.raises(CorpusError, match="leave out --target"):
        read_dialogues(Corpus("a.txt", "b.txt"))
    with pytest.raises(CorpusError, match='did you mean "smalltalk:valid"'):
        read_dialogues(Corpus("smalltalk:valids"))
    with pytest.raises(CorpusError, match="no such file"):
        list(read_dialogues(Corpus(str(tmp_path / "none.txt"))))


def test_pairs_are_single_turns_or_contexts():
    """The lecture's form: (q, a), or ([q1; a1; q2; a2; q3], a3)."""
    dialogue = Dialogue(("q1", "a1", "q2", "a2", "q3", "a3"), (1, 3, 5))
    assert list(make_pairs(dialogue, 1)) == [Pair("q1", "a1"), Pair("q2", "a2"), Pair("q3", "a3")]
    *_, last = make_pairs(dialogue, 5)
    assert last == Pair(f"q1{TURN} a1{TURN} q2{TURN} a2{TURN} q3", "a3")
    assert [len(split_turns(pair.source)) for pair in make_pairs(dialogue, 3)] == [1, 3, 3]
    assert readable(last.source) == "q1 / a1 / q2 / a2 / q3"


@given(st.lists(st.text(), min_size=1))
def test_the_mark_stands_only_between_turns(turns):
    turns = [turn.replace("x", "<Turn>").replace("y", TURN) for turn in turns]
    context = join_turns(turns)
    real = [escape_turn(turn) for turn in turns if escape_turn(turn)]
    assert context.casefold().count(TURN) == max(len(real) - 1, 0)
    assert split_turns(context) == (real or [""])


def count_words(text):
    return len(text.replace(TURN, f" {TURN}").split())


@given(st.lists(st.text("ab ", min_size=1).filter(str.strip), min_size=1, max_size=8), st.integers(4, 30))
def test_the_oldest_turns_are_dropped(turns, most):
    context = join_turns(turns)
    found = fit(context, count_words, most)
    assert count_words(found) <= most
    assert context.endswith(found)
    if count_words(context) <= most:
        assert found == context
    else:
        left = split_turns(found)
        whole = split_turns(context)
        if len(left) > 1:
            assert left == whole[-len(left) :]
            assert count_words(f"{whole[-len(left) - 1]}{TURN} {found}") > most


def test_of_a_turn_that_is_too_long_the_end_stays():
    text = " ".join(map(str, range(20_000)))
    assert fit(text, count_words, 10) == " ".join(map(str, range(19_990, 20_000)))
    assert fit("a" * 1000, lambda text: len(text.encode()), 40) == "a" * 10
    assert fit("😀" * 1000, lambda text: len(text.encode()), 40) == "😀" * 10


def test_a_split_keeps_groups_whole_and_equal_ones_together():
    pairs = [Pair(f"dialogue {number % 90}", "") for number in range(100) for _ in range(4)]
    split = plan_split(pairs, 40, 40, seed=3)
    parts = [split.parts[4 * number : 4 * number + 4] for number in range(100)]
    assert all(len(set(part)) == 1 for part in parts)
    assert all(parts[number] == parts[number + 90] for number in range(10))
    assert 30 <= split.sizes["valid"] <= 40
    assert 30 <= split.sizes["test"] <= 40
    assert plan_split(pairs, 40, 40, seed=3) == split
    assert plan_split(pairs, 40, 40, seed=4) != split


def test_dialogues_are_held_out_as_wholes_though_they_share_turns(tmp_path):
    lines = [json.dumps(["Hi.", f"I am {number}.", "I see.", f"Yes, {number}.", "Yeah."]) for number in range(60)]
    write(tmp_path / "talk.jsonl", *lines)
    found = {}
    for turns in (1, 5):
        data = DataSettings(task="chat", train=(Corpus(str(tmp_path / "talk.jsonl")),))
        pairs = DialogueExamples(data, 1, turns)
        assert len(pairs) == 240 - len(pairs.held_out("valid")) - len(pairs.held_out("test"))
        parts = {part: pairs.held_out(part) for part in ("valid", "test")} | {"train": list(pairs.train())}
        numbers = {
            part: {pair.target.split()[-1].strip(".") for pair in found if "I am" in pair.target}
            for part, found in parts.items()
        }
        assert numbers["valid"]
        assert numbers["test"]
        assert not numbers["train"] & (numbers["valid"] | numbers["test"])
        assert not numbers["valid"] & numbers["test"]
        found[turns] = {part: [pair.target for pair in there] for part, there in parts.items()}
        found[turns]["texts"] = list(pairs.texts())
    assert found[1] == found[5]  # the same replies, and the same text for a vocabulary, however long the context


def test_a_part_holds_at_least_one_conversation(tmp_path):
    lines = [json.dumps([f"{number} {turn}" for turn in range(9)]) for number in range(8)]
    write(tmp_path / "talk.jsonl", *lines)
    pairs = DialogueExamples(DataSettings(task="chat", train=(Corpus(str(tmp_path / "talk.jsonl")),)), 1, 5)
    assert [len(pairs.held_out(part)) for part in ("valid", "test")] == [8, 8]
