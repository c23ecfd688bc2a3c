"""Clients in use today, unmodified, against a running server."""

import httpx
import pytest
from libretranslatepy import LibreTranslateAPI

from regard.server.api_keys import add_key
from tests.surface.serving import running, small_run

TEXT = "I am here."


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("clients") / "en-it").folder


@pytest.fixture(scope="module")
def port(run):
    with running(run) as found:
        yield found


@pytest.fixture(scope="module")
def locked(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys.jsonl"
    key = add_key(path)
    with running(run, keys=str(path)) as found:
        yield found, key


@pytest.fixture(scope="module")
def expected(port):
    """What the server translates it to."""
    body = {"q": TEXT, "source": "en", "target": "it"}
    found = httpx.post(f"http://127.0.0.1:{port}/translate", json=body, timeout=60).json()["translatedText"]
    assert found
    return found


def ask(port, key="unused"):
    import openai  # takes a second

    return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0, timeout=60)


def test_libretranslatepy(port, expected):
    client = LibreTranslateAPI(f"http://127.0.0.1:{port}")
    assert client.translate(TEXT, "en", "it", timeout=60) == expected
    assert client.translate(TEXT, "auto", "it", timeout=60) == expected
    guess, other = client.detect(TEXT, timeout=60)
    assert (guess["language"], other["language"]) == ("en", "it")
    assert 50 < guess["confidence"] <= 100
    english, italian = client.languages(timeout=60)
    assert english == {"code": "en", "name": "English", "targets": ["it"]}
    assert italian == {"code": "it", "name": "Italian", "targets": []}


def test_libretranslatepy_beyond_ascii(port):
    text = "Questo tè è caldo."  # Italian already, and so told from what was read
    assert LibreTranslateAPI(f"http://127.0.0.1:{port}").translate(text, "auto", "it", timeout=60) == text
    raw = {"Content-Type": "application/x-www-form-urlencoded"}  # as curl -d sends it
    body = f"q={text}&source=auto&target=it".encode()
    answer = httpx.post(f"http://127.0.0.1:{port}/translate", content=body, headers=raw, timeout=60)
    assert answer.json()["translatedText"] == text


def test_libretranslatepy_with_a_key(locked, expected):
    port, key = locked
    client = LibreTranslateAPI(f"http://127.0.0.1:{port}/", api_key=key)
    assert client.translate(TEXT, "en", "it", timeout=60) == expected
    assert client.detect(TEXT, timeout=60)[0]["language"] == "en"
    assert client.languages(timeout=60)[0]["targets"] == ["it"]
    stranger = LibreTranslateAPI(f"http://127.0.0.1:{port}/")
    with pytest.raises(OSError, match="403") as refused:
        stranger.translate(TEXT, "en", "it", timeout=60)
    refused.value.close()


def test_openai(port, expected):
    with ask(port) as client:
        [model] = client.models.list().data
        assert (model.id, model.owned_by) == ("en-it", "regard")
        assert client.models.retrieve("en-it") == model
        messages = [{"role": "system", "content": "Translate."}, {"role": "user", "content": TEXT}]
        reply = client.chat.completions.create(model=model.id, messages=messages)
        assert reply.choices[0].message.content == expected
        assert reply.choices[0].message.role == "assistant"
        assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens > 2


def test_openai_streaming(port, expected):
    with ask(port) as client:
        options = {"include_usage": True}
        messages = [{"role": "user", "content": TEXT}]
        stream = client.chat.completions.create(model="en-it", messages=messages, stream=True, stream_options=options)
        chunks = list(stream)
    said = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(said) == expected
    assert chunks[-1].usage.prompt_tokens > 0
    assert chunks[-2].choices[0].finish_reason == "stop"


def test_openai_errors(port, locked):
    import openai

    messages = [{"role": "user", "content": TEXT}]
    with ask(port) as client:
        with pytest.raises(openai.NotFoundError) as missing:
            client.chat.completions.create(model="gpt-4", messages=messages)
        assert missing.value.code == "model_not_found"
        assert missing.value.param == "model"
        with pytest.raises(openai.BadRequestError, match="messages"):
            client.chat.completions.create(model="en-it", messages=[])
    closed, key = locked
    with ask(closed, "wrong") as client, pytest.raises(openai.AuthenticationError) as refused:
        client.models.list()
    assert refused.value.code == "invalid_api_key"
    with ask(closed, key) as client:
        assert client.models.list().data[0].id == "en-it"
        assert client.chat.completions.create(model="en-it", messages=messages).choices[0].message.content
