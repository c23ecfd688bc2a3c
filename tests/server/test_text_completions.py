"""Completions: OpenAI's form, whole and streamed, of language models."""

import json

import pytest
from pydantic import TypeAdapter

from regard.server.completions import TextCompletion
from tests.server.fakes import FakeRun, FakeRuns, client_of


@pytest.fixture(scope="module")
def served():
    runs = FakeRuns(FakeRun("writer", "language-model", target=""), FakeRun("topics", "classify", target=""))
    with client_of(runs, texts=3, characters=100, nbest=4) as client:
        yield runs["writer"], client


def complete(served, **asked):
    served[0].reset()
    return served[1].post("/v1/completions", json={"model": "writer", "prompt": "Once", **asked})


def test_a_completion(served):
    answer = complete(served, temperature=0.5, top_p=0.001, seed=3, max_tokens=9999, stop=["x"]).json()
    TypeAdapter(TextCompletion).validate_python(answer)
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [{"index": 0, "text": " and so on", "logprobs": None, "finish_reason": "stop"}]
    assert answer["usage"] == {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}
    [(request, how)] = served[0].calls
    assert (request.texts()[1], request.max_tokens, how) == (["Once"], 512, {"deadline": 30.0})
    assert request.search.given() == {"sample": True, "temperature": 0.5, "top_p": 0.01, "seed": 3}


def test_several_prompts_and_texts(served):
    answer = complete(served, prompt=["One", "Two"], n=2, echo=True).json()
    assert [choice["text"][:3] for choice in answer["choices"]] == ["One", "One", "Two", "Two"]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 12, "total_tokens": 14}


def test_a_stream(served):
    answer = complete(served, prompt=["One", "Two"], stream=True, echo=True, stream_options={"include_usage": True})
    lines = answer.text.strip().split("\n\n")
    assert lines[-1] == "data: [DONE]"
    *chunks, usage = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    texts, reasons = ["", ""], []
    for chunk in chunks:
        [choice] = chunk["choices"]
        texts[choice["index"]] += choice["text"]
        reasons += [choice["finish_reason"]] * bool(choice["finish_reason"])
    assert texts == ["OneAND SO ON", "TwoAND SO ON"]
    assert reasons == ["stop", "stop"]
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 6)


BAD = {
    "an unknown model": ({"model": "none"}, "model", 404),
    "a classifier": ({"model": "topics"}, "model", 400),
    "no prompt": ({"prompt": []}, "prompt", 400),
    "tokens": ({"prompt": [1, 2]}, "prompt", 400),
    "too many prompts": ({"prompt": ["a"] * 4}, "prompt", 400),
    "a long prompt": ({"prompt": "a" * 101}, "prompt", 400),
    "many texts": ({"n": 5}, "n", 400),
    "texts in a stream": ({"n": 2, "stream": True}, "n", 400),
    "log-probabilities": ({"logprobs": 0}, "logprobs", 400),
    "a suffix": ({"suffix": "b"}, "suffix", 400),
    "no temperature": ({"temperature": 3}, "temperature", 400),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests(served, case):
    changes, field, status = BAD[case]
    answer = complete(served, **changes)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"].partition(".")[0]) == (status, field)
    assert not served[0].calls
