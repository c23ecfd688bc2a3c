"""API keys: made once, kept as hashes, asked for where they are used."""

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.cli import main
from regard.errors import SettingsError
from regard.server.api_keys import ApiKeys, add_key
from tests.server.fakes import client_of


def test_a_key_fits_and_its_file_does_not_hold_it(tmp_path):
    path = tmp_path / "keys.jsonl"
    first, second = add_key(path), add_key(path)
    keys = ApiKeys.read(path)
    assert keys.is_valid(first)
    assert keys.is_valid(second)
    secret = first.split("-", 2)[2]
    assert secret not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nearly_right_is_wrong(tmp_path):
    path = tmp_path / "keys.jsonl"
    key, other = add_key(path), add_key(path)
    keys = ApiKeys.read(path)
    changed = key[:-1] + ("A" if key[-1] != "A" else "B")
    mixed = "-".join([*key.split("-", 2)[:2], other.split("-", 2)[2]])
    for wrong in (changed, mixed, key + "x", key[:-1], " " + key, "", "rg-00000000-" + "a" * 43):
        assert not keys.is_valid(wrong)


@given(st.text())
def test_any_text_can_be_tried(text):
    assert not ApiKeys({}).is_valid(text)


@pytest.mark.parametrize(
    "content", ["", "not json\n", '{"name": 1}\n', '{"name": "a", "salt": "x", "hash": "y"}\n', "[]\n"]
)
def test_a_damaged_file_is_told(tmp_path, content):
    path = tmp_path / "keys.jsonl"
    path.write_text(content)
    with pytest.raises(SettingsError, match=r"keys\.jsonl"):
        ApiKeys.read(path)


def test_the_command_makes_a_key(tmp_path, capsys):
    path = tmp_path / "keys.jsonl"
    assert main(["serve", "--new-key", str(path)]) == 0
    assert ApiKeys.read(path).is_valid(capsys.readouterr().out.strip())
    assert main(["serve", "--new-key", str(tmp_path / "none" / "keys.jsonl")]) == 2
    assert "cannot write there" in capsys.readouterr().err


@pytest.fixture
def locked(tmp_path):
    path = tmp_path / "keys.jsonl"
    key = add_key(path)
    with client_of(keys=str(path)) as client:
        yield client, key


SEND = "send a valid key in the header Authorization: Bearer KEY"
TEXT = {"q": "a", "source": "en", "target": "it"}


def test_without_a_key_nobody_is_let_in(locked):
    client, key = locked
    refused = client.post("/translate", json=TEXT)
    assert (refused.status_code, refused.json()) == (403, {"error": f"this server requires an API key; {SEND}"})
    wrong = client.post("/translate", json=TEXT | {"api_key": key[:-1]})
    assert (wrong.status_code, wrong.json()) == (403, {"error": f"this API key is not valid; {SEND}"})
    for path, body in {
        "translate": {"q": "a"}, "inspect": {"text": "a"}, "classify": {"q": "a"}, "tag": {"q": "a"},
        "chat/completions": {"model": "talker", "messages": [{"role": "user", "content": "a"}]},
    }.items():  # fmt: skip
        answer = client.post(f"/v1/{path}", json=body)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["error"]["code"] == "invalid_api_key"
    files = {"file": ("a.txt", b"a")}
    pair = {"source": "en", "target": "it"}
    assert client.post("/translate_file", files=files, data=pair).status_code == 403
    assert client.post("/v1/documents", files=files, data=pair).status_code == 401
    assert client.get("/metrics").status_code == 403


def test_with_a_key_all_is_open(locked):
    client, key = locked
    bearer = {"Authorization": f"Bearer {key}"}
    assert client.post("/translate", data=TEXT | {"api_key": key}).status_code == 200
    assert client.post("/translate", json=TEXT, headers=bearer).status_code == 200
    assert client.post("/v1/translate", json={"q": "a"}, headers=bearer).status_code == 200
    upload = {"files": {"file": ("a.txt", b"a")}, "data": {"source": "en", "target": "it", "api_key": key}}
    assert client.post("/translate_file", **upload).status_code == 200
    assert client.get("/metrics", headers=bearer).status_code == 200


def test_what_needs_no_key(locked):
    client, _ = locked
    for path in ("/", "/languages", "/health", "/frontend/settings", "/v1/models", "/openapi.json", "/docs"):
        assert client.get(path).status_code == 200
    assert client.get("/frontend/settings").json()["keyRequired"] is True
    assert client.get("/v1/models", headers={"Authorization": "Bearer wrong"}).status_code == 401
    api = client.get("/openapi.json").json()
    assert api["paths"]["/translate"]["post"]["security"] == [{"key": []}]
    assert "security" not in api["paths"]["/health"]["get"]
