"""A published run: complete, usable, with a card that a hub accepts, and without a sentence of the data."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli import main
from regard.errors import RunError, SettingsError
from regard.export import export_run, model_card
from regard.hub import fetch
from regard.run import Run
from tests.export.runs import random_recipe, random_run, sentences

KEPT = Path(__file__).parents[1] / "kept" / "format-1"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path, list[str]]:
    """A trained run whose recipe, card and metrics have paths and samples, its export, and the lines of the log."""
    place = tmp_path_factory.mktemp("hub")
    shutil.copytree(KEPT / "translate", place / "run")
    run = Run.open(place / "run")
    card = run.card
    for one in card["data"]:
        one["source"] = f"/secret/place/{one['source']}"
    run.write_card(card | {"base": "/secret/place/base"})
    recipe = (run.folder / "recipe.toml").read_text().replace('"train.en"', '"/secret/place/train.en"')
    run.checksums.write("recipe.toml", recipe.encode())
    lines: list[str] = []
    folder = export_run(
        Run.open(run.folder), "hub", place / "out", lines.append, licence="cc-by-4.0", repository="a/en-it"
    )
    return Run.open(run.folder), folder, lines


def test_the_published_run_translates_as_before(published: tuple[Run, Path, list[str]]) -> None:
    run, folder, _ = published
    assert regard.load(folder).translate(sentences(2)) == regard.load(run.folder).translate(sentences(2))
    assert not any(Run.open(folder).checksums.check_all().values())
    assert main(["verify", str(folder)]) == 0


def test_no_sentence_and_no_path_of_the_data_is_published(published: tuple[Run, Path, list[str]]) -> None:
    run, folder, log = published
    samples = [text for line in run.metrics() for sample in line.get("samples", ()) for text in sample.values()]
    held_out = [text for record in run.held_out_records() for text in record.values()]
    texts = {text.encode() for text in [*held_out, *samples] if isinstance(text, str) and " " in text}
    assert len(texts) > 20
    for path in (path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        assert not [text for text in texts if text in content], path
        assert b"secret" not in content, path
    assert any("left out (--with-samples publishes them): 20 held-out examples" in line for line in log)


def test_samples_are_published_when_the_user_asks(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert main(["export", str(KEPT / "translate"), "--to", "hub", "--with-samples", "--out", str(folder)]) == 0
    opened = Run.open(folder)
    assert opened.held_out_records() == Run.open(KEPT / "translate").held_out_records()
    assert any(line.get("samples") for line in opened.metrics())


def test_the_hub_reads_the_card(published: tuple[Run, Path, list[str]]) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    _, folder, _ = published
    card = huggingface_hub.ModelCard.load(folder / "README.md")
    assert card.data.license == "cc-by-4.0"
    assert card.data.language == ["en", "it"]
    assert card.data.pipeline_tag == "translation"
    scores = {result.metric_type: result for result in card.data.eval_results}
    stored = Run.open(folder).card["scores"]["test"]
    assert scores["chrf"].metric_value == stored["chrf"]
    assert scores["bleu"].metric_args == stored["signatures"]["bleu"]
    assert card.data.model_name == "en-it"
    assert "regard pull hf:a/en-it" in card.text


def test_another_licence_is_named(tmp_path: Path) -> None:
    run = Run.open(KEPT / "tag")
    text = model_card.write(run.recipe, run.card, "Ours 1.0", "", [])
    assert 'license: "other"\nlicense_name: "Ours 1.0"' in text
    assert "hf:OWNER/NAME" in text


@pytest.mark.parametrize("task", ["chat", "classify", "language-model", "tag"])
def test_runs_of_every_task_can_be_published(task: str, tmp_path: Path) -> None:
    folder = export_run(Run.open(KEPT / task), "hub", tmp_path / "out")
    assert Run.open(folder).load_network()
    assert (folder / "README.md").read_text(encoding="utf-8").count("\n## ") >= 4


def test_a_knowledge_base_is_published_only_when_the_user_asks(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"answers with the text in knowledge\.jsonl; add --with-samples"):
        export_run(Run.open(KEPT / "retrieve"), "hub", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    folder = export_run(Run.open(KEPT / "retrieve"), "hub", tmp_path / "out", **{"with-samples": "yes"})
    assert (folder / "knowledge.jsonl").is_file()


@pytest.mark.parametrize(
    ("model", "forms"),
    [({}, ["marian"]), ({"norm": "pre"}, ["pegasus"]), ({"norm": "pre", "positional_encoding": "rotary"}, [])],
)
def test_forms_for_other_programs(model: dict[str, Any], forms: list[str], tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", random_recipe(model))
    run.write_card({"arch": "transformer-small", "parameters": 1})
    folder = export_run(run, "hub", tmp_path / "out")
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == sorted(["ctranslate2-int8", *forms])


# ---------------------------------------------------------------------------------------------------------------------
# Fetching


class Hub(SimpleHTTPRequestHandler):
    """The answers of a model hub for one repository, "a/en-it", whose files are in the folder that is served."""

    COMMIT = "0123456789abcdef0123456789abcdef01234567"

    def do_GET(self) -> None:
        if self.path.startswith("/api/models/a/en-it"):
            names = sorted(
                str(one.relative_to(self.directory)) for one in Path(self.directory).rglob("*") if one.is_file()
            )
            tree = [{"type": "file", "path": name, "size": 1, "oid": "0" * 40} for name in names]
            listing = {"id": "a/en-it", "sha": self.COMMIT, "siblings": [{"rfilename": name} for name in names]}
            self._send(json.dumps(tree if "/tree/" in self.path else listing).encode(), "application/json")
        else:
            self._file()

    do_HEAD = do_GET

    def _file(self) -> None:
        prefix = f"/a/en-it/resolve/{self.COMMIT}/"
        path = Path(self.directory) / self.path.partition("?")[0].removeprefix(prefix)
        if self.path.startswith(prefix) and path.is_file():
            self._send(path.read_bytes(), "application/octet-stream")
        else:
            self.send_error(404)

    def _send(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(content)))):
            self.send_header(name, value)
        self.send_header("ETag", f'"{hash(content) & 0xFFFFFFFF:x}"')
        self.send_header("X-Repo-Commit", self.COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def hub_of(folder: Path) -> Iterator[str]:
    """A hub on the loopback interface that serves the folder; yields its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_published_run_is_fetched_and_loaded(published: tuple[Run, Path, list[str]], tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    run, folder, _ = published
    code = (
        "import regard, sys; from regard.cli import main;"
        f"assert main(['pull', 'hf:a/en-it', '--out', {str(tmp_path / 'theirs')!r}]) == 0;"
        "print(regard.load('hf:a/en-it').translate(['This tea is hot.'])[0].text)"
    )
    with hub_of(folder) as address:
        environment = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "cache"), "PATH": "", "HOME": str(tmp_path)}
        environment |= {"PYTHONPATH": str(Path(regard.__file__).parents[1]), "HF_HUB_DISABLE_TELEMETRY": "1"}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == regard.load(run.folder).translate(["This tea is hot."])[0].text
    names = {path.name for path in (tmp_path / "theirs").iterdir()}
    assert {"recipe.toml", "weights.safetensors", "README.md"} <= names
    assert not names & {".cache", "ctranslate2-int8"}


@pytest.mark.parametrize("address", ["hf:", "hf:name", "hf:a/b/c", "hf:../x", "hf:a/..", "hf:a/b@"])
def test_a_wrong_address_is_told(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", address]) == 2
    assert "not an address; write hf:OWNER/NAME" in capsys.readouterr().err


def test_what_cannot_be_fetched_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")

    def fail(*_: object, **__: object) -> str:
        raise OSError("no connection\nmore")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(RunError, match=r"hf:a/b: cannot be fetched \(no connection\); check the name"):
        fetch("hf:a/b")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(KEPT))
    with pytest.raises(RunError, match="hf:a/b: is not a run of Regard"):
        fetch("hf:a/b")
