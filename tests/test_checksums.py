"""Damaged files are noticed, and no kill makes a good run unreadable."""

import json
import os

import pytest

from regard.checksums import CHECKSUMS, Checksums
from regard.cli import main
from regard.errors import RunError
from regard.run import WEIGHTS, Run
from tests.export.runs import random_recipe, random_run


def flip(path, place=0.5):
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 64
    path.write_bytes(content)


@pytest.fixture
def run(tmp_path):
    return random_run(tmp_path / "run", random_recipe())


def test_one_bit_of_the_weights_is_noticed(run, capsys):
    Run.open(run.folder).load_network()
    flip(run.folder / WEIGHTS, 0.9)
    with pytest.raises(RunError, match=r"weights\.safetensors: damaged or changed"):
        Run.open(run.folder).load_network()
    for engine in ("torch", "ctranslate2"):
        assert main(["translate", str(run.folder), __file__, "--engine", engine]) == 2
        assert capsys.readouterr().err.startswith(f"regard: {run.folder}/{WEIGHTS}: damaged or changed")


@pytest.mark.parametrize("name", ["recipe.toml", "tokenizer.json", "tokenizer.model", "held-out.jsonl"])
def test_other_files_are_checked_when_they_are_read(run, name):
    run.write_held_out([{"source": "a", "target": "b"}])
    flip(run.folder / name)
    opened = Run.open(run.folder)
    with pytest.raises(RunError, match="damaged or changed"):
        _ = opened.recipe, opened.tokenizers, opened.held_out()


def test_labels_are_checked(tmp_path):
    made = Run.create(tmp_path / "run")
    made.write_labels(["good", "bad"])
    assert made.labels == ("good", "bad")
    flip(made.folder / "labels.json", 0.2)
    with pytest.raises(RunError, match="damaged or changed"):
        _ = Run(made.folder).labels


def test_a_damaged_conversion_is_made_again(run, tmp_path, capsys):
    (tmp_path / "in").write_text("I am here.\n")
    start = ["translate", str(run.folder), str(tmp_path / "in"), "--engine", "ctranslate2"]
    assert main(start) == 0
    expected = capsys.readouterr().out
    model = run.folder / "ctranslate2-int8" / "model.bin"
    before = model.read_bytes()
    flip(model)
    assert main(["verify", str(run.folder)]) == 2
    assert "damaged  ctranslate2-int8/model.bin\n" in capsys.readouterr().out
    assert main(start) == 0
    said = capsys.readouterr()
    assert said.out == expected
    assert "model.bin is damaged; converting again" in said.err
    assert model.read_bytes() == before


def test_verify_has_a_line_per_file_and_an_exit_code(run, capsys):
    assert main(["verify", str(run.folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"ok       {WEIGHTS}" in lines
    assert all(line.startswith("ok ") for line in lines)
    flip(run.folder / WEIGHTS)
    (run.folder / "recipe.toml").write_text((run.folder / "recipe.toml").read_text() + "\n# mine\n")
    assert main(["verify", str(run.folder)]) == 2
    assert {f"damaged  {WEIGHTS}", "damaged  recipe.toml"} < set(capsys.readouterr().out.splitlines())
    assert main(["verify", str(run.folder), "--accept"]) == 0
    assert main(["verify", str(run.folder)]) == 0
    assert Run.open(run.folder).recipe == run.recipe


def test_a_missing_checksum_is_accepted_and_odd_ones_get_a_line(run):
    (run.folder / CHECKSUMS).unlink()
    Run.open(run.folder).load_network()
    for content in ("[]", "{", '{"sha256": 3}', '{"sha256": {"recipe.toml": 3}}'):
        (run.folder / CHECKSUMS).write_text(content)
        with pytest.raises(RunError, match="cannot read the checksums"):
            _ = Run.open(run.folder).recipe


class Killed(BaseException):
    """Stands for SIGKILL: nothing runs after it."""


@pytest.mark.parametrize("allowed", range(4))
def test_a_kill_at_any_moment_leaves_a_file_that_can_be_read(tmp_path, monkeypatch, allowed):
    files = Checksums(tmp_path)
    files.write("a", b"old")
    real, done = os.replace, []

    def replace(source, target):
        if len(done) == allowed:
            raise Killed
        done.append(target)
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        if allowed < 3:
            with pytest.raises(Killed):
                files.write("a", b"new")
        else:
            files.write("a", b"new")
    assert files.check("a")
    assert (tmp_path / "a").read_bytes() == (b"old" if allowed < 2 else b"new")
    files.write("a", b"newer")
    assert len(json.loads((tmp_path / CHECKSUMS).read_text())["sha256"]["a"]) == 1
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(RunError, match="damaged or changed"):
        files.check("a")


def test_a_file_replaced_while_it_is_read_is_not_damaged(tmp_path, monkeypatch):
    files, read = Checksums(tmp_path), Checksums.read
    files.write("a", b"old")
    replaced = []

    def read_then_replace(self):
        found = read(self)
        if not replaced:
            replaced.append(True)
            Checksums(tmp_path).write("a", b"new")
        return found

    monkeypatch.setattr(Checksums, "read", read_then_replace)
    assert files.check("a")


def test_a_failed_write_keeps_the_checksum(tmp_path, monkeypatch):
    files = Checksums(tmp_path)
    files.write("a", b"old")
    before, real = files.read(), os.replace

    def replace(source, target):
        if target.name == "a":
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(RunError, match="cannot be written"):
        files.write("a", b"new")
    assert files.read() == before
