"""The run folder: made, refused, locked, and never half-written."""

import json
import os

import pytest
import torch

from regard.config import Recipe
from regard.config.recipe import make_recipe
from regard.errors import RunError
from regard.files import write_atomically
from regard.run import Run


def test_create_refuses_what_exists_and_discard_removes_what_it_made(tmp_path):
    run = Run.create(tmp_path / "runs" / "one")
    assert (tmp_path / "runs" / "one").is_dir()
    run.discard()
    assert list(tmp_path.iterdir()) == []

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(RunError, match=r"exists already; choose another --out$"):
        Run.create(tmp_path / "mine")
    Run.create(tmp_path / "made").write_recipe(Recipe())
    (tmp_path / "made" / "checkpoints").mkdir()
    with pytest.raises(RunError, match="regard resume"):
        Run.create(tmp_path / "made")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot make the run folder"):
        Run.create(tmp_path / "file" / "run")


def test_open_names_the_nearest_run(tmp_path):
    Run.create(tmp_path / "en-de").write_recipe(Recipe())
    with pytest.raises(RunError, match='did you mean "en-de"'):
        Run.open(tmp_path / "en-dd")


def test_the_recipe_reads_back(tmp_path):
    run = Run.create(tmp_path / "run")
    recipe = make_recipe({"data": {"train": [{"source": "a.en", "target": "a.no"}], "target_language": "no"}})
    run.write_recipe(recipe)
    assert Run.open(run.folder).recipe == recipe


def test_only_one_process_may_train(tmp_path):
    run = Run.create(tmp_path / "run")
    with run.locked():
        child = os.fork()
        if child == 0:
            try:
                with Run(run.folder).locked():
                    os._exit(0)
            except RunError:
                os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with run.locked():
        pass


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "card.json"
    write_atomically(path, b"first")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        write_atomically(path, b"second")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_weights_that_do_not_exist_yet_are_told(tmp_path):
    run = Run.create(tmp_path / "run")
    run.write_recipe(Recipe())
    with pytest.raises(RunError, match="goes on training"):
        run.load_model()
    run.write_weights({"a": torch.ones(2)})
    assert (run.folder / "weights.safetensors").stat().st_mode & 0o777 == 0o644


def test_metrics_leave_out_what_training_went_back_from(tmp_path):
    steps = [10, 20, 20, 30, 40, 20, 30]  # the fifth is the last before it went back to update 20
    lines = [json.dumps({"kind": "step", "step": step, "number": number}) for number, step in enumerate(steps)]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, '{"cut off']))
    assert [line["number"] for line in Run(tmp_path).metrics()] == [0, 1, 2, 5, 6]
