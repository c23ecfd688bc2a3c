"""The routes of /v1: what Regard knows, in its own form; errors in OpenAI's."""

import json
import re

import pytest
from pydantic import TypeAdapter

from regard.errors import EmptyTranslationError, ModelError, NoCrossAttentionError
from regard.server.batching import QueueFull, TooLate
from regard.server.page import read_assets
from regard.server.v1 import ModelList, Results, TaskList
from regard.tasks.translate.api import Results as Translations
from tests.server.fakes import FakeRun, FakeRuns, FakeTranslator, client_of


def error_of(answer):
    return answer.json()["error"]


def events_of(answer):
    assert answer.headers["content-type"].startswith("text/event-stream")
    blocks = answer.text.removesuffix("\n\n").split("\n\n")
    assert all(block.startswith("data: ") for block in blocks)
    assert blocks[-1] == "data: [DONE]"
    return [json.loads(block[6:]) for block in blocks[:-1]]


def test_models(client):
    found = client.get("/v1/models").json()
    TypeAdapter(ModelList).validate_python(found)
    assert [model["id"] for model in found["data"]] == ["en-it", "talker", "topics"]
    assert found["data"][0]["owned_by"] == "regard"
    assert client.get("/v1/models/talker").json() == found["data"][1]
    assert error_of(client.get("/v1/models/none"))["code"] == "model_not_found"


def test_a_translation_with_all_that_is_known(client, runs):
    asked = {
        "q": "one two",
        "nbest": 2,
        "align": True,
        "scores": True,
        "search": {"beam_size": 3, "length_penalty": 0.6},
    }
    answer = client.post("/v1/translate", json=asked).json()
    TypeAdapter(Translations).validate_python(answer)
    [found] = answer["results"]
    assert answer["model"] == "en-it"
    assert found["text"] == "ONE TWO"
    assert found["alignment"] == {"source": ["one", "two"], "target": ["ONE", "TWO"], "links": [[0, 0], [1, 1]]}
    assert found["log_probs"] == [-0.5, -0.5, -0.5]
    assert [other["text"] for other in found["alternatives"]] == ["ONE TWO!"]
    how = {"nbest": 2, "align": True, "details": True, "deadline": 30.0, "beam_size": 3, "length_penalty": 0.6}
    assert runs["en-it"].calls == [(["one two"], how)]


@pytest.mark.parametrize("stream", [False, True])
def test_the_figures_of_tokens_are_given_when_asked_for(client, stream):
    answer = client.post("/v1/translate", json={"q": "a", "nbest": 1 if stream else 2, "stream": stream})
    found = [event["result"] for event in events_of(answer)] if stream else answer.json()["results"]
    for one in (*found, *found[0]["alternatives"]):
        assert not {"log_probs", "log_prob"} & set(one)
        assert one["score"] == -0.5


def test_one_run_does_not_take_texts_in_several_languages(client):
    answer = client.post("/v1/translate", json={"q": ["one", "ciao"], "source": "auto", "target": "it"})
    assert answer.status_code == 400
    assert error_of(answer)["message"] == "q: texts in several languages (en, it); send one request per language"


@pytest.mark.parametrize(
    "choice",
    [{"model": "en-it"}, {"source": "en", "target": "it"}, {"source": "auto", "target": "it"}, {"target": "it"}, {}],
)
def test_a_run_is_chosen_by_name_or_by_languages(client, choice):
    assert client.post("/v1/translate", json={"q": "a", **choice}).json()["model"] == "en-it"


def test_a_run_must_be_named_where_there_are_several():
    with client_of(FakeRuns(FakeTranslator("one"), FakeTranslator("two"))) as client:
        answer = client.post("/v1/translate", json={"q": "a"})
        assert answer.status_code == 400
        assert error_of(answer)["message"] == "model: required, because several models fit (one, two)"


def test_sentences_are_streamed(client):
    answer = client.post("/v1/translate", json={"q": ["One. Two", "Three"], "stream": True})
    found = [(event["index"], event["result"]["text"]) for event in events_of(answer)]
    assert found == [(0, "ONE"), (0, "TWO"), (1, "THREE")]
    assert events_of(client.post("/v1/translate", json={"q": [], "stream": True})) == []
    assert client.post("/v1/translate", json={"q": "a", "stream": True, "align": True}).status_code == 400


def test_trouble_before_a_stream_is_a_status_and_in_it_an_event(client, runs):
    runs["en-it"].trouble = QueueFull(1.0)
    assert client.post("/v1/translate", json={"q": "a", "stream": True}).status_code == 429
    runs["en-it"].trouble = None
    calls = iter([None, TooLate("late")])

    async def pause():
        if trouble := next(calls):
            raise trouble

    runs["en-it"].pause = pause
    first, second = events_of(client.post("/v1/translate", json={"q": "One. Two", "stream": True}))
    assert first["result"]["text"] == "ONE"
    assert second["error"]["type"] == "server_error"


def test_looking_inside(client, runs):
    asked = {"model": "en-it", "text": "one", "disabled_heads": [["decoder.0.cross", 1]], "skip_slow": False}
    answer = client.post("/v1/inspect", json=asked)
    assert answer.json() == {"title": "one", "disabled": [["decoder.0.cross", 1]], "nothing": None}
    [(request, how)] = runs["en-it"].calls
    assert (request.text, request.target, request.skip_slow) == ("one", None, False)
    assert request.disabled_heads == [("decoder.0.cross", 1)]
    assert how == {"deadline": 30.0}
    runs["en-it"].trouble = ModelError('the model has no attention layer named "x"')
    assert client.post("/v1/inspect", json=asked).status_code == 400


