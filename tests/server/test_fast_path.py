"""The short way and the long way give the same answers, to the byte."""

import base64
import json

import numpy as np
import pytest
from starlette.routing import Match

from regard.data.pictures import to_png
from regard.server import app as application
from regard.server.api_keys import add_key
from regard.server.batching import Closing, QueueFull, TooLate
from regard.server.runs import served_tasks
from regard.server.v1 import task_routes
from tests.server.fakes import FakeRun, FakeRuns, FakeTranslator, client_of

PICTURE = base64.b64encode(to_png(np.zeros((3, 4, 4), np.uint8))).decode()
PAIR = {"source": "en", "target": "it"}
ASKED = {
    "a text": {"q": "hello", **PAIR},
    "texts": {"q": ["one", "two"], **PAIR},
    "none": {"q": [], **PAIR},
    "more than it knows": {"q": "hello", **PAIR, "secret": 1},
    "a number": {"q": 5, **PAIR},
    "a number among texts": {"q": ["one", 5], **PAIR},
    "no text": PAIR,
    "an unknown language": {"q": "hello", "source": "en", "target": "xx"},
    "an unknown form": {"q": "hello", **PAIR, "format": "pdf", "search": {"beem": 2}},
    "too many": {"q": "hello", **PAIR, "alternatives": 99, "nbest": 99},
    "below zero": {"q": "hello", **PAIR, "alternatives": -1, "nbest": -1},
    "a list": [1, 2],
    "nothing": None,
}
BYTES = {
    "empty": b"",
    "no JSON": b"{",
    "no UTF-8": b'{"q": "\xff"}',
    "half a character": b'{"q": "\\ud800", "source": "en", "target": "it"}',
    "deep": b"[" * 100_000,
}
BODIES = {name: json.dumps(body).encode() for name, body in ASKED.items()} | BYTES
FAST_ROUTES = {route.path: route for route in application.fast_routes(task_routes())}


def all_tasks():
    """A run of each task."""
    return FakeRuns(FakeTranslator("en-it"), *(FakeRun(task, task) for task in served_tasks() if task != "translate"))


@pytest.fixture(scope="module")
def ways():
    """A server with the fast path, and one without, for the same runs."""
    runs = all_tasks()
    with client_of(runs) as short, pytest.MonkeyPatch.context() as patch:
        patch.setattr(application, "fast_routes", lambda tasks: [])
        with client_of(runs) as long:
            yield runs, short, long


def good_body(path):
    """A body that the route accepts."""
    known = FAST_ROUTES[path].body.model_fields
    fields = {"q": "hello", "turns": "hello", **PAIR} | ({} if "q" in known else {"pictures": PICTURE})
    return {name: value for name, value in fields.items() if name in known}


def facts(answer):
    return answer.status_code, answer.content, dict(answer.headers)


@pytest.mark.parametrize("path", FAST_ROUTES)
@pytest.mark.parametrize("body", BODIES)
def test_every_body_gets_the_same_answer(ways, path, body):
    _, short, long = ways
    kind = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert facts(short.post(path, content=BODIES[body], headers=kind)) == facts(
        long.post(path, content=BODIES[body], headers=kind)
    )


@pytest.mark.parametrize("path", FAST_ROUTES)
@pytest.mark.parametrize("trouble", [QueueFull(2.5), TooLate(""), Closing(""), TimeoutError(), KeyError("x")])
def test_so_does_all_trouble(ways, path, trouble):
    runs, short, long = ways
    for served in runs.served.values():
        served.trouble = trouble
    answers = [client.post(path, json=good_body(path)) for client in (short, long)]
    for served in runs.served.values():
        served.trouble = None
    assert facts(answers[0]) == facts(answers[1])
    assert answers[0].status_code >= 429


@pytest.mark.parametrize("path", FAST_ROUTES)
def test_other_kinds_and_methods_take_the_long_way(ways, path):
    _, short, long = ways
    for ask in (
        lambda client: client.get(path),
        lambda client: client.post(path, content=b"hello", headers={"Content-Type": "text/plain"}),
        lambda client: client.post(path, content=b"{}"),
        lambda client: client.post(path, data={"q": "hello", **PAIR}),
    ):
        assert facts(ask(short)) == facts(ask(long))


@pytest.mark.parametrize("path", FAST_ROUTES)
def test_keys_are_asked_for(tmp_path, path):
    file = tmp_path / "keys"
    key = add_key(file)
    with client_of(all_tasks(), keys=str(file)) as client:
        for body, status in ((good_body(path), 403), ({"q": 5}, 400)):
            assert client.post(path, json=body).status_code == (401 if path.startswith("/v1") else status)
        with_key = client.post(path, json=good_body(path), headers={"Authorization": f"Bearer {key}"})
        assert with_key.status_code == 200


def test_every_busy_route_is_a_route_that_takes_what_it_says():
    with client_of() as client:
        for busy in FAST_ROUTES.values():
            scope = {"type": "http", "method": "POST", "path": busy.path, "root_path": "", "headers": []}
            assert any(route.matches(scope)[0] is Match.FULL for route in client.app.routes)
            body = client.get("/openapi.json").json()["paths"][busy.path]["post"]["requestBody"]
            assert body["content"]["application/json"]["schema"]["$ref"].endswith(busy.body.__name__)


def test_requests_are_counted_by_their_route(ways):
    _, short, _ = ways
    assert b'route="/translate",status="200"' in short.get("/metrics").content
