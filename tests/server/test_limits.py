"""Who may come in, how much a request may hold, and how long it may take."""

import asyncio
import threading
import time

import pytest

from regard.errors import SettingsError
from regard.server.api_keys import ApiKeys, add_key
from regard.server.app import create_app
from regard.server.middleware import RequestLimits
from regard.server.middleware import client_of as client_of_request
from regard.server.settings import ServerSettings
from tests.server.fakes import FakeRuns, client_of

TEXT = {"q": "a", "source": "en", "target": "it"}
BODY = b'{"q": "a", "source": "en", "target": "it"}'


def test_bodies_are_bounded_whatever_their_head_says():
    with client_of(body_bytes=1000, document_bytes=2000) as client:
        large = client.post("/translate", json=TEXT | {"q": "a" * 2000})
        assert large.status_code == 413
        assert large.headers["connection"] == "close"
        assert large.json() == {"error": "the body is larger than 1,000 bytes; send less per request"}

        def chunks():
            for _ in range(300):
                yield b"a" * 10

        chunked = client.post("/translate", content=chunks(), headers={"Content-Type": "application/json"})
        assert chunked.status_code == 413
        for size, status in ((1000, 200), (3000, 413)):
            files = {"file": ("a.txt", b"a" * size)}
            answer = client.post("/translate_file", files=files, data={"source": "en", "target": "it"})
            assert answer.status_code == status


class Wire:
    """The server's side of one request: what arrives, and what was answered."""

    def __init__(self, *messages):
        self.messages, self.sent = list(messages), []
        self.left = asyncio.Event()

    async def receive(self):
        if self.messages:
            return self.messages.pop(0)
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)

    @property
    def both(self):
        return self.receive, self.send

    @property
    def status(self):
        return self.sent[0]["status"] if self.sent else None


def scope_of(path="/translate"):
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    return {
        "type": "http", "http_version": "1.1", "method": "POST", "path": path, "raw_path": path.encode(),
        "query_string": b"", "headers": headers, "client": None, "server": ("localhost", 80), "scheme": "http",
        "root_path": "", "state": {},
    }  # fmt: skip


def part(body, more=False):
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_that_dribbles_in_is_given_up():
    async def scenario():
        wire = Wire(part(BODY[:5], more=True))
        app = create_app(FakeRuns(), ServerSettings(body_timeout=0.05))
        await asyncio.wait_for(app(scope_of(), wire.receive, wire.send), 10)
        return wire

    wire = asyncio.run(scenario())
    assert wire.status == 408
    assert (b"connection", b"close") in wire.sent[0]["headers"]


def test_who_leaves_is_not_worked_for():
    runs = FakeRuns()

    async def scenario():
        started = asyncio.Event()

        async def pause():
            started.set()
            await asyncio.sleep(60)

        runs["en-it"].pause = pause
        wire = Wire(part(BODY))
        app = create_app(runs, ServerSettings())
        answering = asyncio.create_task(app(scope_of(), wire.receive, wire.send))
        await started.wait()
        wire.left.set()
        await asyncio.wait_for(answering, 10)
        return wire

    assert asyncio.run(scenario()).sent == []
    assert runs["en-it"].cancelled == 1


def test_a_request_that_outlives_all_deadlines_is_cut_off(monkeypatch):
    monkeypatch.setattr("regard.server.middleware.GRACE", 0.0)
    runs = FakeRuns()
    runs["en-it"].pause = lambda: asyncio.sleep(60)
    with client_of(runs, timeout=0.05, body_timeout=0.05) as client:
        answer = client.post("/translate", json=TEXT)
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert runs["en-it"].cancelled == 1


def test_too_many_at_a_time_are_refused():
    runs = FakeRuns()
    going, go = threading.Event(), threading.Event()

    async def pause():
        going.set()
        await asyncio.to_thread(go.wait, 10)

    runs["en-it"].pause = pause
    with client_of(runs, requests=1) as client:
        first = threading.Thread(target=lambda: client.post("/translate", json=TEXT))
        first.start()
        assert going.wait(10)
        assert client.get("/health").status_code == 503
        go.set()
        first.join(10)
        assert client.get("/health").status_code == 200


def test_a_cancellation_from_outside_goes_through():
    async def scenario():
        async def endless(scope, receive, send):
            await asyncio.sleep(60)

        wire = Wire()
        task = asyncio.create_task(RequestLimits(endless, ServerSettings())(scope_of(), wire.receive, wire.send))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


