"""A task that is registered by a plugin, in one module, is served without a change to the server."""

import sys
from types import ModuleType

import pytest

from regard import tasks
from regard.registry import TASKS
from regard.server.runs import served_tasks
from regard.tasks.api import TextRequest
from tests.server.fakes import FakeRun, FakeRuns, client_of


class Request(TextRequest):
    """Count the words of texts."""

    shortest: int = 1


@pytest.fixture
def plugin(monkeypatch):
    module = ModuleType("word_counter")
    module.Request = Request
    module.answer = lambda predictor, requests: [{"words": len(request.text.split())} for request in requests]
    module.batch_key = lambda request: request.shortest
    module.TASK = tasks.Task(
        name="count", help="count words", does="counts words", model_kind="none", predictor="Counter", module="counter",
        command="count", metrics=("loss",), scores={"loss": "loss {:.3f}"},
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "word_counter", module)
    monkeypatch.setitem(TASKS, "count", "word_counter")
    return module


def test_a_plugin_task_has_a_route(plugin):
    assert served_tasks()["count"] is plugin
    with client_of(FakeRuns(FakeRun("counter", "count"))) as client:
        answer = client.post("/v1/count", json={"q": ["a b", "c"], "shortest": 2}).json()
        assert (answer["model"], len(answer["results"])) == ("counter", 2)
        assert client.post("/v1/count", json={"q": "a", "shortst": 2}).json()["error"]["param"] == "shortst"
        [task] = [task for task in client.get("/v1/tasks").json()["data"] if task["name"] == "count"]
        assert task == {
            "name": "count",
            "help": "count words",
            "view": False,
            "chat": False,
            "inspect": False,
            "models": ["counter"],
        }
        described = client.get("/openapi.json").json()["paths"]["/v1/count"]["post"]
        assert described["description"] == "Count the words of texts."


def test_a_task_without_an_api_is_not_served(plugin):
    del plugin.Request
    assert "count" not in served_tasks()
