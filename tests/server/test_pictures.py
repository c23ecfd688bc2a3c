"""Requests with pictures, of a task in one module: base64, data URLs, forms; limits; and errors in one line."""

import base64
import sys
from types import ModuleType

import pytest
from pydantic import Field

from regard import tasks
from regard.data.drawings import read_drawings
from regard.data.pictures import to_png
from regard.registry import TASKS
from regard.tasks import api
from regard.tasks.api import FieldError, PictureRequest, decode_picture
from tests.server.fakes import FakeRun, FakeRuns, client_of

CONTENT = to_png(read_drawings("valid")[0].draw(60))
SMALL = to_png(read_drawings("valid")[0].draw(2))
TEXT = base64.b64encode(CONTENT).decode()


class Request(PictureRequest):
    """Measure files."""

    nbest: int = Field(1, ge=1)
    loud: bool = False
    name: str = ""


@pytest.fixture
def plugin(monkeypatch):
    module = ModuleType("measurer")
    module.Request = Request
    module.TASK = tasks.Task(
        name="measure", help="measure files", does="measures files", model_kind="none", predictor="Measurer",
        module="measurer", command="measure", metrics=("loss",), scores={"loss": "loss {:.3f}"},
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "measurer", module)
    monkeypatch.setitem(TASKS, "measure", "measurer")
    return module


class Measurer(FakeRun):
    async def answer(self, asked, deadline=None):
        await self._called(asked, {})
        found = {"nbest": asked.nbest, "loud": asked.loud, "name": asked.name}
        return [found | {"bytes": len(part.picture), "weight": part.weight} for part in asked.split()]


@pytest.fixture
def client(plugin):
    limits = {"pictures": 3, "body_bytes": 1000, "document_bytes": 20_000}
    with client_of(FakeRuns(Measurer("one", "measure")), **limits) as found:
        yield found


def message(answer):
    assert answer.status_code >= 400
    return answer.status_code, answer.json()["error"]["message"]


def test_base64_and_data_urls(client):
    answer = client.post("/v1/measure", json={"pictures": TEXT, "nbest": 2}).json()
    assert answer["results"] == [{"nbest": 2, "loud": False, "name": "", "bytes": len(CONTENT), "weight": 200.0}]
    answer = client.post(
        "/v1/measure", json={"pictures": [f"data:image/png;base64,{TEXT}", base64.b64encode(SMALL).decode()]}
    ).json()
    assert [one["bytes"] for one in answer["results"]] == [len(CONTENT), len(SMALL)]


def test_files_in_a_form(client):
    files = [("pictures", ("a.png", CONTENT)), ("pictures", ("b.png", SMALL))]
    answer = client.post("/v1/measure", files=files, data={"nbest": "3", "loud": "true", "name": "17"}).json()
    assert [one["bytes"] for one in answer["results"]] == [len(CONTENT), len(SMALL)]
    assert answer["results"][0] | {"bytes": 0} == {"nbest": 3, "loud": True, "name": "17", "bytes": 0, "weight": 200.0}
    bad = client.post("/v1/measure", files=files, data={"nbest": "many"})
    assert message(bad) == (400, "nbest: Input should be a valid integer")
    assert message(client.post("/v1/measure", files=[("picture", ("a.png", SMALL))])) == (
        400,
        'picture: there is no such field; did you mean "pictures"?',
    )
    assert message(client.post("/v1/measure", files=[("pictures", ("a.png", b""))]))[0] == 400
    torn = client.post("/v1/measure", content=b"--x\r\n", headers={"Content-Type": "multipart/form-data; boundary=x"})
    assert message(torn)[1].startswith("the form is incomplete")


def test_limits(client):
    assert message(client.post("/v1/measure", json={"pictures": [base64.b64encode(SMALL).decode()] * 4})) == (
        400,
        "pictures: at most 3 in one request, not 4",
    )
    assert message(client.post("/v1/measure", json={"pictures": "A" * 20_001}))[0] == 413
    assert message(client.post("/v1/measure", json={"pictures": TEXT, "nbest": 99}))[0] == 400
    assert message(client.post("/v1/measure", content=b"x", headers={"Content-Type": "image/png"}))[0] == 415
    assert message(client.post("/v1/measure", json={})) == (400, "pictures: Field required")


@pytest.mark.parametrize("text", ["", "äöü", "####", "data:image/png,abc", "data:image/png;base64,"])
def test_what_is_not_base64_is_refused(text):
    with pytest.raises(FieldError, match=r"^pictures: "):
        _ = Request(pictures=text).picture
    parts = Request(pictures=[TEXT, text]).split()
    assert parts[0].picture == CONTENT
    with pytest.raises(FieldError, match=r"^pictures\.1: "):
        _ = parts[1].picture


def test_the_header_of_a_picture_is_checked(monkeypatch):
    with pytest.raises(FieldError, match=r"^pictures: not a picture in a known format"):
        decode_picture(base64.b64encode(b"no picture").decode())
    monkeypatch.setattr(api, "MOST_PIXELS", 3000)
    with pytest.raises(FieldError, match=r"^pictures: at most 3,000 pixels, not 60 x 60; make it smaller"):
        decode_picture(TEXT)


def test_the_description_has_both_bodies(client):
    content = client.get("/openapi.json").json()["paths"]["/v1/measure"]["post"]["requestBody"]["content"]
    form = content["multipart/form-data"]["schema"]["properties"]
    assert form["pictures"]["items"] == {"type": "string", "format": "binary"}
    assert set(form) == {"model", "nbest", "loud", "name", "pictures"}
    assert content["application/json"]["schema"]["$ref"]
    assert "multipart/form-data" in client.get("/docs").text
