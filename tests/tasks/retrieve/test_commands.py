"""Retrieval as a user meets it: a FAQ indexed, an encoder trained, both asked and changed, and hostile questions."""

import io
import json
import shutil
import sys

import httpx
import numpy as np
import pytest

import regard
from regard.cli import main
from regard.run import Run
from regard.tasks.retrieve.data import read_entries
from regard.tasks.retrieve.retriever import Retriever
from tests.small_chats import chat_arguments, write_dialogues
from tests.small_knowledge import questions, train_arguments, write_faq, write_questions
from tests.surface.serving import running

HOSTILE = ["😀" * 50, "こんにちは", "مرحبا", "\x00\x07", "</s><s>", "a" * 5000, "word " * 20_000, "???", "\ufffd"]


@pytest.fixture(scope="module")
def faq(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faq")
    assert main(["index", "--create", str(folder / "run"), str(write_faq(folder / "faq.md"))]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    data = write_questions(folder / "kb.tsv")
    assert main(train_arguments(data, folder / "run", "train.max_steps=60")) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def talker(tmp_path_factory):
    """A run of another task."""
    folder = tmp_path_factory.mktemp("talker")
    dialogues = write_dialogues(folder / "talk.jsonl", 50)
    assert main(chat_arguments(dialogues, folder / "run", "transformer-tiny", "train.max_steps=12")) == 0
    return folder / "run"


@pytest.fixture
def copy(faq, tmp_path):
    return shutil.copytree(faq, tmp_path / "copy")


def ask(monkeypatch, capsys, run, text, *options):
    """What `regard chat` prints, line by line; `text` comes from a pipe."""
    raw = text if isinstance(text, bytes) else text.encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    code = main(["chat", str(run), *options])
    out, err = capsys.readouterr()
    assert code == 0, err
    return out.split("\n")[:-1]


def refused(capsys, *arguments):
    assert main([str(word) for word in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("regard: ")
    assert err.count("\n") == 1
    return err


# ---------------------------------------------------------------------------------------------------------------------
# A FAQ, without training


def test_a_faq_answers(faq, monkeypatch, capsys):
    lines = ask(monkeypatch, capsys, faq, "When do you open?\ncan i pay with my credit card\nthe capital of France?\n")
    assert lines == [
        "At six in the morning, from Tuesday to Saturday.",
        "Cards are welcome from five euros on.",
        "I do not know.",
    ]


def test_an_answer_of_several_lines_is_put_on_one(faq, monkeypatch, capsys):
    [line] = ask(monkeypatch, capsys, faq, "bread without gluten\n")
    assert line == "Yes, on *Fridays*: - buckwheat loaf - rice rolls"


def test_matches_and_words_are_shown(faq, monkeypatch, capsys):
    lines = ask(monkeypatch, capsys, faq, "a birthday cake\n", "--top", "2", "--explain")
    assert lines[0].startswith("Call us three days before")
    assert lines[1].startswith("  most matched: birthday ")
    assert "How can I order a birthday cake?" in lines[2]
    assert "bm25" in lines[2]
    assert len(lines) == 4


def test_json_says_where_it_is_from(faq, monkeypatch, capsys):
    [line] = ask(monkeypatch, capsys, faq, "Do you open early?\n", "--json", "--top", "1", "--explain")
    facts = json.loads(line)
    assert facts["answered"]
    assert facts["text"] == "At six in the morning, from Tuesday to Saturday."
    [match] = facts["matches"]
    assert match["question"] == "When do you open?"
    assert match["score"] == facts["score"] == match["bm25"]
    assert match["dense"] is None
    assert facts["words"][0]["words"]


def test_settings_of_the_moment(faq, monkeypatch, capsys):
    sets = ["--set", "retrieve.threshold=0.9", "--set", "retrieve.fallback_text=No idea."]
    assert ask(monkeypatch, capsys, faq, "can I pay with a zebra?\n", *sets) == ["No idea."]
    assert "at least 0 and at most 1" in refused(capsys, "chat", faq, "--set", "retrieve.threshold=2")
    assert "takes no --ensemble and no search settings" in refused(capsys, "chat", faq, "--beam", "3")
    assert "retrieve.threshhold" in refused(capsys, "chat", faq, "--set", "retrieve.threshhold=1")
    assert "has no encoder" in refused(capsys, "chat", faq, "--set", "retrieve.method=hybrid")


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_any_text_is_answered(faq, trained, text):
    for run in (faq, trained):
        reply = regard.load(run).reply(text)
        assert isinstance(reply.text, str)
        json.dumps(reply.as_dict())


def test_empty_lines_and_invalid_utf8(faq, monkeypatch, capsys):
    assert ask(monkeypatch, capsys, faq, b"\n\xff\xfe\nWhen do you open?\n") == [
        "", "I do not know.", "At six in the morning, from Tuesday to Saturday.",
    ]  # fmt: skip


def test_the_card_and_other_commands(faq, capsys):
    assert main(["info", str(faq)]) == 0
    assert "retrieve" in capsys.readouterr().out
    assert 'use "regard chat' in refused(capsys, "translate", faq)
    assert 'use "regard chat' in refused(capsys, "classify", faq)
    assert 'made by "regard index --create"' in refused(capsys, "resume", faq)
    assert isinstance(regard.load(faq), Retriever)


# ---------------------------------------------------------------------------------------------------------------------
# Changing it


def test_added_changed_removed_replaced(copy, tmp_path, capsys, monkeypatch):
    more = tmp_path / "more.tsv"
    more.write_text("Do you sell stamps?\tNo, ask at the post office.\nWhen do you open?\tAt seven now.\n")
    assert main(["index", str(copy), str(more)]) == 0
    assert "1 answer added, 1 changed, 0 removed" in capsys.readouterr().out
    assert main(["index", str(copy), str(more)]) == 0
    assert "nothing changed" in capsys.readouterr().out
    assert ask(monkeypatch, capsys, copy, "stamps?\nWhen do you open?\n") == [
        "No, ask at the post office.", "At seven now.",
    ]  # fmt: skip
    assert main(["index", str(copy), "--remove", "Do you sell stamps?", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == 1
    assert main(["index", str(copy), str(more), "--replace"]) == 0
    assert "2 questions with 2 answers" in capsys.readouterr().out
    assert main(["index", str(copy)]) == 0
    assert "2 questions with 2 answers" in capsys.readouterr().out


def test_what_cannot_be_indexed(copy, faq, tmp_path, capsys):
    empty = tmp_path / "empty.md"
    empty.write_text("# Nothing\n")
    before = (copy / "knowledge.jsonl").read_bytes()
    assert "the knowledge base is empty" in refused(capsys, "index", copy, empty)
    assert "the knowledge base is empty" in refused(capsys, "index", "--create", tmp_path / "new", empty)
    assert not (tmp_path / "new").exists()
    assert "no such file" in refused(capsys, "index", copy, tmp_path / "missing.md")
    told = refused(capsys, "index", "--create", copy, write_faq(tmp_path / "a.md"))
    assert f'"regard index {copy} FILE" adds to it, and --replace' in told
    assert "is neither a question nor an answer" in refused(capsys, "index", copy, "--remove", "nothing like it")
    known = [word for entry in read_entries(faq / "knowledge.jsonl") for word in ("--remove", entry.answer)]
    assert "would be empty" in refused(capsys, "index", copy, *known)
    assert "--create needs a file" in refused(capsys, "index", "--create", tmp_path / "x")
    assert "--replace needs a file" in refused(capsys, "index", copy, "--replace")
    assert (copy / "knowledge.jsonl").read_bytes() == before


def test_settings_of_a_run_that_exists(copy, capsys, monkeypatch):
    assert (
        main(["index", str(copy), "--set", "retrieve.threshold=0.9", "--set", "retrieve.fallback_text=Ask a human."])
        == 0
    )
    out, err = capsys.readouterr()
    assert "retrieve.threshold = 0.9, retrieve.fallback_text = Ask a human." in err
    assert "4 questions with 4 answers" in out
    assert Run.open(copy).recipe.task.threshold == 0.9
    assert ask(monkeypatch, capsys, copy, "can I pay with a zebra?\n") == ["Ask a human."]
    for setting in ("retrieve.method=dense", "retrieve.encoder=x", "model.width=8"):
        assert "cannot change in a run that exists" in refused(capsys, "index", copy, "--set", setting)
    for value in ("1.5", "-1"):
        assert "at least 0 and at most 1" in refused(capsys, "index", copy, "--set", f"retrieve.threshold={value}")
    assert Run.open(copy).recipe.task.threshold == 0.9


def test_one_is_one(tmp_path, capsys):
    one = tmp_path / "one.tsv"
    one.write_text("Do you sell stamps?\tNo.\n")
    assert main(["index", "--create", str(tmp_path / "run"), str(one)]) == 0
    out = capsys.readouterr().out
    assert "1 answer added" in out
    assert "1 question with 1 answer\n" in out


def test_what_is_long_is_not_repeated(faq, monkeypatch, capsys):
    text = "a birthday cake " + "word " * 5000 + "\n"
    lines = ask(monkeypatch, capsys, faq, text, "--explain", "--set", "retrieve.threshold=0")
    assert len(lines) == 2
    assert lines[1].startswith("  most matched: ")
    assert len(lines[1]) < 120
    assert ask(monkeypatch, capsys, faq, "zzzz\n", "--top", "3", "--explain") == ["I do not know."]


def test_a_command_that_is_not_there(faq, monkeypatch, capsys):
    from regard.tasks.chat.cli import Conversation, talk

    said = iter(["/help", "When do you open?", "/reset", "/quit"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(said))
    conversation = Conversation(regard.load(faq), None, {})
    talk(conversation)
    shown = capsys.readouterr().out
    assert "(there is no /help; /reset starts again" in shown
    assert regard.load(faq).reply("When do you open?").text in shown
    assert conversation.turns == []


def test_an_empty_or_missing_knowledge_base(copy, capsys):
    (copy / "knowledge.jsonl").write_text("")
    assert "the knowledge base is empty" in refused(capsys, "chat", copy)
    (copy / "knowledge.jsonl").unlink()
    assert "has no knowledge base" in refused(capsys, "chat", copy)
    (copy / "knowledge.jsonl").write_text("{broken\n")
    assert "damaged" in refused(capsys, "chat", copy)


def test_a_run_of_another_task(trained, talker, tmp_path, capsys):
    assert "answers in conversations" in refused(capsys, "index", talker, write_faq(tmp_path / "faq.md"))
    assert "leave out --top and --fallback" in refused(capsys, "chat", talker, "--top", "3")
    assert "answers from a knowledge base" in refused(capsys, "chat", trained, "--fallback", trained)


def test_what_is_not_known_goes_to_a_model(faq, talker, monkeypatch, capsys):
    said = "When do you open?\nfootball\n"
    known, unknown = ask(monkeypatch, capsys, faq, said, "--fallback", str(talker), "--beam", "1", "--json")
    assert json.loads(known)["by"] == "knowledge"
    assert json.loads(unknown)["by"] == "model"
    answer = json.loads(known)["text"]
    expected = regard.load(talker).reply(["When do you open?", answer, "football"], beam_size=1).text
    assert json.loads(unknown)["text"] == expected
    assert ask(monkeypatch, capsys, faq, said, "--fallback", str(talker), "--beam", "1") == [answer, expected]


# ---------------------------------------------------------------------------------------------------------------------
# An encoder, trained


def test_training_scores_every_method(trained, capsys):
    run = Run.open(trained)
    for part in ("valid", "test"):
        found = run.card["scores"][part]
        assert found["methods"].keys() == {"bm25", "dense", "hybrid"}
        assert found["recall_1"] > 0.7
        assert found["recall_1"] <= found["recall_5"] <= 1
        assert found["questions"] == len(questions()) // 10
    assert (trained / "report.html").is_file()
    assert not (trained / "store").exists()
    assert len(read_entries(trained / "knowledge.jsonl")) == 6
    assert sum(len(entry.questions) for entry in read_entries(trained / "knowledge.jsonl")) == len(questions())
    assert main(["info", str(trained)]) == 0
    assert "recall@1" in capsys.readouterr().out


def test_the_encoder_answers(trained, monkeypatch, capsys):
    [line] = ask(
        monkeypatch, capsys, trained, "tell me about your sourdough\n", "--json", "--set", "retrieve.threshold=0"
    )
    facts = json.loads(line)
    assert facts["text"] == "The dough rests for two days."
    assert facts["matches"][0]["dense"] > 0
    by_words = regard.load(trained).search("sourdough", k=1)[0][0]
    assert by_words.bm25 is not None


def test_thresholds_belong_to_methods(trained):
    from regard.tasks.retrieve.retriever import load

    tuned = Run.open(trained).card["tuned"]
    both, dense = load(trained), load(trained, method="dense")
    assert both.settings.threshold == tuned["hybrid"]["threshold"]
    assert both.settings.dense_weight == tuned["hybrid"]["dense_weight"]
    assert dense.settings.threshold == tuned["dense"]["threshold"]
    assert load(trained, method="dense", threshold=0.9).settings.threshold == 0.9


def test_vectors_are_kept_and_follow_the_entries(trained, tmp_path, capsys):
    run = shutil.copytree(trained, tmp_path / "run")
    kept = regard.load(run).index.vectors
    more = tmp_path / "more.tsv"
    more.write_text("where do I park my car\tBehind the church.\n")
    assert main(["index", str(run), str(more)]) == 0
    err = capsys.readouterr().err
    assert "encoding 2 texts" in err
    assert "held-out questions" in err
    found = regard.load(run).index
    assert len(found.vectors) == len(kept) + 2
    np.testing.assert_array_equal(found.vectors[: len(kept)], kept)
    [[best]] = regard.load(run).search("where do I park my CAR", k=1)
    assert best.answer == "Behind the church."


def test_a_cut_between_the_two_files_does_no_harm(trained, tmp_path):
    """The entries are written first; vectors of other entries are then made anew."""
    run = shutil.copytree(trained, tmp_path / "run")
    lines = (run / "knowledge.jsonl").read_text().splitlines(keepends=True)
    (run / "knowledge.jsonl").write_text("".join(lines[1:]))
    index = regard.load(run).index
    assert len(index.vectors) == len(index.texts)
    np.testing.assert_allclose(index.vectors, index.embedder.encode(index.texts), atol=1e-5)
    (run / "vectors.safetensors").write_bytes(b"damaged")
    assert len(regard.load(run).index.vectors) == len(index.texts)


def test_recall_of_a_file(trained, tmp_path, capsys):
    data = write_questions(tmp_path / "test.jsonl", questions()[:30])
    assert main(["index", str(trained), "--score", str(data), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["questions"] == 30
    assert found["recall_1"] > 0.9  # it knows these very questions
    assert main(["index", str(trained), "--score", str(data)]) == 0
    assert "recall@1" in capsys.readouterr().out


def test_stopped_and_resumed_is_never_stopped(tmp_path):
    data = write_questions(tmp_path / "kb.tsv")
    steady = "train.cooldown=0"
    assert main(train_arguments(data, tmp_path / "one", "train.max_steps=8", steady)) == 0
    assert main(["resume", str(tmp_path / "one"), "--set", "train.max_steps=16"]) == 0
    assert main(train_arguments(data, tmp_path / "other", "train.max_steps=16", steady)) == 0
    states = [
        sorted((tmp_path / name / "checkpoints").glob("*.safetensors"))[-1].read_bytes() for name in ("one", "other")
    ]
    assert states[0] == states[1]


def test_what_training_refuses(tmp_path, capsys):
    data = write_questions(tmp_path / "kb.tsv")
    out = tmp_path / "run"
    other = [*train_arguments(data, out)[:6], "--arch", "han"]
    assert "choose from text-encoder" in refused(capsys, *other)
    assert "choose from mrr" in refused(capsys, *train_arguments(data, out, "train.metric=bleu"))
    assert "needs no training" in refused(capsys, *train_arguments(data, out, "retrieve.method=bm25"))
    assert not out.exists()


# ---------------------------------------------------------------------------------------------------------------------
# Behind the API


def test_it_is_served_like_a_run_that_talks(faq, trained):
    import openai  # takes a second

    names = {
        "faq": shutil.copytree(faq, faq.parent / "faq"),
        "trained": shutil.copytree(trained, faq.parent / "trained"),
    }
    said = [{"role": "user", "content": "When do you open?"}]
    with running(*names.values()) as port:
        place = f"http://127.0.0.1:{port}/v1"
        models = httpx.get(f"{place}/models", timeout=60).json()["data"]
        assert {model["id"]: (model["task"], model["arch"]) for model in models} == {
            "faq": ("retrieve", "bm25"), "trained": ("retrieve", "text-encoder"),
        }  # fmt: skip
        known = {model["id"]: model["facts"] for model in models}
        assert known["faq"] == {"questions": 4, "answers": 4}
        assert known["trained"]["answers"] == 6
        for name in names:
            body = {"model": name, "messages": said, "temperature": 0.7, "max_tokens": 4}
            made = httpx.post(f"{place}/chat/completions", json=body, timeout=60).json()
            expected = regard.load(names[name]).reply("When do you open?")
            assert made["choices"][0]["message"]["content"] == expected.text
            assert made["found"]["question"] == expected.matches[0].question
            assert made["found"]["answered"] == expected.answered
            assert made["usage"]["prompt_tokens"] > 0
            body = {"model": name, "turns": "When do you open?"}
            [result] = httpx.post(f"{place}/retrieve", json=body, timeout=60).json()["results"]
            assert result["text"] == expected.text
            assert [match["answer"] for match in result["matches"]] == [one.answer for one in expected.matches]
        with openai.OpenAI(base_url=place, api_key="unused", timeout=60) as client:
            usage = {"include_usage": True}
            stream = list(client.chat.completions.create(model="faq", messages=said, stream=True, stream_options=usage))
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
            assert text == "At six in the morning, from Tuesday to Saturday."
            assert stream[-1].usage.completion_tokens > 5
