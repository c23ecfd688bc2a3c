"""Runs that chat, classify, tag and write, trained for a moment and served beside one that translates."""

import httpx
import pytest

import regard
from regard.cli import main
from regard.registry import TASKS
from tests import reviews, small_texts, tagged
from tests.small_chats import chat_arguments, write_dialogues
from tests.surface.serving import running, small_run

SAID = [{"role": "user", "content": "hello"}]
REVIEW = "The film was lovely. People came to see."


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    talk, texts = write_dialogues(folder / "talk.jsonl", 60), reviews.write_reviews(folder / "reviews.tsv", 60)
    chunks = tagged.write_chunks(folder / "chunks.txt", 60)
    assert main(chat_arguments(talk, folder / "talker", "transformer-tiny", "train.max_steps=1")) == 0
    assert main(reviews.train_arguments(texts, folder / "topics", "train.max_steps=1")) == 0
    assert main(tagged.train_arguments(chunks, folder / "chunker", "train.max_steps=1")) == 0
    texts = small_texts.write_texts(folder / "texts.txt", 100)
    assert main(small_texts.train_arguments(texts, folder / "writer", "train.max_steps=1")) == 0
    small_run(folder / "en-it")
    return folder


@pytest.fixture(scope="module")
def port(runs):
    with running(*(runs / name for name in ("talker", "topics", "chunker", "writer", "en-it"))) as found:
        yield found


def test_all_kinds_are_listed(port):
    found = httpx.get(f"http://127.0.0.1:{port}/v1/models", timeout=60).json()["data"]
    assert {model["id"]: model["task"] for model in found} == {
        "talker": "chat", "topics": "classify", "chunker": "tag", "writer": "language-model", "en-it": "translate",
    }  # fmt: skip


def test_openai_s_client_chats(port, runs):
    import openai  # takes a second

    expected = regard.load(runs / "talker").reply(["hello"])
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="unused", timeout=60) as client:
        reply = client.chat.completions.create(model="talker", messages=SAID)
        assert reply.choices[0].message.content == expected.text
        assert reply.choices[0].finish_reason == ("stop" if expected.finished else "length")
        assert reply.usage.completion_tokens == len(expected.tokens)
        drawn = client.chat.completions.create(model="talker", messages=SAID, temperature=1, seed=3, max_tokens=4)
        again = client.chat.completions.create(model="talker", messages=SAID, temperature=1, seed=3, max_tokens=4)
        assert drawn.choices[0].message.content == again.choices[0].message.content
        assert drawn.usage.completion_tokens <= 4
        stream = client.chat.completions.create(model="talker", messages=SAID, temperature=0, stream=True)
        assert [chunk.choices[0].finish_reason for chunk in stream][-1] == "stop"


def test_openai_s_client_continues_texts(port, runs):
    import openai

    writer = regard.load(runs / "writer")
    [expected] = writer.write("The old", seed=3, max_length_extra=8, max_length_ratio=1e-9)
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="unused", timeout=60) as client:
        asked = {"model": "writer", "prompt": "The old", "seed": 3, "max_tokens": 8}
        reply = client.completions.create(**asked)
        [choice] = reply.choices
        assert "The old" + choice.text == expected.text == writer.tokenizer.normalize(expected.text)
        assert choice.finish_reason == ("stop" if expected.finished else "length")
        assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
        pieces = [chunk.choices[0].text for chunk in client.completions.create(**asked, stream=True)]
        assert "".join(pieces) == choice.text
        assert len(pieces) > 2
        spaced = client.completions.create(**asked | {"prompt": "The old "}).choices[0]
        assert spaced.text == choice.text.removeprefix(" ")
        several = client.completions.create(**asked, n=2, echo=True).choices
        assert [one.text[:7] for one in several] == ["The old"] * 2
        with pytest.raises(openai.BadRequestError, match="trained for chat"):
            client.completions.create(model="talker", prompt="The old")


def test_documents_are_classified(port, runs):
    [expected] = regard.load(runs / "topics").classify([REVIEW])
    body = {"q": REVIEW, "explain": True}
    answer = httpx.post(f"http://127.0.0.1:{port}/v1/classify", json=body, timeout=60).json()
    assert answer["model"] == "topics"
    [verdict] = answer["results"]
    assert verdict["label"] == expected.label
    assert verdict["probability"] == pytest.approx(expected.probability, abs=1e-5)
    assert sum(sentence["weight"] for sentence in verdict["sentences"]) == pytest.approx(1, abs=0.01)


def test_words_are_tagged(port, runs):
    [expected] = regard.load(runs / "chunker").tag(["the dog sees a cat."])
    body = {"q": "the dog sees a cat.", "explain": True}
    answer = httpx.post(f"http://127.0.0.1:{port}/v1/tag", json=body, timeout=60).json()
    assert answer["model"] == "chunker"
    [found] = answer["results"]
    assert found["tokens"] == ["the", "dog", "sees", "a", "cat", "."]
    assert found["tags"] == list(expected.tags)
    assert len(found["influence"]) == 6


def test_a_tagger_is_inspected(port):
    place, body = f"http://127.0.0.1:{port}/v1/inspect", {"model": "chunker", "text": "the dog sees a cat."}
    found = httpx.post(place, json=body, timeout=60).json()
    assert (found["run"], found["tagged"]["tokens"][:2]) == ("chunker", ["the", "dog"])
    refused = httpx.post(place, json=body | {"disabled_heads": [["encoder.0.self", 0]]}, timeout=60)
    assert (refused.status_code, refused.json()["error"]["message"][:15]) == (400, "disabled_heads:")
    refused = httpx.post(place, json={"text": "the dog"}, timeout=60)
    assert "several models fit (topics, chunker, en-it)" in refused.json()["error"]["message"]


def test_a_classifier_is_inspected(port):
    body = {"model": "topics", "text": REVIEW}
    found = httpx.post(f"http://127.0.0.1:{port}/v1/inspect", json=body, timeout=60).json()
    assert (found["run"], found["verdict"]["text"]) == ("topics", REVIEW)
    assert len(found["verdict"]["sentences"]) == 2


def test_tasks_name_their_runs(port):
    tasks = httpx.get(f"http://127.0.0.1:{port}/v1/tasks", timeout=60).json()["data"]
    served = {"translate": ["en-it"], "chat": ["talker"], "classify": ["topics"], "tag": ["chunker"]}
    served |= {"language-model": ["writer"]}
    assert {task["name"]: task["models"] for task in tasks} == {name: served.get(name, []) for name in TASKS}
