"""Chat completions: OpenAI's form, whole and streamed, of runs that chat and of runs that translate."""

import json

import pytest
from pydantic import TypeAdapter

from regard.server.openai import ChatCompletion

TALK = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "hi"},
    {"role": "user", "content": [{"type": "text", "text": "how are "}, {"type": "text", "text": "you"}]},
]


def complete(client, model="talker", messages=TALK, **more):
    return client.post("/v1/chat/completions", json={"model": model, "messages": messages, **more})


def test_a_reply(client, runs):
    answer = complete(client).json()
    TypeAdapter(ChatCompletion).validate_python(answer)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "HOW ARE YOU"}
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    [(request, how)] = runs["talker"].calls
    assert (request.turns, how) == (["hello", "hi", "how are you"], {"deadline": 30.0})


def test_a_run_that_translates_translates_what_was_said_last(client, runs):
    answer = complete(client, "en-it", temperature=1).json()
    assert answer["choices"][0]["message"]["content"] == "HOW ARE YOU"
    assert answer["usage"]["prompt_tokens"] == 3
    assert runs["en-it"].calls[0][0] == ["how are you"]
    assert "temperature" not in runs["en-it"].calls[0][1]


@pytest.mark.parametrize(("model", "text"), [("talker", "how are you"), ("en-it", "How are. You")])
def test_a_stream(client, model, text):
    messages = [{"role": "user", "content": text}]
    answer = complete(client, model, messages, stream=True, stream_options={"include_usage": True})
    lines = answer.text.strip().split("\n\n")
    assert lines[-1] == "data: [DONE]"
    *chunks, last, usage = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == "HOW ARE YOU"
    assert {chunk["choices"][0]["finish_reason"] for chunk in chunks} == {None}
    assert last["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "stop"}
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 3)
    assert len({chunk["id"] for chunk in (*chunks, last, usage)}) == 1


def test_lines_stay_lines_in_a_stream(client):
    messages = [{"role": "user", "content": "  One. Two\n\nThree\n"}]
    lines = complete(client, "en-it", messages, stream=True).text.strip().split("\n\n")[:-1]
    deltas = [json.loads(line.removeprefix("data: "))["choices"][0]["delta"] for line in lines]
    assert "".join(delta.get("content", "") for delta in deltas) == "  ONE TWO\n\nTHREE\n"


def test_settings_become_those_of_the_search(client, runs):
    complete(client, temperature=0.5, top_p=0.9, seed=3, max_tokens=7)
    complete(client, temperature=0)
    complete(client, max_completion_tokens=100_000)
    first, second, third = (request for request, _ in runs["talker"].calls)
    assert third.max_tokens == 512
    assert first.search.given() == {"sample": True, "temperature": 0.5, "top_p": 0.9, "seed": 3}
    assert first.max_tokens == 7
    assert second.search.given() == {"sample": False, "temperature": 0}
    assert second.max_tokens is None


BAD = {
    "unknown model": ({"model": "none"}, 404),
    "a classifier": ({"model": "topics"}, 400),
    "nobody spoke": ({"messages": []}, 400),
    "only the system": ({"messages": TALK[:1]}, 400),
    "unknown role": ({"messages": [{"role": "cat", "content": "meow"}]}, 400),
    "a picture": ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400),
    "two replies": ({"n": 2}, 400),
    "too hot": ({"temperature": 3}, 400),
    "too long": ({"messages": [{"role": "user", "content": "a" * 20_001}]}, 400),
    "too many turns": ({"messages": [{"role": "user", "content": "a"}] * 200}, 400),
}


UNSUPPORTED = {"n": 2, "tools": [{"type": "function", "function": {"name": "f"}}], "logprobs": True}


@pytest.mark.parametrize("field", UNSUPPORTED)
def test_what_would_change_the_answer_is_refused(client, runs, field):
    answer = complete(client, **{field: UNSUPPORTED[field]})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, field)
    assert error["message"].startswith(f"{field}: ")
    assert not runs["talker"].calls


def test_what_is_only_a_wish_is_ignored(client, runs):
    wishes = {"n": 1, "tools": [], "logprobs": False, "stop": ["x"], "user": "me", "presence_penalty": 1}
    assert complete(client, **wishes).status_code == 200
    assert runs["talker"].calls[0][0].search.given() == {}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests(client, case):
    changes, status = BAD[case]
    answer = complete(client, **changes)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
