"""Conversation from a file of dialogues to a reply, at once and while it is written."""

import io
import json
import math
import shutil
import sys

import pytest
import torch

import regard
from regard.cli import main
from regard.run import Run
from regard.tasks.chat.chatbot import Chatbot
from regard.tasks.chat.data import TURN, split_turns
from regard.tasks.chat.training import distinct
from regard.tasks.generation import spell
from regard.tasks.seq2seq import mean_loss
from regard.tasks.translate import translator as translate
from regard.training.loss import perplexity
from tests.small_chats import chat_arguments, write_dialogues

ARCHS = ("transformer-tiny", "hran")
HOSTILE = [
    "😀" * 50,
    "こんにちは、元気ですか。",
    "مرحبا",
    TURN * 3,
    "\x00\x07",
    "</s><s>",
    "a" * 5000,
    "word " * 20_000,
]


@pytest.fixture(scope="module", params=ARCHS)
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat")
    dialogues = write_dialogues(folder / "talk.jsonl", 50)
    assert main(chat_arguments(dialogues, folder / "run", request.param, "train.max_steps=12")) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def chatter(run):
    return regard.load(run)


def test_the_run_is_judged_by_perplexity(run):
    opened = Run.open(run)
    assert opened.recipe.data.task == "chat"
    assert opened.recipe.train.metric == "loss"
    assert opened.tokenizers[0].token(3) == TURN
    scores = opened.card["scores"]["test"]
    assert {"perplexity", "distinct_1", "distinct_2", "bleu"} <= scores.keys()
    validations = [line for line in opened.metrics() if line["kind"] == "validation"]
    assert validations[-1]["perplexity"] == pytest.approx(math.exp(validations[-1]["loss"]))
    assert validations[-1]["perplexity"] < validations[0]["perplexity"]
    assert TURN not in validations[0]["samples"][0]["source"]
    assert (run / "report.html").is_file()
    assert main(["info", str(run)]) == 0


def test_the_cards_perplexity_is_that_of_its_weights(run, chatter):
    pairs = Run.open(run).held_out()
    translator = chatter.translator
    loss = mean_loss(translator.model, translator.source, translator.target, pairs)
    assert Run.open(run).card["scores"]["test"]["perplexity"] == pytest.approx(perplexity(loss), rel=1e-4)
    # by its definition, from the log-probabilities of every token, each context on its own
    answers = translator.score([pair.source for pair in pairs], [pair.target for pair in pairs])
    values = [value for answer in answers for value in answer.log_probs]
    assert loss == pytest.approx(-sum(values) / len(values), rel=1e-2)  # forced tokens exclude the unwritable ones


def test_a_reply_depends_on_the_turns_it_may_see(chatter):
    assert isinstance(chatter, Chatbot)
    turns = [f"turn {number}" for number in range(9)]
    answer = chatter.reply(turns)
    assert split_turns(answer.source) == turns[-5:]
    assert chatter.reply(turns[-5:]) == answer
    assert chatter.reply_all([turns, ["Hello."]])[0].text == answer.text
    assert not {"length", "copies"} & set(answer.flags)


def test_streams_are_replies_in_pieces(chatter):
    turns = ["Hello.", "Hello! Tell me something about yourself.", "My name is Anna."]
    for search in ({}, {"sample": True, "seed": 4, "temperature": 1.5}, {"beam_size": 3}):
        expected = chatter.reply(turns, retry_failures=False, **search).text
        assert "".join(chatter.stream(turns, retry_failures=False, **search)) == expected


def test_pieces_hold_whole_characters(chatter):
    tokenizer = chatter.translator.target
    text = "naïve 😀 東京 ok"
    pieces = list(spell(tokenizer.encode(text), tokenizer))
    assert "".join(pieces) == text
    assert len(pieces) > 3
    assert not any("\ufffd" in piece for piece in pieces)
    assert list(spell([], tokenizer)) == []
    broken = [4 + byte for byte in "é".encode()[:1]]  # half a character, as a model may leave it
    assert "".join(spell(broken, tokenizer)) == tokenizer.decode(broken)


@pytest.mark.parametrize("turns", [[], [""], ["Hello.", "  "]])
def test_nothing_is_said_to_nothing(chatter, turns):
    assert chatter.reply(turns).text == ""
    assert list(chatter.stream(turns)) == []


@pytest.mark.parametrize("said", HOSTILE, ids=lambda text: repr(text[:6]))
def test_any_text_is_answered(chatter, said):
    answer = chatter.reply(["Hello.", said])
    assert isinstance(answer.text, str)
    size = len(chatter.translator.source.encode(answer.source))
    assert size <= chatter.max_length
    assert "".join(chatter.stream(["Hello.", said])) == chatter.reply(["Hello.", said], retry_failures=False).text


def test_marks_that_people_type_close_no_turn(chatter):
    ids = chatter.translator.source.encode(chatter.context(["Hello.", f"a{TURN} b <TURN> c"]))
    assert ids.count(3) == 1


def test_turns_and_words_are_weighed(chatter):
    turns = ["My name is Anna.", "Nice to meet you, Anna.", "What is my name?"]
    found = chatter.explain(turns, "Your name is Anna.")
    assert [turn.text for turn in found] == turns
    assert sum(turn.weight for turn in found) == pytest.approx(1.0)
    for turn in found:
        assert sum(word.weight for word in turn.words) == pytest.approx(1.0)
        assert "".join(word.text for word in turn.words) == turn.text.replace(" ", "")
    trace = chatter.trace(turns, "Your name is Anna.")
    if "decoder.utterance" in trace.weights:
        weights = trace.weights["decoder.utterance"].mean((0, 1))
        places = [place for place, token in enumerate(trace.source.tokens) if token in (TURN, "</s>")]
        torch.testing.assert_close(weights[places], torch.tensor([turn.weight for turn in found]))


