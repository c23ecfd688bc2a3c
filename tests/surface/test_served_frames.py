"""A run that reads frames, trained for a moment and served."""

import httpx
import pytest

import regard
from regard.cli import main
from tests.small_series import series, train_arguments, write_series
from tests.surface.serving import running


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    data = write_series(folder / "data.npz")
    assert main(train_arguments(data, folder / "mover", "train.max_steps=1")) == 0
    return folder / "mover"


@pytest.fixture(scope="module")
def port(run):
    with running(run) as found:
        yield found


def test_frames_are_labeled(port, run):
    place, frames = f"http://127.0.0.1:{port}/v1", series(20)[0].tolist()
    [about] = httpx.get(f"{place}/models", timeout=60).json()["data"]
    assert about["facts"] == {"frame_width": 2}
    answer = httpx.post(f"{place}/tag", json={"frames": [frames, frames[:3]], "explain": True}, timeout=60).json()
    expected = regard.load(run).tag([frames, frames[:3]], explain=True)
    assert [one["labels"] for one in answer["results"]] == [list(one.labels) for one in expected]
    assert len(answer["results"][0]["segments"][0]["influence"]) == 2


def test_the_page_names_the_api(port, browser_page):
    browser_page.goto(f"http://127.0.0.1:{port}")
    browser_page.wait_for_selector(".nothing")
    assert browser_page.inner_text(".nothing") == "This page cannot show what is served here: use the API."
    browser_page.goto("about:blank")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"q": "He waits."}, "this run reads frames of 2 numbers"),
        ({"frames": [[1.0]]}, "this run reads frames of 2 numbers"),
        ({"frames": [[1.0, 2.0], [1.0]]}, "equal numbers of values"),
        ({"frames": [["a", "b"]]}, "frames"),
        ({"frames": [[1e300, 0.0]]}, "too large"),
        ({}, "either q"),
        ({"frames": [[0.0, 0.0]] * 60_000}, "numbers in one request"),
    ],
)
def test_wrong_requests_are_one_line(port, body, problem):
    answer = httpx.post(f"http://127.0.0.1:{port}/v1/tag", json=body, timeout=60)
    assert answer.status_code in (400, 413)
    assert problem in answer.text


def test_a_series_is_not_inspected(port):
    refused = httpx.post(f"http://127.0.0.1:{port}/v1/inspect", json={"text": "/etc/passwd"}, timeout=60)
    assert refused.status_code == 400
    assert "this run reads frames, not text" in refused.json()["error"]["message"]
