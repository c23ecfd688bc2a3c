"""Run folders of every format since the first open, answer as they did, and continue."""

import json
import shutil
import tomllib

import pytest

from regard.cli import main
from regard.config.recipe import FORMAT
from regard.registry import TASKS
from regard.run import Run
from tests.kept.make import ANSWERS, INTERRUPTED, KEPT, answers_of

FOLDERS = sorted(KEPT.glob("format-*/*"))
FINISHED = [folder for folder in FOLDERS if folder.name != INTERRUPTED]


def name_of(folder):
    return f"{folder.parent.name}/{folder.name}"


@pytest.fixture
def run(request, tmp_path):
    """A copy: commands may write into a run."""
    return shutil.copytree(request.param, tmp_path / request.param.name)


def test_every_task_has_a_run_of_the_current_format():
    assert {folder.name for folder in FOLDERS if folder.parent.name == f"format-{FORMAT}"} == {*TASKS, INTERRUPTED}
    for folder in FOLDERS:
        recipe = tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8"))
        assert f"format-{recipe['format']}" == folder.parent.name


@pytest.mark.parametrize("run", FINISHED, ids=name_of, indirect=True)
def test_a_kept_run_answers_as_it_did(run):
    def same(found, expected):
        if isinstance(expected, list):
            assert len(found) == len(expected)
            for one, other in zip(found, expected, strict=True):
                same(one, other)
        else:
            assert found == (pytest.approx(expected, abs=1e-3) if isinstance(expected, float) else expected)

    expected = json.loads((run / ANSWERS).read_text(encoding="utf-8"))
    assert expected
    same(answers_of(run.name, run), expected)


@pytest.mark.parametrize("run", FINISHED, ids=name_of, indirect=True)
def test_a_kept_run_is_described_and_verified(run, capsys):
    assert main(["info", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["task"] == run.name
    assert main(["verify", str(run)]) == 0
    assert Run.open(run).held_out_records()


@pytest.mark.parametrize("run", [one for one in FOLDERS if one not in FINISHED], ids=name_of, indirect=True)
def test_an_interrupted_run_continues(run):
    before = sorted(path.stem for path in (run / "checkpoints").glob("*.json"))[-1]
    assert before == "00000006"
    assert main(["resume", str(run), "--set", "train.max_steps=12"]) == 0
    assert Run.open(run).card["training"]["step"] == 12