def test_the_page_reacts_to_the_codes_of_errors(client, runs):
    """The page must not depend on the wording of a message."""
    scripts = (asset.body.decode() for name, asset in read_assets().items() if name.endswith(".js"))
    known = set(re.findall(r'error\.code [!=]== "(\w+)"', "".join(scripts)))
    assert known == {NoCrossAttentionError.code, EmptyTranslationError.code}
    for error in (NoCrossAttentionError, EmptyTranslationError):
        runs["en-it"].trouble = error("no")
        assert client.post("/v1/inspect", json={"model": "en-it", "text": "a"}).json()["error"]["code"] == error.code


def test_a_task_has_a_route(client, runs):
    answer = client.post("/v1/classify", json={"q": ["a", "b"], "explain": True}).json()
    TypeAdapter(Results).validate_python(answer)
    assert answer == {"model": "topics", "results": [{"text": "a", "label": "good"}, {"text": "b", "label": "good"}]}
    [(request, how)] = runs["topics"].calls
    assert (request.explain, how) == (True, {"deadline": 30.0})
    assert 'regard_texts_total{model="topics"} 2.0' in client.get("/metrics").text


def test_a_conversation_has_turns(client, runs):
    answer = client.post("/v1/chat", json={"turns": ["hello", "how are you"], "max_tokens": 5}).json()
    assert (answer["model"], answer["results"][0]["text"]) == ("talker", "HOW ARE YOU")
    assert runs["talker"].calls[0][0].max_tokens == 5
    assert error_of(client.post("/v1/chat", json={"turns": "a" * 20_001}))["param"] == "turns"


def test_tasks(client):
    found = client.get("/v1/tasks").json()
    TypeAdapter(TaskList).validate_python(found)
    tasks = {task.pop("name"): task for task in found["data"]}
    assert tasks["translate"]["models"] == ["en-it"]
    assert tasks["tag"]["models"] == []
    assert {name for name, task in tasks.items() if task["chat"]} == {"chat", "retrieve"}
    assert tasks["translate"]["inspect"]
    assert all(task["help"] for task in tasks.values())


def test_a_tagger_does_not_chat():
    with client_of(FakeRuns(FakeRun("chunker", "tag"))) as client:
        talk = {"model": "chunker", "messages": [{"role": "user", "content": "a"}]}
        assert "use /v1/tag" in error_of(client.post("/v1/chat/completions", json=talk))["message"]


BAD = {
    "unknown model": ("translate", {"q": "a", "model": "en-ti"}, 404, 'did you mean "en-it"?'),
    "another kind": ("translate", {"q": "a", "model": "talker"}, 400, "talker was trained for chat, not for translate"),
    "too many": ("translate", {"q": "a", "nbest": 9}, 400, "nbest: at most 8"),
    "none at all": ("translate", {"q": "a", "nbest": 0}, 400, "nbest: "),
    "unknown setting": ("translate", {"q": "a", "search": {"bean": 3}}, 400, "search.bean: "),
    "unknown field": ("translate", {"q": "a", "n_best": 3}, 400, 'n_best: there is no such field; did you mean "nb'),
    "nothing near": ("inspect", {"text": "a", "zzz": 3}, 400, "zzz: there is no such field"),
    "no name at all": ("classify", {"q": "a", "": 3}, 400, "the body: there is no such field"),
    "too wide": ("translate", {"q": "a", "search": {"beam_size": 1000}}, 400, "search.beam_size: "),
    "not a number": ("translate", {"q": "a", "search": {"beam_size": "3"}}, 400, "search.beam_size: "),
    "too long to trace": ("inspect", {"model": "en-it", "text": "a" * 401}, 400, "text: at most 400 characters"),
    "target too long": (
        "inspect",
        {"model": "en-it", "text": "a", "target": "a" * 401},
        400,
        "target: at most 400 characters",
    ),
    "half a head": ("inspect", {"text": "a", "disabled_heads": [["x"]]}, 400, "disabled_heads.0"),
    "not a head": ("inspect", {"text": "a", "disabled_heads": ["x"]}, 400, "disabled_heads.0"),
    "yes is not true": ("inspect", {"text": "a", "skip_slow": "yes"}, 400, "skip_slow: "),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_are_told_what_is_wrong(client, case):
    path, body, status, message = BAD[case]
    answer = client.post(f"/v1/{path}", json=body)
    assert answer.status_code == status
    error = error_of(answer)
    assert message in error["message"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"


def test_numbers_that_json_does_not_have_are_refused(client):
    headers = {"Content-Type": "application/json"}
    for number in ("NaN", "Infinity", "1e999"):
        content = f'{{"q": "a", "search": {{"length_penalty": {number}}}}}'
        assert client.post("/v1/translate", content=content, headers=headers).status_code == 400


def test_what_is_not_served_is_not_found():
    with client_of(FakeRuns(FakeRun("talker", "chat"))) as client:
        bodies = {path: {"q": "a"} for path in ("translate", "classify", "tag")} | {"inspect": {"text": "a"}}
        for path, body in bodies.items():
            answer = client.post(f"/v1/{path}", json=body)
            assert answer.status_code == 404
            assert error_of(answer)["code"] == "model_not_found"
