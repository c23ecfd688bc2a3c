"""The examples as their readers run them: uvicorn's workers in this process, Ray's on a cluster of 2 CPUs."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from regard.tasks.translate.engine import load_fast
from regard.tasks.translate.translation import texts_of
from tests.export.runs import random_recipe, random_run, sentences

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE = 240
"""Seconds for Ray to start and do its work: on a busy machine that can take a while."""

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with random weights: what it writes is nonsense, but always the same."""
    pytest.importorskip("ctranslate2")
    languages = {"source_language": "en", "target_language": "it"}
    return random_run(tmp_path_factory.mktemp("examples") / "run", random_recipe(data=languages)).folder


def load_example(name: str) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_workers(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    testing = pytest.importorskip("fastapi.testclient")
    monkeypatch.setenv("REGARD_RUNS", str(run))
    with testing.TestClient(load_example("workers").app()) as client:
        assert client.get("/health").json() == {"status": "ok"}
        asked = {"q": sentences(1), "source": "en", "target": "it"}
        assert client.post("/translate", json=asked).json()["translatedText"][0]


@pytest.fixture
def quiet_ray(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment in which Ray tells nobody anything and writes only where the test does."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as short:  # its sockets need a short path
        yield os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": short, "HOME": str(tmp_path)}


@pytest.mark.slow
@needs_ray
def test_ray_translate(run: Path, tmp_path: Path, quiet_ray: dict[str, str]) -> None:
    lines = [*sentences(30), "", *sentences(10)]
    source, out = tmp_path / "corpus.en", tmp_path / "corpus.it"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [sys.executable, str(EXAMPLES / "ray_translate.py"), str(run), str(source), str(out), "--part", "300"]
    bad = subprocess.run(
        [*command[:2], "nowhere", *command[3:]], env=quiet_ray, capture_output=True, text=True, check=False
    )
    assert (bad.returncode, bad.stderr.splitlines()[-1]) == (2, "ray_translate: nowhere: there is no such run folder")

    command += ["--workers", "2"]
    first = again(command, quiet_ray)
    assert texts_of(load_fast_run(run).translate(lines)) == out.read_text(encoding="utf-8").splitlines()
    assert not (tmp_path / "corpus.it.parts").exists()
    parts = first.count(" parts; part ")
    assert parts > 3

    # Stopped halfway: some parts are there, one of them with a mark by which it is known again.
    module = subprocess.run(
        [sys.executable, "-c", HALF, str(EXAMPLES), str(run), str(source), str(out)], env=quiet_ray, check=True
    )
    assert module.returncode == 0
    second = again(command, quiet_ray)
    assert second.count(" parts; part ") == parts - 1
    assert out.read_text(encoding="utf-8").startswith("kept\n")


HALF = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import ray_translate
todo, folder = ray_translate.plan(*map(Path, sys.argv[2:5]), 300)
ray_translate.place_of(folder, 0).write_text("kept\\n")
lines = [line for part in todo for line in ray_translate.read_part(Path(sys.argv[3]), part["start"], part["end"])]
assert lines == Path(sys.argv[3]).read_text().splitlines()
"""


def again(command: list[str], environment: dict[str, str]) -> str:
    """What a command says; it may fail once, for Ray gives up too early on a machine that is busy."""
    for attempt in (1, 2):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
        if not done.returncode:
            break
        assert attempt == 1, done.stderr[-3000:]
    return done.stderr


def load_fast_run(folder: Path):
    """The run as a worker opens it."""
    from regard.run import Run

    return load_fast(Run.open(folder))


@pytest.mark.slow
@needs_ray
def test_ray_serve(run: Path, tmp_path: Path, quiet_ray: dict[str, str]) -> None:
    port = free_port()
    command = [sys.executable, str(EXAMPLES / "ray_serve.py"), str(run), "--replicas", "2", "--port", str(port)]
    server = start_server(command, quiet_ray, tmp_path / "log") or start_server(command, quiet_ray, tmp_path / "log")
    assert server, (tmp_path / "log").read_text(encoding="utf-8")[-3000:]
    try:
        texts = sentences(6)
        random.Random(1).shuffle(texts)
        for _ in range(3):  # each of the two replicas answers the same
            asked = json.dumps({"q": texts, "source": "en", "target": "it"}).encode()
            answer = ask(f"http://127.0.0.1:{port}/translate", asked)
            assert answer["translatedText"] == texts_of(load_fast_run(run).translate(texts))
        assert ask(f"http://127.0.0.1:{port}/health") == {"status": "ok"}
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=90) == 0


def start_server(command: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[str] | None:
    """The server once it says that it serves; None if it does not."""
    with log.open("w", encoding="utf-8") as file:
        server = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT, text=True)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and server.poll() is None:
        if "serving at" in log.read_text(encoding="utf-8", errors="replace"):
            return server
        time.sleep(0.5)
    server.terminate()
    server.wait(timeout=60)
    return None


def ask(address: str, body: bytes | None = None) -> dict:
    """The answer of a server, as JSON."""
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