HOSTS = {
    "localhost": 200, "localhost:5000": 200, "127.0.0.1:80": 200, "[::1]:5000": 200, "LOCALHOST": 200,
    "evil.example": 421, "localhost.evil.example": 421, "": 421, "[::1": 400,
    "evil@localhost": 400, "localhost/evil": 400, "localhost#.evil": 400,
    "127.0.0.1.nip.example": 421,
}  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
def test_a_loopback_server_answers_to_its_own_names_only(host):
    with client_of() as client:
        assert client.get("/health", headers={"Host": host}).status_code == HOSTS[host]


def test_other_names_can_be_allowed():
    with client_of(allow_host=("translate.example.org",)) as client:
        assert client.get("/health", headers={"Host": "translate.example.org"}).status_code == 200
        assert client.get("/health", headers={"Host": "localhost"}).status_code == 421
    with client_of(host="0.0.0.0") as client:
        assert client.get("/health", headers={"Host": "anything.example"}).status_code == 200
    with client_of(allow_host=("*",)) as client:
        assert client.get("/health", headers={"Host": "anything.example"}).status_code == 200


def test_a_request_has_one_host():
    with client_of() as client:
        twice = [("Host", "localhost"), ("Host", "localhost")]
        assert client.get("/health", headers=twice).status_code == 400


def test_pages_of_other_sites_in_old_browsers_are_kept_out():
    with client_of() as client:
        for origin, status in {"https://evil.example": 403, "null": 403, "http://localhost": 200}.items():
            assert client.post("/translate", data=TEXT, headers={"Origin": origin}).status_code == status


ADDRESSES = {
    "192.0.2.7": "192.0.2.7",
    "2001:db8::1": "2001:db8::/64",
    "2001:db8::ffff:2": "2001:db8::/64",
    "pipe": "pipe",
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_clients_are_told_apart_by_key_or_address(address, tmp_path):
    key = add_key(tmp_path / "keys")
    keys = ApiKeys.read(tmp_path / "keys")
    scope = scope_of() | {"client": (address, 1)}
    assert client_of_request(scope, keys) == ADDRESSES[address]
    scope["headers"] = [(b"authorization", b"Bearer rg-00000000-wrong")]
    assert client_of_request(scope, keys) == ADDRESSES[address]  # not a client of its own for each wrong key
    scope["headers"] = [(b"authorization", f"Bearer {key}".encode())]
    assert client_of_request(scope, keys) == f"key {key}"
    assert client_of_request(scope) == ADDRESSES[address]


def test_open_requests_of_one_client_leave_room_for_others():
    async def scenario():
        async def endless(scope, receive, send):
            await asyncio.sleep(60)

        limits, statuses = RequestLimits(endless, ServerSettings(requests=2)), {}
        opened = [asyncio.create_task(limits(scope_of() | {"client": ("a", 1)}, *Wire().both)) for _ in range(2)]
        await asyncio.sleep(0)
        for client in ("a", "b"):
            wire = Wire()
            task = asyncio.create_task(limits(scope_of() | {"client": (client, 1)}, *wire.both))
            await asyncio.sleep(0.01)
            statuses[client] = wire.status
            opened.append(task)
        for task in opened:
            task.cancel()
        assert statuses == {"a": 503, "b": None}

    asyncio.run(scenario())


def test_pages_of_other_sites_are_kept_out():
    crossing = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    with client_of() as client:
        assert client.post("/translate", data=TEXT, headers=crossing).status_code == 403
        own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
        answer = client.post("/translate", data=TEXT, headers=own)
        assert answer.status_code == 200
        assert "access-control-allow-origin" not in answer.headers
        assert client.get("/", headers=crossing).status_code == 200  # a link


def test_pages_of_chosen_sites_are_let_in():
    friend = {"Origin": "https://friend.example", "Sec-Fetch-Site": "cross-site"}
    with client_of(allow_origin=("https://friend.example",)) as client:
        answer = client.post("/translate", data=TEXT, headers=friend)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://friend.example"
        asked = friend | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        assert client.options("/v1/translate", headers=asked).status_code == 200
        stranger = friend | {"Origin": "https://evil.example"}
        assert client.post("/translate", data=TEXT, headers=stranger).status_code == 403


def test_answers_come_soon_after_a_refused_body():
    with client_of(body_bytes=1000) as client:
        began = time.monotonic()
        assert client.post("/translate", content=b"a" * 5000).status_code == 413
        assert time.monotonic() - began < 5


BAD = [
    {"port": -1},
    {"port": 70_000},
    {"queue": 0},
    {"timeout": 0},
    {"timeout": float("nan")},
    {"body_bytes": 5},
    {"threads": -1},
]


@pytest.mark.parametrize("settings", BAD, ids=str)
def test_settings_that_make_no_sense_are_refused(settings):
    [name] = settings
    with pytest.raises(SettingsError, match=f"--{name.replace('_', '-')} must be"):
        ServerSettings(**settings)