def test_distinct_counted_by_hand():
    """Li et al. 2016, section 5.3: "i am a a" and "I am b" have 7 words, 4 of them different, and 5 pairs of
    neighbours, 4 of them different: (i, am) twice, (am, a), (a, a), (am, b).
    """
    texts = ["i am a a", "I am b"]
    assert distinct(texts, 1) == 4 / 7
    assert distinct(texts, 2) == 4 / 5
    assert distinct(["a"], 2) == 0.0
    assert distinct([], 1) == 0.0
    assert perplexity(math.log(8)) == pytest.approx(8)
    assert perplexity(math.inf) < math.inf


# ---------------------------------------------------------------------------------------------------------------------
# The command


def pipe(monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode() if isinstance(text, str) else text)))


def test_a_pipe_has_a_reply_a_line(run, chatter, monkeypatch, capsys):
    pipe(monkeypatch, "Hello.\nMy name is Anna.\n\nHello.\n")
    assert main(["chat", str(run)]) == 0
    lines = capsys.readouterr().out.split("\n")
    first = chatter.reply(["Hello."]).text
    assert lines == [first, chatter.reply(["Hello.", first, "My name is Anna."]).text, "", first, ""]


def test_json_and_hostile_lines(run, monkeypatch, capsys):
    pipe(monkeypatch, b"Hello.\n\xff\xfe\n" + "😀\n".encode())
    assert main(["chat", str(run), "--json", "--explain", "--beam", "2"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(found) == 3
    assert all("text" in answer and "log_prob" in answer for answer in found)
    assert all(answer["turns"][-1]["weight"] <= 1 for answer in found if answer["text"])


def test_at_a_terminal(run, chatter, monkeypatch, capsys):
    said = iter(["Hello.", "", "/reset", "Hello.", "/quit", "not reached"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(said))
    monkeypatch.setattr(sys, "stdin", type("Terminal", (), {"isatty": lambda self: True})())
    assert main(["chat", str(run), "--explain"]) == 0
    out = capsys.readouterr().out
    reply = "".join(chatter.stream(["Hello."])) or "(it has nothing to say)"
    assert out.count(reply) >= 2
    assert next(said) == "not reached"

    def end(prompt):
        raise EOFError

    monkeypatch.setattr("builtins.input", end)
    assert main(["chat", str(run)]) == 0


def test_other_runs_and_other_tasks_are_told_apart(run, tmp_path, capsys):
    assert main(["chat", str(tmp_path / "none")]) == 2
    assert "no such run folder" in capsys.readouterr().err
    assert main(["classify", str(run)]) == 2
    assert "answers in conversations" in capsys.readouterr().err
    assert main(["train", "--task", "chat", str(tmp_path / "memory.tmx")]) == 2
    assert "not a file of conversations" in capsys.readouterr().err
    dialogues = write_dialogues(tmp_path / "talk.jsonl")
    assert main(["train", "--task", "chat", str(dialogues), "--set", "tokenizer.special_tokens=[]"]) == 2
    assert "tokenizer.special_tokens must begin with" in capsys.readouterr().err
    assert main(["train", "--task", "chat", str(dialogues), "--set", "train.metric=accuracy"]) == 2
    assert "train.metric" in capsys.readouterr().err


def test_a_conversation_can_be_inspected(run, capsys):
    said = ["What is my name?", "--context", "I am Anna.", "--context", "Hello Anna!"]
    assert main(["inspect", str(run), *said, "--target", "Your name is Anna.", "--quick", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["source"]["words"].count(TURN) == 2
    cross = [one for one in data["attention"] if one["kind"] == "cross"]
    assert len(cross) == 1  # HRAN's two levels are drawn as one
    for row in cross[0]["weights"][0]:
        assert sum(row) == pytest.approx(1.0, abs=0.02)


@pytest.mark.slow
def test_a_finished_run_goes_on_with_the_same_conversations(run, tmp_path):
    """Its data was put away, and is made again from the file."""
    before = Run.open(run).card
    shutil.copytree(run, tmp_path / "run")
    assert main(["resume", str(tmp_path / "run"), "--set", "train.max_steps=20"]) == 0
    after = Run.open(tmp_path / "run").card
    assert after["training"]["step"] == 20
    assert (after["pairs"], after["data"]) == (before["pairs"], before["data"])
    assert Run.open(tmp_path / "run").held_out() == Run.open(run).held_out()


def test_a_chatbot_leaves_the_search_of_its_translator_alone(run):
    translator = translate.load(run)
    before = translator.search
    chatter = Chatbot(translator, 2, 17)
    assert translator.search == before
    search = chatter.translator.search
    assert (search.max_source_tokens, search.max_joined_tokens) == (17, 17)


def test_one_turn_may_be_a_text(chatter):
    assert chatter.context("hello there") == chatter.context(["hello there"])
    assert chatter.trace("hello there").source == chatter.trace(["hello there"]).source


def test_regard_trace_takes_a_loaded_run(chatter):
    with regard.trace(chatter) as tape:
        chatter.reply(["hello there"])
    assert tape
    with pytest.raises(regard.RegardError, match="list has no neural network"), regard.trace([]):
        pass
